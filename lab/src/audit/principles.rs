//! Principles that hold or do not, drawn from written feedback: RLBFF (Binary Flexible Feedback), as far as a rubric needs it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use forage_env::reward::judge::Judge;
use forage_env::reward::normalize;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde_json::Value;

use super::{AT_ONCE, LeftOut, judge_settings, unless_refused};
use crate::config::Resolved;
use crate::error::{Context, Result, bail};
use crate::runtime::runtime;

/// What a person wrote about an answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    feedback: String,
    #[serde(default)]
    question: String,
    #[serde(default)]
    answer: String,
}

/// Principles, each with the pieces of feedback that it stands behind.
type Supported = Vec<(String, usize)>;

impl Resolved {
    /// Asks the judge of a config for the principles behind pieces of feedback, each with its place for errors: `feedback`, and what it
    /// is about, `question` and `answer`, where that is known. Principles in nearly the same words are one. Returns each with the number
    /// of pieces that it stands behind, most first, the places of the pieces that are left out because the judge refuses what stands in
    /// them, and the requests and tokens that it took. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When the config has no judge of answers, there is no feedback, or a request fails.
    pub fn principles(
        &self,
        rows: Vec<(String, Value)>,
    ) -> Result<(Supported, Vec<String>, [u64; 2])> {
        let judge = Judge::new(judge_settings(self)?).in_config("[reward.judge]")?;
        if rows.is_empty() {
            bail!("there is no feedback; write one JSON object per line");
        }
        let row = |(place, row): (String, Value)| {
            let form = "not feedback; see `forage judge principles --help`";
            let row: Written =
                serde_json::from_value(row).with_context(|| format!("{place}: {form}"))?;
            if row.feedback.trim().is_empty() {
                bail!("{place}: `feedback` is empty; write what was said, or remove the line");
            }
            Ok((place, row))
        };
        let rows: Vec<(String, Written)> = rows.into_iter().map(row).collect::<Result<_>>()?;
        let asked = rows.into_iter().map(|(place, row)| {
            let judge = &judge;
            async move {
                let found = judge.principles(&row.feedback, &row.question, &row.answer);
                unless_refused(place, found.await)
            }
        });
        let found = stream::iter(asked).buffered(AT_ONCE).try_collect();
        let found: Vec<Result<Vec<String>, LeftOut>> = runtime()?.block_on(found)?;
        let (mut lists, mut refused) = (Vec::new(), Vec::new());
        for one in found {
            match one {
                Ok(list) => lists.push(list),
                Err(LeftOut(place)) => refused.push(place),
            }
        }
        let (calls, tokens) = judge.cost();
        Ok((merged(lists.into_iter()), refused, [calls, tokens]))
    }
}

/// Principles with the number of lists they stand in, most first, then in the order in which they came.
fn merged(lists: impl Iterator<Item = Vec<String>>) -> Vec<(String, usize)> {
    let mut all: Vec<(String, BTreeSet<usize>)> = Vec::new();
    for (list, principles) in lists.enumerate() {
        for principle in principles {
            match all.iter_mut().find(|(known, _)| alike(known, &principle)) {
                Some((_, lists)) => {
                    lists.insert(list);
                }
                None => all.push((principle, BTreeSet::from([list]))),
            }
        }
    }
    all.sort_by_key(|(_, lists)| Reverse(lists.len()));
    all.into_iter()
        .map(|(principle, lists)| (principle, lists.len()))
        .collect()
}

/// Words that turn a principle round, as [`normalize`] leaves them.
const DENIALS: [&str; 24] = [
    "not", "no", "nor", "neither", "none", "nothing", "never", "without", "cannot", "cant", "isnt",
    "arent", "wasnt", "werent", "doesnt", "dont", "didnt", "hasnt", "havent", "wont", "wouldnt",
    "couldnt", "shouldnt", "mustnt",
];

/// Whether two principles have four fifths of their words in common, and deny alike.
fn alike(left: &str, right: &str) -> bool {
    let words = |text: &str| -> BTreeSet<String> {
        // Models write the typographic apostrophe, which `normalize` keeps.
        let text = normalize(&text.replace('\u{2019}', "'"));
        text.split_whitespace().map(str::to_owned).collect()
    };
    let denies =
        |words: &BTreeSet<String>| words.iter().any(|word| DENIALS.contains(&word.as_str()));
    let (left, right) = (words(left), words(right));
    let shared = left.intersection(&right).count();
    let all = left.union(&right).count();
    denies(&left) == denies(&right) && shared * 5 >= all * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principle_and_its_denial_are_two() {
        let principle = "The answer should name the source from which each of its facts comes.";
        for denial in [
            "should not",
            "shouldn't",
            "shouldn\u{2019}t",
            "mustn't",
            "doesn\u{2019}t",
        ] {
            let denied = principle.replace("should", denial);
            assert!(!alike(principle, &denied), "{denied}");
        }
        assert!(alike(principle, &principle.replace("comes", "come")));
    }

    #[test]
    fn principles_in_nearly_the_same_words_are_one() {
        let lists = [
            vec!["The answer names its source.", "The answer is short."],
            vec!["The answer is not short."],
            vec![
                "the answer names its sources",
                "The answer names its source",
            ],
            vec![],
            vec!["Answer names its source!", "The answer is short"],
        ];
        let lists = lists.map(|list| list.into_iter().map(str::to_owned).collect());
        let found = merged(lists.into_iter());
        let found: Vec<(&str, usize)> = found
            .iter()
            .map(|(text, support)| (text.as_str(), *support))
            .collect();
        assert_eq!(
            found,
            [
                ("The answer names its source.", 3),
                ("The answer is short.", 2),
                ("The answer is not short.", 1),
                ("the answer names its sources", 1),
            ]
        );
    }
}
