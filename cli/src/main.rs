//! `forage`: train and evaluate language models that search.
//!
//! Arguments, wiring and progress; what is computed lives in the library crates.

mod builtin;
mod commands;
mod config;
mod jsonl;
mod lint;
mod memory;
mod pipeline;
mod policy;
mod progress;
mod retrieval;
mod setup;

use std::process::ExitCode;

use clap::Parser;

/// Models allocate and free large buffers with every layer; the system's allocator hands them back to the kernel each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match commands::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => commands::report(&error),
    }
}
