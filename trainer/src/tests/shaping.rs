//! Advantages shaped by hidden states, credit by potentials and spectra of gradients, where a learner makes them.

use forage_contracts::Tokenizer;
use forage_contracts::seed::Seed;
use serde_json::{Value, json};

use super::common::problem::{checkpoint, learner, weights};
use super::reference::assert_close;
use crate::learner::{Learner, OldLogprobs, UpdateConfig};
use crate::logprobs::token_logprobs;
use crate::lora::{LoraConfig, Targets};
use crate::model::RopeTables;
use crate::objective::{RankMetrics, RankShaping, rank_means, step_potential};
use crate::optim::AdamWConfig;
use crate::sample::Sample;
use crate::sequence::Sequence;
use crate::spectrum::singular_values;

/// A rollout of two turns that begins like every other.
fn sample(first: u32, reward: f32) -> Sample {
    let read = [5, 6, 7, 8];
    let wrote: Vec<u32> = (0..9).map(|place| first + place * place % 11).collect();
    let ids = [&read[..], &wrote[..5], &[9, 10][..], &wrote[5..]].concat();
    let targets: Vec<usize> = (4..9).chain(11..ids.len()).collect();
    Sample {
        logprobs: vec![-1.0; targets.len()],
        sequence: Sequence {
            ids,
            targets,
            ..Sequence::default()
        },
        turns: vec![5, 4],
        turn_rewards: vec![0.0; 2],
        tree: 0,
        reward,
        accuracy: reward,
        masked: false,
        unpaid: false,
        gold: "Ada".to_owned(),
    }
}

fn groups() -> Vec<Vec<Sample>> {
    let group = |first: u32| {
        let rewards = [1.0, 0.0, 0.5, 0.0].into_iter();
        let members = rewards
            .zip(0..)
            .map(|(reward, place)| sample(first + 20 * place, reward));
        members.collect()
    };
    vec![group(20), group(150)]
}

fn update(objective: Value) -> UpdateConfig {
    UpdateConfig {
        objective: serde_json::from_value(objective).unwrap(),
        old_logprobs: Some(OldLogprobs::Trainer),
        optimizer: AdamWConfig {
            learning_rate: 1e-3,
            warmup_steps: 0,
            ..AdamWConfig::default()
        },
        ..UpdateConfig::default()
    }
}

#[tokio::test]
async fn metrics_do_not_depend_on_company() {
    let learner = learner(checkpoint(1), UpdateConfig::default());
    let shaping = RankShaping {
        stride: 2,
        ..RankShaping::default()
    };
    let together = learner.rank_metrics(&shaping, &groups()).unwrap();
    assert_eq!(together.len(), 8);
    for (sample, together) in groups().into_iter().flatten().zip(together) {
        let alone = learner.rank_metrics(&shaping, &[vec![sample]]).unwrap();
        assert!(together[0] > 1.5 && together[0] < 9.0, "{together:?}");
        for (alone, together) in alone[0].iter().zip(together) {
            assert_close((*alone).into(), together.into(), 1e-4, "a metric");
        }
    }
    let mut nothing = sample(20, 0.0);
    nothing.sequence.targets.clear();
    let found = learner.rank_metrics(&shaping, &[vec![nothing]]).unwrap();
    assert_eq!(found, [[0.0; 3]]);
}

#[tokio::test]
async fn a_batch_is_shaped_by_the_averages_of_those_before() {
    let after = |objective: Value, batches: usize| {
        let mut learner = learner(checkpoint(1), update(objective));
        for _ in 0..batches {
            let stats = learner.improve(groups()).unwrap();
            assert_eq!(stats.updates, 1);
            assert_eq!(stats.ranks.is_some(), learner.averages().is_some());
        }
        weights(&learner)
    };
    let plain = || json!({"algorithm": "grpo"});
    let shaped = || json!({"algorithm": "grpo", "rank_shaping": {"stride": 2}});
    assert!(
        after(shaped(), 1) == after(plain(), 1),
        "nothing came before"
    );
    assert!(
        after(shaped(), 2) != after(plain(), 2),
        "nothing was shaped"
    );
}

#[tokio::test]
async fn groups_that_are_dropped_do_not_move_the_averages() {
    let objective =
        json!({"algorithm": "grpo", "filter": "zero_variance", "rank_shaping": {"stride": 2}});
    let start = || learner(checkpoint(1), update(objective.clone()));
    let mut both = groups();
    for sample in &mut both[1] {
        sample.reward = 0.5;
        // States of few directions, unlike those of the others.
        for (place, id) in sample.sequence.ids.iter_mut().enumerate() {
            *id = 150 + place as u32 % 2;
        }
    }
    let shaping = start().recipe.rank_shaping.unwrap();
    let means = |groups: &[Vec<Sample>]| {
        let metrics = start().rank_metrics(&shaping, groups).unwrap();
        rank_means(&metrics).unwrap()
    };
    let distance = |found: RankMetrics, other: RankMetrics| {
        let pairs = found.into_iter().zip(other);
        pairs.fold(0.0, |most: f32, (a, b)| most.max((a - b).abs()))
    };
    let mut learner = start();
    assert_eq!(learner.improve(both.clone()).unwrap().updates, 1);
    let found = learner.averages().unwrap();
    assert!(distance(found, means(&both[..1])) < 1e-3);
    assert!(distance(found, means(&both)) > 1e-2);
    // Where all are dropped they stay.
    let stats = learner.improve(both.split_off(1)).unwrap();
    assert_eq!((stats.updates, stats.ranks), (0, None));
    assert_eq!(learner.averages(), Some(found));
}

