//! The effect of a probe: the same questions plain and under the probe.

use std::collections::BTreeMap;

use forage_contracts::Episode;
use forage_contracts::environment::Outcome;
use serde::{Deserialize, Serialize};

use crate::compare::{CompareError, Comparison};
use crate::measures::{by_question, clusters};
use crate::stats::{
    Bootstrap, Interval, StatsError, bootstrap_mean, bootstrap_statistic, mean, mean_interval,
};
use crate::summary::{EvalSummary, Metric, number};
use crate::telemetry::Telemetry;
use crate::text::{self, ends};

/// Items that say how a policy meets a probe.
const TELLING: [&str; 3] = ["unfounded_answer", "unsupported_answer", "poison_believed"];

/// A policy under a probe, beside the same policy without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// The probe's name.
    pub probe: String,
    /// The outcome that the episodes are measured by.
    pub outcome: Outcome,
    /// The episodes under the probe.
    pub summary: EvalSummary,
    /// Plain against probe, paired by question.
    pub change: Comparison,
    /// Conduct under the probe.
    pub telemetry: Telemetry,
}

impl ProbeResult {
    /// Compares episodes under a probe with plain ones of the same questions.
    ///
    /// # Errors
    /// As [`Comparison::from_episodes`].
    pub fn from_episodes(
        probe: &str,
        plain: &[Episode],
        probed: &[Episode],
        bootstrap: Bootstrap,
    ) -> Result<Self, CompareError> {
        Ok(Self {
            probe: probe.to_owned(),
            outcome: Outcome::of(plain),
            summary: EvalSummary::from_episodes(probed, bootstrap)?,
            change: Comparison::from_episodes(plain, probed, bootstrap)?,
            telemetry: Telemetry::from_episodes(probed, bootstrap)?,
        })
    }

    /// An aligned table of the metrics that moved, plain and under the probe, how the policy met it, and the outcome in a
    /// sentence.
    pub fn to_text(&self) -> String {
        let mut rows = Vec::new();
        for name in self.summary.metric_names() {
            let Some((found, difference)) = self
                .summary
                .metrics
                .get(name)
                .zip(self.change.difference(name))
            else {
                continue;
            };
            // Where only some questions have the metric on both sides, the interval over all of them is another's.
            let all = found.questions == difference.questions;
            let change = difference.difference;
            let still = change.low >= 0.0 && change.high <= 0.0;
            if still && name != self.outcome.measure() {
                continue;
            }
            rows.push(vec![
                name.to_owned(),
                number(difference.a),
                number(difference.b),
                if all {
                    ends(found.interval)
                } else {
                    String::new()
                },
                number(change.estimate),
                ends(change),
            ]);
        }
        for name in TELLING {
            if let Some(found) = self.telemetry.item(name) {
                rows.push(vec![
                    name.to_owned(),
                    String::new(),
                    number(found.estimate),
                    ends(found),
                ]);
            }
        }
        let header = [
            "metric",
            "plain",
            "probe",
            "its interval",
            "change",
            "its interval",
        ];
        let words = self
            .change
            .words(self.outcome.measure(), "Plain", &self.probe);
        format!(
            "probe {}\n{}{words}\n",
            self.probe,
            text::table(&header, rows)
        )
    }
}

/// The dependence of a measure on the words of the instructions (Sclar et al. 2024 call this spread).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// The measure.
    pub measure: String,
    /// Its mean under each wording, the plain one first.
    pub wordings: Vec<Interval>,
    /// Best less worst wording, with its interval by resampling questions. Never below 0: wordings that differ by chance alone
    /// have a spread too.
    pub spread: Interval,
    /// Questions asked under every wording.
    pub questions: usize,
    /// POSIX ([`Self::with_logprobs`]) over the questions that have it; absent for a policy without weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Metric>,
}

