//! The encoder's forward pass (Devlin et al. 2019): post-norm layers over packed tokens, without autodiff.

use burn::tensor::activation::gelu;
use burn::tensor::module::{attention, layer_norm};
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use super::batch::{Batch, Group};
use super::config::BertConfig;
use super::kernels::{bias_gelu, scaled_softmax};
use super::load::{Weights, tensor};
use super::tokens::Tokens;
use crate::model::Kernels;

/// `x W + b` with `W` of shape `[input, output]`.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    weight: Tensor<2>,
    bias: Tensor<2>,
    host_bias: Vec<f32>,
}

impl Affine {
    /// A map from tensors in the checkpoint's layout, `[output, input]`; several are laid side by side.
    pub(super) fn new(parts: &[(Vec<f32>, Vec<f32>)], input: usize, device: &Device) -> Self {
        let mut bias: Vec<f32> = parts.iter().flat_map(|(_, bias)| bias).copied().collect();
        let rows = parts
            .iter()
            .flat_map(|(weight, _)| weight.chunks_exact(input));
        // They differ where the checkpoint lacks a tensor.
        let output = bias.len().min(rows.clone().count());
        bias.truncate(output);
        let rows = rows.take(output);
        let mut weight = vec![0.0; input * output];
        for (column, row) in rows.enumerate() {
            for (index, &value) in row.iter().enumerate() {
                weight[index * output + column] = value;
            }
        }
        Self {
            weight: tensor(weight, [input, output], device),
            bias: tensor(bias.clone(), [1, output], device),
            host_bias: bias,
        }
    }

    fn product(&self, x: Tensor<2>) -> Tensor<2> {
        Kernels::of_type(&x.device(), x.dtype()).product(x, self.weight.clone())
    }

    pub(super) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.product(x) + self.bias.clone()
    }

    fn forward_gelu(&self, x: Tensor<2>, on_cpu: bool) -> Tensor<2> {
        if on_cpu {
            bias_gelu(self.product(x), &self.host_bias)
        } else {
            gelu(self.forward(x))
        }
    }
}

#[derive(Clone, Debug)]
struct Norm {
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
}

impl Norm {
    fn load(weights: &Weights<'_>, name: &str, config: &BertConfig, device: &Device) -> Self {
        let vector = |part: &str| {
            let values = weights.encoder(&format!("{name}.{part}"), &[config.hidden_size]);
            tensor(values, [config.hidden_size], device)
        };
        Self {
            gamma: vector("weight"),
            beta: vector("bias"),
            epsilon: config.layer_norm_eps,
        }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        layer_norm(x, self.gamma.clone(), Some(self.beta.clone()), self.epsilon)
    }
}

#[derive(Clone, Debug)]
struct Layer {
    /// Query, key and value projections side by side.
    qkv: Affine,
    attention_output: Affine,
    attention_norm: Norm,
    intermediate: Affine,
    output: Affine,
    output_norm: Norm,
}

/// A BERT encoder without a head.
#[derive(Clone, Debug)]
pub(super) struct BertModel {
    words: Tensor<2>,
    positions: Tensor<2>,
    types: Tensor<2>,
    embedding_norm: Norm,
    layers: Vec<Layer>,
    heads: usize,
    head_dim: usize,
    on_cpu: bool,
}

impl BertModel {
    /// Takes the encoder's tensors; faults are kept in `weights`.
    pub(super) fn load(
        weights: &Weights<'_>,
        config: &BertConfig,
        device: &Device,
        on_cpu: bool,
    ) -> Self {
        let hidden = config.hidden_size;
        let table = |name: &str, rows: usize| {
            let values = weights.encoder(
                &format!("embeddings.{name}_embeddings.weight"),
                &[rows, hidden],
            );
            tensor(values, [rows, hidden], device)
        };
        Self {
            words: table("word", config.vocab_size),
            positions: table("position", config.max_position_embeddings),
            types: table("token_type", config.type_vocab_size),
            embedding_norm: Norm::load(weights, "embeddings.LayerNorm", config, device),
            layers: (0..config.num_hidden_layers)
                .map(|index| Layer::load(weights, index, config, device))
                .collect(),
            heads: config.num_attention_heads,
            head_dim: config.head_dim(),
            on_cpu,
        }
    }

    /// Tokens that a text may have.
    pub(super) fn positions(&self) -> usize {
        self.positions.dims()[0]
    }

    /// Last hidden states of a batch's tokens.
    ///
    /// # Shapes
    /// Returns `[batch.tokens(), hidden]`, group after group, row after row; padding holds finite values that mean nothing.
    pub(super) fn forward(&self, tokens: &[Tokens], batch: &Batch) -> Tensor<2> {
        let device = self.words.device();
        let masks: Vec<Option<Tensor<4, Bool>>> = batch
            .groups
            .iter()
            .map(|group| padding_mask(group, &device))
            .collect();
        let mut x = self.embed(tokens, batch, &device);
        for layer in &self.layers {
            x = self.layer(layer, x, batch, &masks);
        }
        x
    }