#[tokio::test]
async fn potentials_are_those_of_the_gold_answer_where_turns_begin() {
    let credit = json!({"saturation": 0.9, "penalty": 0.5, "weight": 0.5});
    let objective = json!({"algorithm": "dr_grpo", "credit": {"step_potential": credit}});
    let update = UpdateConfig {
        answer_lead: Some("<answer>".to_owned()),
        ..update(objective)
    };
    update.check().unwrap();
    let mut learner = learner(checkpoint(1), update);
    let readings = learner.readings(&groups()).unwrap();
    let start = learner.checkpoint();
    let encode = |text: &str| start.tokenizer.encode(text);
    let (lead, gold) = (encode("<answer>"), encode("Ada"));
    for (sample, found) in groups().iter().flatten().zip(&readings.potentials) {
        assert_eq!(found.len(), 2);
        for (found, read) in found.iter().zip([4, 11]) {
            let ids = [&sample.sequence.ids[..read], &lead[..], &gold[..]].concat();
            let asked = Sequence {
                targets: (ids.len() - gold.len()..ids.len()).collect(),
                ids,
                ..Sequence::default()
            };
            let rope = RopeTables::new(&start.config, 64, &start.decoder.device());
            let scores = token_logprobs(&start.decoder, &start.config, &rope, &[&asked]);
            let scores = scores.unwrap().scores();
            let expected = step_potential(&scores.logprobs, &scores.entropies).unwrap();
            assert_close((*found).into(), expected.into(), 1e-5, "a potential");
        }
    }
    assert_eq!(learner.improve(groups()).unwrap().updates, 1);
}

#[tokio::test]
async fn covariances_are_those_of_tokens_outside_the_entropy_mask_too() {
    let scored = |top_share: f64| {
        let entropy = json!({"top_share": top_share, "kl_cov": {"share": 0.1, "coefficient": 1.0}});
        let objective = json!({"algorithm": "grpo", "entropy": entropy});
        let learner = learner(checkpoint(1), update(objective));
        let (mut scored, ..) = learner.advantages(groups()).unwrap();
        learner.set_old_logprobs(&mut scored).unwrap();
        scored
    };
    let (all, masked) = (scored(1.0), scored(0.25));
    let mut held = 0;
    for (all, masked) in all.iter().zip(&masked) {
        assert_eq!(all.held, masked.held);
        held += all.held.iter().filter(|held| **held).count();
    }
    assert_eq!(held, 7, "a tenth of 72");
    let learned = masked.iter().flat_map(|row| &row.advantages);
    let learned = learned.filter(|advantage| advantage.abs() > 0.0).count();
    // The first tokens of all rollouts are predicted from the same prompt, so that they tie.
    assert!((18..72).contains(&learned), "{learned}");
}

#[tokio::test]
async fn gradients_have_a_spectrum_for_each_projection_of_attention() {
    let update = UpdateConfig {
        gradient_spectra_every: 2,
        ..update(json!({"algorithm": "grpo"}))
    };
    let names = |parts: &[&str]| -> Vec<String> {
        let maps = ["q_proj", "k_proj", "v_proj", "o_proj"];
        let mut names: Vec<String> = (0..2)
            .flat_map(|layer| maps.map(|map| format!("{layer}/{map}")))
            .flat_map(|map| parts.iter().map(move |part| format!("{map}{part}")))
            .collect();
        names.sort();
        names
    };
    let found = |learner: &Learner| -> Vec<String> {
        let mut found: Vec<String> = learner.spectra.iter().map(|of| of.name.clone()).collect();
        found.sort();
        found
    };
    let mut whole = learner(checkpoint(1), update.clone());
    let (scored, ..) = whole.advantages(groups()).unwrap();
    let rows = whole.minibatches(scored).remove(0);
    let (gradients, _) = whole.gradients(&rows).unwrap();
    let spectra = whole.student.spectra(&gradients);
    let keys = spectra.iter().find(|of| of.name == "1/k_proj").unwrap();
    let gradient = gradients.0["model.layers.1.self_attn.k_proj.weight"].clone();
    let numbers: Vec<f32> = gradient.into_data().try_into_vec().unwrap();
    // Two heads of eight numbers for keys, of 32 inputs.
    let values = singular_values(&numbers, 16);
    assert_eq!(values.len(), 16);
    assert_close(keys.nuclear_norm, values.iter().sum(), 1e-9, "nuclear norm");
    let squares: f64 = values.iter().map(|value| value * value).sum();
    let norm: f64 = numbers
        .iter()
        .map(|&number| f64::from(number).powi(2))
        .sum();
    assert!(norm > 0.0 && (squares / norm - 1.0).abs() < 1e-6);
    assert!(keys.effective_rank >= 1.0 && keys.effective_rank <= 16.0);
    for step in 0..3 {
        whole.improve(groups()).unwrap();
        let expected = if step == 1 { Vec::new() } else { names(&[""]) };
        assert_eq!(found(&whole), expected, "step {step}");
    }
    let mut start = checkpoint(1);
    let lora = LoraConfig {
        rank: 4,
        alpha: 8.0,
        rank_stabilised: false,
        dropout: 0.0,
        targets: Targets::AllLinear,
        base: "base".to_owned(),
    };
    start.adapt(lora, Seed::root(2)).unwrap();
    let mut adapted = learner(start, update);
    adapted.improve(groups()).unwrap();
    assert_eq!(found(&adapted), names(&["/a", "/b"]));
    assert!(
        adapted
            .spectra
            .iter()
            .all(|of| of.effective_rank <= 4.0 + 1e-9)
    );
}
