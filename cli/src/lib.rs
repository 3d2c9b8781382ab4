//! `forage`: train and evaluate language models that search.
//!
//! Arguments and printing; the library crates compute, and runs are functions of `forage_lab`. The face of this library is one
//! function: a crate with an environment, a reward, a loss or a curriculum of its own calls [`main_with`] from its `main` and has
//! every command with them in it (`docs/plugging-in.md`).

mod commands;
mod config;
mod environment;
mod figures;
mod jsonl;
mod log;
mod migration;
mod pace;
mod plugins;
mod policy;
mod progress;
mod ranks;
mod retrieval;
mod signals;
mod terminal;

use std::process::ExitCode;

pub use plugins::Plugins;

/// Models allocate and free large buffers with every layer; the system's allocator hands them back to the kernel each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the command that the process was called with, with these entries beside the built-in ones. Returns 0, 1 when it
/// failed, 2 when the arguments or the config were at fault, 130 when a signal stopped it.
pub fn main_with(plugins: Plugins) -> ExitCode {
    let installed = plugins.install();
    terminal::exit_code(installed.and_then(|()| commands::Cli::of_process().run()))
}
