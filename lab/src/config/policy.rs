//! `[policy]`: the initial policy, and which of its weights are trained.

use std::path::Path;

use forage_env::ChatSettings;
use forage_trainer::{LoraConfig, Patience, Precision, Targets};
use serde::{Deserialize, Serialize};

use crate::error::{Result, refuse};

/// The start of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// A checkpoint folder, a name on the hub, or `builtin:quickstart` for the warm-started policy inside the binary.
    pub checkpoint: String,
    /// Plays episodes as chats, by the checkpoint's template: the opening prompt is the user's message, an observation the
    /// next one. Without it an environment's text is left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<ChatSettings>,
    /// Trains a fresh low-rank adapter in place of the weights. A checkpoint that is an adapter already is continued without
    /// this table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraSection>,
    /// The form of the weights beside an adapter.
    #[serde(default, skip_serializing_if = "Base::is_full")]
    #[schemars(extend("default" = "f32"))]
    pub base: Base,
    /// Tries and time-outs where the policy is a server, `--policy http://HOST:PORT`; a server in `[sampler]` has its own there.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub server: Patience,
}

impl PolicyConfig {
    /// Tells whether the adapter that is trained has dropout: a fresh one by its table, that of a folder by its file, whose faults are
    /// reported when it is opened.
    pub(super) fn drops(&self) -> bool {
        if let Some(lora) = &self.lora {
            return lora.dropout > 0.0;
        }
        let folder = Path::new(&self.checkpoint);
        let adapter = LoraConfig::from_file(&folder.join("adapter_config.json"));
        !folder.join("config.json").exists() && adapter.is_ok_and(|adapter| adapter.dropout > 0.0)
    }
}

fn is_usual(server: &Patience) -> bool {
    *server == Patience::default()
}

/// The form of frozen weights.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// The form they are trained in.
    #[default]
    F32,
    /// Half the memory; files of half precision stay mapped.
    Bf16,
    /// The matrices of the layers as 8-bit integers, 32 of which share a scale: a bit more than a quarter of the memory.
    Int8,
}

impl Base {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
    fn is_full(&self) -> bool {
        *self == Self::F32
    }

    pub(crate) fn precision(self) -> Precision {
        match self {
            Self::F32 => Precision::Full,
            Self::Bf16 => Precision::Half,
            Self::Int8 => Precision::Int8,
        }
    }
}

/// A fresh low-rank adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoraSection {
    /// The inner width of the adapter.
    pub rank: usize,
    /// The change is scaled by `alpha / rank`, or by `alpha / sqrt(rank)` where it is rank-stabilised.
    pub alpha: f64,
    /// Divides by the root of the rank (`use_rslora`).
    #[serde(default)]
    pub rank_stabilised: bool,
    /// Share of the numbers that the adapter reads which are dropped while it learns, in [0, 1): nothing is dropped in rollouts,
    /// evaluations and the reference.
    #[serde(default, skip_serializing_if = "is_none")]
    #[schemars(extend("default" = 0.0))]
    pub dropout: f64,
    /// Names of the maps that are adapted, `q_proj` or longer; all of every layer by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<String>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_none(dropout: &f64) -> bool {
    *dropout == 0.0
}

impl LoraSection {
    pub(crate) fn check(&self) -> Result<()> {
        if self.rank == 0 || !(self.alpha > 0.0 && self.alpha.is_finite()) {
            refuse!(
                "rank must be at least 1 and alpha above 0, not {} and {}",
                self.rank,
                self.alpha
            );
        }
        if !(0.0..1.0).contains(&self.dropout) {
            refuse!(
                "dropout is {}: write a share from 0 to below 1, 0.05 for instance",
                self.dropout
            );
        }
        let adapts_head = self.targets.iter().flatten().any(|name| name == "lm_head");
        if self.dropout > 0.0 && adapts_head {
            refuse!("dropout is not for lm_head; remove it from the targets, or the dropout");
        }
        Ok(())
    }

    /// The adapter of `base`, a folder or name.
    pub(crate) fn adapter(&self, base: &str) -> LoraConfig {
        LoraConfig {
            rank: self.rank,
            alpha: self.alpha,
            rank_stabilised: self.rank_stabilised,
            dropout: self.dropout,
            targets: self
                .targets
                .clone()
                .map_or(Targets::AllLinear, Targets::Names),
            base: base.to_owned(),
        }
    }
}
