//! Relevance as a reward, held in check by length and repetition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::{Episode, SettingError, Task};
use regex::Regex;
use serde::Deserialize;

use super::{Make, Pieces, Reward, RewardEntry, RewardError, UNIT};

/// The registry's entry.
pub(crate) const ENTRY: RewardEntry = RewardEntry {
    name: "relevance",
    about: "words that the last answer shares with the question, or with a gold, times length and variety (settings: open, most = 100)",
    always: false,
    judges: Some(Outcome::Answer),
    range: UNIT,
    schema: Some(|| schemars::schema_for!(Relevance).into()),
    make: Make::Configured(|making| {
        let relevance: Relevance = making.read()?;
        if relevance.most == 0 {
            let fault =
                "is 0; write the number of words from which an answer earns no more for its length";
            return Err(SettingError::new("most", fault));
        }
        Ok(Box::new(relevance))
    }),
};

/// Words, or runs of punctuation: NLTK's `wordpunct_tokenize`.
static PARTS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]+").ok());

/// Regularised relevance, R3 (Preference-free Alignment Learning with Regularized Relevance Reward, arXiv 2402.03469): of an open
/// question relevance to the question x length x variety, of any other relevance to its gold answer x variety. Relevance alone is
/// gained by repeating the question, length alone by writing on, and both together need the share of distinct trigrams.
///
/// Assumed: relevance is the cosine of the counts of words in lower case, in place of that of an encoder, for gold answers the best
/// one's; length is held at 1. No answer earns 0.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Relevance {
    /// Data sets whose questions are open: they are answered at length, in words that no gold answer foresees.
    open: Vec<String>,
    /// Words, punctuation included, from which an answer to an open question earns no more for its length.
    most: usize,
}

impl Default for Relevance {
    fn default() -> Self {
        Self {
            open: Vec::new(),
            most: 100,
        }
    }
}

#[async_trait]
impl Reward for Relevance {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        self.score_in_pieces(task, episode)
            .await
            .map(|(score, _)| score)
    }

    async fn score_in_pieces(
        &self,
        task: &Task,
        episode: &Episode,
    ) -> Result<(f32, Pieces), RewardError> {
        let answer = parts(episode.answer().unwrap_or_default());
        let open = self.open.contains(&task.data_source);
        let (relevance, length) = if open {
            let length = answer.len().min(self.most) as f64 / self.most as f64;
            (cosine(&parts(&task.question), &answer), length)
        } else {
            let golds = task.golds.iter().map(|gold| cosine(&parts(gold), &answer));
            (golds.fold(0.0, f64::max), 1.0)
        };
        let variety = variety(&answer);
        let pieces = [
            ("overlap", relevance),
            ("length", length),
            ("variety", variety),
        ];
        let pieces = pieces.map(|(name, value)| (name.to_owned(), value as f32));
        Ok(((relevance * length * variety) as f32, pieces.into()))
    }

    fn needs_golds(&self, task: &Task) -> bool {
        !self.open.contains(&task.data_source)
    }
}

fn parts(text: &str) -> Vec<&str> {
    let regex = PARTS.as_ref().into_iter();
    regex
        .flat_map(|regex| regex.find_iter(text))
        .map(|found| &text[found.range()])
        .collect()
}

/// Cosine of the counts of words; punctuation is none. 0 where either has no word.
fn cosine(left: &[&str], right: &[&str]) -> f64 {
    let count = |parts: &[&str]| {
        let mut counts = BTreeMap::<String, f64>::new();
        let words = parts
            .iter()
            .filter(|part| part.starts_with(|first: char| first == '_' || first.is_alphanumeric()));
        for word in words {
            *counts.entry(word.to_lowercase()).or_default() += 1.0;
        }
        counts
    };
    let (left, right) = (count(left), count(right));
    let norm = |counts: &BTreeMap<String, f64>| counts.values().map(|n| n * n).sum::<f64>().sqrt();
    let product: f64 = left
        .iter()
        .map(|(word, count)| count * right.get(word).unwrap_or(&0.0))
        .sum();
    if product > 0.0 {
        (product / (norm(&left) * norm(&right))).min(1.0)
    } else {
        0.0
    }
}

/// Share of the trigrams that are distinct; 1 where there is none.
fn variety(parts: &[&str]) -> f64 {
    let distinct: BTreeSet<&[&str]> = parts.windows(3).collect();
    let all = parts.len().saturating_sub(2);
    if all == 0 {
        1.0
    } else {
        distinct.len() as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reward::tests::episode;

    #[derive(Deserialize)]
    struct Case {
        question: String,
        golds: Vec<String>,
        answer: String,
        open: bool,
        score: f64,
    }

    async fn of(task: &Task, answer: &str, open: bool) -> f32 {
        let relevance = Relevance {
            open: open.then(|| "test".to_owned()).into_iter().collect(),
            ..Relevance::default()
        };
        let episode = episode(answer, Some(answer));
        relevance.score(task, &episode).await.expect("scored")
    }

    #[tokio::test]
    async fn scores_equal_those_of_python() {
        let text = include_str!("../../tests/fixtures/relevance.json");
        let cases: Vec<Case> = serde_json::from_str(text).expect("cases");
        assert!(cases.len() > 12);
        for case in cases {
            let task = Task {
                golds: case.golds,
                data_source: "test".to_owned(),
                ..Task::new("t", case.question)
            };
            let found = f64::from(of(&task, &case.answer, case.open).await);
            assert!(
                (found - case.score).abs() < 1e-6,
                "{}: {found} {}",
                case.answer,
                case.score
            );
        }
    }

    #[tokio::test]
    async fn neither_parroting_nor_writing_on_is_worth_an_answer() {
        let task = Task {
            data_source: "test".to_owned(),
            ..Task::new("t", "Why do tides rise and fall?")
        };
        let answer = "Tides rise and fall because the moon and the sun pull at the sea, and the earth turns under the bulges that \
                      they raise: why some do so once a day, and others twice, depends on the coast and the depth of the water.";
        let honest = of(&task, answer, true).await;
        for trick in [
            task.question.clone(),
            "tides rise and fall ".repeat(40),
            "word ".repeat(400),
            String::new(),
        ] {
            assert!(of(&task, &trick, true).await < honest, "{trick}");
        }
        let none = Episode::new(task.clone());
        let score = Relevance::default().score(&task, &none).await;
        assert!(score.expect("scored").abs() < 1e-9);
    }
}
