//! The description of a model family: the parts of its block, and its names.

use serde::{Deserialize, Serialize};

use super::{llama, olmo2, qwen2, qwen3};
use crate::model::RopeScaling;

/// Every family that a `config.json` may name.
const FAMILIES: [&Family; 4] = [
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &llama::FAMILY,
    &olmo2::FAMILY,
];

/// Normalisation of queries and keys between their projections and the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QkNorm {
    None,
    /// Each head by itself.
    Head,
    /// All heads together, over the whole width of the projection.
    Width,
}

/// Position of the two norms of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormPlacement {
    /// On the inputs of attention and the feed-forward part.
    Before,
    /// On their outputs, before these are added to the residual stream.
    After,
}

/// A decoder family. The names of its weights are those of the decoder's fields, in every family.
#[derive(Debug)]
pub(crate) struct Family {
    /// `model_type` in `config.json`.
    pub(crate) model_type: &'static str,
    /// Class in transformers: the entry of `architectures` in `config.json`.
    pub(crate) class: &'static str,
    /// True where q, k and v have biases.
    pub(crate) qkv_bias: bool,
    pub(crate) qk_norm: QkNorm,
    pub(crate) norms: NormPlacement,
    /// Shapes of published models.
    pub(crate) published: &'static [Published],
}

/// Shape of a published model.
#[derive(Debug)]
pub(crate) struct Published {
    /// Name without the publisher's.
    pub(crate) name: &'static str,
    /// Layers, hidden width, query heads, key-value heads, head width, feed-forward width, vocabulary.
    pub(crate) sizes: [usize; 7],
    /// True where the head is the embedding.
    pub(crate) tied: bool,
    /// Longest sequence, in tokens.
    pub(crate) context: usize,
    pub(crate) rope_theta: f64,
    pub(crate) rope_scaling: Option<RopeScaling>,
    pub(crate) rms_norm_eps: f64,
}

/// A family by its `model_type`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Architecture(&'static Family);

impl Architecture {
    /// The family of a `model_type`.
    ///
    /// # Errors
    /// A sentence that lists the families.
    pub fn named(model_type: &str) -> Result<Self, String> {
        Self::all()
            .find(|each| each.0.model_type == model_type)
            .ok_or_else(|| {
                let known = FAMILIES.map(|family| family.model_type).join(", ");
                format!("model_type `{model_type}` is not supported; use a checkpoint of {known}")
            })
    }

    /// Every family.
    pub fn all() -> impl Iterator<Item = Self> {
        FAMILIES.into_iter().map(Self)
    }

    /// The name, `model_type` in `config.json`.
    pub fn name(self) -> &'static str {
        self.0.model_type
    }

    pub(crate) fn family(self) -> &'static Family {
        self.0
    }
}

impl PartialEq for Architecture {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl TryFrom<String> for Architecture {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::named(&name)
    }
}

impl From<Architecture> for String {
    fn from(architecture: Architecture) -> Self {
        architecture.name().to_owned()
    }
}
