//! GRPO losses, gradients and `AdamW` steps equal `PyTorch` on fixed trajectories, however the step is cut.

use super::common::{floats, json};
use super::reference::{Tiny, assert_close, targets, tiny, tokens};
use crate::backward;
use crate::grads::NamedGrads;
use crate::objective::{Algorithm, KlEstimator, KlPenalty, Recipe};
use crate::optim::{AdamW, AdamWConfig};
use crate::ranks::Ranks;
use crate::sequence::{Sequence, cut, ids};
use crate::update::{Scored, loss};
use crate::update_stats::TokenSums;
use crate::workers::{KEPT_BYTES, Workers};
use burn::tensor::Device;
use serde_json::Value;

fn members(fixture: &Value) -> (Vec<Scored>, Vec<Vec<f32>>) {
    let groups = fixture["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group.as_array().unwrap());
    let at = |values: &Value, targets: &[usize]| {
        let all = floats(values);
        targets
            .iter()
            .map(|&position| all[position] as f32)
            .collect::<Vec<f32>>()
    };
    let step_tokens = fixture["masked_tokens"].as_f64().unwrap();
    groups
        .map(|member| {
            let targets = targets(&member["mask"]);
            let old = at(&member["old_logprobs"], &targets);
            let scored = Scored {
                group: 0,
                sampler: old.clone(),
                proximal: old,
                advantages: vec![member["advantage"].as_f64().unwrap() as f32; targets.len()],
                weight: (1.0 / step_tokens) as f32,
                sequence: Sequence {
                    ids: tokens(&member["tokens"]),
                    targets: targets.clone(),
                    ..Sequence::default()
                },
                ..Scored::default()
            };
            (scored, at(&member["ref_logprobs"], &targets))
        })
        .unzip()
}

fn variant(name: &str) -> Recipe {
    let dual = name.contains("dual").then_some(3.0);
    let loss = serde_json::json!({"ppo_clip": {"low": 0.2, "high": 0.28, "dual": dual}});
    let low_var = KlPenalty {
        in_reward: false,
        estimator: KlEstimator::LowVar,
        coefficient: 0.1,
        unbiased: false,
    };
    Recipe {
        loss: serde_json::from_value(loss).unwrap(),
        kl: name.contains("kl").then_some(low_var),
        ..Algorithm::default().recipe(1)
    }
}

fn step(
    model: &Tiny,
    (members, references): &(Vec<Scored>, Vec<Vec<f32>>),
    recipe: &Recipe,
    budget: usize,
    workers: usize,
) -> (NamedGrads, TokenSums) {
    let batches = cut(&ids(members.iter().map(|member| &member.sequence)), budget);
    let (gradients, parts) = Workers::new(workers).gradients(batches.len(), |index| {
        let rows: Vec<&Scored> = batches[index].iter().map(|&row| &members[row]).collect();
        let sequences: Vec<&Sequence> = rows.iter().map(|member| &member.sequence).collect();
        let reference: Vec<f32> = batches[index]
            .iter()
            .flat_map(|&row| references[row].iter().copied())
            .collect();
        backward::gradients(
            &model.decoder,
            &model.config,
            &model.rope,
            &sequences,
            KEPT_BYTES,
            |scores| loss(&rows, recipe, scores, Some(&reference)),
        )
    });
    let mut sums = TokenSums::default();
    for part in parts {
        sums += part;
    }
    (gradients, sums)
}

fn values(gradients: &NamedGrads, name: &str) -> Vec<f32> {
    // Norm weights are called gamma in Burn.
    let name = name.replace("norm.weight", "norm.gamma");
    gradients.0[&name].to_data().try_into_vec().unwrap()
}

#[test]
fn loss_and_gradient_equal_pytorch_for_every_cut() {
    let fixture = json("grpo.json");
    let members = members(&fixture);
    let model = tiny("tiny_qwen2", &Device::flex().autodiff());
    let tokens = fixture["masked_tokens"].as_f64().unwrap();
    for name in ["clip", "dual_clip", "clip_kl", "dual_clip_kl"] {
        let expected = &fixture["variants"][name];
        for (budget, workers) in [(10_000, 1), (60, 1), (60, 2), (1, 2)] {
            let (gradients, sums) = step(&model, &members, &variant(name), budget, workers);
            assert_close(sums.loss, expected["loss"].as_f64().unwrap(), 1e-5, name);
            assert_close(
                gradients.global_norm(),
                expected["grad_norm"].as_f64().unwrap(),
                3e-5,
                name,
            );
            if !name.contains("dual") {
                let clipped = sums.objective.bounded as f64;
                assert_close(
                    clipped / tokens,
                    expected["clip_fraction"].as_f64().unwrap(),
                    1e-6,
                    "clip_fraction",
                );
            }
            for (parameter, reference) in expected["gradients"].as_object().unwrap() {
                let (found, reference) = (values(&gradients, parameter), floats(reference));
                assert_eq!(found.len(), reference.len(), "{name} {parameter}");
                for (found, reference) in found.iter().zip(reference) {
                    assert!(
                        (f64::from(*found) - reference).abs() < 3e-6,
                        "{name} {parameter}: {found} {reference}"
                    );
                }
            }
        }
    }
}

#[test]
fn three_adamw_steps_equal_pytorch() {
    let fixture = json("grpo.json");
    let members = members(&fixture);
    let mut model = tiny("tiny_qwen2", &Device::flex().autodiff());
    let expected = &fixture["adamw"];
    let config = AdamWConfig {
        learning_rate: 1e-3,
        warmup_steps: 0,
        ..AdamWConfig::default()
    };
    let mut optimizer = AdamW::new(config);
    for number in 0..3 {
        let (gradients, sums) = step(&model, &members, &variant("clip"), 60, 2);
        assert_close(
            sums.loss,
            expected["loss_before_step"][number].as_f64().unwrap(),
            1e-5,
            "loss before the step",
        );
        let norm = gradients.global_norm();
        assert_close(
            norm,
            expected["grad_norm_before_clip"][number].as_f64().unwrap(),
            1e-4,
            "norm before clipping",
        );
        optimizer
            .apply(
                &mut model.decoder,
                &model.config,
                gradients,
                norm,
                &Ranks::alone(),
            )
            .unwrap();
    }
    let (_, sums) = step(&model, &members, &variant("clip"), 60, 1);
    assert_close(
        sums.loss,
        expected["loss_after"].as_f64().unwrap(),
        1e-5,
        "loss after",
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    crate::weights::write::save_decoder(&path, &model.decoder).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for (name, reference) in expected["parameters"].as_object().unwrap() {
        let view = file.tensor(name).unwrap();
        let found = view
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let reference: Vec<f64> = if reference[0].is_array() {
            reference
                .as_array()
                .unwrap()
                .iter()
                .flat_map(floats)
                .collect()
        } else {
            floats(reference)
        };
        assert_eq!(found.len(), reference.len(), "{name}");
        for (found, reference) in found.zip(reference) {
            assert!(
                (f64::from(found) - reference).abs() < 5e-6,
                "{name}: {found} {reference}"
            );
        }
    }
}
