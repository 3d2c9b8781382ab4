//! The cost of right answers and the gain from samples: the part of an evaluation that only answers have.

use std::fmt::Write as _;

use forage_contracts::Episode;
use serde::{Deserialize, Serialize};

use crate::at_k::{AtK, Attempts, CurvePoint, SelfGraded, attempts_by_question, curve};
use crate::calibration::{Calibration, stated};
use crate::cost::{BudgetPoint, CostPerCorrect, PerCorrect, budget_curve};
use crate::stats::{Bootstrap, StatsError};
use crate::summary::number;
use crate::text::{self, interval};

/// Searches of the budget curve.
const BUDGETS: [usize; 4] = [0, 1, 2, 3];

/// Costs, budgets and curves of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Costs of the greedy episodes.
    pub(crate) cost: CostPerCorrect,
    /// Exact match of the greedy episodes that searched 0, 1, 2, 3 times at most.
    pub(crate) budgets: Vec<BudgetPoint>,
    /// pass@k of the sampled episodes; empty with fewer than two a question.
    pub(crate) pass_at_k: Vec<CurvePoint>,
    /// maj@k of the same.
    pub(crate) majority_at_k: Vec<CurvePoint>,
    /// Calibration of the greedy episodes, where answers come with a certainty (`<confidence>0.8</confidence>`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) calibration: Option<Calibration>,
    /// The sampled episodes ranked by the policy's own grades, where it was asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) self_graded: Option<SelfGraded>,
}

impl Answers {
    /// Measures greedy and sampled episodes on the same questions; `None` where they are not graded by exact match.
    ///
    /// # Errors
    /// [`StatsError`] for settings out of range.
    pub fn of(
        greedy: &[Episode],
        sampled: &[Episode],
        settings: Bootstrap,
    ) -> Result<Option<Self>, StatsError> {
        let cost = match CostPerCorrect::from_episodes(greedy, settings) {
            Ok(cost) => cost,
            Err(StatsError::Empty) => return Ok(None),
            Err(error) => return Err(error),
        };
        let attempts: Vec<Attempts> = attempts_by_question(sampled).into_values().collect();
        let stated: Vec<(f64, bool)> = greedy.iter().filter_map(stated).collect();
        let calibration = if stated.is_empty() {
            None
        } else {
            Some(Calibration::of(&stated, settings)?)
        };
        Ok(Some(Self {
            cost,
            calibration,
            self_graded: None,
            budgets: budget_curve(greedy, &BUDGETS, settings)?,
            pass_at_k: curve(AtK::Pass, &attempts, settings)?,
            majority_at_k: curve(AtK::Majority, &attempts, settings)?,
        }))
    }

    /// Adds the ranking of sampled episodes by the policy's own grades, 0 to 1, where it gave one.
    ///
    /// # Errors
    /// [`StatsError`] for settings out of range.
    pub fn with_grades(
        self,
        sampled: &[(&Episode, Option<f64>)],
        settings: Bootstrap,
    ) -> Result<Self, StatsError> {
        Ok(Self {
            self_graded: SelfGraded::of(sampled, settings)?,
            ..self
        })
    }

    /// Small tables, one below the other.
    pub fn to_text(&self) -> String {
        let costs = [
            ("searches", self.cost.searches),
            ("turns", self.cost.turns),
            ("observation tokens", self.cost.observation_tokens),
            ("policy tokens", self.cost.policy_tokens),
        ];
        let costs = costs.map(|(name, cost)| vec![name.to_owned(), per_correct(cost)]);
        let budgets = self
            .budgets
            .iter()
            .map(|point| vec![point.searches.to_string(), interval(point.em)]);
        let mut all = text::table(&["greedy", "per right answer"], costs.to_vec());
        all.push_str(&text::table(
            &["searches, at most", "em"],
            budgets.collect(),
        ));
        if !self.pass_at_k.is_empty() {
            let rows = self.pass_at_k.iter().zip(&self.majority_at_k);
            let rows = rows.map(|(pass, vote)| {
                [
                    pass.k.to_string(),
                    interval(pass.value),
                    interval(vote.value),
                    pass.questions.to_string(),
                ]
                .into()
            });
            all.push_str(&text::table(
                &["k samples", "pass@k", "maj@k", "questions"],
                rows.collect(),
            ));
        }
        if let Some(found) = &self.self_graded {
            let rows = found.best_at_k.iter();
            let rows = rows.map(|point| {
                vec![
                    point.k.to_string(),
                    interval(point.value),
                    point.questions.to_string(),
                ]
            });
            all.push_str(&text::table(
                &["k samples", "best by own grade", "questions"],
                rows.collect(),
            ));
            let _ = writeln!(
                all,
                "best by own grade less majority {}, {} of the samples graded",
                interval(found.less_majority),
                number(found.graded_frac)
            );
        }
        if let Some(found) = &self.calibration {
            let rows = found.bins.iter().map(|bin| {
                [
                    number(bin.stated),
                    number(bin.right),
                    bin.answers.to_string(),
                ]
                .into()
            });
            all.push_str(&text::table(
                &["stated certainty", "right", "answers"],
                rows.collect(),
            ));
            let _ = writeln!(
                all,
                "Brier score {}, calibration error {}, of {} answers with a certainty",
                interval(found.brier),
                number(found.ece),
                found.answers
            );
        }
        all
    }
}

fn per_correct(cost: PerCorrect) -> String {
    match cost {
        PerCorrect::Measured(found) => interval(found),
        PerCorrect::AtLeast { estimate, low } => {
            let (estimate, low) = (number(estimate), number(low));
            format!("{estimate} [{low}, too few right answers to say]")
        }
        PerCorrect::NoneCorrect => "no right answer".to_owned(),
    }
}
