//! Recorded rollouts under objectives that read more than rewards: the good gain on the bad.

use serde_json::{Value, json};

use super::common::problem::{checkpoint, learner};
use crate::learner::UpdateConfig;
use crate::logprobs::token_logprobs;
use crate::model::RopeTables;
use crate::optim::AdamWConfig;
use crate::sample::Sample;
use crate::sequence::Sequence;
use crate::weights::Checkpoint;

/// Log-probabilities of the policy's tokens.
fn logprobs(weights: &Checkpoint, sequence: &Sequence) -> Vec<f32> {
    let device = weights.decoder.device();
    let rope = RopeTables::new(&weights.config, sequence.ids.len(), &device);
    let found = token_logprobs(&weights.decoder, &weights.config, &rope, &[sequence]);
    found.unwrap().scores().logprobs
}

/// A group of three rollouts of two turns each, drawn by these weights: a good one, a middling one and a bad one.
fn rollouts(weights: &Checkpoint) -> Vec<Vec<Sample>> {
    let mask = [0, 0, 0, 1, 1, 1, 0, 1, 1];
    let line = |last: [u32; 5], reward: f64| {
        let ids = [&[5, 6, 7][..], &last[..3], &[8][..], &last[3..]].concat();
        let targets: Vec<usize> = (0..mask.len()).filter(|&at| mask[at] == 1).collect();
        let sequence = Sequence {
            ids,
            targets,
            ..Sequence::default()
        };
        let mut logged = vec![0.0; mask.len()];
        for (&at, logprob) in sequence.targets.iter().zip(logprobs(weights, &sequence)) {
            logged[at] = logprob;
        }
        json!({"group": 0, "ids": sequence.ids, "mask": mask, "logprobs": logged, "reward": reward})
            .to_string()
    };
    let lines = [
        line([20, 21, 22, 23, 24], 1.0),
        line([30, 31, 32, 33, 34], 0.25),
        line([40, 41, 42, 43, 44], 0.0),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rollouts.jsonl");
    std::fs::write(&path, lines.join("\n")).unwrap();
    Sample::read_groups(&path, 400, 64, None).unwrap()
}

#[test]
fn the_good_gain_on_the_bad() {
    let start = checkpoint(1);
    let groups = rollouts(&start);
    let lead = |weights: &Checkpoint| -> f32 {
        let whole = |member: usize| -> f32 {
            let sequence = &groups[0][member].sequence;
            logprobs(weights, sequence).iter().sum()
        };
        whole(0) - whole(2)
    };
    let before = lead(&start);
    let objectives: [Value; 8] = [
        json!({"algorithm": "lipo"}),
        json!({"algorithm": "a_lol"}),
        json!({"algorithm": "sspo"}),
        json!({"algorithm": "grpo", "signs": {"positive": 1.0, "negative": 1.0, "overconfident": 1.0}}),
        json!({"algorithm": "grpo", "rank_shaping": {"stride": 1}}),
        json!({"algorithm": "grpo", "entropy": {"anchored": {"weight": 0.005, "top_p": 0.8, "peaks": 0.5}}}),
        json!({"algorithm": "grpo", "entropy": {"clip_cov": {"share": 0.2, "low": 0.0, "high": 9.0}}}),
        json!({"algorithm": "grpo", "entropy": {"kl_cov": {"share": 0.2, "coefficient": 1.0}}}),
    ];
    for objective in objectives {
        let update = UpdateConfig {
            objective: serde_json::from_value(objective.clone()).unwrap(),
            optimizer: AdamWConfig {
                learning_rate: 1e-3,
                warmup_steps: 0,
                ..AdamWConfig::default()
            },
            ..UpdateConfig::default()
        };
        update.check().unwrap();
        let mut learner = learner(start.clone(), update);
        let stats = learner.improve(groups.clone()).unwrap();
        // Some of them keep a reference, none measures how far it is.
        assert_eq!((stats.updates, stats.penalised), (1, false), "{objective}");
        let after = lead(&learner.checkpoint());
        assert!(after > before, "{objective}: {before} -> {after}");
    }
}
