//! Objectives: helpers of their tests, by what these hold.

mod critic;
mod cuts;
mod directions;
mod torch;

use serde_json::{Value, json};

use super::advantages::ADVANTAGES;
use super::algorithm::ALGORITHMS;
use super::losses::LOSSES as ENTRIES;
use super::*;
use crate::tests::common::{floats, json as fixture};
use crate::tests::reference::assert_close;

const TOLERANCE: f64 = 1e-5;

fn singles(value: &Value) -> Vec<f32> {
    floats(value)
        .into_iter()
        .map(|number| number as f32)
        .collect()
}

fn rows(value: &Value) -> Vec<Vec<f32>> {
    value.as_array().unwrap().iter().map(singles).collect()
}

fn masks(value: &Value) -> Vec<Vec<bool>> {
    rows(value)
        .iter()
        .map(|row| row.iter().map(|&mark| mark > 0.5).collect())
        .collect()
}

fn close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (&found, &expected) in found.iter().zip(expected) {
        let tolerance = TOLERANCE * f64::from(expected.abs().max(0.01));
        assert!(
            (f64::from(found) - f64::from(expected)).abs() <= tolerance,
            "{what}: {found} is not {expected}"
        );
    }
}

/// A part as a configuration names it.
fn part<T: serde::de::DeserializeOwned>(written: Value) -> T {
    serde_json::from_value(written).unwrap()
}

fn algorithm(name: &str) -> Recipe {
    Algorithm::of(name, &[]).recipe(9)
}

fn advantage(name: &str) -> Advantage {
    part(match name {
        "grpo" | "grpo_population" => json!({name: {"epsilon": 1e-6}}),
        "pass_k" => json!({name: {"by_std": true}}),
        "lipo" => json!({name: {"beta": 0.3}}),
        _ => json!(name),
    })
}

#[test]
fn the_guide_lists_every_algorithm_advantage_and_loss() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/training.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let losses = ENTRIES.iter().map(|entry| (entry.name, entry.about));
    let advantages = ADVANTAGES.iter().map(|entry| (entry.name, entry.about));
    for (name, about) in losses.chain(advantages) {
        assert!(guide.contains(&format!("| `{name}` | {about} |")), "{name}");
    }
    for algorithm in ALGORITHMS {
        let row = format!("| `{}` ", algorithm.name);
        let row = guide.lines().find(|line| line.starts_with(&row));
        let source = format!("| {} |", algorithm.about);
        assert!(
            row.is_some_and(|row| row.ends_with(&source)),
            "{algorithm:?}"
        );
    }
}

/// An episode with owned parts.
#[derive(Clone, Debug)]
struct Played {
    reward: f32,
    turn_rewards: Vec<f32>,
    turns: Vec<usize>,
    states: Vec<Vec<u32>>,
    tree: u64,
}

impl Played {
    fn member(&self) -> Member<'_> {
        let states = self.states.iter().map(Vec::as_slice).collect();
        Member {
            reward: self.reward,
            turn_rewards: &self.turn_rewards,
            turns: &self.turns,
            states,
            tree: self.tree,
            shifts: &[],
            values: &[],
            potentials: &[],
        }
    }
}

/// Advantages per group, member and token of `groups` that all teach something.
fn learned(recipe: &Recipe, groups: &[Vec<Played>]) -> Vec<Vec<Vec<f32>>> {
    let outcome = |outcome| match outcome {
        GroupOutcome::Learn(tokens) => tokens,
        other => panic!("{:?} teaches nothing: {other:?}", recipe.credit),
    };
    let members: Vec<Vec<Member>> = groups
        .iter()
        .map(|group| group.iter().map(Played::member).collect())
        .collect();
    recipe
        .advantages(&members)
        .into_iter()
        .map(outcome)
        .collect()
}

fn counts(value: &Value) -> Vec<usize> {
    floats(value).into_iter().map(|n| n as usize).collect()
}

/// The policy tokens of one row of a padded batch.
#[derive(Clone, Debug)]
struct Row {
    prompt: u64,
    logprobs: Vec<f32>,
    proximal: Vec<f32>,
    sampler: Vec<f32>,
    reference: Vec<f32>,
    advantages: Vec<f32>,
    entropies: Vec<f32>,
    sentences: Vec<usize>,
}

