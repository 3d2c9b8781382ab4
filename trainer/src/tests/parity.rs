//! Numbers equal transformers and `PyTorch` on tiny random checkpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_contracts::policy::{GenerateRequest, Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Tokenizer};

use super::common::{fixtures, floats, json};
use super::reference::{FAMILIES, assert_close, left, targets, tiny, tokens};
use crate::generate::{Engine, EngineConfig, EngineModel};
use crate::grads::NamedGrads;
use crate::logprobs::token_logprobs;
use crate::model::{Batch, ModelConfig};
use crate::sequence::Sequence;
use crate::weights::{SaveOptions, save_decoder_as};
use crate::workers::Workers;
use burn::module::Module;
use burn::tensor::Device;
use safetensors::SafeTensors;

#[test]
fn logits_equal_transformers_in_a_batch() {
    for name in FAMILIES {
        let model = tiny(name, &Device::flex());
        let reference = json(&format!("reference_{name}.json"));
        let sequences = reference["sequences"].as_array().unwrap();
        let ids: Vec<Vec<u32>> = sequences
            .iter()
            .map(|sequence| tokens(&sequence["tokens"]))
            .collect();
        let rows: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
        let batch = Batch::new(&rows);
        let hidden = model.decoder.hidden(&model.config, &model.rope, &batch);
        let logits: Vec<f32> = model
            .decoder
            .logits(hidden)
            .into_data()
            .try_into_vec()
            .unwrap();
        for (row, sequence) in sequences.iter().enumerate() {
            for (position, expected) in sequence["logits"].as_array().unwrap().iter().enumerate() {
                let start = batch.spans()[row].row(position) * model.config.vocab_size;
                for (token, expected) in floats(expected).into_iter().enumerate() {
                    assert_close(
                        f64::from(logits[start + token]),
                        expected,
                        1e-4,
                        &format!("{name} {row} {position}"),
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn greedy_continuations_equal_transformers_alone_and_together() {
    for name in FAMILIES {
        let model = tiny(name, &Device::flex());
        let reference = json(&format!("reference_{name}.json"));
        let sequences = reference["sequences"].as_array().unwrap();
        let config = EngineConfig {
            context: 64,
            cache_tokens: 192,
            step_tokens: 64,
            sequences: 3,
            bf16: false,
        };
        let pool = Workers::new(1).kernel_pool();
        let tokenizer = Arc::new(ByteTokenizer);
        let eos = vec![tokenizer.eos()];
        let model = EngineModel {
            decoder: model.decoder,
            config: model.config,
            tokenizer,
            eos,
        };
        let engine = Arc::new(Engine::of(model, config, pool));
        let request = |index: usize| GenerateRequest {
            episode: index as u64,
            tokens: tokens(&sequences[index]["tokens"]),
            max_tokens: 40,
            ignore_eos: false,
            stop: Vec::new(),
            sampling: Sampling::GREEDY,
            seed: Seed::root(0),
        };
        let (a, b, c) = tokio::join!(
            engine.generate(request(0)),
            engine.generate(request(1)),
            engine.generate(request(2))
        );
        for (index, completion) in [a, b, c].into_iter().enumerate() {
            assert_eq!(
                completion.unwrap().tokens,
                tokens(&sequences[index]["greedy"]),
                "{name} {index}"
            );
        }
    }
}

#[test]
fn logprobs_equal_transformers_at_two_temperatures() {
    for name in FAMILIES {
        let model = tiny(name, &Device::flex());
        let reference = json(&format!("reference_{name}.json"));
        for sequence in reference["sequences"].as_array().unwrap() {
            let ids = tokens(&sequence["tokens"]);
            let all = Sequence {
                targets: (1..ids.len()).collect(),
                ids,
                ..Sequence::default()
            };
            for (key, temperature) in [("1.0", 1.0), ("0.7", 0.7)] {
                let all = Sequence {
                    temperatures: vec![temperature; all.targets.len()],
                    ..all.clone()
                };
                let scored =
                    token_logprobs(&model.decoder, &model.config, &model.rope, &[&all]).unwrap();
                let found: Vec<f32> = scored.logprobs.into_data().try_into_vec().unwrap();
                let expected = floats(&sequence["logprobs"][key]);
                assert_eq!(found.len(), expected.len() - 1, "{name}");
                for (found, expected) in found.iter().zip(&expected[1..]) {
                    assert_close(f64::from(*found), *expected, 1e-4, name);
                }
            }
        }
    }
}

#[test]
fn loss_and_gradient_norm_equal_pytorch() {
    for name in FAMILIES {
        let model = tiny(name, &Device::flex().autodiff());
        let reference = json(&format!("reference_{name}.json"));
        let sequences: Vec<Sequence> = reference["sequences"]
            .as_array()
            .unwrap()
            .iter()
            .map(|sequence| Sequence {
                ids: tokens(&sequence["tokens"]),
                targets: targets(&sequence["mask"]),
                ..Sequence::default()
            })
            .collect();
        let rows: Vec<&Sequence> = sequences.iter().collect();
        let scored = token_logprobs(&model.decoder, &model.config, &model.rope, &rows).unwrap();
        let loss = scored.logprobs.mean().neg();
        assert_close(
            f64::from(loss.clone().into_scalar::<f32>()),
            reference["batch"]["loss"].as_f64().unwrap(),
            1e-5,
            "loss",
        );
        let gradients = NamedGrads::collect(&model.decoder, &loss.backward());
        assert_close(
            gradients.global_norm(),
            reference["batch"]["grad_norm"].as_f64().unwrap(),
            3e-5,
            "norm",
        );
    }
}

/// Leaves folders for `make_fixtures.py --check` under the fixtures of the build.
#[test]
fn folders_for_transformers_have_the_weights_they_were_read_from() {
    let out = left("families");
    for name in FAMILIES {
        let model = tiny(name, &Device::flex());
        assert_eq!(
            model.decoder.num_params(),
            model.config.parameters(),
            "{name}"
        );
        let folder = out.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let config = folder.join("config.json");
        std::fs::write(&config, model.config.to_json(0).to_string()).unwrap();
        assert_eq!(ModelConfig::from_file(&config).unwrap(), model.config);
        save_decoder_as(&folder, &model.decoder, SaveOptions::default()).unwrap();
        let [written, read] = [folder, fixtures().join(name)]
            .map(|folder| std::fs::read(folder.join("model.safetensors")).unwrap());
        let tensors = |bytes| -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
            let file = SafeTensors::deserialize(bytes).unwrap().tensors();
            file.into_iter()
                .map(|(name, view)| (name, (view.shape().to_vec(), view.data().to_vec())))
                .collect()
        };
        assert!(tensors(&written) == tensors(&read), "{name}");
    }
}
