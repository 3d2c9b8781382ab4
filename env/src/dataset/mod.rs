//! Questions from files: published JSON-lines data sets and BEIR folders become [`Task`](crate::task::Task)s.
//!
//! The format is chosen by the fields of the first line and every line must keep to it. A malformed line is an error that
//! names the file, the line, the fault and the mend; nothing is dropped in silence. [`relabel`] exchanges the accepted answers
//! for false ones, as controls.

mod error;
mod row;

mod beir;
mod digest;
mod labels;
mod read;

pub use digest::digest_ids;
pub use error::DatasetError;
pub use labels::{LabelError, Labels, relabel};
pub use read::read_tasks;
pub use row::TaskFormat;

#[cfg(test)]
mod tests;
