//! Losses lower what they should lower.

use super::*;

#[test]
fn a_small_step_down_the_gradient_lowers_every_loss() {
    for fixture in fixture("objective.json")["batches"].as_array().unwrap() {
        let rows = batch(fixture);
        for name in LOSSES {
            // Weights that count as constants move with the log-probabilities, so these are not functions to descend.
            if ["cispo", "cispo_verl", "vespo", "rollout_is", "a_lol"].contains(&name) {
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
                entropies: &[0.5; 3],
                sentences: &[1, 2],
            };
            let scale = match name {
                "luspo" => 3.0,
                // It learns from what was good alone.
                "a_lol" if advantage < 0.0 => 0.0,
                _ => 1.0,
            };
            for grad in loss(name).tokens(&inputs).gradients {
                assert_close(f64::from(grad), f64::from(-advantage * scale), 1e-6, name);
            }
        }
    }
}

/// Tokens whose loss was taken away (`top_share`, `clip_cov`) have no advantage.
#[test]
fn a_token_without_an_advantage_does_not_weaken_the_others() {
    let logprobs = [-0.5, -1.5, -0.25, -1.0];
    for name in LOSSES {
        let inputs = TokenInputs {
            logprobs: &logprobs,
            proximal: &logprobs,
            sampler: &logprobs,
            advantages: &[0.75, 0.0, 0.75, 0.0],
            entropies: &[0.5; 4],
            sentences: &[1, 3],
        };
        let scale = if name == "luspo" { 4.0 } else { 1.0 };
        let expected = [-0.75, 0.0, -0.75, 0.0].map(|grad| scale * grad);
        let found = loss(name).tokens(&inputs).gradients;
        assert_eq!(found.len(), 4);
        for (grad, expected) in found.into_iter().zip(expected) {
            assert_close(f64::from(grad), expected, 1e-6, name);
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
            shifts: &[0.0; 4],
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
        // What a critic that knows nothing says.
        let values: Vec<Vec<f32>> = group.tokens.iter().map(|&count| vec![0.0; count]).collect();
        let read = recipe.credit.reads_values();
        let members = members.iter().zip(&values).map(|(played, values)| Member {
            values: if read { values } else { &[] },
            ..played.member()
        });
        let GroupOutcome::Learn(advantages) = recipe.advantages(&[members.collect()]).remove(0)
        else {
            panic!("{algorithm:?} teaches nothing");
        };
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
                entropies: vec![0.5; count],
                sentences: vec![count],
            })
            .collect();
        let (_, gradients, stats) = step(&recipe, &rows, 4);
        assert_eq!(stats.tokens, 8);
        for (member, grads) in gradients.iter().enumerate() {
            for &grad in grads {
                let good_alone = entry.name == "a_lol";
                assert!(
                    match member {
                        0 => grad < 0.0,
                        _ if good_alone => grad.abs() == 0.0,
                        _ => grad > 0.0,
                    },
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
        entropies: vec![0.5, 0.5],
        sentences: vec![2],
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
