//! Objectives equal `PyTorch` autograd, lower what they should lower, and do not depend on how a step is cut.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::advantages::ADVANTAGES;
use super::algorithm::ALGORITHMS;
use super::credit::{reward_to_go, whiten};
use super::losses::LOSSES as ENTRIES;
use super::*;

const TOLERANCE: f64 = 1e-5;

fn fixture(name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/");
    let text = std::fs::read_to_string(folder.to_owned() + name).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn floats(value: &Value) -> Vec<f64> {
    let numbers = value.as_array().unwrap().iter();
    numbers.map(|number| number.as_f64().unwrap()).collect()
}

fn assert_close(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (found - expected).abs() <= tolerance * expected.abs().max(1.0),
        "{what}: {found} is not {expected}"
    );
}

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

#[test]
fn advantages_equal_torch() {
    let fixture = fixture("objective.json");
    let groups: Vec<(Vec<f32>, Vec<usize>)> = fixture["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            (
                singles(&group["rewards"]),
                floats(&group["tokens"])
                    .into_iter()
                    .map(|n| n as usize)
                    .collect(),
            )
        })
        .collect();
    let groups: Vec<Group> = groups
        .iter()
        .map(|(rewards, tokens)| Group { rewards, tokens })
        .collect();
    let kinds = fixture["advantages"].as_object().unwrap();
    assert_eq!(kinds.len(), 12);
    for (name, expected) in kinds {
        let found = advantage(name).of_batch(&groups);
        assert_eq!(found.len(), groups.len());
        for (outcome, expected) in found.iter().zip(expected.as_array().unwrap()) {
            match outcome {
                GroupOutcome::Learn(found) => close(found, &singles(expected), name),
                other => assert!(
                    expected.is_null() && *other == GroupOutcome::ZeroVariance,
                    "{name}: {other:?}"
                ),
            }
        }
    }
}

