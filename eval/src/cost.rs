//! The cost of right answers: searches, turns and tokens per right answer, and exact match within a budget of searches.
//!
//! Episodes record no times, so there are no seconds here.

use std::collections::BTreeMap;

use forage_contracts::{Episode, Provenance};
use serde::{Deserialize, Serialize};

use crate::measures::{QuestionKey, exact_match};
use crate::stats::{
    Bootstrap, Interval, StatsError, bootstrap_statistic, cluster_means, mean_interval,
};

/// A cost per right answer, or why there is none to state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "claim")]
pub(crate) enum PerCorrect {
    /// Total cost over right answers, with its interval.
    Measured(Interval),
    /// Too few right answers for an upper end: a resample without any is likelier than the interval's tail.
    AtLeast {
        /// Total cost over right answers.
        estimate: f64,
        /// Lower end.
        low: f64,
    },
    /// No right answer: nothing can be claimed.
    NoneCorrect,
}

/// Cost per right answer: mean cost of a question over its chance of a right answer, both over all questions, wrong ones too.
/// Questions weigh the same however many samples they have. The interval resamples questions, percentile.
///
/// A ratio of totals, not a mean of ratios: it is what a right answer costs who asks many questions.
///
/// # Errors
/// [`StatsError`] for no questions, sides of different lengths, a question without samples and settings out of range.
pub(crate) fn per_correct(
    costs: &[Vec<f64>],
    correct: &[Vec<f64>],
    settings: Bootstrap,
) -> Result<PerCorrect, StatsError> {
    if costs.len() != correct.len() {
        return Err(StatsError::Lengths {
            a: costs.len(),
            b: correct.len(),
        });
    }
    if costs.iter().chain(correct).any(Vec::is_empty) {
        return Err(StatsError::Empty);
    }
    let (costs, correct) = (cluster_means(costs), cluster_means(correct));
    let ratio = |items: &[usize]| {
        let total = |values: &[f64]| items.iter().map(|&item| values[item]).sum::<f64>();
        let right = total(&correct);
        Some(if right > 0.0 {
            total(&costs) / right
        } else {
            f64::INFINITY
        })
    };
    let found = bootstrap_statistic(costs.len(), settings, ratio)?;
    Ok(match found {
        Some(interval) if interval.high.is_finite() => PerCorrect::Measured(interval),
        Some(Interval { estimate, low, .. }) if estimate.is_finite() => {
            PerCorrect::AtLeast { estimate, low }
        }
        _ => PerCorrect::NoneCorrect,
    })
}

/// Costs per right answer of one set of episodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CostPerCorrect {
    /// Searches made.
    pub searches: PerCorrect,
    /// Turns taken.
    pub turns: PerCorrect,
    /// Tokens the environment wrote.
    pub observation_tokens: PerCorrect,
    /// Tokens the policy wrote.
    pub policy_tokens: PerCorrect,
    /// Questions with a scored episode.
    pub questions: usize,
}

impl CostPerCorrect {
    /// Counts what the scored episodes with the score part `em` cost; an answer is right where `em` is 1.
    ///
    /// # Errors
    /// [`StatsError::Empty`] where no episode has `em`, and for settings out of range.
    pub(crate) fn from_episodes(
        episodes: &[Episode],
        settings: Bootstrap,
    ) -> Result<Self, StatsError> {
        let questions = graded(episodes);
        let correct = per_question(&questions, |_, em| em);
        let per = |cost: &dyn Fn(&Episode) -> usize| {
            per_correct(
                &per_question(&questions, |episode, _| cost(episode) as f64),
                &correct,
                settings,
            )
        };
        Ok(Self {
            searches: per(&Episode::searches)?,
            turns: per(&|episode| episode.turns.len())?,
            observation_tokens: per(&|episode| episode.tokens.count(Provenance::Environment))?,
            policy_tokens: per(&|episode| episode.tokens.count(Provenance::Policy))?,
            questions: questions.len(),
        })
    }
}

