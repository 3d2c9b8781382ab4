//! What right answers cost and how samples add up: the part of an evaluation that only answers have.

use std::fmt::Write as _;

use forage_env::episode::Episode;
use serde::{Deserialize, Serialize};

use crate::at_k::{AtK, Attempts, CurvePoint, attempts_by_question, curve, doublings};
use crate::calibration::{Calibration, stated};
use crate::cost::{BudgetPoint, CostPerCorrect, PerCorrect, budget_curve};
use crate::stats::{Bootstrap, Interval, StatsError};
use crate::summary::number;
use crate::text;

/// Searches of the budget curve.
const BUDGETS: [usize; 4] = [0, 1, 2, 3];

/// Costs, budgets and curves of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Of the greedy episodes.
    pub cost: CostPerCorrect,
    /// Exact match of the greedy episodes that searched 0, 1, 2, 3 times at most.
    pub budgets: Vec<BudgetPoint>,
    /// pass@k of the sampled episodes; empty with fewer than two a question.
    pub pass_at_k: Vec<CurvePoint>,
    /// maj@k of the same.
    pub majority_at_k: Vec<CurvePoint>,
    /// Of the greedy episodes, where answers come with a certainty (see [`stated`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

impl Answers {
    /// Of greedy and sampled episodes on the same questions; `None` where they are not graded by exact match.
    ///
    /// # Errors
    /// [`StatsError`] for settings out of range.
    pub fn of(greedy: &[Episode], sampled: &[Episode], settings: Bootstrap) -> Result<Option<Self>, StatsError> {
        let cost = match CostPerCorrect::from_episodes(greedy, settings) {
            Ok(cost) => cost,
            Err(StatsError::Empty) => return Ok(None),
            Err(error) => return Err(error),
        };
        let attempts: Vec<Attempts> = attempts_by_question(sampled).into_values().collect();
        let ks = match attempts.iter().map(Attempts::samples).min() {
            Some(most) if most >= 2 => doublings(most),
            _ => Vec::new(),
        };
        let stated: Vec<(f64, bool)> = greedy.iter().filter_map(stated).collect();
        let calibration = if stated.is_empty() { None } else { Some(Calibration::of(&stated, settings)?) };
        Ok(Some(Self {
            cost,
            calibration,
            budgets: budget_curve(greedy, &BUDGETS, settings)?,
            pass_at_k: curve(AtK::Pass, &attempts, &ks, settings)?,
            majority_at_k: curve(AtK::Majority, &attempts, &ks, settings)?,
        }))
    }

    /// Small tables, one below the other.
    pub fn to_text(&self) -> String {
        let CostPerCorrect { searches, turns, observation_tokens, policy_tokens, .. } = &self.cost;
        let costs = [
            ("searches", searches),
            ("turns", turns),
            ("observation tokens", observation_tokens),
            ("policy tokens", policy_tokens),
        ];
        let costs = costs.map(|(name, cost)| vec![name.to_owned(), per_correct(cost)]);
        let budgets = self.budgets.iter().map(|point| vec![point.searches.to_string(), ends(point.em)]);
        let mut all = text::table(&["greedy", "per right answer"], costs.to_vec());
        all.push_str(&text::table(&["searches, at most", "em"], budgets.collect()));
        if !self.pass_at_k.is_empty() {
            let rows = self.pass_at_k.iter().zip(&self.majority_at_k);
            let rows = rows.map(|(pass, vote)| vec![pass.k.to_string(), ends(pass.value), ends(vote.value)]);
            all.push_str(&text::table(&["k samples", "pass@k", "maj@k"], rows.collect()));
        }
        if let Some(Calibration { answers, brier, ece, bins }) = &self.calibration {
            let rows = bins.iter().map(|bin| vec![number(bin.stated), number(bin.right), bin.answers.to_string()]);
            all.push_str(&text::table(&["stated certainty", "right", "answers"], rows.collect()));
            let (brier, ece) = (ends(*brier), number(*ece));
            let _ =
                writeln!(all, "Brier score {brier}, calibration error {ece}, of {answers} answers with a certainty");
        }
        all
    }
}

fn per_correct(cost: &PerCorrect) -> String {
    match cost {
        PerCorrect::Measured(interval) => ends(*interval),
        PerCorrect::AtLeast { estimate, low } => {
            format!("{} [{}, too few right answers to say]", number(*estimate), number(*low))
        }
        PerCorrect::NoneCorrect => "no right answer".to_owned(),
    }
}

fn ends(Interval { estimate, low, high }: Interval) -> String {
    format!("{} [{}, {}]", number(estimate), number(low), number(high))
}
