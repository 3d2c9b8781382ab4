//! Two batches of rollouts compared by the gradients that they give under the same weights.

use std::collections::BTreeSet;

use burn::tensor::Tensor;
use serde::Serialize;

use crate::grads::NamedGrads;
use crate::learner::Learner;
use crate::sample::Sample;
use crate::student::LearnError;

/// The gradients of two batches under the same weights, before clipping.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GradientPair {
    /// The global norm of each; 0 where no group has a direction.
    pub norms: [f64; 2],
    /// BLAKE3 of each: the bits of all numbers, by parameter.
    pub digests: [String; 2],
    /// The largest difference of two numbers of the same place.
    pub largest_difference: f64,
    /// The parameter that it is in; `None` where the gradients are equal.
    pub parameter: Option<String>,
}

impl Learner {
    /// Compares the gradients of two batches of groups, each as an update on the whole batch would compute it. No weight changes.
    ///
    /// # Errors
    /// [`LearnError::Ranks`] when a rank is lost.
    pub fn compare_gradients(
        &mut self,
        [first, second]: [Vec<Vec<Sample>>; 2],
    ) -> Result<GradientPair, LearnError> {
        self.draw_masks();
        let first = self.gradient_of(first)?;
        let second = self.gradient_of(second)?;
        let (mut largest_difference, mut parameter) = (0.0, None);
        let names: BTreeSet<&String> = first.0.keys().chain(second.0.keys()).collect();
        for name in names {
            let difference = largest(first.0.get(name), second.0.get(name));
            if difference > largest_difference {
                (largest_difference, parameter) = (difference, Some(name.clone()));
            }
        }
        Ok(GradientPair {
            norms: [first.global_norm(), second.global_norm()],
            digests: [digest(&first), digest(&second)],
            largest_difference,
            parameter,
        })
    }

    /// The gradient of an update on all groups together.
    fn gradient_of(&mut self, groups: Vec<Vec<Sample>>) -> Result<NamedGrads, LearnError> {
        let (mut scored, ..) = self.advantages(groups)?;
        self.set_old_logprobs(&mut scored)?;
        let mut sum = NamedGrads::default();
        for minibatch in self.minibatches(scored) {
            let (gradients, _) = self.gradients(&minibatch)?;
            sum.add(gradients);
        }
        self.student.separate(&mut sum);
        Ok(sum)
    }
}

fn numbers(gradient: Option<&Tensor<1>>) -> Vec<f32> {
    let Some(gradient) = gradient else {
        return Vec::new();
    };
    let data = gradient.clone().into_data();
    data.iter::<f32>().collect()
}

/// The largest difference; what one side lacks is 0.
fn largest(a: Option<&Tensor<1>>, b: Option<&Tensor<1>>) -> f64 {
    let (a, b) = (numbers(a), numbers(b));
    let at = |numbers: &[f32], index: usize| f64::from(numbers.get(index).copied().unwrap_or(0.0));
    (0..a.len().max(b.len()))
        .map(|index| (at(&a, index) - at(&b, index)).abs())
        .fold(0.0, f64::max)
}

fn digest(gradients: &NamedGrads) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, gradient) in &gradients.0 {
        hasher.update(name.as_bytes());
        for number in numbers(Some(gradient)) {
            hasher.update(&number.to_le_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}