    fn embed(&self, tokens: &[Tokens], batch: &Batch, device: &Device) -> Tensor<2> {
        let total = batch.tokens();
        let (mut ids, mut types, mut positions) = (
            Vec::with_capacity(total),
            Vec::with_capacity(total),
            Vec::with_capacity(total),
        );
        let widths = batch
            .groups
            .iter()
            .flat_map(|group| std::iter::repeat_n(group.width, group.rows()));
        for (&text, width) in batch.texts.iter().zip(widths) {
            let row = &tokens[text];
            ids.extend(row.ids.iter().map(|&id| id as i32));
            types.extend(row.types.iter().map(|&kind| kind as i32));
            positions.extend((0..width).map(|position| position as i32));
            ids.resize(positions.len(), 0);
            types.resize(positions.len(), 0);
        }
        let int = |values: &[i32]| Tensor::<1, Int>::from_ints(values, device);
        let sum = self.words.clone().select(0, int(&ids))
            + self.types.clone().select(0, int(&types))
            + self.positions.clone().select(0, int(&positions));
        self.embedding_norm.forward(sum)
    }

    fn layer(
        &self,
        layer: &Layer,
        x: Tensor<2>,
        batch: &Batch,
        masks: &[Option<Tensor<4, Bool>>],
    ) -> Tensor<2> {
        let qkv = layer.qkv.forward(x.clone());
        let mut start = 0;
        let mut mixed = Vec::with_capacity(batch.groups.len());
        for (group, mask) in batch.groups.iter().zip(masks) {
            mixed.push(self.attend(
                qkv.clone().narrow(0, start, group.tokens()),
                group,
                mask.clone(),
            ));
            start += group.tokens();
        }
        let mixed = if mixed.len() == 1 {
            mixed.remove(0)
        } else {
            Tensor::cat(mixed, 0)
        };
        let x = layer
            .attention_norm
            .forward(layer.attention_output.forward(mixed) + x);
        let inner = layer.intermediate.forward_gelu(x.clone(), self.on_cpu);
        layer.output_norm.forward(layer.output.forward(inner) + x)
    }

    /// Attention within each row of a group: `[tokens, 3 hidden]` to `[tokens, hidden]`.
    fn attend(&self, qkv: Tensor<2>, group: &Group, mask: Option<Tensor<4, Bool>>) -> Tensor<2> {
        let (heads, dim) = (self.heads, self.head_dim);
        let split = qkv
            .reshape([group.rows(), group.width, 3 * heads, dim])
            .swap_dims(1, 2);
        let part = |index: usize| split.clone().narrow(1, index * heads, heads);
        let (queries, keys, values) = (part(0), part(1), part(2));
        let mixed = if self.on_cpu && mask.is_none() {
            // Strided views go straight into the matrix products.
            let scale = 1.0 / (dim as f32).sqrt();
            scaled_softmax(queries.matmul(keys.swap_dims(2, 3)), scale).matmul(values)
        } else {
            attention(
                queries,
                keys,
                values,
                mask,
                None,
                AttentionModuleOptions::default(),
            )
        };
        mixed.swap_dims(1, 2).reshape([group.tokens(), heads * dim])
    }
}

impl Layer {
    fn load(weights: &Weights<'_>, index: usize, config: &BertConfig, device: &Device) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let part = |name: &str, input: usize, output: usize| {
            let name = format!("encoder.layer.{index}.{name}");
            let weight = weights.encoder(&format!("{name}.weight"), &[output, input]);
            (weight, weights.encoder(&format!("{name}.bias"), &[output]))
        };
        let affine = |name, input, output| Affine::new(&[part(name, input, output)], input, device);
        let norm = |name: &str| {
            Norm::load(
                weights,
                &format!("encoder.layer.{index}.{name}"),
                config,
                device,
            )
        };
        let qkv = ["query", "key", "value"]
            .map(|name| part(&format!("attention.self.{name}"), hidden, hidden));
        Self {
            qkv: Affine::new(&qkv, hidden, device),
            attention_output: affine("attention.output.dense", hidden, hidden),
            attention_norm: norm("attention.output.LayerNorm"),
            intermediate: affine("intermediate.dense", hidden, inner),
            output: affine("output.dense", inner, hidden),
            output_norm: norm("output.LayerNorm"),
        }
    }
}

/// True where a query must not look: `[rows, 1, width, width]`, or nothing when no row is padded.
fn padding_mask(group: &Group, device: &Device) -> Option<Tensor<4, Bool>> {
    if !group.padded() {
        return None;
    }
    let (rows, width) = (group.rows(), group.width);
    let hidden = group
        .lengths
        .iter()
        .flat_map(|&length| (0..width).map(move |column| column >= length));
    let mask = TensorData::new(hidden.collect::<Vec<bool>>(), [rows, 1, 1, width]);
    Some(Tensor::<4, Bool>::from_data(mask, device).expand([rows, 1, width, width]))
}
