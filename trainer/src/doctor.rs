//! The checks of `forage doctor`: a device compared with the processor, in seconds.

#[cfg(feature = "cuda")]
mod cuda;
mod parity;

#[cfg(feature = "cuda")]
pub use cuda::cuda;
pub use parity::parity;

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{DType, Device, Distribution, Tensor};
use forage_contracts::policy::{GenerateRequest, Policy, PolicyError, Sampling};
use forage_contracts::seed::Seed;

use crate::backward;
use crate::generate::{Engine, EngineConfig};
use crate::logprobs::{ScoreGrads, Scores};
use crate::model::{Architecture, Decoder, Kernels, ModelConfig, RopeTables};
use crate::sequence::Sequence;
use crate::weights::Checkpoint;
use crate::workers::{KEPT_BYTES, Workers};

/// Result of one check.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The subject.
    pub name: &'static str,
    /// The finding, with the tolerance where there is one.
    pub found: String,
    /// Whether the check passed.
    pub holds: bool,
    /// The fix, where the check has one of its own; for a check that passed, what should still be looked at.
    pub fix: Option<&'static str>,
}

/// Largest difference from the processor's numbers, relative to the largest of them, that counts as rounding. TF32, with 10 bits, is
/// off by more.
const TOLERANCE_F32: f64 = 1e-4;
/// The tolerance of bf16, which has 7 bits.
const TOLERANCE_BF16: f64 = 2e-2;

/// Compares an open device with the processor and measures its speed.
///
/// # Panics
/// Where the runtime of the device does: the caller runs it on a thread of its own.
pub fn examine(device: &Device) -> Vec<Check> {
    let mut checks = vec![product(device, DType::F32)];
    if device.supports_dtype(DType::BF16) {
        checks.push(product(device, DType::BF16));
    }
    checks.push(decoder(device));
    checks.push(speed(device));
    #[cfg(feature = "gpu")]
    if !crate::device::is_processor(device) {
        checks.push(kernels());
    }
    checks
}

/// Checks that compiled kernels are kept for the next process.
#[cfg(feature = "gpu")]
fn kernels() -> Check {
    let (found, fix) = match crate::device::kernels() {
        Ok(kernels) => (format!("kept in {}", kernels.folder().display()), None),
        Err(why) => {
            let found = format!("not kept, so that every process compiles anew: {why}");
            (found, Some(crate::device::KERNELS_FIX))
        }
    };
    Check {
        name: "compiled kernels",
        found,
        holds: true,
        fix,
    }
}

/// Compares products of matrices with few rows and with many, which different kernels compute.
fn product(device: &Device, dtype: DType) -> Check {
    let (name, tolerance) = match dtype {
        DType::BF16 => ("a bf16 product", TOLERANCE_BF16),
        _ => ("an f32 product", TOLERANCE_F32),
    };
    let here = Device::flex();
    let draw =
        |shape| Tensor::<2>::random(shape, Distribution::Uniform(-1.0, 1.0), (&here, DType::F32));
    let there =
        |x: &Tensor<2>| Tensor::<2>::from_data(x.to_data(), (device, DType::F32)).cast(dtype);
    let kernels = Kernels::of_type(device, dtype);
    // Weights are stored by output.
    let b = draw([128, 160]);
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for rows in [1, 24, 96] {
        let a = draw([rows, 160]);
        found.extend(numbers(kernels.product(there(&a), there(&b).transpose())));
        expected.extend(numbers(a.matmul(b.clone().transpose())));
    }
    compared(name, &found, &expected, tolerance)
}

/// Compares log-probabilities and gradients of a small decoder.
fn decoder(device: &Device) -> Check {
    let config = small_model();
    let sequences: Vec<Sequence> = (0..3)
        .map(|row| {
            let ids: Vec<u32> = (0..24 + row).map(|place| (7 * place + row) % 250).collect();
            Sequence {
                targets: (4..ids.len()).collect(),
                ids,
                ..Sequence::default()
            }
        })
        .collect();
    let rows: Vec<&Sequence> = sequences.iter().collect();
    let run = |device: &Device| {
        let decoder = Decoder::random(&config, Seed::root(1), device);
        let rope = RopeTables::new(&config, 32, device);
        let all = |scores: &Scores| {
            let ones = vec![1.0; scores.logprobs.len()];
            (
                ScoreGrads {
                    logprobs: ones,
                    entropies: Vec::new(),
                },
                scores.logprobs.clone(),
            )
        };
        let found = backward::gradients(&decoder, &config, &rope, &rows, KEPT_BYTES, all);
        let (gradients, mut found) = found.expect("every row has targets");
        found.extend(gradients.0.into_values().flat_map(numbers));
        found
    };
    compared(
        "log-probabilities and gradients of a decoder",
        &run(device),
        &run(&Device::flex()),
        TOLERANCE_F32,
    )
}

