//! Answers on disk, addressed by what was asked: written beside rollouts, they let the rollouts be played again without
//! the passages.
//!
//! A tape is JSON lines. The first names the retriever; each other holds one answer under the BLAKE3 of fingerprint, mode,
//! `k`, query and filter, so that what many episodes asked is there once.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use forage_contracts::retriever::{
    BooleanAnswer, BooleanSearch, Fingerprint, Hit, ParseIssue, Query, Retriever, RetrieverError,
};
use serde::{Deserialize, Serialize};

use crate::boolean::boolean_fingerprint;
use crate::cache::key;

/// Counted up when a reader of the old form would misread the new one.
const SCHEMA: u32 = 1;
/// The first bytes of every tape.
const BEGINNING: &[u8] = b"{\"schema\":";

/// A tape cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapeError {
    /// The operating system refused.
    #[error("{action} recording `{}`; check the path, permissions and free space", path.display())]
    Io {
        /// The action: `open`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A line is not what a tape holds.
    #[error("recording `{}` line {line}: {what}; remove the file and record again", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// The fault.
        what: String,
    },
    /// The tape is of another retriever.
    #[error("recording `{}` was made with retriever {found}, this one is {asked}; give another file", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Fingerprint in the file.
        found: String,
        /// Fingerprint of the retriever at hand.
        asked: String,
    },
}

impl From<TapeError> for RetrieverError {
    fn from(error: TapeError) -> Self {
        Self::Tape(error.into())
    }
}

impl TapeError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    schema: u32,
    fingerprint: Fingerprint,
    /// True when the retriever had a boolean mode.
    boolean: bool,
}

/// One answer.
#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    /// For people; the key decides.
    query: Query,
    k: usize,
    hits: Vec<Hit>,
    /// The repairs of a boolean query; absent in answers to text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issues: Option<Vec<ParseIssue>>,
}

/// The address of an answer; boolean mode has addresses of its own.
fn address(fingerprint: &Fingerprint, boolean: bool, query: &Query, k: usize) -> String {
    let of = if boolean {
        boolean_fingerprint(fingerprint)
    } else {
        fingerprint.clone()
    };
    blake3::Hash::from_bytes(key(&of, query, k))
        .to_hex()
        .to_string()
}

/// The whole lines of a tape and how many bytes they are: the last line of a killed program may be cut, the header too.
fn read(path: &Path) -> Result<(Option<Header>, Vec<Line>, u64), TapeError> {
    let mut file = BufReader::new(File::open(path).map_err(TapeError::io("open", path))?);
    let (mut header, mut lines, mut whole) = (None, Vec::new(), 0);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let bytes = file
            .read_until(b'\n', &mut text)
            .map_err(TapeError::io("read", path))?;
        let bad = |what: String| TapeError::Malformed {
            path: path.to_owned(),
            line,
            what,
        };
        if !text.ends_with(b"\n") {
            // A header that was cut is written again; any other text is not ours to remove.
            let common = bytes.min(BEGINNING.len());
            if header.is_none() && text[..common] != BEGINNING[..common] {
                return Err(bad("it is not a header".to_owned()));
            }
            break;
        }
        whole += bytes as u64;
        if header.is_some() {
            lines.push(serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?);
            continue;
        }
        let found: Header =
            serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        if found.schema != SCHEMA {
            return Err(bad(format!(
                "schema {} where this program reads {SCHEMA}",
                found.schema
            )));
        }
        header = Some(found);
    }
    Ok((header, lines, whole))
}

/// Appends answers to a tape, each address once. A line is handed to the operating system before its answer is used.
struct TapeWriter {
    path: PathBuf,
    state: Mutex<(File, HashSet<String>)>,
}

impl TapeWriter {
    /// Begins a tape of this retriever, or goes on with one.
    ///
    /// # Errors
    /// When the file cannot be written, or is a tape of another retriever.
    fn open(path: &Path, retriever: &Arc<dyn Retriever>) -> Result<Self, TapeError> {
        let fingerprint = retriever.fingerprint();
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(TapeError::io("write", path))?;
        let (header, lines, whole) = read(path)?;
        if let Some(header) = &header
            && header.fingerprint != fingerprint
        {
            return Err(TapeError::Other {
                path: path.to_owned(),
                found: header.fingerprint.0.clone(),
                asked: fingerprint.0,
            });
        }
        file.set_len(whole).map_err(TapeError::io("write", path))?;
        if header.is_none() {
            let boolean = Arc::clone(retriever).boolean().is_some();
            let header = Header {
                schema: SCHEMA,
                fingerprint,
                boolean,
            };
            write_line(&mut file, &header).map_err(TapeError::io("write", path))?;
        }
        let keys = lines.into_iter().map(|line| line.key).collect();
        Ok(Self {
            path: path.to_owned(),
            state: Mutex::new((file, keys)),
        })
    }