#[test]
fn credit_equals_torch() {
    let fixture = &fixture("objective.json")["credit"];
    let gamma = fixture["gamma"].as_f64().unwrap();
    let (masks, rewards) = (masks(&fixture["mask"]), rows(&fixture["rewards"]));
    let to_go: Vec<Vec<f32>> = rewards
        .iter()
        .zip(&masks)
        .map(|(rewards, mask)| reward_to_go(rewards, mask, gamma))
        .collect();
    let whitened = whiten(&to_go).unwrap();
    for row in 0..masks.len() {
        close(
            &to_go[row],
            &singles(&fixture["reward_to_go"][row]),
            "reward to go",
        );
        close(
            &whitened[row],
            &singles(&fixture["whitened"][row]),
            "whitened",
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

#[test]
fn credit_by_turn_equals_torch() {
    let fixture = &fixture("objective.json")["turns"];
    let (gamma, weight) = (
        fixture["gamma"].as_f64().unwrap(),
        fixture["weight"].as_f64().unwrap(),
    );
    let played = |member: &Value| Played {
        reward: member["reward"].as_f64().unwrap() as f32,
        turn_rewards: singles(&member["turn_rewards"]),
        turns: floats(&member["turns"])
            .into_iter()
            .map(|n| n as usize)
            .collect(),
        states: member["states"]
            .as_array()
            .unwrap()
            .iter()
            .map(|state| floats(state).into_iter().map(|id| id as u32).collect())
            .collect(),
        tree: member["tree"].as_u64().unwrap(),
    };
    let groups = fixture["groups"].as_array().unwrap().iter();
    let groups: Vec<Vec<Played>> = groups
        .map(|group| group.as_array().unwrap().iter().map(played).collect())
        .collect();
    let check = |recipe: &Recipe, expected: &Value, what: &str| {
        for (group, expected) in learned(recipe, &groups)
            .iter()
            .zip(expected.as_array().unwrap())
        {
            assert_eq!(group.len(), expected.as_array().unwrap().len());
            for (found, expected) in group.iter().zip(expected.as_array().unwrap()) {
                close(found, &singles(expected), what);
            }
        }
    };
    for kind in ["grpo", "grpo_population", "dr_grpo"] {
        for (name, credit) in [
            ("process_supervision", Credit::ProcessSupervision),
            ("gigpo", Credit::Gigpo { gamma, weight }),
            ("tree", Credit::Tree),
        ] {
            let recipe = Recipe {
                advantage: advantage(kind),
                credit,
                ..algorithm("grpo")
            };
            check(&recipe, &fixture[name][kind], &format!("{name}, {kind}"));
        }
    }
    let recipe = Recipe {
        credit: Credit::RewardToGo { gamma },
        ..algorithm("reinforce_pp")
    };
    check(&recipe, &fixture["reward_to_go"], "reward_to_go");
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
}

impl Row {
    fn inputs(&self) -> TokenInputs<'_> {
        TokenInputs {
            logprobs: &self.logprobs,
            proximal: &self.proximal,
            sampler: &self.sampler,
            advantages: &self.advantages,
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
        _ => json!(name),
    })
}

const LOSSES: [&str; 14] = [
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
];

fn correction(name: &str) -> Correction {
    let at = |level, bound| Correction {
        level,
        bound,
        veto: None,
    };
    match name {
        "tis_token" => Correction::tis_token(1.1),
        "icepop" => Correction::icepop(0.9, 1.1),
        "sequence_truncate" => at(RatioLevel::Sequence, Bound::Truncate { cap: 1.1 }),
        "sequence_mask" => at(
            RatioLevel::Sequence,
            Bound::Mask {
                low: 0.0,
                high: 1.1,
            },
        ),
        "geometric" => at(
            RatioLevel::Geometric,
            Bound::Reject {
                low: 0.97,
                high: 1.03,
            },
        ),
        "veto" => Correction {
            veto: Some(0.9),
            ..Correction::tis_token(2.0)
        },
        other => panic!("{other}"),
    }
}

/// A recipe around `loss`; the rest as in the algorithm `grpo`.
fn recipe(loss: PolicyLoss) -> Recipe {
    Recipe {
        loss,
        aggregation: Aggregation::TokenMean,
        ..algorithm("grpo")
    }
}

fn case_recipe(case: &Value, max_tokens: usize) -> Recipe {
    let aggregation = match case["aggregation"].as_str().unwrap() {
        "dr_grpo" => Aggregation::DrGrpo { length: max_tokens },
        name => part(name.into()),
    };
    let kl = case.get("kl").map(|name| KlPenalty {
        estimator: part::<KlEstimator>(name.clone()),
        coefficient: 0.1,
        unbiased: case["unbiased"].as_bool().unwrap(),
    });
    let correction = case
        .get("correction")
        .map(|name| correction(name.as_str().unwrap()));
    Recipe {
        correction,
        kl,
        aggregation,
        ..recipe(loss(case["loss"].as_str().unwrap()))
    }
}

#[test]
fn losses_and_gradients_equal_torch_at_every_position() {
    let fixture = fixture("objective.json");
    let max_tokens = fixture["max_tokens"].as_u64().unwrap() as usize;
    for fixture in fixture["batches"].as_array().unwrap() {
        let (rows, masks) = (batch(fixture), masks(&fixture["mask"]));
        let cases = fixture["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 49);
        for case in cases {
            let named =
                ["loss", "aggregation", "kl", "unbiased", "correction"].map(|part| case.get(part));
            let what = format!("{:?}", named.into_iter().flatten().collect::<Vec<_>>());
            let (value, gradients, _) = step(&case_recipe(case, max_tokens), &rows, rows.len());
            assert_close(value, case["value"].as_f64().unwrap(), TOLERANCE, &what);
            for (row, mask) in masks.iter().enumerate() {
                // Positions that are not policy tokens have no place in ours, and gradient exactly 0 in the reference.
                let mut found = gradients[row].iter();
                let padded: Vec<f32> = mask
                    .iter()
                    .map(|&policy| if policy { *found.next().unwrap() } else { 0.0 })
                    .collect();
                close(&padded, &singles(&case["gradient"][row]), &what);
            }
        }
    }
}

#[test]
fn a_small_step_down_the_gradient_lowers_every_loss() {
    for fixture in fixture("objective.json")["batches"].as_array().unwrap() {
        let rows = batch(fixture);
        for name in LOSSES {
            // Weights that count as constants move with the log-probabilities, so these are no functions to descend.
            if ["cispo", "cispo_verl", "vespo", "rollout_is"].contains(&name) {
                continue;
            }
            let recipe = recipe(loss(name));
            let (before, gradients, _) = step(&recipe, &rows, rows.len());
            let squares: f64 = gradients
                .iter()
                .flatten()
                .map(|&grad| f64::from(grad).powi(2))
                .sum();
            if squares.sqrt() < 1e-9 {
                continue;
            }
            let length = 1e-3 / squares.sqrt();
            let mut moved = rows.clone();
            for (row, gradients) in moved.iter_mut().zip(&gradients) {
                for (logprob, &grad) in row.logprobs.iter_mut().zip(gradients) {
                    *logprob = (f64::from(*logprob) - length * f64::from(grad)) as f32;
                }
            }
            let fall = before - step(&recipe, &moved, rows.len()).0;
            let expected = length * squares;
            assert!(
                (fall - expected).abs() < 0.05 * expected,
                "{name}: fell by {fall}, not {expected}"
            );
        }
    }
}

#[test]
fn weights_of_the_detached_losses_are_their_derivatives() {
    for fixture in fixture("objective.json")["batches"].as_array().unwrap() {
        for row in batch(fixture) {
            for name in ["cispo", "cispo_verl", "vespo", "rollout_is", "reinforce"] {
                let found = loss(name).tokens(&row.inputs());
                for (at, &logprob) in row.logprobs.iter().enumerate() {
                    let value = f64::from(found.gradients[at] * logprob);
                    assert_close(value, f64::from(found.values[at]), TOLERANCE, name);
                }
            }
        }
    }
}

#[test]
fn at_ratio_one_raising_a_good_token_lowers_every_loss() {
    let logprobs = [-0.5, -1.5, -0.25];
    for name in LOSSES {
        for advantage in [0.75, -0.75] {
            let advantages = [advantage; 3];
            let inputs = TokenInputs {
                logprobs: &logprobs,
                proximal: &logprobs,
                sampler: &logprobs,
                advantages: &advantages,
            };
            let scale = if name == "luspo" { 3.0 } else { 1.0 };
            for grad in loss(name).tokens(&inputs).gradients {
                assert_close(f64::from(grad), f64::from(-advantage * scale), 1e-6, name);
            }
        }
    }
}

#[test]
fn every_algorithm_raises_the_good_and_lowers_the_bad() {
    let rewards = [1.0, 0.0, 0.0, 0.0];
    for entry in ALGORITHMS {
        let algorithm = Algorithm::of(entry.name, &[]);
        let recipe = algorithm.recipe(8);
        let group = Group {
            rewards: &rewards,
            tokens: &[3, 2, 2, 1],
        };
        assert!(
            recipe
                .filter
                .is_none_or(|filter| filter.keeps(&rewards, &rewards))
        );
        let played = |(&reward, &tokens): (&f32, &usize)| Played {
            reward,
            turn_rewards: vec![0.0],
            turns: vec![tokens],
            states: vec![vec![1]],
            tree: 0,
        };
        let members: Vec<Played> = rewards.iter().zip(group.tokens).map(played).collect();
        let advantages = learned(&recipe, &[members]).remove(0);
        let rows: Vec<Row> = advantages
            .into_iter()
            .zip(group.tokens)
            .map(|(advantages, &count)| Row {
                prompt: 0,
                logprobs: vec![-0.7; count],
                proximal: vec![-0.7; count],
                sampler: vec![-0.7; count],
                reference: vec![-0.7; count],
                advantages,
            })
            .collect();
        let (_, gradients, stats) = step(&recipe, &rows, 4);
        assert_eq!(stats.tokens, 8);
        for (member, grads) in gradients.iter().enumerate() {
            for &grad in grads {
                assert!(
                    if member == 0 { grad < 0.0 } else { grad > 0.0 },
                    "{algorithm:?}: {gradients:?}"
                );
            }
        }
    }
}

#[test]
fn dropped_tokens_have_no_gradient() {
    let row = Row {
        prompt: 0,
        logprobs: vec![-1.0, -1.0],
        proximal: vec![-1.0, -1.0],
        sampler: vec![-1.0, -30.0],
        reference: vec![-1.0, -1.0],
        advantages: vec![1.0, 1.0],
    };
    let correction = Some(Correction::icepop(0.5, 2.0));
    let recipe = Recipe {
        correction,
        ..recipe(loss("is_reinforce"))
    };
    let (_, gradients, stats) = step(&recipe, &[row], 1);
    assert_eq!(gradients[0], [-0.5, 0.0]);
    assert_eq!((stats.correction.tokens, stats.correction.masked), (2, 1));
}

fn random_row() -> impl Strategy<Value = Row> {
    let token = (-5.0_f32..-0.01, -0.5_f32..0.5, -0.5_f32..0.5, -0.5_f32..0.5);
    (0_u64..3, -2.0_f32..2.0, prop::collection::vec(token, 0..6)).prop_map(
        |(prompt, advantage, tokens)| Row {
            prompt,
            logprobs: tokens.iter().map(|token| token.0).collect(),
            proximal: tokens.iter().map(|token| token.0 + token.1).collect(),
            sampler: tokens.iter().map(|token| token.0 + token.2).collect(),
            reference: tokens.iter().map(|token| token.0 + token.3).collect(),
            advantages: vec![advantage; tokens.len()],
        },
    )
}

/// Groups of episodes with one state per turn; scores differ within each.
fn random_groups(most_turns: usize) -> impl Strategy<Value = Vec<Vec<Played>>> {
    let turns = prop::collection::vec(1_usize..4, 1..=most_turns);
    let group = prop::collection::vec((0_u8..10, turns), 2..5).prop_map(|episodes| {
        let episodes = episodes.into_iter().enumerate();
        let played = episodes.map(|(index, (reward, turns))| Played {
            reward: f32::from(reward) + index as f32 * 10.0,
            turn_rewards: vec![0.0; turns.len()],
            states: (0..turns.len())
                .map(|turn| vec![index as u32, turn as u32])
                .collect(),
            tree: index as u64,
            turns,
        });
        played.collect()
    });
    prop::collection::vec(group, 1..4)
}

fn assert_equal(found: &[Vec<Vec<f32>>], expected: &[Vec<Vec<f32>>], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        close(found, expected, what);
    }
}

proptest! {
    #[test]
    fn without_rewards_of_turns_credit_by_turn_is_that_of_the_outcome(groups in random_groups(4)) {
        let whitened = algorithm("reinforce_pp");
        let to_go = Recipe { credit: Credit::RewardToGo { gamma: 1.0 }, ..whitened };
        assert_equal(&learned(&to_go, &groups), &learned(&whitened, &groups), "reward_to_go");
        // Nobody else read what a turn read, so only whole episodes are compared.
        let outcome = algorithm("grpo");
        let states = Recipe { credit: Credit::Gigpo { gamma: 1.0, weight: 1.0 }, ..outcome };
        assert_equal(&learned(&states, &groups), &learned(&outcome, &groups), "gigpo");
        // Every episode is a tree of its own.
        let trees = Recipe { credit: Credit::Tree, ..outcome };
        assert_equal(&learned(&trees, &groups), &learned(&outcome, &groups), "tree");
    }

    #[test]
    fn with_one_turn_each_process_supervision_is_that_of_the_outcome(groups in random_groups(1)) {
        let outcome = algorithm("grpo");
        let process = Recipe { credit: Credit::ProcessSupervision, ..outcome };
        assert_equal(&learned(&process, &groups), &learned(&outcome, &groups), "process_supervision");
    }

    #[test]
    fn the_cut_into_micro_batches_does_not_matter(rows in prop::collection::vec(random_row(), 1..8), micro in 1_usize..8) {
        let kl = Some(KlPenalty { estimator: KlEstimator::LowVar, coefficient: 0.1, unbiased: true });
        let correction = Some(Correction::tis_token(1.2));
        let aggregations = [
            Aggregation::TokenMean,
            Aggregation::SeqMeanTokenMean,
            Aggregation::SeqMeanTokenSum,
            Aggregation::DrGrpo { length: 6 },
            Aggregation::PromptMean,
            Aggregation::Sum,
        ];
        for (name, aggregation) in LOSSES.iter().zip(aggregations.iter().cycle()) {
            let recipe = Recipe { kl, correction, aggregation: *aggregation, ..recipe(loss(name)) };
            let (whole, whole_gradients, whole_stats) = step(&recipe, &rows, rows.len());
            let (cut, cut_gradients, cut_stats) = step(&recipe, &rows, micro);
            prop_assert!(whole.is_finite() && (whole - cut).abs() <= 1e-12 * whole.abs().max(1.0));
            prop_assert_eq!(whole_gradients, cut_gradients);
            prop_assert_eq!(whole_stats.correction, cut_stats.correction);
            prop_assert_eq!(whole_stats.bounded, cut_stats.bounded);
        }
    }

    #[test]
    fn a_shift_of_all_rewards_changes_no_advantage(rewards in prop::collection::vec(0_u8..10, 2..12), shift in 1_u8..10) {
        let rewards: Vec<f32> = rewards.into_iter().map(f32::from).collect();
        let shifted: Vec<f32> = rewards.iter().map(|reward| reward + f32::from(shift)).collect();
        let tokens: Vec<usize> = (1..=rewards.len()).collect();
        for name in "grpo grpo_population dr_grpo batch_std rloo pass_k opo rf_pp_baseline reinforce_pp".split(' ') {
            let found = advantage(name).of_group(&Group { rewards: &rewards, tokens: &tokens });
            match (found, advantage(name).of_group(&Group { rewards: &shifted, tokens: &tokens })) {
                (GroupOutcome::Learn(found), GroupOutcome::Learn(moved)) => close(&moved, &found, name),
                (found, moved) => prop_assert_eq!(found, moved),
            }
        }
    }

    #[test]
    fn weights_of_a_mean_sum_to_one(tokens in prop::collection::vec(1_usize..50, 1..10), prompts in 1_u64..4) {
        let prompts: Vec<u64> = (0..tokens.len() as u64).map(|row| row % prompts).collect();
        for aggregation in [Aggregation::TokenMean, Aggregation::SeqMeanTokenMean, Aggregation::PromptMean] {
            let weights = aggregation.weights(&tokens, &prompts);
            let sum: f64 = weights.iter().zip(&tokens).map(|(&weight, &count)| f64::from(weight) * count as f64).sum();
            prop_assert!((sum - 1.0).abs() < 1e-5);
        }
    }
}
