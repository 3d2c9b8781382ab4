//! `AdamW` with decoupled weight decay (Loshchilov and Hutter 2019), its state kept by parameter name.
//!
//! Burn's own optimizer keys its state by ids drawn at random in each process; names make a checkpoint's moments
//! readable by any later process and any tool.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::grads::NamedGrads;
use crate::model::Decoder;

/// How a learning rate falls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decay {
    /// Along which curve.
    pub curve: Curve,
    /// Optimizer step, warm-up included, at which the rate is 0.
    pub steps: u64,
}

/// The curve of a [`Decay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Curve {
    /// A straight line.
    Linear,
    /// Half a cosine (Loshchilov and Hutter 2017).
    Cosine,
}

/// Settings of `AdamW`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdamWConfig {
    /// Learning rate after warm-up.
    pub learning_rate: f64,
    /// Steps of linear warm-up from zero.
    pub warmup_steps: u64,
    /// What becomes of the rate after warm-up; it stays without it.
    pub decay: Option<Decay>,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled decay of matrices; norms and biases are never decayed.
    pub weight_decay: f64,
    /// Largest global gradient norm.
    pub clip_norm: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self {
            learning_rate: 1e-6,
            warmup_steps: 10,
            decay: None,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            clip_norm: 1.0,
        }
    }
}

impl AdamWConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// A sentence that names the key at fault.
    pub fn check(&self) -> Result<(), String> {
        let faults = [
            (self.learning_rate >= 0.0 && self.learning_rate.is_finite(), "learning_rate must be 0 or more"),
            ((0.0..1.0).contains(&self.beta1), "beta1 must be in [0, 1)"),
            ((0.0..1.0).contains(&self.beta2), "beta2 must be in [0, 1)"),
            (self.epsilon > 0.0, "epsilon must be above 0"),
            (self.weight_decay >= 0.0, "weight_decay must be 0 or more"),
            (self.clip_norm > 0.0, "clip_norm must be above 0"),
            (self.decay.is_none_or(|decay| decay.steps > self.warmup_steps), "decay.steps must be above warmup_steps"),
        ];
        faults.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, fault)| Err((*fault).to_owned()))
    }

    /// Learning rate of the step that is number `step`, counted from 0.
    pub fn rate(&self, step: u64) -> f64 {
        let warmup = self.warmup_steps.max(1);
        if step < warmup {
            return self.learning_rate * (step + 1) as f64 / warmup as f64;
        }
        let Some(Decay { curve, steps }) = self.decay else { return self.learning_rate };
        let done = ((step - warmup) as f64 / (steps.saturating_sub(warmup)).max(1) as f64).min(1.0);
        self.learning_rate
            * match curve {
                Curve::Linear => 1.0 - done,
                Curve::Cosine => f64::midpoint(1.0, (std::f64::consts::PI * done).cos()),
            }
    }
}

/// The moments of one parameter.
#[derive(Clone, Debug)]
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

/// The optimizer with its state.
#[derive(Clone, Debug)]
pub struct AdamW {
    config: AdamWConfig,
    /// Updates done.
    step: u64,
    moments: BTreeMap<String, Moments>,
}

/// Optimizer state cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {message}")]
pub struct OptimError {
    /// File concerned.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl AdamW {
    /// An optimizer that has done no step.
    pub fn new(config: AdamWConfig) -> Self {
        Self { config, step: 0, moments: BTreeMap::new() }
    }

    /// Updates done so far.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Changes the learning rate of the next steps.
    pub fn set_learning_rate(&mut self, rate: f64) {
        self.config.learning_rate = rate;
    }

    /// Clips the gradients, whose global norm is `norm`, and updates every parameter that has one.
    pub fn update(&mut self, decoder: Decoder, mut gradients: NamedGrads, norm: f64) -> Decoder {
        gradients.clip(norm, self.config.clip_norm);
        let rate = self.config.rate(self.step);
        self.step += 1;
        let mut update = Update { optimizer: self, gradients, rate, path: Vec::new() };
        decoder.map(&mut update)
    }

