//! Credit by the potential of turns: how much closer each came to a right and certain answer, less a penalty for turns after the answer
//! was known: SPAE (Step Potential Advantage Estimation, arXiv 2601.03823).

use forage_contracts::objective::GroupOutcome;

use super::algorithm::Recipe;
use super::credit::spread_turns;
use super::turns::{Member, TokenOutcome};

/// Settings of [`super::Credit::StepPotential`].
pub(super) struct Potentials {
    pub(super) saturation: f64,
    pub(super) penalty: f64,
    pub(super) weight: f64,
}

/// The potential 1.5 a c + 0.5 a - c of a place in an episode, between -1 and 1: a is the mean probability of the gold answer's tokens,
/// c the exponential of minus the mean entropy where they are predicted. `logprobs` and `entropies`: `[tokens]`, nats; `None` without
/// any.
pub(crate) fn step_potential(logprobs: &[f32], entropies: &[f32]) -> Option<f32> {
    let mean =
        |numbers: &mut dyn Iterator<Item = f64>| numbers.sum::<f64>() / logprobs.len() as f64;
    let right = mean(&mut logprobs.iter().map(|&logprob| f64::from(logprob).exp()));
    let certain = (-mean(&mut entropies.iter().map(|&entropy| f64::from(entropy)))).exp();
    let found = (1.5 * right * certain + 0.5 * right - certain) as f32;
    (!logprobs.is_empty()).then_some(found)
}

impl Potentials {
    /// The factor on the episode's advantage at each turn: 1 - `penalty` (1 - e^-n), n the turns before it after which the
    /// potential was above `saturation`.
    fn factors(&self, member: &Member) -> Vec<f64> {
        let mut saturated = 0.0_f64;
        let factor = |turn: usize| {
            let before = member.potentials.get(turn).filter(|_| turn > 0);
            if before.is_some_and(|&before| f64::from(before) > self.saturation) {
                saturated += 1.0;
            }
            1.0 + self.penalty * (-saturated).exp_m1()
        };
        (0..member.turns.len()).map(factor).collect()
    }
}

/// Change of the potential over each turn, where the potential after it is known.
fn gains<'a>(member: &Member<'a>) -> impl Iterator<Item = f64> + use<'a> {
    let pairs = member.potentials.windows(2);
    pairs.map(|pair| f64::from(pair[1]) - f64::from(pair[0]))
}

