//! What a critic's values make of rewards, its loss and its quality equal verl's.

use super::*;

#[test]
fn advantages_and_returns_equal_verls() {
    let fixture = &fixture("critic.json")["advantages"];
    let turns: Vec<Vec<usize>> = fixture["turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(counts)
        .collect();
    let scores = singles(&fixture["scores"]);
    let [earned, values, shifts] = ["earned", "values", "shifts"].map(|name| rows(&fixture[name]));
    // An episode alone is a group: whitening compares it with the batch.
    let groups: Vec<Vec<Member>> = (0..turns.len())
        .map(|row| {
            vec![Member {
                reward: scores[row],
                turn_rewards: &earned[row],
                turns: &turns[row],
                states: vec![&[]; turns[row].len()],
                tree: 0,
                shifts: &shifts[row],
                values: &values[row],
                potentials: &[],
            }]
        })
        .collect();
    let cases = fixture["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 3);
    for case in cases {
        let penalty = KlPenalty {
            estimator: KlEstimator::K1,
            coefficient: fixture["coefficient"].as_f64().unwrap(),
            unbiased: false,
            in_reward: true,
        };
        let recipe = Recipe {
            credit: Credit::Gae {
                gamma: case["gamma"].as_f64().unwrap(),
                lambda: case["lambda"].as_f64().unwrap(),
            },
            kl: case["in_reward"].as_bool().unwrap().then_some(penalty),
            ..algorithm("ppo")
        };
        let expected = rows(&case["returns"]);
        for (group, expected) in groups.iter().zip(&expected) {
            near(&recipe.returns(&group[0]), expected, "returns");
        }
        let expected = rows(&case["advantages"]);
        for (found, expected) in recipe.advantages(&groups).iter().zip(&expected) {
            let GroupOutcome::Learn(found) = found else {
                panic!("{found:?}");
            };
            near(&found[0], expected, "advantages");
        }
    }
}

#[test]
fn loss_and_quality_equal_verls() {
    let fixture = &fixture("critic.json")["loss"];
    let [values, old, returns] = ["values", "old", "returns"].map(|name| singles(&fixture[name]));
    let clip = fixture["clip"].as_f64().unwrap();
    let found = value_loss(&values, &old, &returns, clip, 1.0 / values.len() as f32);
    let expected = |name: &str| fixture[name].as_f64().unwrap();
    assert_close(found.loss, expected("loss"), TOLERANCE, "loss");
    near(
        &found.gradients,
        &singles(&fixture["gradients"]),
        "gradients",
    );
    assert!(0 < found.clipped && found.clipped < values.len());
    let share = found.clipped as f64 / values.len() as f64;
    assert_close(share, expected("clip_frac"), TOLERANCE, "clip_frac");
    let pairs: Vec<(f32, f32)> = old.into_iter().zip(returns).collect();
    let explained = explained_variance(&pairs);
    assert_close(explained, expected("explained"), TOLERANCE, "explained");
}

fn near(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (&found, &expected) in found.iter().zip(expected) {
        assert_close(found.into(), expected.into(), TOLERANCE, what);
    }
}
