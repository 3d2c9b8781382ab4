//! Errors of reading and writing checkpoint folders.

use std::collections::BTreeSet;
use std::path::PathBuf;

use forage_env::TokenizerError;
use forage_env::chat::ChatError;

use super::hub::HubError;
use crate::file_error::FileError;
use crate::folder::FolderFault;

/// A checkpoint folder cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The configuration or an adapter is missing, malformed, unsupported or of another model.
    #[error(transparent)]
    File(#[from] FileError),
    /// The tokenizer is missing or malformed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The name is not a folder, and what it names cannot be had from the hub.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The chat template is malformed.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// A file is missing, damaged or does not fit the configuration.
    #[error("{path}: {message}")]
    Tensors {
        /// File or folder concerned.
        path: PathBuf,
        /// The fault, and the fix.
        message: String,
    },
    /// Reading or writing failed.
    #[error("{path}: {source}")]
    Io {
        /// File concerned.
        path: PathBuf,
        /// The operating system's word.
        source: std::io::Error,
    },
}

impl From<FolderFault> for WeightsError {
    fn from(FolderFault { path, source }: FolderFault) -> Self {
        Self::Io { path, source }
    }
}

/// Names as messages show them: the first of many.
pub(crate) fn name_list(names: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = names.iter().take(5).map(String::as_str).collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > shown.len() => {
            format!("{} and {} more", shown.join(", "), count - shown.len())
        }
        _ => shown.join(", "),
    }
}
