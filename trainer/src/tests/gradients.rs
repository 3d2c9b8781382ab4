//! Gradients of two batches under the same weights.

use forage_trainer::{OldLogprobs, Sample, Sequence, UpdateConfig};

use crate::tests::common::problem::{checkpoint, learner, weights};

fn sample(first: u32, reward: f32) -> Sample {
    Sample {
        sequence: Sequence {
            ids: vec![first, 1, 2, 3, 4],
            targets: vec![2, 3, 4],
            ..Sequence::default()
        },
        logprobs: vec![-1.0; 3],
        turns: vec![3],
        turn_rewards: vec![0.0],
        tree: 0,
        reward,
        accuracy: reward,
        masked: false,
        unpaid: false,
        gold: String::new(),
    }
}

#[tokio::test]
async fn equal_batches_have_equal_gradients_and_others_are_named() {
    let update = UpdateConfig {
        old_logprobs: Some(OldLogprobs::Trainer),
        ..UpdateConfig::default()
    };
    let mut learner = learner(checkpoint(1), update);
    let before = weights(&learner);
    let batch = |rewards: [f32; 2]| vec![vec![sample(5, rewards[0]), sample(6, rewards[1])]];
    let right = || batch([1.0, 0.0]);
    let same = learner.compare_gradients([right(), right()]).unwrap();
    assert!(same.norms[0] > 0.0, "{same:?}");
    assert_eq!(same.digests[0], same.digests[1]);
    assert_eq!((same.largest_difference, &same.parameter), (0.0, &None));
    let other = [right(), batch([0.0, 1.0])];
    let other = learner.compare_gradients(other).unwrap();
    assert_eq!(other.digests[0], same.digests[0]);
    assert_ne!(other.digests[0], other.digests[1]);
    assert!(other.largest_difference > 0.0 && other.parameter.is_some());
    let mut masked = right();
    for sample in &mut masked[0] {
        sample.masked = true;
    }
    let none = learner.compare_gradients([right(), masked]).unwrap();
    assert!(
        none.norms[0] > 0.0 && none.norms[1].abs() < 1e-12,
        "{none:?}"
    );
    assert_eq!(weights(&learner), before);
}
