//! An arm of a study: its gains by seed and over all, and the trained policy's lead over it.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::seeds::lead;
use super::{Cost, Figures};
use crate::compare::{interval_words, test_words};
use crate::pool::{Scores, differences, over_seeds, student_p};
use crate::stats::{Bootstrap, Interval, ProfilePoint, StatsError, holm};
use crate::text::{figure, signed};

/// An arm on one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SeedGain {
    /// The run's seed.
    pub seed: u64,
    /// Mean over the seed's questions before training.
    pub start: f64,
    /// The measure after training.
    pub score: f64,
    /// `score - start`, with its paired interval over the seed's questions.
    pub gain: Interval,
}

/// The trained policy against a twin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lead {
    /// Mean of trained minus twin over seeds and questions, with an interval as that of `Arm::gain`.
    pub difference: Interval,
    /// Probability that a trained run scores above a run of the twin, with a bootstrap interval over seeds; absent with one seed,
    /// which is one pair.
    pub improvement: Option<Interval>,
    /// Two-sided p-value as that of `Arm::p`.
    pub p: f64,
    /// The p-value after Holm's adjustment for the number of twins, or of baselines.
    pub p_adjusted: f64,
}

/// One arm over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Arm {
    /// Its name.
    pub name: String,
    /// Each seed by itself.
    pub seeds: Vec<SeedGain>,
    /// Mean gain. The interval is the wider, on each side, of two: Student's t over the seeds' gains, which generalises to other seeds,
    /// and the bootstrap over questions, which generalises to other questions. With one seed it is that of the comparison.
    pub gain: Interval,
    /// Two-sided p-value of the gain: with several seeds of Student's t-test, whose unit is the seed; with one seed of the sign-flip test
    /// over questions.
    pub p: f64,
    /// Share of seeds whose score exceeds each tenth.
    pub profile: Vec<ProfilePoint>,
    /// The lead of the trained policy over this arm; absent for itself.
    pub lead: Option<Lead>,
    /// Cost of its training, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl Arm {
    /// An arm from its seeds, without a profile; gain and lead are those of the first. `None` without seeds.
    pub(crate) fn of(name: &str, figures: &[Figures]) -> Option<Self> {
        let Figures { gain, lead, .. } = figures.first()?;
        let seeds = figures.iter().map(|found| SeedGain {
            seed: found.seed,
            start: found.gain.a,
            score: found.gain.b,
            gain: found.gain.difference,
        });
        Some(Self {
            name: name.to_owned(),
            seeds: seeds.collect(),
            gain: gain.difference,
            p: gain.p,
            profile: Vec::new(),
            lead: lead.map(|found| Lead {
                difference: found.difference,
                improvement: None,
                p: found.p,
                p_adjusted: found.p,
            }),
            cost: None,
        })
    }

    /// Sets gain and lead from several seeds.
    pub(super) fn pool(
        &mut self,
        [starts, own, trained]: [&[Scores]; 3],
        bootstrap: Bootstrap,
    ) -> Result<(), StatsError> {
        self.gain = over_seeds(starts, own, bootstrap)?;
        self.p = student_p(&differences(starts, own));
        if let Some(found) = &mut self.lead {
            *found = lead(own, trained, bootstrap)?;
        }
        Ok(())
    }

    /// The direction of a shown difference from the start.
    pub(super) fn direction(&self) -> Ordering {
        self.gain.shown(self.p)
    }

    /// Returns whether a gain is shown.
    pub(super) fn has_gained(&self) -> bool {
        self.direction() == Ordering::Greater
    }

    /// Returns whether the trained policy is ahead of this twin.
    pub(super) fn is_beaten(&self) -> bool {
        self.lead.as_ref().is_some_and(Lead::is_shown)
    }

    /// The mean of a figure over the seeds.
    pub(super) fn average(&self, value: impl Fn(&SeedGain) -> f64) -> f64 {
        self.seeds.iter().map(value).sum::<f64>() / self.seeds.len().max(1) as f64
    }

    /// The unit of observation of its p-values.
    pub(super) fn unit_of_p(&self) -> &'static str {
        if self.seeds.len() > 1 {
            "seeds"
        } else {
            "questions"
        }
    }

    /// A sentence about a baseline: its score, its cost, and who is ahead.
    pub(crate) fn baseline_words(&self, unit: &str, confidence: f64) -> String {
        let evidence = |found: Interval| {
            format!(
                "{} ({})",
                signed(found.estimate),
                interval_words(found, confidence)
            )
        };
        let lead = self.lead.as_ref().map_or_else(String::new, |lead| {
            let state = match lead.direction() {
                Ordering::Greater => "the trained policy is ahead of it",
                Ordering::Less => "the trained policy is behind it",
                Ordering::Equal => "the trained policy is not clearly ahead of it",
            };
            let test = if lead.direction() == Ordering::Equal {
                let name = format!("adjusted p over {}", self.unit_of_p());
                test_words(lead.difference.ends(), lead.p_adjusted, &name)
            } else {
                String::new()
            };
            format!("; {state}: {}{test}", evidence(lead.difference))
        });
        let cost = self.cost.map(|cost| format!(" {}", cost.words()));
        format!(
            "Baseline `{}` reaches {} {unit}{}, {} over the start{lead}.",
            self.name,
            figure(self.average(|seed| seed.score)),
            cost.unwrap_or_default(),
            evidence(self.gain)
        )
    }
}

impl Lead {
    /// The direction of the trained policy's shown difference, by the adjusted test.
    pub(super) fn direction(&self) -> Ordering {
        self.difference.shown(self.p_adjusted)
    }

    /// Returns whether the trained policy is ahead.
    pub(super) fn is_shown(&self) -> bool {
        self.direction() == Ordering::Greater
    }
}

/// Sets the p-values of leads adjusted by Holm for their number.
pub(crate) fn adjust(arms: &mut [Arm]) -> Result<(), StatsError> {
    let mut leads: Vec<&mut Lead> = arms
        .iter_mut()
        .filter_map(|arm| arm.lead.as_mut())
        .collect();
    let adjusted = holm(&leads.iter().map(|lead| lead.p).collect::<Vec<_>>())?;
    leads
        .iter_mut()
        .zip(adjusted)
        .for_each(|(lead, p)| lead.p_adjusted = p);
    Ok(())
}
