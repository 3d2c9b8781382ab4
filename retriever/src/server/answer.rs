//! Answers, written straight into the bytes that are sent.

use std::time::Duration;

use axum::body::Bytes;
use forage_contracts::retriever::{Hit, ParseIssue};
use forage_net::{Refusal, Room};
use serde::Serialize;

use super::request::Shape;
use crate::snippet::Snippet;

/// What one job adds to an answer: entries of the outer lists, separated by commas.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// One list of documents per query.
    pub(super) lists: Vec<u8>,
    /// One list of scores per query, where they come apart.
    pub(super) scores: Vec<u8>,
    /// One list of notes per query, in boolean mode.
    pub(super) issues: Vec<u8>,
}

/// What is said of one passage.
#[derive(Clone, Copy)]
pub(super) struct Document<'a> {
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    pub(super) text: &'a str,
}

impl<'a> From<&'a Hit> for Document<'a> {
    fn from(hit: &'a Hit) -> Self {
        Self {
            id: &hit.id,
            title: &hit.title,
            text: &hit.text,
        }
    }
}

/// Writes any value as JSON.
pub(super) fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("plain values in memory always serialise");
}

fn separate(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
}

impl Part {
    /// Its size.
    pub(super) fn bytes(&self) -> usize {
        self.lists.len() + self.scores.len() + self.issues.len()
    }

    /// Adds the answer to one query. `extra` writes further keys of a document, each with a comma before it. Every hit is
    /// dropped once it is written, and what was written takes its memory from `room` before the next one.
    ///
    /// # Errors
    /// As [`Room::take`].
    pub(super) fn push_hits(
        &mut self,
        hits: Vec<Hit>,
        shape: Shape,
        room: &Room,
        mut extra: impl FnMut(&Hit, &mut Vec<u8>),
    ) -> Result<(), Refusal> {
        separate(&mut self.lists);
        let out = &mut self.lists;
        out.push(b'[');
        let mut scores = Vec::with_capacity(hits.len());
        for (rank, hit) in hits.into_iter().enumerate() {
            let before = out.len();
            if rank > 0 {
                out.push(b',');
            }
            match shape {
                Shape::Scored => {
                    out.extend_from_slice(b"{\"document\":{");
                    document(out, (&hit).into());
                    extra(&hit, out);
                    out.extend_from_slice(b"},\"score\":");
                    put(out, &hit.score);
                }
                Shape::Results => {
                    out.extend_from_slice(b"{\"doc_id\":");
                    put(out, &hit.id);
                    out.push(b',');
                    document(out, (&hit).into());
                    extra(&hit, out);
                    out.extend_from_slice(b",\"score\":");
                    put(out, &hit.score);
                }
                Shape::Bare | Shape::FlashRag { .. } => {
                    out.push(b'{');
                    document(out, (&hit).into());
                    extra(&hit, out);
                }
            }
            out.push(b'}');
            scores.push(hit.score);
            room.take(out.len() - before)?;
        }
        out.push(b']');
        if matches!(shape, Shape::FlashRag { scores: true, .. }) {
            let before = self.scores.len();
            separate(&mut self.scores);
            put(&mut self.scores, &scores);
            room.take(self.scores.len() - before)?;
        }
        Ok(())
    }

    /// Adds the reranked texts of one query, best first.
    pub(super) fn push_texts(&mut self, ranked: &[(&str, f32)], scored: bool) {
        #[derive(Serialize)]
        struct Scored<'a> {
            document: &'a str,
            score: f32,
        }
        separate(&mut self.lists);
        if scored {
            let scored = ranked
                .iter()
                .map(|&(document, score)| Scored { document, score });
            put(&mut self.lists, &scored.collect::<Vec<_>>());
        } else {
            put(
                &mut self.lists,
                &ranked.iter().map(|(text, _)| text).collect::<Vec<_>>(),
            );
        }
    }

    /// Adds what is to be said of one query, which takes its memory from `room`.
    ///
    /// # Errors
    /// As [`Room::take`].
    pub(super) fn push_issues(
        &mut self,
        issues: &[ParseIssue],
        room: &Room,
    ) -> Result<(), Refusal> {
        let before = self.issues.len();
        separate(&mut self.issues);
        put(&mut self.issues, issues);
        room.take(self.issues.len() - before)
    }
}

