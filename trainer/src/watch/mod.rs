//! Watching a run: what went wrong, in which tensor, and the same numbers where other people look.
//!
//! Nothing here knows the run: each part is fed a [`Row`](crate::metrics::Row) per step, or gradients, and answers.
//!
//! - [`Sentinel`] turns the rows of a run into [`Alarm`]s: collapses, runaways, steps that teach nothing. [`TextFacts`] are
//!   the facts about a step's episodes that no metric holds.
//! - [`first_non_finite`] names the tensor in which a NaN began.
//! - [`EventWriter`] writes TensorBoard's event files, [`Aliases`] the names other trainers give to the same metrics.

mod aliases;
mod explain;
mod nan;
mod rules;
mod sentinel;
mod tensorboard;
mod text;
mod trace;

pub use aliases::{Aliases, rename};
pub use nan::{NonFinite, first_non_finite, first_non_finite_parameter};
pub use sentinel::{Alarm, AlarmKind, Sentinel, SentinelConfig, Severity};
pub use tensorboard::{EventError, EventWriter};
pub use text::TextFacts;
