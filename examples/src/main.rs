//! The command line of forage with an environment and a reward of somebody else's in it.

mod rows_match;
mod sql;

use std::process::ExitCode;

use forage::Plugins;

fn main() -> ExitCode {
    forage::main_with(
        Plugins::new()
            .environment(sql::ENTRY) // the line that registers the environment
            .reward(rows_match::ENTRY), // the line that registers the reward
    )
}

#[cfg(test)]
mod tests;