    fn keep(
        &self,
        key: String,
        query: &Query,
        k: usize,
        hits: &[Hit],
        issues: Option<&[ParseIssue]>,
    ) -> Result<(), TapeError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, keys) = &mut *state;
        if keys.contains(&key) {
            return Ok(());
        }
        let line = Line {
            key: key.clone(),
            query: query.clone(),
            k,
            hits: hits.to_vec(),
            issues: issues.map(<[_]>::to_vec),
        };
        write_line(file, &line).map_err(TapeError::io("write", &self.path))?;
        keys.insert(key);
        Ok(())
    }
}

/// Appends a line, whole or not at all.
fn write_line(file: &mut File, line: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let whole = file.metadata()?.len();
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        // Half a line would become the beginning of the next.
        let _ = file.set_len(whole);
    }
    written
}

/// Searches with another retriever and keeps every answer on a tape.
struct RecordingRetriever {
    inner: Arc<dyn Retriever>,
    tape: Arc<TapeWriter>,
}

#[async_trait::async_trait]
impl Retriever for RecordingRetriever {
    fn fingerprint(&self) -> Fingerprint {
        self.inner.fingerprint()
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let answers = self.inner.search(queries, k).await?;
        let fingerprint = self.inner.fingerprint();
        for (query, hits) in queries.iter().zip(&answers) {
            self.tape
                .keep(address(&fingerprint, false, query, k), query, k, hits, None)?;
        }
        Ok(answers)
    }

    fn boolean(self: Arc<Self>) -> Option<Arc<dyn BooleanSearch>> {
        let inner = Arc::clone(&self.inner).boolean()?;
        Some(Arc::new(RecordingBoolean {
            fingerprint: self.inner.fingerprint(),
            inner,
            tape: Arc::clone(&self.tape),
        }))
    }
}

/// The boolean mode of a [`RecordingRetriever`].
struct RecordingBoolean {
    fingerprint: Fingerprint,
    inner: Arc<dyn BooleanSearch>,
    tape: Arc<TapeWriter>,
}

#[async_trait::async_trait]
impl BooleanSearch for RecordingBoolean {
    async fn answer(&self, query: &Query, k: usize) -> Result<BooleanAnswer, RetrieverError> {
        let answer = self.inner.answer(query, k).await?;
        let key = address(&self.fingerprint, true, query, k);
        self.tape
            .keep(key, query, k, &answer.hits, Some(&answer.issues))?;
        Ok(answer)
    }
}

/// Answers from a tape what was recorded, and nothing else.
pub struct Tape {
    path: PathBuf,
    header: Header,
    answers: HashMap<String, Line>,
}

impl Tape {
    /// Reads a tape into memory.
    ///
    /// # Errors
    /// When it cannot be read or a line is not what a tape holds; the last line may be cut.
    pub fn open(path: &Path) -> Result<Self, TapeError> {
        let (header, lines, _) = read(path)?;
        let header = header.ok_or_else(|| TapeError::Malformed {
            path: path.to_owned(),
            line: 1,
            what: "there is no whole line".to_owned(),
        })?;
        let answers = lines
            .into_iter()
            .map(|line| (line.key.clone(), line))
            .collect();
        Ok(Self {
            path: path.to_owned(),
            header,
            answers,
        })
    }

    /// Searches with `inner` and keeps every answer on the tape `path`, which is begun, or gone on with.
    ///
    /// # Errors
    /// When the file cannot be written, or is a tape of another retriever.
    pub fn record(path: &Path, inner: Arc<dyn Retriever>) -> Result<Arc<dyn Retriever>, TapeError> {
        let tape = Arc::new(TapeWriter::open(path, &inner)?);
        Ok(Arc::new(RecordingRetriever { inner, tape }))
    }

    /// Answers it holds.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Tells whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    fn find(&self, boolean: bool, query: &Query, k: usize) -> Result<&Line, RetrieverError> {
        let found = self
            .answers
            .get(&address(&self.header.fingerprint, boolean, query, k));
        found.ok_or_else(|| RetrieverError::NotRecorded {
            path: self.path.clone(),
            query: query.text.clone(),
            k,
        })
    }
}

#[async_trait::async_trait]
impl Retriever for Tape {
    /// The fingerprint of the retriever it was recorded with.
    fn fingerprint(&self) -> Fingerprint {
        self.header.fingerprint.clone()
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        queries
            .iter()
            .map(|query| Ok(self.find(false, query, k)?.hits.clone()))
            .collect()
    }

    fn boolean(self: Arc<Self>) -> Option<Arc<dyn BooleanSearch>> {
        self.header
            .boolean
            .then_some(self as Arc<dyn BooleanSearch>)
    }
}

