//! The part of a passage that shows why it was found.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::analyzer::TermStream;

/// A window of a text with the words of a query marked.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Snippet {
    /// The window, without white space at its ends.
    pub text: String,
    /// Words of the query as byte ranges of `text`: ascending, apart from each other, at character boundaries.
    pub highlights: Vec<Range<usize>>,
    /// True when something other than white space comes before the window.
    pub cut_before: bool,
    /// True when something other than white space comes after it.
    pub cut_after: bool,
}

/// A word of the text that the query has, and which of the query's terms it is.
struct Match {
    range: Range<usize>,
    term: usize,
}

fn find_matches(text: &str, query: &str) -> Vec<Match> {
    let mut wanted = crate::analyze(query);
    wanted.sort_unstable();
    wanted.dedup();
    let mut matches = Vec::new();
    let mut stream = TermStream::new(text);
    while let Some(located) = stream.next_located() {
        if let Ok(term) = wanted.binary_search_by(|known| known.as_str().cmp(located.term)) {
            matches.push(Match {
                range: located.range(),
                term,
            });
        }
    }
    matches
}

/// The span from the first to the last match of the best window, found by two pointers over the matches.
fn best_span(text: &str, matches: &[Match], max_chars: usize) -> Range<usize> {
    let terms = matches
        .iter()
        .map(|found| found.term + 1)
        .max()
        .unwrap_or(0);
    let mut counts = vec![0_usize; terms];
    let (mut first, mut chars, mut distinct) = (0, 0, 0);
    let mut best = (0, 0, 0..0);
    for (last, found) in matches.iter().enumerate() {
        let from = if first == last {
            found.range.start
        } else {
            matches[last - 1].range.end
        };
        chars += text[from..found.range.end].chars().count();
        distinct += usize::from(counts[found.term] == 0);
        counts[found.term] += 1;
        while chars > max_chars && first < last {
            let dropped = &matches[first];
            chars -= text[dropped.range.start..matches[first + 1].range.start]
                .chars()
                .count();
            counts[dropped.term] -= 1;
            distinct -= usize::from(counts[dropped.term] == 0);
            first += 1;
        }
        let total = last + 1 - first;
        // A word that has to be cut is better than none and worse than any other.
        let distinct = if chars > max_chars { 0 } else { distinct };
        if (distinct, total) > (best.0, best.1) {
            best = (distinct, total, matches[first].range.start..found.range.end);
        }
    }
    best.2
}

/// Spreads a span to `max_chars` characters, evenly to both sides as far as the text goes, and back to word boundaries.
fn widen(text: &str, span: Range<usize>, max_chars: usize) -> Range<usize> {
    let held = text[span.clone()].chars().count();
    if held > max_chars {
        return span.start..forward(text, span.start, max_chars);
    }
    let spare = max_chars - held;
    let behind = text[span.end..].chars().take(spare).count();
    let lead = (spare / 2).max(spare - behind);
    let earliest = backward(text, span.start, lead);
    let start = boundary_after(text, earliest, span.start);
    let used = text[start..span.end].chars().count();
    let latest = forward(text, span.end, max_chars - used);
    let end = boundary_before(text, span.end, latest);
    if start < end {
        start..end
    } else {
        start..latest
    }
}

fn forward(text: &str, from: usize, chars: usize) -> usize {
    text[from..]
        .char_indices()
        .nth(chars)
        .map_or(text.len(), |(offset, _)| from + offset)
}

fn backward(text: &str, from: usize, chars: usize) -> usize {
    if chars == 0 {
        return from;
    }
    text[..from]
        .char_indices()
        .rev()
        .nth(chars - 1)
        .map_or(0, |(at, _)| at)
}

/// The start of the first word or mark at or after `at`; `limit` at the latest.
fn boundary_after(text: &str, at: usize, limit: usize) -> usize {
    let pieces = text
        .split_word_bound_indices()
        .filter(|(_, piece)| !piece.trim().is_empty());
    pieces
        .map(|(start, _)| start)
        .take_while(|&start| start < limit)
        .find(|&start| start >= at)
        .unwrap_or(limit)
}

/// The last word boundary at or before `at`, which `limit` is one of.
fn boundary_before(text: &str, limit: usize, at: usize) -> usize {
    let ends = text
        .split_word_bound_indices()
        .map(|(start, piece)| start + piece.len());
    ends.take_while(|&end| end <= at)
        .last()
        .unwrap_or(limit)
        .max(limit)
}

fn trim(text: &str, window: Range<usize>) -> Range<usize> {
    let inside = &text[window.clone()];
    let start = window.start + inside.len() - inside.trim_start().len();
    start..start + inside.trim().len()
}

fn cut(text: &str, window: Range<usize>, matches: &[Match]) -> Snippet {
    let inside = |found: &Match| {
        let range = found.range.start.max(window.start)..found.range.end.min(window.end);
        (range.start < range.end).then(|| range.start - window.start..range.end - window.start)
    };
    Snippet {
        text: text[window.clone()].to_owned(),
        highlights: matches.iter().filter_map(inside).collect(),
        cut_before: !text[..window.start].trim().is_empty(),
        cut_after: !text[window.end..].trim().is_empty(),
    }
}

