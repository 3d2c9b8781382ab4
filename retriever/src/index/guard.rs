//! Panics of the postings engine as damage of the index.

use std::path::Path;

use crate::error::IndexError;
use crate::panics;

/// Runs code that opens or reads postings. tantivy trusts the bytes of its files, whose digests whoever writes an index folder
/// computes: on some it indexes out of bounds or asserts. Its panics are damage like any other.
///
/// # Errors
/// Those of `read`, and [`IndexError::Damaged`] for a panic.
pub(crate) fn guarded<T, E: From<IndexError>>(
    place: &Path,
    read: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    panics::caught(read).unwrap_or_else(|panicked| {
        Err(IndexError::Damaged {
            path: place.to_owned(),
            what: format!("its postings contradict themselves ({panicked})"),
        }
        .into())
    })
}
