//! `forage`: train and evaluate language models that search.
//!
//! Arguments, wiring and progress; what is computed lives in the library crates. The face of this library is one function:
//! a crate with an environment or a reward of its own calls [`main_with`] from its `main` and has every command with them in
//! it (`docs/plugging-in.md`).

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
mod run_folder;
mod setup;
mod telemetry;
mod twins;

use std::process::ExitCode;

use clap::Parser;

pub use forage_env::plugins::Plugins;

/// Models allocate and free large buffers with every layer; the system's allocator hands them back to the kernel each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the command that the process was called with, with these environments and rewards beside the built-in ones. Returns
/// 0, 1 when it failed, 2 when the arguments or the config were at fault.
pub fn main_with(plugins: Plugins) -> ExitCode {
    let installed = plugins.install().map_err(anyhow::Error::from);
    match installed.and_then(|()| commands::Cli::parse().run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => commands::report(&error),
    }
}