    /// Writes the moments as safetensors: `first.NAME`, `second.NAME`.
    ///
    /// # Errors
    /// [`OptimError`] that names the file.
    pub fn save(&self, path: &Path) -> Result<(), OptimError> {
        let fail = |message: String| OptimError { path: path.display().to_string(), message };
        let mut buffers: Vec<(String, Vec<u8>)> = Vec::new();
        for (name, moments) in &self.moments {
            for (kind, tensor) in [("first", &moments.first), ("second", &moments.second)] {
                let values: Vec<f32> = tensor.to_data().try_into_vec().map_err(|error| fail(format!("{error:?}")))?;
                buffers.push((format!("{kind}.{name}"), values.iter().flat_map(|value| value.to_le_bytes()).collect()));
            }
        }
        let mut views = Vec::new();
        for (name, bytes) in &buffers {
            let view = TensorView::new(Dtype::F32, vec![bytes.len() / 4], bytes);
            views.push((name.as_str(), view.map_err(|error| fail(error.to_string()))?));
        }
        safetensors::serialize_to_file(views, None, path).map_err(|error| fail(format!("cannot be written: {error}")))
    }

    /// Reads what [`Self::save`] wrote; `step` is the number of updates done.
    ///
    /// # Errors
    /// [`OptimError`] when the file is missing or damaged.
    pub fn load(config: AdamWConfig, step: u64, path: &Path, device: &Device) -> Result<Self, OptimError> {
        let fail = |message: String| OptimError { path: path.display().to_string(), message };
        let bytes = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|error| fail(format!("is damaged ({error}); resume from an earlier checkpoint")))?;
        let read = |name: &str| -> Result<Tensor<1>, OptimError> {
            let view = file.tensor(name).map_err(|error| fail(error.to_string()))?;
            if view.dtype() != Dtype::F32 {
                return Err(fail(format!("`{name}` is not f32; resume from an earlier checkpoint")));
            }
            let values: Vec<f32> =
                view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            let count = values.len();
            Ok(Tensor::from_data(TensorData::new(values, [count]), device))
        };
        let mut moments = BTreeMap::new();
        if step > 0 && file.is_empty() {
            return Err(fail(format!("holds no moments after {step} updates; resume from an earlier checkpoint")));
        }
        for name in file.names() {
            if let Some(parameter) = name.strip_prefix("first.") {
                let pair = Moments { first: read(name)?, second: read(&format!("second.{parameter}"))? };
                moments.insert(parameter.to_owned(), pair);
            }
        }
        Ok(Self { config, step, moments })
    }
}

struct Update<'a> {
    optimizer: &'a mut AdamW,
    gradients: NamedGrads,
    rate: f64,
    path: Vec<String>,
}

impl ModuleMapper for Update<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.join(".");
        let Some(gradient) = self.gradients.0.remove(&name) else { return param };
        let AdamWConfig { beta1, beta2, epsilon, weight_decay, .. } = self.optimizer.config;
        let step = self.optimizer.step as i32;
        let rate = self.rate;
        let before = self
            .optimizer
            .moments
            .remove(&name)
            .unwrap_or_else(|| Moments { first: gradient.zeros_like(), second: gradient.zeros_like() });
        let first = before.first * beta1 + gradient.clone() * (1.0 - beta1);
        let second = before.second * beta2 + gradient.square() * (1.0 - beta2);
        let direction =
            (first.clone() / (1.0 - beta1.powi(step))) / ((second.clone() / (1.0 - beta2.powi(step))).sqrt() + epsilon);
        self.optimizer.moments.insert(name, Moments { first, second });
        let decay = if D > 1 { 1.0 - rate * weight_decay } else { 1.0 };
        let (id, value, mapper) = param.consume();
        let shape = value.shape();
        let value = value * decay - (direction * rate).reshape(shape);
        Param::from_mapped_value(id, value, mapper)
    }
}
