//! Watching a run: what went wrong, in which tensor, and the same numbers where other people look.
//!
//! Nothing here knows the run: each part is fed a [`Row`](crate::metrics::Row) per step, or gradients, and answers.
//!
//! - `Sentinel` turns the rows of a run into alarms: collapses, runaways, steps that teach nothing.
//! - [`NonFinite`] names the tensor in which a NaN began.
//! - [`EventWriter`] writes TensorBoard's event files, [`Aliases`] the names other trainers give to the same metrics.

mod aliases;
mod nan;
mod rules;
mod sentinel;
mod tensorboard;
mod trace;

pub use aliases::Aliases;
pub use nan::NonFinite;
pub(crate) use nan::first_non_finite;
pub(crate) use sentinel::Sentinel;
pub use sentinel::SentinelConfig;
pub use tensorboard::EventWriter;
