//! The ways to hand weights to a server: which there are for a checkpoint, and what each writes.

use std::path::Path;

use crate::remote::PushKind;
use crate::weights::{Checkpoint, FileType, WeightsError};

/// A way to hand weights over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The adapter alone.
    Adapter,
    /// All weights, an adapter merged into them.
    Whole,
    /// All weights, with the embedding once more under the name of the output head.
    Untied,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Adapter, Self::Whole, Self::Untied];

    /// The ways to hand over the weights of a checkpoint, the cheapest first.
    pub(super) fn all(checkpoint: &Checkpoint) -> Vec<Self> {
        let adapter = checkpoint.lora.is_some().then_some(Self::Adapter);
        let untied = checkpoint
            .config
            .tie_word_embeddings
            .then_some(Self::Untied);
        adapter
            .into_iter()
            .chain([Self::Whole])
            .chain(untied)
            .collect()
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Adapter => "pushed as an adapter",
            Self::Whole => "pushed whole",
            Self::Untied => "pushed whole with the embedding as `lm_head.weight`",
        }
    }

    pub(super) fn kind(self) -> PushKind {
        match self {
            Self::Adapter => PushKind::Adapter,
            Self::Whole | Self::Untied => PushKind::Full,
        }
    }

    pub(super) fn folder(self, version: u64) -> String {
        format!("version-{version:06}{}", self.ending())
    }

    /// The folder of weights that are changed on purpose.
    pub(super) fn folder_of_proof(self) -> String {
        format!("changed{}", self.ending())
    }

    fn ending(self) -> &'static str {
        match self {
            Self::Adapter => "",
            Self::Whole => "-whole",
            Self::Untied => "-untied",
        }
    }

    /// The type of the numbers in the files.
    pub(super) fn file_type(self, checkpoint: &Checkpoint) -> FileType {
        match self {
            Self::Adapter => FileType::F32,
            Self::Whole | Self::Untied => checkpoint.published_type(),
        }
    }

    pub(super) fn save(self, checkpoint: &Checkpoint, folder: &Path) -> Result<(), WeightsError> {
        match self {
            Self::Adapter => checkpoint.write_adapter(folder),
            Self::Whole => checkpoint.write_as(folder, self.file_type(checkpoint)),
            Self::Untied => {
                let merged = checkpoint.clone().merge().untied();
                merged.write_as(folder, self.file_type(checkpoint))
            }
        }
    }
}
