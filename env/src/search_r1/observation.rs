//! How passages are shown to the policy.

use forage_retriever::Hit;
use serde::{Deserialize, Serialize};

use crate::tokenizer::Tokenizer;

/// How passages are shown. Whole passages are dropped from the end until the limit fits; the closing text always stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ObservationSettings {
    /// Most tokens of an observation, wrapper included. A single passage over it is cut at the end.
    pub limit_tokens: usize,
    /// One passage; `{i}` (from 1), `{title}` and `{text}` are filled in.
    pub passage: String,
    /// Before the passages.
    pub opening: String,
    /// After the passages.
    pub closing: String,
}

impl Default for ObservationSettings {
    fn default() -> Self {
        Self {
            limit_tokens: 500,
            passage: "Doc {i}(Title: \"{title}\") {text}\n".to_owned(),
            opening: "\n\n<information>".to_owned(),
            closing: "</information>\n\n".to_owned(),
        }
    }
}

impl ObservationSettings {
    /// The observation's text and how many passages it shows.
    pub(super) fn render(&self, hits: &[Hit], tokenizer: &dyn Tokenizer) -> (String, usize) {
        let passages: Vec<String> = hits.iter().enumerate().map(|(index, hit)| self.passage(index, hit)).collect();
        for count in (1..=passages.len()).rev() {
            let text = self.wrap(&passages[..count].concat());
            if self.fits(&text, tokenizer) {
                return (text, count);
            }
        }
        match passages.first() {
            Some(passage) => (self.wrap(self.cut(passage, tokenizer)), 1),
            None => (self.wrap(""), 0),
        }
    }

    fn wrap(&self, passages: &str) -> String {
        [&self.opening, passages.trim(), &self.closing].concat()
    }

    fn fits(&self, text: &str, tokenizer: &dyn Tokenizer) -> bool {
        tokenizer.encode(text).len() <= self.limit_tokens
    }

    /// The longest start of `passage` with which the observation fits, by bisection over characters.
    fn cut<'a>(&self, passage: &'a str, tokenizer: &dyn Tokenizer) -> &'a str {
        let bounds: Vec<usize> = passage.char_indices().map(|(index, _)| index).collect();
        let fitting = bounds.partition_point(|&end| self.fits(&self.wrap(&passage[..end]), tokenizer));
        fitting.checked_sub(1).map_or("", |last| &passage[..bounds[last]])
    }

    fn passage(&self, index: usize, hit: &Hit) -> String {
        let number = (index + 1).to_string();
        let values = [("{i}", number.as_str()), ("{title}", hit.title.as_str()), ("{text}", hit.text.as_str())];
        fill(&self.passage, &values)
    }
}

/// Fills in each placeholder of `template` once, from left to right: what a value contains is never filled in again.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut result = String::with_capacity(template.len() + values.iter().map(|(_, value)| value.len()).sum::<usize>());
    let mut rest = template;
    while let Some(brace) = rest.find('{') {
        let (before, from_brace) = rest.split_at(brace);
        result.push_str(before);
        if let Some((name, value)) = values.iter().find(|(name, _)| from_brace.starts_with(name)) {
            result.push_str(value);
            rest = &from_brace[name.len()..];
        } else {
            result.push('{');
            rest = &from_brace[1..];
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::ByteTokenizer;

    fn hit(title: &str, text: &str) -> Hit {
        Hit { id: title.to_owned(), score: 1.0, title: title.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn passages_are_numbered_and_wrapped() {
        let (text, shown) = ObservationSettings::default().render(&[hit("A", "x"), hit("{text}", "y")], &ByteTokenizer);
        let expected =
            "\n\n<information>Doc 1(Title: \"A\") x\nDoc 2(Title: \"{text}\") y</information>\n\n".to_owned();
        assert_eq!((text, shown), (expected, 2));
        let (text, shown) = ObservationSettings::default().render(&[], &ByteTokenizer);
        assert_eq!((text.as_str(), shown), ("\n\n<information></information>\n\n", 0));
    }

    #[test]
    fn whole_passages_are_dropped_and_a_single_one_is_cut() {
        let settings = |limit_tokens| ObservationSettings { limit_tokens, ..ObservationSettings::default() };
        let hits = [hit("A", "first"), hit("B", "second")];
        let (full, _) = settings(500).render(&hits, &ByteTokenizer);
        let (dropped, shown) = settings(full.len() - 1).render(&hits, &ByteTokenizer);
        assert_eq!(shown, 1);
        assert!(dropped.contains("first</information>") && !dropped.contains("second"));
        let (cut, shown) = settings(dropped.len() - 2).render(&hits, &ByteTokenizer);
        assert_eq!(shown, 1);
        assert!(cut.ends_with(") fir</information>\n\n"), "{cut}");
        assert_eq!(cut.len(), dropped.len() - 2);
    }
}
