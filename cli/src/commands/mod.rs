//! One file per command.

mod bench;
mod collect;
mod compare;
mod controls;
mod data;
mod doctor;
mod envs;
mod eval;
mod export;
mod index;
mod inspect;
mod judge;
mod play;
mod policy;
mod python;
mod quickstart;
mod recipes;
mod replay;
mod report;
mod search;
mod serve;
mod sft;
mod telemetry;
mod train;
mod world;

#[cfg(test)]
#[path = "../../tests/it/guide/blocks.rs"]
mod blocks;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::config::BadConfig;

/// Trains and evaluates language models that search.
#[derive(Parser, Debug)]
#[command(name = "forage", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Quickstart(quickstart::Quickstart),
    Train(train::Train),
    #[command(subcommand)]
    Recipes(recipes::Recipes),
    Sft(sft::Sft),
    Collect(collect::Collect),
    Eval(Box<eval::Eval>),
    Compare(compare::Compare),
    #[command(subcommand)]
    Data(data::Data),
    #[command(subcommand)]
    Judge(judge::Judge),
    Inspect(inspect::Inspect),
    Report(report::ReportArgs),
    Telemetry(telemetry::TelemetryArgs),
    Replay(replay::Replay),
    #[command(subcommand)]
    Index(index::Index),
    Search(Box<search::Search>),
    #[command(subcommand)]
    Serve(serve::Serve),
    Export(export::Export),
    #[command(subcommand)]
    Policy(policy::Policy),
    World(world::WorldArgs),
    Play(play::Play),
    Python(python::Python),
    Envs(envs::Envs),
    Doctor(doctor::Doctor),
    #[command(subcommand, hide = true)]
    Bench(bench::Bench),
}

impl Cli {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Quickstart(command) => command.run(),
            Command::Train(command) => command.run(),
            Command::Recipes(command) => command.run(),
            Command::Sft(command) => command.run(),
            Command::Collect(command) => command.run(),
            Command::Eval(command) => command.run(),
            Command::Compare(command) => command.run(),
            Command::Data(command) => command.run(),
            Command::Judge(command) => command.run(),
            Command::Inspect(command) => command.run(),
            Command::Report(command) => command.run(),
            Command::Telemetry(command) => command.run(),
            Command::Replay(command) => command.run(),
            Command::Index(command) => command.run(),
            Command::Search(command) => command.run(),
            Command::Serve(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::Policy(command) => command.run(),
            Command::World(command) => command.run(),
            Command::Play(command) => command.run(),
            Command::Python(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Envs(command) => {
                command.run();
                Ok(())
            }
        }
    }
}

/// Prints an error with its causes; a closed pipe is not an error of ours. Exit code 1, or 2 when the config was at fault.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let mut lines = vec![format!("error: {error}")];
    let mut before = error.to_string();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        // A transparent wrapper repeats its source's words.
        if text != before {
            lines.push(format!("  because: {text}"));
        }
        before = text;
    }
    note(&lines.join("\n"));
    ExitCode::from(if error.downcast_ref::<BadConfig>().is_some() { 2 } else { 1 })
}

/// Prints to stdout; a reader that left early ends the process quietly.
#[expect(clippy::print_stderr, reason = "a failing stdout is reported on stderr")]
pub(crate) fn out(text: &str) {
    use std::io::Write;
    if let Err(error) = writeln!(std::io::stdout(), "{text}") {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            eprintln!("error: cannot write to stdout: {error}");
            std::process::exit(1);
        }
        std::process::exit(0);
    }
}

/// Prints to stderr.
#[expect(clippy::print_stderr, reason = "whatever is not the answer goes to stderr")]
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Cli, blocks};

    /// The `forage` commands in a line of a shell block, as words: each part of a pipe on its own, without redirections.
    fn commands(line: &str) -> Vec<Vec<String>> {
        let words = shlex::split(line).unwrap_or_else(|| panic!("`{line}` has an open quote"));
        let mut commands = Vec::new();
        for part in words.split(|word| ["|", "||", "&&", ";"].contains(&word.as_str())) {
            let plain: Vec<String> = part.iter().take_while(|word| !word.starts_with('>')).cloned().collect();
            let begin = match plain.first().map(String::as_str) {
                Some("forage") => Some(0),
                Some("cargo") => {
                    plain.iter().position(|word| word == "--").filter(|_| plain.contains(&"run".to_owned()))
                }
                _ => None,
            };
            commands.extend(begin.map(|begin| {
                let arguments = plain[begin + 1..].iter().cloned();
                std::iter::once("forage".to_owned()).chain(arguments).collect()
            }));
        }
        commands
    }

    #[test]
    fn the_device_of_an_evaluation_is_not_that_of_its_encoder() {
        let words = ["forage", "eval", "c.toml", "--device", "wgpu:cpu", "--model-device", "cpu"];
        let shown = format!("{:?}", Cli::try_parse_from(words).unwrap());
        assert!(shown.contains("device: Some(Wgpu(Software))") && shown.contains("device: Cpu"), "{shown}");
    }

    #[test]
    fn commands_of_the_documentation_are_understood() {
        Cli::command().debug_assert();
        let mut seen = 0;
        for document in blocks::documents() {
            for block in blocks::blocks(&blocks::read(&document)).iter().filter(|block| block.is_shell()) {
                for words in block.lines().iter().flat_map(|line| commands(line)) {
                    if let Err(error) = Cli::try_parse_from(&words) {
                        panic!("{document}:{}: `{}`: {error}", block.line, words.join(" "));
                    }
                    seen += 1;
                }
            }
        }
        assert!(seen > 100, "{seen} commands found");
    }
}
