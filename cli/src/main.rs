//! The program without plug-ins.

use std::process::ExitCode;

fn main() -> ExitCode {
    forage::main_with(forage::Plugins::new())
}
