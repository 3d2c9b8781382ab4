//! One pass through the model.

use burn::tensor::{DType, Int, Tensor};
use forage_contracts::policy::PolicyError;
use rayon::prelude::*;

use super::sampler::{Answer, Question};
use crate::model::{Decoder, KvCache, ModelConfig, Pass, RopeTables};

/// Number of rows of logits that exist at once: with a vocabulary of 150,000 they are the largest tensor of a pass.
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
    /// Runs a pass and answers the questions to some of its rows, in order; `None` where a logit of the row is not finite.
    pub(super) fn run(
        &mut self,
        pass: &Pass<'_>,
        questions: &[(usize, Question)],
    ) -> Result<Vec<Option<Answer>>, PolicyError> {
        let hidden = self
            .decoder
            .hidden_cached(&self.config, &self.rope, pass, &mut self.cache);
        let mut answers = Vec::with_capacity(questions.len());
        for questions in questions.chunks(HEAD_ROWS) {
            let rows: Vec<i32> = questions.iter().map(|&(row, _)| row as i32).collect();
            let rows = Tensor::<1, Int>::from_ints(rows.as_slice(), &hidden.device());
            let logits = self.decoder.precise_logits(hidden.clone().select(0, rows));
            answers.extend(self.answer(logits, questions)?);
        }
        Ok(answers)
    }

    /// Answers from `logits`, `[questions, vocab]`: on the device where it can, else on the processor, by rows in parallel.
    fn answer(
        &self,
        logits: Tensor<2>,
        questions: &[(usize, Question)],
    ) -> Result<Vec<Option<Answer>>, PolicyError> {
        #[cfg(feature = "gpu")]
        if let Some(answers) = on_device(&logits, questions)? {
            return Ok(answers);
        }
        let logits: Vec<f32> = logits
            .cast(DType::F32)
            .into_data()
            .try_into_vec()
            .map_err(|error| gone(&format!("{error:?}")))?;
        let lines = logits.par_chunks_exact(self.config.vocab_size);
        Ok(lines
            .zip(questions)
            .map(|(logits, (_, question))| question.answer(logits))
            .collect())
    }
}

/// The answers of the device's own kernels; `None` where there are none, or one row asks for more than they can do.
#[cfg(feature = "gpu")]
fn on_device(
    logits: &Tensor<2>,
    questions: &[(usize, Question)],
) -> Result<Option<Vec<Option<Answer>>>, PolicyError> {
    use super::sampler::Sampled;
    use crate::model::{Kernels, choose};

    let choices = questions.iter().map(|(_, question)| question.on_device());
    let choices: Option<Vec<_>> = choices.collect();
    let (Kernels::Cube, Some(choices)) = (Kernels::of(&logits.device()), choices) else {
        return Ok(None);
    };
    let found = choose(logits.clone(), &choices).map_err(|fault| gone(&fault.to_string()))?;
    let answer = |(token, logprob)| Answer {
        sampled: Sampled { token, logprob },
        top: Vec::new(),
    };
    Ok(Some(
        found.into_iter().map(|found| found.map(answer)).collect(),
    ))
}

fn gone(fault: &str) -> PolicyError {
    PolicyError::Gone(format!("logits cannot be read back: {fault}"))
}
