//! Supervised fine-tuning on demonstrations: cross-entropy on the tokens the demonstrator wrote, nothing else.

use crate::backward::gradients;
use crate::learner::LearnError;
use crate::logprobs::ScoreGrads;
use crate::model::{Decoder, ModelConfig, RopeTables};
use crate::optim::AdamW;
use crate::sequence::{Sequence, cut, ids};
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

/// One optimizer step of token-mean cross-entropy over `sequences`; `decoder` is changed.
///
/// # Errors
/// [`LearnError::NonFinite`] before anything was updated.
pub fn sft_step(
    decoder: &mut Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[Sequence],
    optimizer: &mut AdamW,
    micro_batch_tokens: usize,
    workers: &Workers,
) -> Result<SftStats, LearnError> {
    let tokens: usize = sequences.iter().map(|sequence| sequence.targets.len()).sum();
    let batches = cut(&ids(sequences), micro_batch_tokens);
    let (gradients, losses) = workers.gradients(batches.len(), |index| {
        let rows: Vec<&Sequence> = batches[index].iter().map(|&row| &sequences[row]).collect();
        gradients(decoder, config, rope, &rows, 1.0, |scores| {
            let weight = -1.0 / tokens as f64;
            let loss = scores.logprobs.iter().map(|&logprob| f64::from(logprob) * weight).sum::<f64>();
            (ScoreGrads { logprobs: vec![weight as f32; scores.logprobs.len()], entropies: Vec::new() }, loss)
        })
    });
    let loss = losses.iter().sum();
    let grad_norm = gradients.global_norm();
    LearnError::check(grad_norm, &gradients)?;
    optimizer.apply(decoder, config, gradients, grad_norm);
    Ok(SftStats { loss, grad_norm, tokens })
}
