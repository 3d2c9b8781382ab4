//! How passages are shown to the policy.

use forage_contracts::Tokenizer;
use forage_contracts::retriever::Hit;
use serde::{Deserialize, Serialize};

use crate::protocol::{QUERY, RESULT};

/// What an observation over its limit loses.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cut {
    /// Whole passages from the end, as many as must go; a single one its end.
    #[default]
    Passages,
    /// Its end.
    End,
    /// Its middle, in whose place stands `...(truncated)...`; what is kept is not counted with it. Needs `limit_chars`.
    Middle,
}

/// The form in which passages are written.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Encoding {
    /// As they are.
    #[default]
    Plain,
    /// As `{"result": "..."}`: line ends become `\n`.
    Json,
    /// The same with everything outside ASCII escaped too.
    JsonAscii,
}

/// How passages are shown. Whole passages are dropped from the end until the limit fits, and the closing text stays, unless `cut` and
/// `keep_closing` say otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ObservationSettings {
    /// Most tokens of an observation, wrapper included; 0 sets no limit.
    pub limit_tokens: usize,
    /// Most characters of an observation, wrapper included; 0 sets no limit.
    pub limit_chars: usize,
    /// The part that an observation over a limit loses.
    pub cut: Cut,
    /// Whether the closing text stands behind what is left after a cut. Without it the cut may take it.
    pub keep_closing: bool,
    /// One passage; `{i}` (from 1), `{title}` and `{text}` are filled in.
    pub passage: String,
    /// Most characters of a passage's text, after which `...` stands; 0 sets no limit.
    pub passage_chars: usize,
    /// Whether the passages of a query stand below `Query: ` and the query.
    pub echo_query: bool,
    /// Between the passages of two queries.
    pub between: String,
    /// The form in which passages are written.
    pub encoding: Encoding,
    /// Before the passages.
    pub opening: String,
    /// After the passages.
    pub closing: String,
}

impl Default for ObservationSettings {
    fn default() -> Self {
        Self {
            limit_tokens: 500,
            limit_chars: 0,
            cut: Cut::default(),
            keep_closing: true,
            passage: "Doc {i}(Title: \"{title}\") {text}\n".to_owned(),
            passage_chars: 0,
            echo_query: false,
            between: "\n".to_owned(),
            encoding: Encoding::default(),
            opening: "\n\n<information>".to_owned(),
            closing: "</information>\n\n".to_owned(),
        }
    }
}

/// A query and what it found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) query: &'a str,
    pub(super) hits: &'a [Hit],
}

/// What the policy reads of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rendered {
    /// The passages without the wrapper.
    pub(super) content: String,
    /// With it.
    pub(super) text: String,
    /// Passages shown, over all queries in order.
    pub(super) shown: usize,
}

/// Replaces a middle that was cut.
const TRUNCATED: &str = "...(truncated)...";