/// Writes `"id":..,"title":..,"text":..,"contents":..` without braces.
///
/// `contents` is `"Title"`, a line end and the text, as in Search-R1's corpus: what every client reads. Its pieces are
/// copied from the keys before it, where they are escaped already.
pub(super) fn document(out: &mut Vec<u8>, document: Document<'_>) {
    out.extend_from_slice(b"\"id\":");
    put(out, document.id);
    out.extend_from_slice(b",\"title\":");
    let title = inside(out, document.title);
    out.extend_from_slice(b",\"text\":");
    let text = inside(out, document.text);
    out.extend_from_slice(b",\"contents\":\"\\\"");
    out.extend_from_within(title);
    out.extend_from_slice(b"\\\"\\n");
    out.extend_from_within(text);
    out.push(b'"');
}

/// Writes a string and gives the range between its quotes.
fn inside(out: &mut Vec<u8>, text: &str) -> std::ops::Range<usize> {
    let begin = out.len() + 1;
    put(out, text);
    begin..out.len() - 1
}

/// Writes `,"snippet":{"pieces":[[text, whether it is a word of the query]],"cut":whether there is more text}`.
///
/// In pieces, because byte ranges mean nothing to most clients, and ready-made HTML would have to be trusted.
pub(super) fn push_snippet(out: &mut Vec<u8>, snippet: &Snippet) {
    let mut pieces: Vec<(&str, bool)> = Vec::with_capacity(2 * snippet.highlights.len() + 3);
    let mut done = 0;
    if snippet.cut_before {
        pieces.push(("… ", false));
    }
    for highlight in &snippet.highlights {
        pieces.push((&snippet.text[done..highlight.start], false));
        pieces.push((&snippet.text[highlight.clone()], true));
        done = highlight.end;
    }
    pieces.push((&snippet.text[done..], false));
    if snippet.cut_after {
        pieces.push((" …", false));
    }
    pieces.retain(|(text, _)| !text.is_empty());
    out.extend_from_slice(b",\"snippet\":{\"pieces\":");
    put(out, &pieces);
    out.extend_from_slice(b",\"cut\":");
    put(out, &(snippet.cut_before || snippet.cut_after));
    out.push(b'}');
}

/// The whole answer, in pieces.
pub(super) fn assemble(parts: Vec<Part>, shape: Shape, took: Duration) -> Vec<Bytes> {
    let (mut lists, mut scores, mut issues) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        lists.push(part.lists);
        scores.push(part.scores);
        issues.push(part.issues);
    }
    let mut out = Pieces::default();
    match shape {
        Shape::Scored | Shape::Bare | Shape::Results => {
            if shape == Shape::Results {
                out.list("{\"results\":", lists, "");
            } else {
                out.list("{\"result\":[", lists, "]");
            }
            if issues.iter().any(|piece| !piece.is_empty()) {
                out.list(",\"issues\":[", issues, "]");
            }
            let took = format!(",\"took_ms\":{:.3}}}", took.as_secs_f64() * 1e3);
            out.push(took.into_bytes());
        }
        Shape::FlashRag {
            scores: false,
            single,
        } => {
            let (before, after) = if single { ("", "") } else { ("[", "]") };
            out.list(before, lists, after);
        }
        Shape::FlashRag {
            scores: true,
            single,
        } => {
            let (before, between, after) = if single {
                ("[", ",", "]")
            } else {
                ("[[", "],[", "]]")
            };
            out.list(before, lists, between);
            out.list("", scores, after);
        }
    }
    out.done
        .into_iter()
        .chain([out.last])
        .map(Bytes::from)
        .collect()
}

/// Pieces below this are joined: each is sent by itself.
const SMALL: usize = 64 * 1024;

/// An answer as it grows. Large pieces stay as they are, for a copy would take their memory twice.
#[derive(Default)]
struct Pieces {
    done: Vec<Vec<u8>>,
    last: Vec<u8>,
}

impl Pieces {
    /// Adds entries of a list, separated by commas, between two texts.
    fn list(&mut self, before: &str, entries: Vec<Vec<u8>>, after: &str) {
        self.last.extend_from_slice(before.as_bytes());
        let filled = entries.into_iter().filter(|piece| !piece.is_empty());
        for (number, piece) in filled.enumerate() {
            if number > 0 {
                self.last.push(b',');
            }
            self.push(piece);
        }
        self.last.extend_from_slice(after.as_bytes());
    }

    fn push(&mut self, piece: Vec<u8>) {
        if self.last.len() + piece.len() <= SMALL {
            self.last.extend_from_slice(&piece);
        } else {
            self.done.push(std::mem::take(&mut self.last));
            self.done.push(piece);
        }
    }
}

#[cfg(test)]
mod tests;
