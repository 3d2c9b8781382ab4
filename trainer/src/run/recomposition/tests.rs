use forage_contracts::seed::Seed;

use super::*;
use crate::objective::{Algorithm, ObjectiveConfig};
use crate::sequence::Sequence;
use crate::update::{Readings, score};

/// A member that wrote so many tokens in so many turns, and earned what its accuracy is.
fn sample(tokens: usize, turns: usize, accuracy: f32) -> Sample {
    let mut of_turn = vec![1; turns - 1];
    of_turn.push(tokens - (turns - 1));
    Sample {
        sequence: Sequence {
            ids: vec![1; tokens + 1],
            targets: (1..=tokens).collect(),
            ..Sequence::default()
        },
        logprobs: vec![-0.5; tokens],
        turn_rewards: vec![0.0; turns],
        turns: of_turn,
        tree: tokens as u64,
        reward: accuracy,
        accuracy,
        masked: false,
        unpaid: false,
        gold: String::new(),
    }
}

/// Three right and four wrong members; the last ended in a way that is not learned from.
fn group() -> Vec<Sample> {
    let mut group = vec![
        sample(9, 2, 1.0),
        sample(4, 4, 1.0),
        sample(6, 2, 0.5),
        sample(5, 1, 0.0),
        sample(8, 2, 0.25),
        sample(3, 3, 0.0),
        sample(99, 9, 0.0),
    ];
    group[6].masked = true;
    group
}

fn config(share: f64, length: Length) -> RecompositionConfig {
    RecompositionConfig {
        share,
        length,
        compensation: 1.0,
        capacity: 16,
    }
}

/// The members of a group with loss in the priority batch, and in the compensation batch.
fn split_of(config: RecompositionConfig, whole: &[Sample]) -> [Vec<usize>; 2] {
    [true, false].map(|is_priority| {
        let mut group = whole.to_vec();
        let left = config.recompose(&mut group, is_priority);
        let with_loss: Vec<usize> = (0..group.len())
            .filter(|&member| !group[member].masked)
            .collect();
        assert_eq!(with_loss.len(), left);
        with_loss
    })
}

fn split(config: RecompositionConfig) -> [Vec<usize>; 2] {
    split_of(config, &group())
}

#[derive(Deserialize)]
struct Member {
    tokens: usize,
    turns: usize,
    accuracy: f32,
    masked: bool,
}

#[derive(Deserialize)]
struct Case {
    share: f64,
    length: Length,
    members: Vec<Member>,
    priority: Vec<usize>,
    compensation: Vec<usize>,
}

#[test]
fn batches_equal_those_of_python() {
    let text = include_str!("../../../tests/fixtures/recomposition.json");
    let cases: Vec<Case> = serde_json::from_str(text).unwrap();
    assert!(cases.len() > 30);
    for case in cases {
        let members = case.members.iter();
        let group: Vec<Sample> = members
            .map(|member| Sample {
                masked: member.masked,
                ..sample(member.tokens, member.turns, member.accuracy)
            })
            .collect();
        let found = split_of(config(case.share, case.length), &group);
        let lengths: Vec<_> = group.iter().map(|one| case.length.of(one)).collect();
        assert_eq!(found, [case.priority, case.compensation], "{lengths:?}");
    }
}

#[test]
fn the_shortest_right_and_the_longest_wrong_come_first() {
    // Of three each the shortest right one, and the longest wrong one.
    assert_eq!(
        split(config(0.3, Length::Tokens)),
        [vec![1, 4], vec![0, 2, 3, 5]]
    );
    assert_eq!(
        split(config(0.5, Length::Tokens)),
        [vec![1, 2, 3, 4], vec![0, 5]]
    );
    // By turns: right 2 (of two turns, and fewer tokens), wrong 5.
    assert_eq!(
        split(config(0.3, Length::Turns)),
        [vec![2, 5], vec![0, 1, 3, 4]]
    );
    let [priority, left] = split(config(0.99, Length::Turns));
    assert_eq!((priority.len(), left.len()), (6, 0), "rounded up");
}

#[test]
fn members_are_compared_with_their_whole_group_in_both_batches() {
    let recipe = ObjectiveConfig::from(Algorithm::of("dr_grpo", &[])).recipe(8);
    let advantages = |group: Vec<Sample>| -> Vec<Vec<f32>> {
        let (scored, _) = score(vec![group], &recipe, &Readings::default(), &[]);
        scored.into_iter().map(|scored| scored.advantages).collect()
    };
    let whole = advantages(group());
    let config = config(0.5, Length::Tokens);
    for is_priority in [true, false] {
        let mut recomposed = group();
        config.recompose(&mut recomposed, is_priority);
        let masked: Vec<bool> = recomposed.iter().map(|sample| sample.masked).collect();
        for ((found, whole), masked) in advantages(recomposed).iter().zip(&whole).zip(masked) {
            let expected: &[f32] = if masked { &[] } else { whole };
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn compensation_grows_rare_with_half_a_cosine() {
    const DRAWS: u64 = 10_000;
    let config = RecompositionConfig {
        compensation: 0.8,
        ..config(0.5, Length::Tokens)
    };
    // 0.4 (1 + cos(pi t / 4)), worked out apart.
    let expected = [0.8, 0.682_842_7, 0.4, 0.117_157_3, 0.0];
    for (step, expected) in (0..).zip(expected) {
        let drawn = (0..DRAWS).filter(|&seed| config.compensates(step, 5, Seed::root(seed)));
        let share = drawn.count() as f64 / DRAWS as f64;
        let deviation = f64::sqrt(expected * (1.0 - expected) / DRAWS as f64);
        assert!(
            (share - expected).abs() <= 4.0 * deviation,
            "{step}: {share} is not {expected}"
        );
    }
    let never = RecompositionConfig {
        compensation: 0.0,
        ..config
    };
    assert!((0..99).all(|seed| !never.compensates(0, 5, Seed::root(seed))));
}

#[test]
fn what_cannot_be_recomposed_is_refused() {
    let update = UpdateConfig::default();
    let good = config(0.5, Length::Tokens);
    assert_eq!(good.check(16, 8, &update), Ok(()));
    let fault = |config: RecompositionConfig, group_size: usize, update: &UpdateConfig| {
        let error = config.check(16, group_size, update).unwrap_err();
        error.to_string()
    };
    for share in [0.0, 1.0, f64::NAN] {
        let found = fault(config(share, Length::Tokens), 8, &update);
        assert!(found.contains("share is"), "{found}");
    }
    for compensation in [-0.1, 1.5, f64::NAN] {
        let bad = RecompositionConfig {
            compensation,
            ..good
        };
        let found = fault(bad, 8, &update);
        assert!(found.contains("compensation is"), "{found}");
    }
    assert!(fault(good, 2, &update).contains("grpo.group_size"));
    let small = RecompositionConfig {
        capacity: 15,
        ..good
    };
    assert!(fault(small, 8, &update).contains("capacity is 15"));
    let without_ratio = UpdateConfig {
        objective: Algorithm::of("rloo", &[]).into(),
        ..update
    };
    assert!(fault(good, 8, &without_ratio).contains("no ratio"));
}
