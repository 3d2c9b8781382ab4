//! Runs texts of any lengths through the model in batches and gives results in the caller's order.

use std::sync::Arc;

use burn::tensor::Tensor;
use forage_retriever::RetrieverError;

use super::batch::{Batch, Packing, plan};
use super::model::BertModel;
use super::tokens::Tokens;
use crate::device::DeviceSpec;
use crate::workers::Workers;

/// Most tokens of a batch on a processor: enough for the matrix products, few enough for the caches.
const CPU_TOKENS: usize = 1024;
/// Fewest tokens worth a thread of their own.
const CPU_MIN_TOKENS: usize = 64;
/// Most tokens of a batch on a GPU, padding included.
const GPU_TOKENS: usize = 32 * 1024;

/// Texts that cannot be run through a model.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModelFault {
    #[error("the tokenizer failed: {0}")]
    Tokenizer(tokenizers::Error),
    #[error(
        "the tokenizer gives ids that the embeddings have no row for; tokenizer.json and config.json belong to different models"
    )]
    Beyond,
    #[error("the device failed: {0}")]
    Device(String),
    #[error("it gave {0}; the weights are damaged or overflow")]
    NotFinite(f32),
}

impl ModelFault {
    /// The error of the retriever that `model` works for.
    pub(super) fn of(self, model: &str) -> RetrieverError {
        RetrieverError::Model {
            model: model.to_owned(),
            what: self.to_string(),
        }
    }
}

/// A model and the threads it runs on.
#[derive(Debug)]
pub(super) struct Runner {
    model: BertModel,
    on_cpu: bool,
    /// Each batch on one core: nothing waits for anything.
    workers: Workers,
    /// A lone batch on all cores.
    kernels: Arc<rayon::ThreadPool>,
}

impl Runner {
    pub(super) fn new(model: BertModel, device: DeviceSpec, threads: Option<usize>) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let workers = Workers::new(threads.unwrap_or_else(cores));
        let kernels = workers.kernel_pool();
        Self {
            model,
            on_cpu: device.is_cpu(),
            workers,
            kernels,
        }
    }

    /// Runs `work` on the model's threads.
    pub(super) fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.kernels.install(work)
    }

    /// `head` makes one row of numbers per text from the hidden states `[batch.tokens(), hidden]`.
    pub(super) fn run(
        &self,
        tokens: &[Tokens],
        head: impl Fn(Tensor<2>, &Batch) -> Tensor<2> + Sync,
    ) -> Result<Vec<f32>, ModelFault> {
        let lengths: Vec<usize> = tokens.iter().map(|row| row.ids.len()).collect();
        let batches = plan(&lengths, self.packing(&lengths));
        let forward = |index: usize| {
            let batch: &Batch = &batches[index];
            let rows = head(self.model.forward(tokens, batch), batch);
            let data = rows
                .try_into_data()
                .map_err(|error| ModelFault::Device(error.to_string()))?;
            data.try_into_vec::<f32>()
                .map_err(|error| ModelFault::Device(format!("it gave no f32: {error}")))
        };
        let parts: Vec<Result<Vec<f32>, ModelFault>> = match batches.len() {
            0 => Vec::new(),
            count if self.on_cpu && count > 1 => self.workers.map(count, forward),
            count => self.kernels.install(|| (0..count).map(forward).collect()),
        };
        let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
        in_order(&batches, &parts, tokens.len())
    }

    fn packing(&self, lengths: &[usize]) -> Packing {
        if !self.on_cpu {
            return Packing::Padded {
                tokens: GPU_TOKENS,
                longest: self.model.positions(),
            };
        }
        let share = lengths
            .iter()
            .sum::<usize>()
            .div_ceil(self.workers.threads());
        Packing::Exact {
            tokens: share.clamp(CPU_MIN_TOKENS, CPU_TOKENS),
        }
    }
}

fn in_order(batches: &[Batch], parts: &[Vec<f32>], texts: usize) -> Result<Vec<f32>, ModelFault> {
    let Some(width) = parts
        .first()
        .zip(batches.first())
        .map(|(part, batch)| part.len() / batch.texts.len())
    else {
        return Ok(Vec::new());
    };
    let mut all = vec![0.0; texts * width];
    for (batch, part) in batches.iter().zip(parts) {
        if let Some(bad) = part.iter().find(|number| !number.is_finite()) {
            return Err(ModelFault::NotFinite(*bad));
        }
        for (&text, row) in batch.texts.iter().zip(part.chunks_exact(width)) {
            all[text * width..][..width].copy_from_slice(row);
        }
    }
    Ok(all)
}