/// A point of a budget curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BudgetPoint {
    /// Most searches.
    pub searches: usize,
    /// Share of questions answered rightly with at most so many, over all questions, with its interval.
    pub em: Interval,
}

/// Exact match within each budget of searches: an episode that searched more often counts as wrong.
///
/// It shows what the policy achieves with few searches of its own accord, not what it would achieve under a budget.
///
/// # Errors
/// As `CostPerCorrect::from_episodes`.
pub(crate) fn budget_curve(
    episodes: &[Episode],
    budgets: &[usize],
    settings: Bootstrap,
) -> Result<Vec<BudgetPoint>, StatsError> {
    let questions = graded(episodes);
    let point = |&searches: &usize| {
        let within = |episode: &Episode, em: f64| {
            if episode.searches() <= searches {
                em
            } else {
                0.0
            }
        };
        let found = cluster_means(&per_question(&questions, within));
        Ok(BudgetPoint {
            searches,
            em: mean_interval(&found, settings)?,
        })
    };
    budgets.iter().map(point).collect()
}

/// The scored episodes of each question with their exact match.
fn graded(episodes: &[Episode]) -> BTreeMap<QuestionKey, Vec<(&Episode, f64)>> {
    let mut graded = BTreeMap::<_, Vec<_>>::new();
    for episode in episodes {
        if let Some(em) = exact_match(episode) {
            let samples = graded.entry(QuestionKey::of(episode)).or_default();
            samples.push((episode, em));
        }
    }
    graded
}

fn per_question(
    questions: &BTreeMap<QuestionKey, Vec<(&Episode, f64)>>,
    value: impl Fn(&Episode, f64) -> f64,
) -> Vec<Vec<f64>> {
    questions
        .values()
        .map(|samples| {
            samples
                .iter()
                .map(|(episode, em)| value(episode, *em))
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Bootstrap = Bootstrap {
        resamples: 2000,
        confidence: 0.95,
        seed: 5,
    };

    fn one_each(values: impl IntoIterator<Item = f64>) -> Vec<Vec<f64>> {
        values.into_iter().map(|value| vec![value]).collect()
    }

    #[test]
    fn wrong_answers_cost_too() -> Result<(), StatsError> {
        let costs = one_each((0..100).map(|index| f64::from(1 + index % 3)));
        let correct = one_each((0..100).map(|index| f64::from(u8::from(index % 4 == 0))));
        let PerCorrect::Measured(found) = per_correct(&costs, &correct, SETTINGS)? else {
            panic!("25 are right")
        };
        assert!((found.estimate - 199.0 / 25.0).abs() < 1e-12);
        assert!(
            found.low > 4.0
                && found.low < found.estimate
                && found.high > found.estimate
                && found.high < 16.0
        );
        Ok(())
    }

    #[test]
    fn what_cannot_be_claimed_is_no_number() -> Result<(), StatsError> {
        let costs = one_each([2.0; 40]);
        let correct =
            |count: usize| one_each((0..40).map(|index| f64::from(u8::from(index < count))));
        assert_eq!(
            per_correct(&costs, &correct(0), SETTINGS)?,
            PerCorrect::NoneCorrect
        );
        let PerCorrect::AtLeast { estimate, low } = per_correct(&costs, &correct(1), SETTINGS)?
        else {
            panic!("one right answer of 40 has no upper end")
        };
        assert!((estimate - 80.0).abs() < 1e-9 && low < 80.0 && low > 10.0);
        assert!(matches!(
            per_correct(&costs, &correct(12), SETTINGS)?,
            PerCorrect::Measured(_)
        ));
        assert_eq!(
            per_correct(&costs, &correct(1)[1..], SETTINGS),
            Err(StatsError::Lengths { a: 40, b: 39 })
        );
        assert_eq!(per_correct(&[], &[], SETTINGS), Err(StatsError::Empty));
        Ok(())
    }
}
