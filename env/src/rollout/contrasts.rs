//! Experience written from records: a right and a wrong attempt at each question, in words (`LightSearcher`, arXiv 2512.06653). Assumed,
//! since the abstract leaves it open: the right attempt with the fewest searches is compared with the wrong one with the most.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use forage_contracts::Episode;
use forage_contracts::environment::Outcome;
use futures::future::ready;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::record::EpisodeRecord;
use crate::reward::judge::{Judge, JudgeError};

/// Most questions that a judge is asked about at once: the time that a request may take includes that in the queue.
const AT_ONCE: usize = 32;

impl EpisodeRecord {
    /// The lines of a file of experience: one per question that was answered rightly and wrongly, in the order of their ids, in the words
    /// of `judge` if there is one, else in those of a template that tells the queries of both attempts. A pair that the judge refuses for
    /// what was written is left out, with a warning.
    ///
    /// # Errors
    /// When the judge gives no words.
    pub async fn experiences(
        records: &[Self],
        judge: Option<&Judge>,
    ) -> Result<Vec<Value>, JudgeError> {
        let asked = contrasts(records).into_iter().map(|pair| async move {
            let question = pair[0].task.question.trim();
            let text = match judge {
                Some(judge) => match judge.advise(pair).await {
                    Err(refused @ JudgeError::Refused(_)) => {
                        tracing::warn!(question, %refused, "a question is left out");
                        return Ok(None);
                    }
                    advice => advice?,
                },
                None => told(pair),
            };
            Ok::<_, JudgeError>(Some(json!({"question": question, "text": text})))
        });
        let lines = stream::iter(asked).buffered(AT_ONCE);
        lines
            .try_filter_map(|line| ready(Ok(line)))
            .try_collect()
            .await
    }
}

/// A right and a wrong episode of each question that has both.
fn contrasts(records: &[EpisodeRecord]) -> Vec<[&Episode; 2]> {
    let mut attempts: BTreeMap<(String, String), [Vec<&Episode>; 2]> = BTreeMap::new();
    for EpisodeRecord { episode, .. } in records {
        if let Some(score) = &episode.score {
            let is_right = Outcome::is_right(Outcome::accuracy(score));
            let [right, wrong] = attempts.entry(episode.task.key()).or_default();
            let side = if is_right { right } else { wrong };
            side.push(episode);
        }
    }
    let pairs = attempts.into_values().filter_map(|[right, wrong]| {
        let right = right.into_iter().min_by_key(|episode| episode.searches())?;
        let most = |episode: &&Episode| Reverse(episode.searches());
        Some([right, wrong.into_iter().min_by_key(most)?])
    });
    pairs.collect()
}

/// A contrast in the words of a template.
fn told([right, wrong]: [&Episode; 2]) -> String {
    format!(
        "On \"{}\" an attempt that searched for {} was right, one that searched for {} was wrong.",
        plain(&right.task.question),
        asked(right),
        asked(wrong)
    )
}

fn asked(episode: &Episode) -> String {
    let queries = episode
        .queries()
        .map(|query| format!("\"{}\"", plain(query)));
    let queries: Vec<String> = queries.collect();
    if queries.is_empty() {
        return "nothing".to_owned();
    }
    queries.join(", then ")
}

/// A text on one line of at most 200 characters.
fn plain(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(200).collect()
}
