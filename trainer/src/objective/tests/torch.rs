//! Advantages, credit, losses and gradients equal `PyTorch` autograd.

use forage_contracts::seed::Seed;

use super::*;
use crate::logprobs::Scores;
use crate::objective::credit::{reward_to_go, whiten};
use crate::update::{Scored, hold_entropy, restrain};

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
    let shifts = rows(&fixture["shifts"]);
    let groups: Vec<Group> = groups
        .iter()
        .zip(&shifts)
        .map(|((rewards, tokens), shifts)| Group {
            rewards,
            tokens,
            shifts,
        })
        .collect();
    let kinds = fixture["advantages"].as_object().unwrap();
    assert_eq!(kinds.len(), 13);
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
fn no_loss_or_advantage_is_without_a_reference() {
    let fixture = fixture("objective.json");
    let advantages = fixture["advantages"].as_object().unwrap();
    for entry in ADVANTAGES {
        assert!(advantages.contains_key(entry.name), "{}", entry.name);
    }
    for batch in fixture["batches"].as_array().unwrap() {
        let cases = batch["cases"].as_array().unwrap().iter();
        let names = cases.map(|case| loss(case["loss"].as_str().unwrap()).name());
        let names: Vec<&str> = names.collect();
        for entry in ENTRIES {
            assert!(names.contains(&entry.name), "{}", entry.name);
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
        .map(|(rewards, mask)| {
            // What was read earns nothing and is passed over.
            let own = rewards.iter().zip(mask).filter(|(_, mask)| **mask);
            let own: Vec<f32> = own.map(|(reward, _)| *reward).collect();
            reward_to_go(&own, gamma)
        })
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
            ("information_gain", Credit::InformationGain { gamma }),
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

fn case_recipe(case: &Value, max_tokens: usize) -> Recipe {
    let aggregation = match case["aggregation"].as_str().unwrap() {
        "dr_grpo" => Aggregation::DrGrpo { length: max_tokens },
        name => part(name.into()),
    };
    let kl = case.get("kl").map(|name| KlPenalty {
        estimator: part::<KlEstimator>(name.clone()),
        coefficient: 0.1,
        unbiased: case["unbiased"].as_bool().unwrap(),
        in_reward: false,
    });
    let correction = case
        .get("correction")
        .map(|name| correction(name.as_str().unwrap()));
    let number = |name: &str, absent: f64| {
        case.get(name)
            .map_or(absent, |number| number.as_f64().unwrap())
    };
    Recipe {
        correction,
        kl,
        aggregation,
        signs: SignWeights {
            overconfident: number("overconfident", 0.0),
            ..SignWeights::default()
        },
        entropy: EntropyTerms {
            top_share: number("top_share", 1.0),
            ..EntropyTerms::default()
        },
        ..recipe(loss(case["loss"].as_str().unwrap()))
    }
}

/// The rows without the advantages of tokens outside the entropy mask.
fn masked(rows: &[Row], recipe: &Recipe) -> Vec<Row> {
    let entropies: Vec<&[f32]> = rows.iter().map(|row| row.entropies.as_slice()).collect();
    let mut masked = rows.to_vec();
    for (row, token) in recipe.entropy.outside(&entropies) {
        masked[row].advantages[token] = 0.0;
    }
    masked
}

#[test]
fn losses_and_gradients_equal_torch_at_every_position() {
    let fixture = fixture("objective.json");
    let max_tokens = fixture["max_tokens"].as_u64().unwrap() as usize;
    for fixture in fixture["batches"].as_array().unwrap() {
        let (rows, masks) = (batch(fixture), masks(&fixture["mask"]));
        let cases = fixture["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 62);
        for case in cases {
            let named = [
                "loss",
                "aggregation",
                "kl",
                "unbiased",
                "correction",
                "overconfident",
                "top_share",
            ]
            .map(|part| case.get(part));
            let what = format!("{:?}", named.into_iter().flatten().collect::<Vec<_>>());
            let recipe = case_recipe(case, max_tokens);
            let rows = masked(&rows, &recipe);
            let (value, gradients, _) = step(&recipe, &rows, rows.len());
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
fn weights_of_the_detached_losses_are_their_derivatives() {
    for fixture in fixture("objective.json")["batches"].as_array().unwrap() {
        for row in batch(fixture) {
            for name in [
                "cispo",
                "cispo_verl",
                "vespo",
                "rollout_is",
                "reinforce",
                "a_lol",
            ] {
                let found = loss(name).tokens(&row.inputs());
                for (at, &logprob) in row.logprobs.iter().enumerate() {
                    let value = f64::from(found.gradients[at] * logprob);
                    assert_close(value, f64::from(found.values[at]), TOLERANCE, name);
                }
            }
        }
    }
}

/// The mean entropy at the peaks, from entropies of the nucleus, is pulled to the anchor.
#[test]
fn anchored_entropy_equals_torch() {
    let fixture = &fixture("objective.json")["anchored"];
    let settings = &fixture["settings"];
    let anchored: AnchoredEntropy = part(settings.clone());
    let anchor = fixture["anchor"].as_f64().unwrap() as f32;
    let rows = rows(&fixture["entropies"]);
    let level = anchored.level(rows.iter().map(Vec::as_slice)).unwrap();
    assert_close(
        level.0,
        fixture["level"].as_f64().unwrap(),
        TOLERANCE,
        "level",
    );
    for (row, entropies) in rows.iter().enumerate() {
        let found = anchored.slopes(entropies, level, anchor);
        close(&found, &singles(&fixture["slopes"][row]), "slopes");
    }
}

/// The loss has the term's own value where the batch begins, and follows its derivative from there.
#[test]
fn the_loss_has_the_square_of_the_distance_from_the_anchor() {
    let fixture = &fixture("objective.json")["anchored"];
    let weight = 50.0;
    let anchored = AnchoredEntropy {
        weight,
        ..part::<AnchoredEntropy>(fixture["settings"].clone())
    };
    let entropies = rows(&fixture["entropies"]);
    let row = |entropies: &Vec<f32>| {
        let before = vec![-1.0; entropies.len()];
        Scored {
            advantages: vec![0.0; before.len()],
            sampler: before.clone(),
            proximal: before,
            entropies: entropies.clone(),
            ..Scored::default()
        }
    };
    let mut steps = [entropies.iter().map(row).collect::<Vec<_>>()];
    let anchor = fixture["anchor"].as_f64().unwrap();
    hold_entropy(&mut steps, &anchored, Some(anchor as f32));
    let recipe = Recipe {
        entropy: EntropyTerms {
            anchored: Some(anchored),
            ..EntropyTerms::default()
        },
        ..algorithm("grpo")
    };
    let loss = |rise: f32| {
        let entropies: Vec<f32> = entropies.iter().flatten().map(|own| own + rise).collect();
        let scores = Scores {
            logprobs: vec![-1.0; entropies.len()],
            entropies,
        };
        let rows: Vec<&Scored> = steps[0].iter().collect();
        crate::update::loss(&rows, &recipe, &scores, None).1.loss
    };
    let gap = fixture["level"].as_f64().unwrap() - anchor;
    let term = weight * gap * gap;
    assert_close(loss(0.0), term, TOLERANCE, "at the start");
    let later = term + 2.0 * weight * gap * 0.125;
    assert_close(loss(0.125), later, TOLERANCE, "later");
}

/// Tokens of high covariance have no loss, or are held where they were when the batch began.
#[test]
fn restraint_by_covariance_equals_torch() {
    let fixture = fixture("objective.json");
    let batches = fixture["covariance"].as_array().unwrap();
    assert_eq!(batches.len(), 2);
    for fixture in batches {
        let masks = masks(&fixture["mask"]);
        let kept = |values: &Value, row: usize| -> Vec<f32> {
            let all = singles(&values[row]).into_iter().zip(&masks[row]);
            all.filter(|(_, policy)| **policy)
                .map(|(value, _)| value)
                .collect()
        };
        let flat = |values: &Value| -> Vec<f32> {
            (0..masks.len()).flat_map(|row| kept(values, row)).collect()
        };
        let logprobs = flat(&fixture["lp"]);
        let scores = Scores {
            entropies: vec![0.0; logprobs.len()],
            logprobs,
        };
        let cases = fixture["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 4);
        for case in cases {
            let recipe = Recipe {
                entropy: part(case["entropy"].clone()),
                ..recipe(part(case["loss"].clone()))
            };
            let row = |row: usize| {
                let before = kept(&fixture["lo"], row);
                Scored {
                    advantages: kept(&fixture["advantages"], row),
                    sampler: before.clone(),
                    proximal: before,
                    weight: 1.0 / scores.logprobs.len() as f32,
                    ..Scored::default()
                }
            };
            let mut rows: Vec<Scored> = (0..masks.len()).map(row).collect();
            restrain(&mut rows, &recipe.entropy, Seed::root(1));
            let rows: Vec<&Scored> = rows.iter().collect();
            let (gradients, sums) = crate::update::loss(&rows, &recipe, &scores, None);
            let what = format!("{} {}", case["loss"], case["entropy"]);
            let value = case["value"].as_f64().unwrap();
            assert_close(sums.loss, value, TOLERANCE, &what);
            close(&gradients.logprobs, &flat(&case["gradient"]), &what);
        }
    }
}
