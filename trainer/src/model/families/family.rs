//! The description of a model family: the parts of its block, and its names.

use forage_contracts::{Entry, Registry, SettingError};
use serde::{Deserialize, Serialize};

use super::{llama, olmo2, qwen2, qwen3};
use crate::model::RopeScaling;

/// The families, the built-in ones first.
static REGISTRY: Registry<Family> =
    Registry::new(&[qwen2::FAMILY, qwen3::FAMILY, llama::FAMILY, olmo2::FAMILY]);

/// Normalisation of queries and keys between their projections and the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    None,
    /// Each head by itself.
    Head,
    /// All heads together, over the whole width of the projection.
    Width,
}

/// Position of the two norms of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlacement {
    /// Norms on the inputs of attention and of the feed-forward part.
    Before,
    /// Norms on their outputs, before these are added to the residual stream.
    After,
}

/// A decoder family. The names of its weights are those of the decoder's fields, in every family.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// Class in transformers: the entry of `architectures` in `config.json`.
    pub class: &'static str,
    /// True where q, k and v have biases.
    pub qkv_bias: bool,
    /// Norms of queries and keys.
    pub qk_norm: QkNorm,
    /// Norms of the layers.
    pub norms: NormPlacement,
    /// Shapes of published models.
    pub published: &'static [Published],
}

impl Family {
    /// Llama's layers under other names: nothing has a bias, the norms stand before the parts of a layer, queries and keys are not
    /// normalised.
    pub const fn new(model_type: &'static str, class: &'static str) -> Self {
        Self {
            model_type,
            class,
            qkv_bias: false,
            qk_norm: QkNorm::None,
            norms: NormPlacement::Before,
            published: &[],
        }
    }

    /// The list of families.
    pub(crate) fn registry() -> &'static Registry<Self> {
        &REGISTRY
    }
}

impl Entry for Family {
    const KIND: &'static str = "model family";

    fn label(&self) -> (&'static str, &'static str) {
        (self.model_type, self.class)
    }
}

/// Shape of a published model.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Name without the publisher's.
    pub name: &'static str,
    /// Layers, hidden width, query heads, key-value heads, head width, feed-forward width, vocabulary.
    pub sizes: [usize; 7],
    /// True where the head is the embedding.
    pub tied: bool,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Scaling of the rotary frequencies, if there is any.
    pub rope_scaling: Option<RopeScaling>,
    /// Epsilon of every RMS normalisation.
    pub rms_norm_eps: f64,
}

/// A family by its `model_type`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Architecture(&'static Family);

impl Architecture {
    /// The family of a `model_type`.
    ///
    /// # Errors
    /// When there is none; the error lists those there are.
    pub fn named(model_type: &str) -> Result<Self, SettingError> {
        let found = Self::all().find(|each| each.name() == model_type);
        let unknown =
            || SettingError::unknown("model_type", model_type, Self::all().map(Self::name));
        found.ok_or_else(unknown)
    }

    /// Every family, the built-in ones first.
    pub fn all() -> impl Iterator<Item = Self> {
        REGISTRY.iter().map(Self)
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
    type Error = SettingError;

    fn try_from(name: String) -> Result<Self, SettingError> {
        Self::named(&name)
    }
}

impl From<Architecture> for String {
    fn from(architecture: Architecture) -> Self {
        architecture.name().to_owned()
    }
}
