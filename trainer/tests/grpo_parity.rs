//! GRPO losses, gradients and `AdamW` steps equal `PyTorch` on fixed trajectories, however the step is cut.

mod common;

use burn::tensor::{Device, Tensor};
use common::{Tiny, assert_close, floats, json, targets, tiny, tokens};
use forage_trainer::grads::NamedGrads;
use forage_trainer::grpo::{ClipRange, KlPenalty, LossConfig, LossParts, LossStats, policy_loss};
use forage_trainer::logprobs::token_logprobs;
use forage_trainer::optim::{AdamW, AdamWConfig};
use forage_trainer::sequence::{Sequence, cut};
use forage_trainer::workers::Workers;
use serde_json::Value;

struct Member {
    sequence: Sequence,
    advantage: f32,
    old: Vec<f32>,
    reference: Vec<f32>,
}

fn members(fixture: &Value) -> Vec<Member> {
    let groups = fixture["groups"].as_array().unwrap().iter().flat_map(|group| group.as_array().unwrap());
    let at = |values: &Value, targets: &[usize]| {
        let all = floats(values);
        targets.iter().map(|&position| all[position] as f32).collect::<Vec<f32>>()
    };
    groups
        .map(|member| {
            let targets = targets(&member["mask"]);
            Member {
                advantage: member["advantage"].as_f64().unwrap() as f32,
                old: at(&member["old_logprobs"], &targets),
                reference: at(&member["ref_logprobs"], &targets),
                sequence: Sequence { ids: tokens(&member["tokens"]), targets },
            }
        })
        .collect()
}

fn variant(name: &str) -> LossConfig {
    let dual = if name.contains("dual") { 3.0 } else { 0.0 };
    let kl = if name.contains("kl") { KlPenalty::LowVar } else { KlPenalty::None };
    LossConfig { clip: ClipRange { dual, ..ClipRange::default() }, kl, kl_coefficient: 0.1 }
}

fn gradients(
    model: &Tiny,
    members: &[Member],
    config: &LossConfig,
    budget: usize,
    workers: usize,
) -> (f64, NamedGrads, Vec<LossStats>) {
    let lengths: Vec<usize> = members.iter().map(|member| member.sequence.ids.len()).collect();
    let step_tokens = members.iter().map(|member| member.sequence.targets.len()).sum();
    let batches = cut(&lengths, budget);
    let plain = Device::flex();
    let (gradients, parts) = Workers::new(workers).gradients(&model.decoder, batches.len(), |decoder, index| {
        let rows: Vec<&Member> = batches[index].iter().map(|&row| &members[row]).collect();
        let sequences: Vec<&Sequence> = rows.iter().map(|member| &member.sequence).collect();
        let scored = token_logprobs(decoder, &model.config, &model.rope, &sequences, 1.0)?;
        let flat = |values: Vec<f32>| Tensor::<1>::from_floats(values.as_slice(), &plain);
        let parts = LossParts {
            old_logprobs: flat(rows.iter().flat_map(|member| member.old.clone()).collect()),
            advantages: flat(rows.iter().flat_map(|member| vec![member.advantage; member.old.len()]).collect()),
            reference_logprobs: Some(flat(rows.iter().flat_map(|member| member.reference.clone()).collect())),
        };
        let (loss, stats) = policy_loss(&scored.logprobs, &parts, config, step_tokens);
        let value = f64::from(loss.clone().inner().into_scalar::<f32>());
        Some((loss, (value, stats)))
    });
    let loss = parts.iter().map(|(value, _)| value).sum();
    (loss, gradients, parts.into_iter().map(|(_, stats)| stats).collect())
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
            let (loss, gradients, stats) = gradients(&model, &members, &variant(name), budget, workers);
            assert_close(loss, expected["loss"].as_f64().unwrap(), 1e-5, name);
            assert_close(gradients.global_norm(), expected["grad_norm"].as_f64().unwrap(), 3e-5, name);
            let clipped: f64 = stats.iter().map(|stats| stats.clipped).sum();
            assert_close(clipped / tokens, expected["clip_fraction"].as_f64().unwrap(), 1e-6, "clip_fraction");
            for (parameter, reference) in expected["gradients"].as_object().unwrap() {
                for (found, reference) in values(&gradients, parameter).iter().zip(floats(reference)) {
                    assert!((f64::from(*found) - reference).abs() < 3e-6, "{name} {parameter}: {found} {reference}");
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
    let config = AdamWConfig { learning_rate: 1e-3, warmup_steps: 0, ..AdamWConfig::default() };
    let mut optimizer = AdamW::new(config);
    for step in 0..3 {
        let (loss, gradients, _) = gradients(&model, &members, &variant("clip"), 60, 2);
        assert_close(loss, expected["loss_before_step"][step].as_f64().unwrap(), 1e-5, "loss before the step");
        let norm = gradients.global_norm();
        assert_close(norm, expected["grad_norm_before_clip"][step].as_f64().unwrap(), 1e-4, "norm before clipping");
        model.decoder = optimizer.update(model.decoder.clone(), gradients, norm);
    }
    let (loss, ..) = gradients(&model, &members, &variant("clip"), 60, 1);
    assert_close(loss, expected["loss_after"].as_f64().unwrap(), 1e-5, "loss after");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    forage_trainer::weights::save_decoder(&path, &model.decoder).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for (name, reference) in expected["parameters"].as_object().unwrap() {
        let view = file.tensor(name).unwrap();
        let found = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let reference: Vec<f64> = if reference[0].is_array() {
            reference.as_array().unwrap().iter().flat_map(floats).collect()
        } else {
            floats(reference)
        };
        for (found, reference) in found.zip(reference) {
            assert!((f64::from(found) - reference).abs() < 5e-6, "{name}: {found} {reference}");
        }
    }
}
