//! Questions from files: published data sets (JSON lines, JSON lists, parquet) and BEIR folders become
//! [`Task`](forage_contracts::Task)s.
//!
//! The format is chosen by the fields of the first row and every row must keep to it. A malformed row is an error that
//! names the file, the line, the fault and the fix; nothing is dropped in silence. [`Labels::relabel`] exchanges the accepted answers
//! for false ones, as controls; [`Contamination`] looks for questions that stand in two splits.

mod beir;
mod contamination;
mod digest;
mod error;
mod format;
mod labels;
mod names;
mod read;
mod split;

pub use contamination::{Contamination, Leak, Repeated};
pub use digest::digest_ids;
pub use error::DatasetError;
pub(crate) use format::QUESTION_FORMATS;
pub use labels::{LabelError, Labels};
pub(crate) use names::Names;
pub use read::{read_all, read_tasks};
pub use split::pick_ids;

#[cfg(test)]
mod tests;
