//! Questions from files: published data sets (JSON lines, JSON lists, parquet) and BEIR folders become
//! [`Task`](crate::task::Task)s.
//!
//! The format is chosen by the fields of the first line and every line must keep to it. A malformed line is an error that
//! names the file, the line, the fault and the fix; nothing is dropped in silence. [`relabel`] exchanges the accepted answers
//! for false ones, as controls; [`contamination()`] looks for questions that stand in two splits.

mod error;
mod row;

mod beir;
mod contamination;
mod digest;
mod labels;
mod read;
mod split;

pub use contamination::{Contamination, Leak, Repeated, contamination};
pub use digest::digest_ids;
pub use error::DatasetError;
pub use labels::{LabelError, Labels, relabel};
pub use read::{read_all, read_tasks};
pub use row::TaskFormat;
pub use split::{pick_ids, split_by_index};

#[cfg(test)]
mod tests;