impl Sensitivity {
    /// Compares one set of episodes per wording, all of the same questions, the plain one first.
    ///
    /// # Errors
    /// [`StatsError`] without a question that was scored under every wording, and when the bootstrap's settings are out of
    /// range.
    pub fn of(sets: &[Vec<Episode>], bootstrap: Bootstrap) -> Result<Self, StatsError> {
        let measure = sets
            .first()
            .map_or_else(Outcome::default, |plain| Outcome::of(plain))
            .measure();
        let values: Vec<BTreeMap<_, _>> = sets
            .iter()
            .map(|episodes| {
                clusters(&by_question(episodes))
                    .remove(measure)
                    .unwrap_or_default()
            })
            .collect();
        let Some((plain, others)) = values.split_first() else {
            return Err(StatsError::Empty);
        };
        let shared: Vec<_> = plain
            .keys()
            .filter(|key| others.iter().all(|other| other.contains_key(key)))
            .collect();
        let means: Vec<Vec<f64>> = values
            .iter()
            .map(|values| shared.iter().map(|key| mean(&values[*key])).collect())
            .collect();
        let wordings = means
            .iter()
            .map(|means| mean_interval(means, bootstrap))
            .collect::<Result<_, _>>()?;
        let spread = |items: &[usize]| {
            let of = |means: &Vec<f64>| {
                items.iter().map(|item| means[*item]).sum::<f64>() / items.len() as f64
            };
            let levels: Vec<f64> = means.iter().map(of).collect();
            let best = levels.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            Some(best - levels.iter().copied().fold(f64::INFINITY, f64::min))
        };
        let spread =
            bootstrap_statistic(shared.len(), bootstrap, spread)?.ok_or(StatsError::Empty)?;
        Ok(Self {
            measure: measure.to_owned(),
            wordings,
            spread,
            questions: shared.len(),
            index: None,
        })
    }

    /// Adds the prompt sensitivity index (Chatterjee et al. 2024, POSIX): how far the log-probability of a response, over its length,
    /// moves when its prompt is put in other words. The mean over all pairs of a response and a prompt that is not its own, then over
    /// questions; 0 where the words of the prompt change nothing. `questions` has the log-probabilities of the tokens of each response
    /// after each prompt, `[question][prompt][response][token]`, nats; a response stands at the place of the prompt it was given to.
    ///
    /// # Errors
    /// [`StatsError`] for log-probabilities that are not finite, and when the bootstrap's settings are out of range.
    pub fn with_logprobs(
        mut self,
        questions: &[Vec<Vec<Vec<f32>>>],
        bootstrap: Bootstrap,
    ) -> Result<Self, StatsError> {
        let values: Vec<f64> = questions.iter().filter_map(|found| posix(found)).collect();
        if !values.is_empty() {
            self.index = Some(Metric {
                interval: bootstrap_mean(&values, bootstrap)?,
                questions: values.len(),
            });
        }
        Ok(self)
    }

    /// The measure under each wording, and the spread.
    pub fn to_text(&self) -> String {
        let named = self
            .wordings
            .iter()
            .enumerate()
            .map(|(place, found)| match place {
                0 => text::row("plain", *found),
                _ => text::row(&format!("wording {place}"), *found),
            });
        let mut rows: Vec<_> = named.collect();
        rows.push(text::row("spread", self.spread));
        if let Some(index) = self.index {
            rows.push(text::row("POSIX (nats per token)", index.interval));
        }
        let table = text::table(&["wording", &self.measure, "interval"], rows);
        format!(
            "probe paraphrased-prompt\n{table}{} questions\n",
            self.questions
        )
    }
}

/// The prompt sensitivity index of one question, `[prompt][response][token]`: the mean, over all pairs of a response and a prompt that is
/// not its own, of `|ln P(response | prompt) - ln P(response | its own prompt)|` over the response's tokens. `None` of fewer than two
/// prompts and where a response has no token.
pub(crate) fn posix(logprobs: &[Vec<Vec<f32>>]) -> Option<f64> {
    let prompts = logprobs.len();
    let level = |prompt: usize, response: usize| {
        let tokens = logprobs[prompt]
            .get(response)
            .filter(|tokens| !tokens.is_empty())?;
        let sum: f64 = tokens.iter().map(|&logprob| f64::from(logprob)).sum();
        Some(sum / tokens.len() as f64)
    };
    let mut moved = Vec::new();
    for response in 0..prompts {
        let own = level(response, response)?;
        for prompt in (0..prompts).filter(|&prompt| prompt != response) {
            moved.push((level(prompt, response)? - own).abs());
        }
    }
    (!moved.is_empty()).then(|| mean(&moved))
}