impl Row {
    fn inputs(&self) -> TokenInputs<'_> {
        TokenInputs {
            logprobs: &self.logprobs,
            proximal: &self.proximal,
            sampler: &self.sampler,
            advantages: &self.advantages,
            entropies: &self.entropies,
            sentences: &self.sentences,
        }
    }
}

fn batch(fixture: &Value) -> Vec<Row> {
    let masks = masks(&fixture["mask"]);
    let prompts = floats(&fixture["prompts"]);
    let advantages = singles(&fixture["advantages"]);
    let kept = |name: &str, row: usize| -> Vec<f32> {
        let all = singles(&fixture[name][row]);
        all.into_iter()
            .zip(&masks[row])
            .filter(|(_, policy)| **policy)
            .map(|(value, _)| value)
            .collect()
    };
    (0..masks.len())
        .map(|row| Row {
            prompt: prompts[row] as u64,
            logprobs: kept("lp", row),
            proximal: kept("lo", row),
            sampler: kept("lr", row),
            reference: kept("lf", row),
            advantages: vec![advantages[row]; kept("lp", row).len()],
            entropies: kept("entropies", row),
            sentences: counts(&fixture["sentences"][row]),
        })
        .collect()
}

/// Loss, gradients per row and sums of a step cut into micro-batches of `micro` rows.
fn step(recipe: &Recipe, rows: &[Row], micro: usize) -> (f64, Vec<Vec<f32>>, ObjectiveStats) {
    let counts: Vec<usize> = rows.iter().map(|row| row.logprobs.len()).collect();
    let prompts: Vec<u64> = rows.iter().map(|row| row.prompt).collect();
    let weights = recipe.aggregation.weights(&counts, &prompts);
    let mut total = (0.0, Vec::new(), ObjectiveStats::default());
    for (rows, weights) in rows.chunks(micro).zip(weights.chunks(micro)) {
        let mut stats = ObjectiveStats::default();
        for (row, &weight) in rows.iter().zip(weights) {
            let found = recipe.sequence(&row.inputs(), Some(&row.reference), weight);
            total.0 += found.loss;
            total.1.push(found.gradients);
            stats += found.stats;
        }
        total.2 += stats;
    }
    total
}

fn loss(name: &str) -> PolicyLoss {
    part(match name {
        "ppo_dual" => json!({"ppo_clip": {"low": 0.2, "high": 0.28, "dual": 3}}),
        "gspo" => json!({name: {"low": 3e-4, "high": 4e-4}}),
        "gspo_wide" => json!({"gspo": {"low": 0.2, "high": 0.28}}),
        "ppo_clip" | "luspo" | "rollout_is" => json!({name: {"low": 0.2, "high": 0.28}}),
        "gmpo" => json!({name: {"low": 0.4, "high": 0.4}}),
        "cispo" => json!({name: {"low": 0, "high": 5}}),
        "cispo_verl" => json!({"cispo": {"low": 0.8, "high": 1.2}}),
        "sapo" => json!({name: {"positive": 1, "negative": 1.05}}),
        "dppo_tv" => json!({name: {"low": 0.2, "high": 0.2, "kl_tau": 1e-3}}),
        "sspo" => json!({name: {"low": 0.2, "high": 0.28, "spread": 1.5}}),
        "a_lol" => json!({name: {"epsilon": 0.9}}),
        _ => json!(name),
    })
}

const LOSSES: [&str; 16] = [
    "ppo_clip",
    "ppo_dual",
    "gspo",
    "gspo_wide",
    "luspo",
    "gmpo",
    "cispo",
    "cispo_verl",
    "sapo",
    "vespo",
    "dppo_tv",
    "rollout_is",
    "is_reinforce",
    "reinforce",
    "sspo",
    "a_lol",
];

/// A recipe around `loss`; the rest as in the algorithm `grpo`.
fn recipe(loss: PolicyLoss) -> Recipe {
    Recipe {
        loss,
        aggregation: Aggregation::TokenMean,
        ..algorithm("grpo")
    }
}
