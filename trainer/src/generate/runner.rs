//! One pass through the model.

use burn::tensor::{DType, Int, Tensor};
use forage_env::policy::PolicyError;

use crate::model::{Decoder, KvCache, ModelConfig, Pass, RopeTables};

/// Rows of logits that exist at once: with a vocabulary of 150,000 they are the largest thing of a pass.
const HEAD_ROWS: usize = 256;

/// The model with its cache.
pub(super) struct Runner {
    pub(super) decoder: Decoder,
    pub(super) config: ModelConfig,
    pub(super) rope: RopeTables,
    pub(super) cache: KvCache,
}

/// Bounds on the bytes that a pass of `rows` tokens holds, `sequences` of which get logits: of the layers, one of the widest
/// matrices; of the logits, those of one part and a copy in plain memory.
pub(crate) fn pass_bytes(config: &ModelConfig, rows: usize, sequences: usize) -> [usize; 2] {
    let queries = config.num_attention_heads * config.head_dim;
    let layer = rows * (3 * config.hidden_size + 3 * config.intermediate_size + 2 * queries);
    let logits = 2 * sequences.min(HEAD_ROWS) * config.vocab_size;
    [layer, logits].map(|numbers| numbers * size_of::<f32>())
}

impl Runner {
    /// Runs a pass and hands the logits (`[vocab]`) of the given rows to `each`, in order, some rows at a time in parallel.
    pub(super) fn run<T: Send>(
        &mut self,
        pass: &Pass<'_>,
        rows: &[usize],
        each: impl Fn(usize, &[f32]) -> T + Sync,
    ) -> Result<Vec<T>, PolicyError> {
        use rayon::prelude::*;

        let hidden = self
            .decoder
            .hidden_cached(&self.config, &self.rope, pass, &mut self.cache);
        let mut results = Vec::with_capacity(rows.len());
        for (part, rows) in rows.chunks(HEAD_ROWS).enumerate() {
            let index: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
            let index = Tensor::<1, Int>::from_ints(index.as_slice(), &hidden.device());
            let logits = self
                .decoder
                .logits(hidden.clone().select(0, index))
                .cast(DType::F32);
            let logits: Vec<f32> = logits.into_data().try_into_vec().map_err(|error| {
                PolicyError::Gone(format!("logits cannot be read back: {error:?}"))
            })?;
            let lines = logits.par_chunks_exact(self.config.vocab_size).enumerate();
            results.extend(
                lines
                    .map(|(row, logits)| each(part * HEAD_ROWS + row, logits))
                    .collect::<Vec<T>>(),
            );
        }
        Ok(results)
    }
}
