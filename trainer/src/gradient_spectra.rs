//! Layer-wise gradients: the nuclear norm and effective rank of the gradient of each projection of attention (How Instruction and
//! Reasoning Data Shape Post-Training, arXiv 2504.10766, which finds lower norms and higher ranks for better data).
//!
//! Those of an optimizer step, summed over its tokens and before it is clipped; beside an adapter of its two factors. Cost, for a
//! matrix whose smaller side is n and larger m: n^2 m / 2 + n^3 multiplications in f64, side by side on all threads. For an adapter of
//! rank 16 that is nothing; for all weights of a model of 0.5B parameters some 60 billion.

use burn::tensor::Tensor;
use forage_contracts::Metric;
use rayon::prelude::*;

use crate::grads::NamedGrads;
use crate::learner::Learner;
use crate::metrics::Row;
use crate::model::LOW_RANK;
use crate::spectrum::{effective_rank, singular_values};
use crate::student::Student;
use crate::weights::Checkpoint;

/// What the singular values of the gradient of a matrix sum up to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GradientSpectrum {
    /// Layer and map, `3/q_proj`; with the factor behind it beside an adapter.
    pub(crate) name: String,
    pub(crate) nuclear_norm: f64,
    pub(crate) effective_rank: f64,
}

impl GradientSpectrum {
    /// Sets the figures of the spectra of a step.
    pub(crate) fn describe(row: &mut Row, spectra: &[Self]) {
        for spectrum in spectra {
            let name = |metric: &str| metric.replace('*', &spectrum.name);
            row.set(&name(Metric::GRADIENT_NUCLEAR), spectrum.nuclear_norm);
            row.set(&name(Metric::GRADIENT_RANK), spectrum.effective_rank);
        }
    }
}

impl Learner {
    /// Keeps the spectra of the gradient of an optimizer step, where the config asks for those of this one.
    pub(crate) fn note_spectra(&mut self, gradients: &NamedGrads) {
        let (every, step) = (self.config.gradient_spectra_every, self.optimizer().steps());
        // All ranks have the same gradient, and the first writes the rows.
        if every > 0 && step.is_multiple_of(every) && self.ranks.is_first() {
            self.spectra = self.student.spectra(gradients);
        }
    }
}

impl Student {
    /// Spectra of a gradient, layer by layer.
    pub(crate) fn spectra(&self, gradients: &NamedGrads) -> Vec<GradientSpectrum> {
        let Checkpoint { decoder, .. } = self.checkpoint();
        let mut gradients = gradients.clone();
        self.separate(&mut gradients);
        // Name, gradient and rows of each matrix.
        let mut matrices: Vec<(String, Tensor<1>, usize)> = Vec::new();
        for (path, linear) in decoder.clone().linears() {
            let Some((layer, map)) = place(&path) else {
                continue;
            };
            let [inputs, _] = linear.shape();
            let rank = linear.low_rank.as_ref();
            let rank = rank.map_or(0, |low_rank| low_rank.b.val().dims()[0]);
            let parts = [
                (format!("{path}.weight"), "", inputs),
                (format!("{path}.{LOW_RANK}.a"), "/a", inputs),
                (format!("{path}.{LOW_RANK}.b"), "/b", rank),
            ];
            for (parameter, part, rows) in parts {
                if let Some(gradient) = gradients.0.remove(&parameter) {
                    matrices.push((format!("{layer}/{map}{part}"), gradient, rows));
                }
            }
        }
        matrices.into_par_iter().map(spectrum).collect()
    }
}

fn spectrum((name, gradient, rows): (String, Tensor<1>, usize)) -> GradientSpectrum {
    let data = gradient.into_data().convert::<f32>();
    let numbers: Vec<f32> = data.try_into_vec().expect("converted just before");
    let values = singular_values(&numbers, numbers.len() / rows);
    GradientSpectrum {
        name,
        nuclear_norm: values.iter().sum(),
        effective_rank: effective_rank(&values),
    }
}

/// Layer and name of a projection of attention.
fn place(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("model.layers.")?
        .split_once(".self_attn.")
}
