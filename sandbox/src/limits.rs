//! The limits of a turn.

use std::time::Duration;

/// The limits of one turn of code. Each has its own [`crate::Status`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Processor time of the code, calls of tools excluded. Processor time, so that a busy machine changes nothing.
    pub time: Duration,
    /// Memory of the interpreter in bytes; the interpreter itself needs 35 MiB of it.
    pub memory_bytes: usize,
    /// The most output of the code, in bytes, for each of its two streams.
    pub output_bytes: usize,
    /// Calls of tools.
    pub calls: usize,
    /// Time of all calls of tools together, by the clock on the wall. No call begins after it: the code gets a `TimeoutError`. One
    /// call that takes as long by itself fails the turn as one of ours.
    pub tool_time: Duration,
    /// Length of the code in bytes.
    pub code_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(5),
            memory_bytes: 128 << 20,
            output_bytes: 1 << 20,
            calls: 64,
            tool_time: Duration::from_mins(5),
            code_bytes: 64 << 10,
        }
    }
}