#[async_trait::async_trait]
impl BooleanSearch for Tape {
    async fn answer(&self, query: &Query, k: usize) -> Result<BooleanAnswer, RetrieverError> {
        let line = self.find(true, query, k)?;
        Ok(BooleanAnswer {
            hits: line.hits.clone(),
            issues: line.issues.clone().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retriever::Bm25Retriever;
    use forage_contracts::Passage;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Runtime::new()
            .expect("a runtime")
            .block_on(work)
    }

    fn library(text: &str) -> Arc<dyn Retriever> {
        let passages = vec![
            Passage::new("d1", "Tides", text),
            Passage::new("d2", "Wind", "The sun drives the wind."),
        ];
        Arc::new(Bm25Retriever::in_memory(passages).expect("an index"))
    }

    #[test]
    fn a_tape_answers_what_was_asked_as_it_was_answered() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tools.jsonl");
        let inner = library("The moon raises tides.");
        let queries = [
            Query::new("the moon"),
            Query::new("nothing at all"),
            Query::new("the moon"),
        ];
        let record = |queries: &[Query]| {
            let recording = Tape::record(&path, Arc::clone(&inner)).expect("a tape");
            let boolean = Arc::clone(&recording).boolean().expect("boolean mode");
            let answer =
                block_on(boolean.answer(&Query::new("sun AND (wind"), 3)).expect("an answer");
            (
                block_on(recording.search(queries, 3)).expect("answers"),
                answer,
            )
        };
        let (answers, answer) = record(&queries);
        let before = std::fs::read_to_string(&path).expect("a file");
        assert_eq!(
            before.lines().count(),
            4,
            "a header, two answers, one in boolean mode"
        );
        // A line that was cut by a kill is written again; what is there stays once.
        std::fs::write(&path, &before[..before.len() - 5]).expect("cut");
        assert_eq!(record(&queries), (answers.clone(), answer.clone()));
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), before);

        let tape = Arc::new(Tape::open(&path).expect("a tape"));
        assert_eq!((tape.len(), tape.fingerprint()), (3, inner.fingerprint()));
        assert_eq!(
            block_on(tape.search(&queries, 3)).expect("recorded"),
            answers
        );
        let boolean = Arc::clone(&tape).boolean().expect("boolean mode");
        assert_eq!(
            block_on(boolean.answer(&Query::new("sun AND (wind"), 3)).expect("recorded"),
            answer
        );
        assert!(!answer.issues.is_empty());
        for (query, k) in [("the moon", 2), ("the sun", 3), ("sun AND (wind", 3)] {
            let error = block_on(tape.search(&[Query::new(query)], k))
                .expect_err("never asked")
                .to_string();
            assert!(error.contains(query), "{error}");
        }
    }

    #[test]
    fn a_tape_that_was_cut_anywhere_is_gone_on_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tools.jsonl");
        let inner = library("Der Mond hebt das Meer: Ebbe — Flut, höchste Flut.");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let record = || {
            let recording = Tape::record(&path, Arc::clone(&inner)).expect("a tape");
            let queries = [Query::new("Flut")];
            runtime
                .block_on(recording.search(&queries, 3))
                .expect("answers");
            std::fs::read(&path).expect("a file")
        };
        let whole = record();
        let header = 1 + whole
            .iter()
            .position(|&byte| byte == b'\n')
            .expect("a header");
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("cut");
            assert_eq!(Tape::open(&path).is_ok(), cut >= header, "{cut}");
            assert_eq!(record(), whole, "{cut}");
        }
        std::fs::write(&path, "my notes").expect("write");
        let error = Tape::record(&path, inner).err().expect("no tape");
        assert!(error.to_string().contains("not a header"), "{error}");
        assert_eq!(std::fs::read(&path).expect("a file"), b"my notes");
    }

    #[test]
    fn an_answer_that_could_not_be_written_is_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tools.jsonl");
        let tape = TapeWriter::open(&path, &library("One.")).expect("a tape");
        let keep = || tape.keep("key".to_owned(), &Query::new("one"), 3, &[], None);
        let only_read = File::open(&path).expect("a file");
        let file = std::mem::replace(&mut tape.state.lock().expect("a lock").0, only_read);
        keep().expect_err("nothing can be written");
        tape.state.lock().expect("a lock").0 = file;
        keep().expect("a line");
        keep().expect("a line that is there");
        assert_eq!(Tape::open(&path).expect("a tape").len(), 1);
    }

    #[test]
    fn tapes_of_others_and_damaged_ones_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tools.jsonl");
        drop(Tape::record(&path, library("One.")).expect("a tape"));
        let other = Tape::record(&path, library("Two."))
            .err()
            .expect("another corpus")
            .to_string();
        assert!(other.contains("was made with retriever"), "{other}");
        std::fs::write(&path, "{}\n").expect("write");
        let error = Tape::open(&path).err().expect("no header").to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