/// Measures the engine's tokens per second.
fn speed(device: &Device) -> Check {
    let name = "generation";
    match generate(device) {
        Ok(tokens) => {
            let weights = small_model().parameters() as f64 / 1e6;
            let found = format!(
                "{tokens:.0} tokens/s of a model of {weights:.1} M weights, 32 sequences at once"
            );
            Check {
                name,
                found,
                holds: true,
                fix: None,
            }
        }
        Err(error) => Check {
            name,
            found: error.to_string(),
            holds: false,
            fix: None,
        },
    }
}

fn generate(device: &Device) -> Result<f64, PolicyError> {
    const SEQUENCES: usize = 32;
    const NEW: usize = 16;
    let config = small_model();
    let decoder = Decoder::random(&config, Seed::root(1), device);
    let checkpoint =
        Checkpoint::of_bytes(config, decoder).expect("the built-in tokenizer is complete");
    let sizes = EngineConfig {
        context: 64,
        cache_tokens: 64 * SEQUENCES,
        step_tokens: 1024,
        sequences: SEQUENCES,
        bf16: false,
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let engine = Arc::new(Engine::start(
        &checkpoint,
        sizes,
        Workers::new(threads).kernel_pool(),
    ));
    let round = |round: u64| {
        let requests = (0..SEQUENCES as u64).map(|row| GenerateRequest {
            episode: round * SEQUENCES as u64 + row,
            tokens: (0..16)
                .map(|place| ((5 * place + row + 3 * round) % 250) as u32)
                .collect(),
            max_tokens: NEW,
            stop: Vec::new(),
            ignore_eos: true,
            sampling: Sampling::FULL,
            seed: Seed::root(round),
        });
        let all = futures::future::try_join_all(requests.map(|request| engine.generate(request)));
        futures::executor::block_on(all).map(drop)
    };
    // The first round compiles kernels.
    round(0)?;
    let start = Instant::now();
    round(1)?;
    Ok((SEQUENCES * NEW) as f64 / start.elapsed().as_secs_f64())
}

fn small_model() -> ModelConfig {
    ModelConfig {
        architecture: Architecture::named("qwen3").expect("a family"),
        vocab_size: 512,
        hidden_size: 128,
        intermediate_size: 384,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 32,
        max_position_embeddings: 64,
        rope_theta: 1e4,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
    }
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor
        .into_data()
        .convert::<f32>()
        .try_into_vec()
        .expect("converted just before")
}

fn compared(name: &'static str, found: &[f32], expected: &[f32], tolerance: f64) -> Check {
    let largest = expected
        .iter()
        .fold(0.0_f64, |most, &value| most.max(f64::from(value).abs()));
    let off = |(found, expected): (&f32, &f32)| {
        let off = f64::from(found - expected).abs() / largest;
        if off.is_nan() { f64::INFINITY } else { off }
    };
    let worst = found.iter().zip(expected).map(off).fold(0.0, f64::max);
    let holds = found.len() == expected.len() && worst <= tolerance;
    Check {
        name,
        found: format!("off by {worst:.1e} of the processor's, at most {tolerance:.0e} allowed"),
        holds,
        fix: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_as_itself_and_wrong_numbers_are_seen() {
        assert!(examine(&Device::flex()).iter().all(|check| check.holds));
        assert!(!compared("zeros", &[0.0, 0.0], &[1.0, -2.0], TOLERANCE_F32).holds);
        assert!(
            !compared(
                "not a number",
                &[f32::NAN, -2.0],
                &[1.0, -2.0],
                TOLERANCE_F32
            )
            .holds
        );
        assert!(!compared("too few", &[1.0], &[1.0, -2.0], TOLERANCE_F32).holds);
    }
}