impl Recipe {
    /// [`super::Credit::StepPotential`], from what the comparison of episodes gave.
    pub(super) fn of_potentials(
        &self,
        groups: &[Vec<Member>],
        episodes: &[GroupOutcome],
        settings: &Potentials,
    ) -> Vec<TokenOutcome> {
        let compared = |outcome: &GroupOutcome| *outcome != GroupOutcome::TooSmall;
        let all = groups.iter().zip(episodes);
        let all = all.filter(|(_, outcome)| compared(outcome));
        let all: Vec<f64> = all
            .flat_map(|(group, _)| group.iter().flat_map(gains))
            .collect();
        let low = all.iter().copied().fold(f64::INFINITY, f64::min);
        let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let widened = |gain: f64| {
            if high > low {
                ((gain - low) / (high - low)).exp()
            } else {
                1.0
            }
        };
        let usual = all.iter().map(|&gain| widened(gain)).sum::<f64>() / all.len().max(1) as f64;
        let of_member = |member: &Member, advantage: f32| {
            let factors = settings.factors(member);
            let mut turns: Vec<f64> = factors
                .into_iter()
                .map(|factor| f64::from(advantage) * factor)
                .collect();
            for (turn, gain) in turns.iter_mut().zip(gains(member)) {
                *turn += settings.weight * (widened(gain) - usual);
            }
            let turns: Vec<f32> = turns.into_iter().map(|turn| turn as f32).collect();
            spread_turns(&turns, member.turns)
        };
        let mut found: Vec<Vec<f32>> = Vec::new();
        for (group, outcome) in groups.iter().zip(episodes) {
            match outcome {
                GroupOutcome::Learn(advantages) => {
                    let pairs = group.iter().zip(advantages);
                    found.extend(pairs.map(|(member, &advantage)| of_member(member, advantage)));
                }
                // The turns may differ although the episodes do not.
                GroupOutcome::ZeroVariance | GroupOutcome::NoDirection => {
                    found.extend(group.iter().map(|member| of_member(member, 0.0)));
                }
                GroupOutcome::TooSmall => found.extend(group.iter().map(|_| Vec::new())),
            }
        }
        let whitened = self.whitened(groups, &found).into_iter().zip(episodes);
        let outcome = |(whitened, outcome): (TokenOutcome, &GroupOutcome)| {
            if compared(outcome) {
                whitened
            } else {
                GroupOutcome::TooSmall
            }
        };
        whitened.map(outcome).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::objective::{Advantage, Algorithm};
    use crate::tests::common::{floats, json};
    use crate::tests::reference::assert_close;

    fn singles(value: &Value) -> Vec<f32> {
        let numbers = floats(value).into_iter();
        numbers.map(|number| number as f32).collect()
    }

    /// An episode of the fixture.
    struct Played {
        reward: f32,
        turns: Vec<usize>,
        potentials: Vec<f32>,
        /// What no part of the credit reads.
        paid: Vec<f32>,
    }

    impl Played {
        fn of(member: &Value) -> Self {
            let turns = floats(&member["turns"]).into_iter();
            let turns: Vec<usize> = turns.map(|tokens| tokens as usize).collect();
            Self {
                reward: member["reward"].as_f64().unwrap() as f32,
                potentials: singles(&member["potentials"]),
                paid: vec![7.0; turns.len()],
                turns,
            }
        }

        fn member(&self) -> Member<'_> {
            Member {
                reward: self.reward,
                turn_rewards: &self.paid,
                turns: &self.turns,
                states: vec![&[]; self.turns.len()],
                tree: 0,
                shifts: &[],
                values: &[],
                potentials: &self.potentials,
            }
        }
    }

    #[test]
    fn credit_by_potential_equals_plain_python() {
        let fixture = &json("shaping.json")["step_potential"];
        let probes = fixture["probes"].as_array().unwrap();
        assert!(!probes.is_empty());
        for probe in probes {
            let [logprobs, entropies] = ["logprobs", "entropies"].map(|key| singles(&probe[key]));
            let found = step_potential(&logprobs, &entropies).unwrap();
            let expected = probe["potential"].as_f64().unwrap();
            assert_close(found.into(), expected, 1e-6, "a potential");
        }
        let groups = fixture["groups"].as_array().unwrap().iter();
        let groups: Vec<Vec<Played>> = groups
            .map(|group| group.as_array().unwrap().iter().map(Played::of).collect())
            .collect();
        let members: Vec<Vec<Member>> = groups
            .iter()
            .map(|group| group.iter().map(Played::member).collect())
            .collect();
        let recipe = Recipe {
            advantage: Advantage::of("dr_grpo", &[]),
            credit: serde_json::from_value(fixture["credit"].clone()).unwrap(),
            ..Algorithm::of("grpo", &[]).recipe(9)
        };
        let expected = fixture["advantages"].as_array().unwrap();
        let found = recipe.advantages(&members);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let GroupOutcome::Learn(found) = found else {
                assert!(expected.is_null() && *found == GroupOutcome::TooSmall);
                continue;
            };
            let expected = expected.as_array().unwrap();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                let expected = floats(expected);
                assert_eq!(found.len(), expected.len());
                for (&found, expected) in found.iter().zip(expected) {
                    assert_close(found.into(), expected, 1e-5, "an advantage");
                }
            }
        }
    }

    #[test]
    fn the_potential_is_high_where_the_answer_is_known_and_low_where_another_is() {
        let of = |probability: f32, entropy: f32| {
            step_potential(&[probability.ln(); 2], &[entropy; 2]).unwrap()
        };
        assert!((of(1.0, 0.0) - 1.0).abs() < 1e-6);
        assert!((of(1e-30, 0.0) + 1.0).abs() < 1e-6);
        assert!(of(0.01, 4.0).abs() < 0.05);
        assert_eq!(step_potential(&[], &[]), None);
    }
}