impl Snippet {
    /// The window of at most `max_chars` characters that holds the most different words of a query.
    ///
    /// Words are compared by their index terms, so `tides` marks `tide`. Of windows with equally many different words the one
    /// with the most marks wins, then the first. It is cut between words; only a word longer than `max_chars` is cut itself.
    /// Without any word of the query it is the beginning of the text.
    ///
    /// ```
    /// use forage_retriever::Snippet;
    ///
    /// let text = "Winds are driven by the sun. Tides are raised by the Moon's pull & the sun's.";
    /// let found = Snippet::new(text, "What raises the tide?", 30);
    /// assert_eq!(found.to_html(), "sun. <mark>Tides</mark> are <mark>raised</mark> by the");
    /// ```
    pub fn new(text: &str, query: &str, max_chars: usize) -> Self {
        let matches = find_matches(text, query);
        let window = if text.chars().nth(max_chars).is_none() {
            0..text.len()
        } else {
            let span = best_span(text, &matches, max_chars);
            widen(text, span, max_chars)
        };
        cut(text, trim(text, window), &matches)
    }

    /// The window as HTML: everything escaped, marked words in `<mark>`.
    pub fn to_html(&self) -> String {
        let mut html = String::with_capacity(self.text.len() + self.highlights.len() * 13);
        let mut done = 0;
        for highlight in &self.highlights {
            escape(&self.text[done..highlight.start], &mut html);
            html.push_str("<mark>");
            escape(&self.text[highlight.clone()], &mut html);
            html.push_str("</mark>");
            done = highlight.end;
        }
        escape(&self.text[done..], &mut html);
        html
    }
}

fn escape(text: &str, html: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            _ => html.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn marks_by_term_and_escapes() {
        let found = Snippet::new("<b>Tides & moons' \"pull\"</b>", "tide MOON", 100);
        assert_eq!(
            found.to_html(),
            "&lt;b&gt;<mark>Tides</mark> &amp; <mark>moons</mark>&#39; &quot;pull&quot;&lt;/b&gt;"
        );
        assert!(!found.cut_before && !found.cut_after);
    }

    #[test]
    fn window_with_the_most_different_words() {
        let text = "tide tide tide tide of nothing else at all, and far on the moon raises the tide again here";
        let found = Snippet::new(text, "moon tide", 30);
        assert_eq!(found.text, "the moon raises the tide again");
        assert!(found.cut_before && found.cut_after);
        assert_eq!(Snippet::new(text, "absent", 9).text, "tide tide");
        assert_eq!(Snippet::new(text, "again here", 12).text, "again here");
    }

    #[test]
    fn extremes() {
        assert_eq!(Snippet::new("", "x", 5).text, "");
        assert_eq!(
            Snippet::new("word", "word", 0),
            Snippet {
                text: String::new(),
                highlights: vec![],
                cut_before: false,
                cut_after: true
            }
        );
        assert_eq!(
            Snippet::new("unsplittable", "unsplittable", 4).to_html(),
            "<mark>unsp</mark>"
        );
        assert_eq!(Snippet::new("unsplittable", "x", 4).text, "unsp");
        assert_eq!(
            Snippet::new("東京タワー", "京", 2).to_html(),
            "<mark>京</mark>"
        );
    }

    fn words() -> impl Strategy<Value = String> {
        let word = prop::sample::select(vec![
            "tide",
            "tides",
            "moon",
            "the",
            "Moon's",
            "é",
            "東京",
            "👩🏽\u{200d}🔬",
            "x.",
            " ",
            "\n",
        ]);
        prop::collection::vec(word, 0..40).prop_map(|words| words.join(" "))
    }

    proptest! {
        #[test]
        fn any_snippet_is_sound(text in prop_oneof![words(), "\\PC{0,80}"], query in words(), max in 0_usize..60) {
            let found = Snippet::new(&text, &query, max);
            prop_assert!(found.text.chars().count() <= max);
            prop_assert!(text.contains(&found.text));
            let wanted: BTreeSet<String> = crate::analyze(&query).into_iter().collect();
            let mut end = 0;
            for highlight in &found.highlights {
                prop_assert!(highlight.start >= end && highlight.start < highlight.end);
                prop_assert!(found.text.get(highlight.clone()).is_some());
                end = highlight.end;
            }
            let whole = !found.cut_before && !found.cut_after;
            prop_assert_eq!(whole, found.text == text.trim());
            // No window of the same size, wherever it begins, holds more different words.
            let best = best_by_trial(&text, &wanted, max);
            let held: BTreeSet<String> = crate::analyze(&found.text).into_iter().filter(|term| wanted.contains(term)).collect();
            prop_assert!(held.len() >= best, "{:?} holds {} of {}", found, held.len(), best);
        }
    }

    fn best_by_trial(text: &str, wanted: &BTreeSet<String>, max: usize) -> usize {
        let mut stream = TermStream::new(text);
        let mut found = Vec::new();
        while let Some(located) = stream.next_located() {
            if wanted.contains(located.term) {
                found.push((located.range(), located.term.to_owned()));
            }
        }
        let held = |first: usize| {
            let start = found[first].0.start;
            let fits = found[first..]
                .iter()
                .filter(|(range, _)| text[start..range.end].chars().count() <= max);
            fits.map(|(_, term)| term).collect::<BTreeSet<_>>().len()
        };
        (0..found.len()).map(held).max().unwrap_or(0)
    }
}