impl ObservationSettings {
    /// What is shown of the passages found for the queries of one call.
    pub(super) fn render(&self, found: &[Found<'_>], tokenizer: &dyn Tokenizer) -> Rendered {
        let all = found.iter().map(|found| found.hits.len()).sum();
        let whole = self.wrapped(self.content(found, all), all);
        if self.fits(&whole.text, tokenizer) {
            return whole;
        }
        match self.cut {
            Cut::Passages => {
                let of = |count: usize| self.wrapped(self.content(found, count), count);
                let fewer: Vec<usize> = (1..all).collect();
                match fewer.partition_point(|&count| self.fits(&of(count).text, tokenizer)) {
                    0 => self.cut_end(&of(all.min(1)).content, all.min(1), tokenizer),
                    count => of(count),
                }
            }
            Cut::End => self.cut_end(&whole.content, all, tokenizer),
            Cut::Middle => self.wrapped(self.cut_middle(&whole.content), all),
        }
    }

    /// The first `count` passages in order, below their queries.
    fn content(&self, found: &[Found<'_>], mut count: usize) -> String {
        let mut parts = Vec::with_capacity(found.len());
        for Found { query, hits } in found {
            let hits = &hits[..hits.len().min(count)];
            count -= hits.len();
            let mut part = if self.echo_query {
                [QUERY, query, "\n"].concat()
            } else {
                String::new()
            };
            part.extend(
                hits.iter()
                    .enumerate()
                    .map(|(index, hit)| self.passage(index, hit)),
            );
            parts.push(part.trim().to_owned());
        }
        let text = parts.join(&self.between);
        let json = |text: String| {
            let text = serde_json::Value::from(text).to_string();
            [RESULT, text.as_str(), "}"].concat()
        };
        match self.encoding {
            Encoding::Plain => text.trim().to_owned(),
            Encoding::Json => json(text),
            Encoding::JsonAscii => ascii(&json(text)),
        }
    }

    fn wrapped(&self, content: String, shown: usize) -> Rendered {
        let text = [&self.opening, content.as_str(), &self.closing].concat();
        Rendered {
            content,
            text,
            shown,
        }
    }

    fn fits(&self, text: &str, tokenizer: &dyn Tokenizer) -> bool {
        let chars = self.limit_chars == 0 || text.chars().count() <= self.limit_chars;
        chars && (self.limit_tokens == 0 || tokenizer.encode(text).len() <= self.limit_tokens)
    }

    /// The longest start of the content that fits, or of the whole text where the closing text may go.
    fn cut_end(&self, content: &str, shown: usize, tokenizer: &dyn Tokenizer) -> Rendered {
        if self.keep_closing {
            let wrapped = |end: &str| [&self.opening, end, &self.closing].concat();
            let content = longest(content, |start| self.fits(&wrapped(start), tokenizer));
            return self.wrapped(content.to_owned(), shown);
        }
        let whole = self.wrapped(content.to_owned(), shown);
        let text = longest(&whole.text, |start| self.fits(start, tokenizer)).to_owned();
        let content = longest(content, |start| self.fits(start, tokenizer)).to_owned();
        Rendered {
            content,
            text,
            shown,
        }
    }

    fn cut_middle(&self, content: &str) -> String {
        let half = self.limit_chars / 2;
        let length = content.chars().count();
        let byte_of = |number: usize| {
            content
                .char_indices()
                .nth(number)
                .map_or(content.len(), |(at, _)| at)
        };
        [
            &content[..byte_of(half)],
            TRUNCATED,
            &content[byte_of(length.saturating_sub(half))..],
        ]
        .concat()
    }

    fn passage(&self, index: usize, hit: &Hit) -> String {
        let number = (index + 1).to_string();
        let cut = hit
            .text
            .char_indices()
            .nth(self.passage_chars)
            .filter(|_| self.passage_chars > 0);
        let shortened = cut.map(|(end, _)| [&hit.text[..end], "..."].concat());
        let text = shortened.as_deref().unwrap_or(&hit.text);
        fill(
            &self.passage,
            &[
                ("{i}", number.as_str()),
                ("{title}", hit.title.as_str()),
                ("{text}", text),
            ],
        )
    }
}

/// The longest start of `text` that fits, by bisection over characters.
fn longest(text: &str, fits: impl Fn(&str) -> bool) -> &str {
    let bounds: Vec<usize> = text
        .char_indices()
        .map(|(index, _)| index)
        .chain([text.len()])
        .collect();
    let fitting = bounds.partition_point(|&end| fits(&text[..end]));
    fitting
        .checked_sub(1)
        .map_or("", |last| &text[..bounds[last]])
}

/// JSON with everything outside ASCII escaped, as Python's `json.dumps` writes it.
fn ascii(json: &str) -> String {
    let mut result = String::with_capacity(json.len());
    let mut units = [0; 2];
    for letter in json.chars() {
        if letter.is_ascii() {
            result.push(letter);
        } else {
            result.extend(
                letter
                    .encode_utf16(&mut units)
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}")),
            );
        }
    }
    result
}

/// Fills in each placeholder of `template` once, from left to right: what a value contains is never filled in again.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut result = String::with_capacity(
        template.len() + values.iter().map(|(_, value)| value.len()).sum::<usize>(),
    );
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::profile::Profile;
    use super::*;
    use forage_contracts::ByteTokenizer;

    fn hit(title: &str, text: &str) -> Hit {
        Hit {
            id: title.to_owned(),
            score: 1.0,
            title: title.to_owned(),
            text: text.to_owned(),
        }
    }

    fn render(settings: &ObservationSettings, hits: &[Hit]) -> (String, usize) {
        let rendered = settings.render(&[Found { query: "q", hits }], &ByteTokenizer);
        (rendered.text, rendered.shown)
    }

    #[test]
    fn passages_are_numbered_and_wrapped() {
        let (text, shown) = render(
            &ObservationSettings::default(),
            &[hit("A", "x"), hit("{text}", "y")],
        );
        let expected =
            "\n\n<information>Doc 1(Title: \"A\") x\nDoc 2(Title: \"{text}\") y</information>\n\n"
                .to_owned();
        assert_eq!((text, shown), (expected, 2));
        let (text, shown) = render(&ObservationSettings::default(), &[]);
        assert_eq!(
            (text.as_str(), shown),
            ("\n\n<information></information>\n\n", 0)
        );
    }

    #[test]
    fn whole_passages_are_dropped_and_a_single_one_is_cut() {
        let settings = |limit_tokens| ObservationSettings {
            limit_tokens,
            ..ObservationSettings::default()
        };
        let hits = [hit("A", "first"), hit("B", "second")];
        let (full, _) = render(&settings(500), &hits);
        assert_eq!(render(&settings(0), &hits).0, full, "0 sets no limit");
        let (dropped, shown) = render(&settings(full.len() - 1), &hits);
        assert_eq!(shown, 1);
        assert!(dropped.contains("first</information>") && !dropped.contains("second"));
        let (cut, shown) = render(&settings(dropped.len() - 2), &hits);
        assert_eq!(shown, 1);
        assert!(cut.ends_with(") fir</information>\n\n"), "{cut}");
        assert_eq!(cut.len(), dropped.len() - 2);
        let chars = ObservationSettings {
            limit_chars: dropped.len() - 2,
            ..settings(0)
        };
        assert_eq!(render(&chars, &hits).0, cut);
    }

    #[test]
    fn as_many_passages_are_shown_as_fit() {
        /// Counts how often it is asked.
        struct Counting(AtomicUsize);
        impl Tokenizer for Counting {
            fn encode(&self, text: &str) -> Vec<u32> {
                self.0.fetch_add(1, Ordering::Relaxed);
                ByteTokenizer.encode(text)
            }
            fn decode(&self, ids: &[u32]) -> String {
                ByteTokenizer.decode(ids)
            }
            fn eos(&self) -> u32 {
                ByteTokenizer.eos()
            }
            fn vocab_size(&self) -> usize {
                ByteTokenizer.vocab_size()
            }
        }
        let settings = |limit_tokens| ObservationSettings {
            limit_tokens,
            ..ObservationSettings::default()
        };
        let hits: Vec<Hit> = (0..1000).map(|_| hit("A", "first")).collect();
        for most in [1, 2, 499, 998, 999] {
            let (fitting, _) = render(&settings(0), &hits[..most]);
            let found = [Found {
                query: "q",
                hits: &hits,
            }];
            let counting = Counting(AtomicUsize::new(0));
            let rendered = settings(fitting.len()).render(&found, &counting);
            assert_eq!((rendered.text, rendered.shown), (fitting, most));
            assert!(counting.0.into_inner() < 20, "by bisection");
        }
    }

    #[test]
    fn the_cut_of_search_r1_loses_the_closing_tag() {
        let settings = ObservationSettings {
            limit_tokens: 60,
            ..Profile::SearchR1V02.settings().observation
        };
        let (text, shown) = render(&settings, &[hit("A", "first"), hit("B", "second")]);
        assert_eq!((text.len(), shown), (60, 2));
        assert!(
            !text.contains("</information>") && text.starts_with("\n\n<information>Doc 1"),
            "{text}"
        );
    }

    #[test]
    fn verl_cuts_the_middle_of_escaped_json() {
        let settings = Profile::Verl.settings().observation;
        let (text, _) = render(&settings, &[hit("A", "é\n\"x\"")]);
        assert_eq!(text, r#"{"result": "Doc 1 (Title: \"A\")\né\n\"x\""}"#);
        let long = "é".repeat(400);
        let (text, _) = render(&settings, &[hit("A", &long)]);
        assert_eq!(text.chars().count(), 128 + TRUNCATED.len() + 128);
        assert!(
            text.starts_with("{\"result\": \"Doc 1 (") && text.ends_with("é\"}"),
            "{text}"
        );
        let hits = [hit("A", "x")];
        let found = [
            Found {
                query: "q",
                hits: &hits,
            },
            Found {
                query: "r",
                hits: &hits,
            },
        ];
        let both = settings.render(&found, &ByteTokenizer).text;
        assert_eq!(
            both,
            r#"{"result": "Doc 1 (Title: \"A\")\nx\n---\nDoc 1 (Title: \"A\")\nx"}"#
        );
    }

    #[test]
    fn skyrl_and_tinker_and_minisearch_write_as_they_do() {
        let hits = [hit("A", "é 😀"), hit("B", "y")];
        let (text, _) = render(&Profile::Skyrl.settings().observation, &hits);
        assert_eq!(
            text,
            "\n<information>{\"result\": \"Doc 1: \\\"A\\\"\\n\\u00e9 \\ud83d\\ude00\\nDoc 2: \\\"B\\\"\\ny\"}</information>\n"
        );
        let found = [
            Found {
                query: "q",
                hits: &hits[1..],
            },
            Found {
                query: "r",
                hits: &[],
            },
        ];
        let tinker = Profile::Tinker
            .settings()
            .observation
            .render(&found, &ByteTokenizer);
        assert_eq!(tinker.content, "Query: q\nDocument 1:\nB\ny\nQuery: r");
        let (text, _) = render(
            &Profile::Minisearch.settings().observation,
            &[hit("A", &"x".repeat(501))],
        );
        assert_eq!(
            text,
            format!(
                "<information>\n[1] {}...\n</information>\n",
                "x".repeat(500)
            )
        );
    }
}
