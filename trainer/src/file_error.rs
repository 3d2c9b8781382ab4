//! The error of a file.

use std::path::PathBuf;

/// A file cannot be read or written, or its content cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FileError {
    /// The file, or the key that stands for it.
    pub path: PathBuf,
    /// The fault and the fix.
    pub message: String,
}
