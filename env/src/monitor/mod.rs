//! The vocabulary of what is measured while a policy learns: metrics by name, items of telemetry, and alarms.
//!
//! It lives here because everyone names metrics and raises alarms: the trainer's sentinel, the telemetry of `forage-eval`,
//! reports and the terminal. The trainer judges a running step against the run's own past and saves what it has seen in
//! checkpoints; telemetry needs statistics that the trainer does not depend on. Both raise the same [`Alarm`].

mod alarm;

pub use alarm::{Alarm, Example, Severity};
