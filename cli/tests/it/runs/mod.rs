//! Runs on the command line: how they are made, what they leave, what is read of it.

mod report;
mod sft;
mod telemetry;
mod tracked;
mod watch;
