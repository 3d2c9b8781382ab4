//! Supervised fine-tuning on demonstrations: cross-entropy on the tokens the demonstrator wrote, nothing else.

use crate::learner::LearnError;
use crate::logprobs::token_logprobs;
use crate::model::{Decoder, ModelConfig, RopeTables};
use crate::optim::AdamW;
use crate::sequence::{Sequence, cut};
use crate::workers::Workers;

/// What one SFT step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SftStats {
    /// Mean cross-entropy of the trained tokens before the update, nats.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Tokens trained on.
    pub tokens: usize,
}

/// One optimizer step of token-mean cross-entropy over `sequences`. `decoder` is on an autodiff device.
///
/// # Errors
/// [`LearnError::NonFinite`] before anything was updated.
pub fn sft_step(
    decoder: Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[Sequence],
    optimizer: &mut AdamW,
    micro_batch_tokens: usize,
    workers: &Workers,
) -> Result<(Decoder, SftStats), LearnError> {
    let tokens: usize = sequences.iter().map(|sequence| sequence.targets.len()).sum();
    let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.ids.len()).collect();
    let batches = cut(&lengths, micro_batch_tokens);
    let (gradients, losses) = workers.gradients(&decoder, batches.len(), |decoder, index| {
        let rows: Vec<&Sequence> = batches[index].iter().map(|&row| &sequences[row]).collect();
        let scored = token_logprobs(decoder, config, rope, &rows, 1.0)?;
        let loss = scored.logprobs.sum().neg() * (1.0 / tokens as f64);
        let value = f64::from(loss.clone().without_autodiff().into_scalar::<f32>());
        Some((loss, value))
    });
    let loss = losses.iter().sum();
    let grad_norm = gradients.global_norm();
    if !grad_norm.is_finite() {
        return Err(LearnError::NonFinite(grad_norm));
    }
    let decoder = optimizer.update(decoder, gradients, grad_norm);
    Ok((decoder, SftStats { loss, grad_norm, tokens }))
}
