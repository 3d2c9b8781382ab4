//! The file of a verdict.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::Verdict;
use crate::text::write_atomic;

/// A verdict as its file has it: what follows from the figures is for readers without the program.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    verdict: &'a Verdict,
    /// [`Verdict::holds`].
    holds: bool,
    /// [`Verdict::words`].
    words: Vec<String>,
}

/// A verdict that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerdictError {
    /// The file could not be written or read.
    #[error("cannot access {path}")]
    File {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file does not hold a verdict.
    #[error(
        "{path} does not hold a verdict; remove it, and what else is in the folder can be read"
    )]
    Format {
        /// Its path.
        path: String,
        /// Why.
        source: serde_json::Error,
    },
}

impl Verdict {
    fn written(&self) -> Written<'_> {
        Written {
            verdict: self,
            holds: self.holds(),
            words: self.words(),
        }
    }

    /// The verdict as its file has it, with its sentences; null if a figure cannot be written, which no verdict has.
    pub fn json(&self) -> Value {
        serde_json::to_value(self.written()).unwrap_or_default()
    }

    /// Writes the verdict as JSON, with its sentences; the file appears whole or not at all.
    ///
    /// # Errors
    /// [`VerdictError`] when the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), VerdictError> {
        let named = || path.display().to_string();
        let mut json =
            serde_json::to_vec_pretty(&self.written()).map_err(|source| VerdictError::Format {
                path: named(),
                source,
            })?;
        json.push(b'\n');
        write_atomic(path, &json).map_err(|source| VerdictError::File {
            path: named(),
            source,
        })
    }

    /// Reads a verdict back.
    ///
    /// # Errors
    /// [`VerdictError`] when the file cannot be read or does not hold a verdict.
    pub fn read(path: &Path) -> Result<Self, VerdictError> {
        let named = || path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| VerdictError::File {
            path: named(),
            source,
        })?;
        serde_json::from_slice(&bytes).map_err(|source| VerdictError::Format {
            path: named(),
            source,
        })
    }
}
