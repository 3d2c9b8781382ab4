//! The command line: its commands, and what its help lists.

use std::fmt::Write as _;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::{
    audit, bench, collect, compare, config, data, doctor, envs, eval, export, index, inspect,
    judge, licenses, play, policy, python, quickstart, recipes, replay, report, runs, search,
    serve, sft, shell, telemetry, train, watch, world,
};
use crate::log::LogArgs;

/// Trains and evaluates language models that search.
#[derive(Parser, Debug)]
#[command(name = "forage", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Quickstart(quickstart::Quickstart),
    Train(Box<train::Train>),
    #[command(subcommand)]
    Recipes(recipes::Recipes),
    #[command(subcommand)]
    Config(config::Config),
    Audit(audit::Audit),
    Sft(sft::Sft),
    Collect(collect::Collect),
    Eval(Box<eval::Eval>),
    Compare(compare::Compare),
    #[command(subcommand)]
    Data(data::Data),
    #[command(subcommand)]
    Judge(judge::Judge),
    #[command(subcommand)]
    Runs(runs::Runs),
    Inspect(inspect::Inspect),
    Watch(watch::Watch),
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
    Licenses(licenses::Licenses),
    #[command(subcommand)]
    Shell(shell::Shell),
    #[command(subcommand, hide = true)]
    Bench(bench::Bench),
}

/// The commands by what they are for, as the help lists them.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Start",
        &[
            "quickstart",
            "recipes",
            "config",
            "audit",
            "doctor",
            "shell",
            "licenses",
        ],
    ),
    ("Train", &["train", "sft", "collect", "export"]),
    ("Evaluate", &["eval", "compare", "replay", "judge", "play"]),
    ("Look", &["runs", "watch", "inspect", "report", "telemetry"]),
    ("Data", &["world", "index", "search", "data", "envs"]),
    ("Serve", &["serve", "policy", "python"]),
];

/// The command line, whose help lists the commands by groups.
pub(super) fn command() -> clap::Command {
    let command = Cli::command();
    let mut help = "{about-with-newline}\n{usage-heading} {usage}\n\n\
                    Begin with `forage quickstart`, which takes minutes; with `--config smoke` it takes seconds.\n"
        .to_owned();
    for (group, names) in GROUPS {
        let _ = writeln!(help, "\n{group}:");
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(help, "  {name:12}{about}");
        }
    }
    command.help_template(help + "\nOptions:\n{options}")
}

/// The error of a command that is not there; of one that stands below another it names that.
fn placed(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let command = Cli::command();
    let above = command
        .get_subcommands()
        .filter(|above| !above.is_hide_set() && above.find_subcommand(name).is_some());
    let found: Vec<String> = above
        .map(|above| format!("{} {name}", above.get_name()))
        .collect();
    if !found.is_empty() {
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(found),
        );
    }
    error
}

impl Cli {
    /// The command that the process was called with; ends the process where there is none.
    pub(crate) fn of_process() -> Self {
        let matches = command().try_get_matches();
        let matches = matches.unwrap_or_else(|error| placed(error).exit());
        let parsed = Self::from_arg_matches(&matches);
        parsed.unwrap_or_else(|error| error.exit())
    }

    pub(crate) fn run(self) -> Result<()> {
        self.log.start();
        match self.command {
            Command::Quickstart(command) => command.run(),
            Command::Train(command) => command.run(),
            Command::Recipes(command) => command.run(),
            Command::Config(command) => command.run(),
            Command::Audit(command) => command.run(),
            Command::Sft(command) => command.run(),
            Command::Collect(command) => command.run(),
            Command::Eval(command) => command.run(),
            Command::Compare(command) => command.run(),
            Command::Data(command) => command.run(),
            Command::Judge(command) => command.run(),
            Command::Runs(command) => command.run(),
            Command::Inspect(command) => command.run(),
            Command::Watch(command) => command.run(),
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
            Command::Shell(command) => command.run(),
            Command::Licenses(_) => licenses::Licenses::run(),
            Command::Bench(command) => command.run(),
            Command::Envs(command) => {
                command.run();
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Cli, GROUPS};
    use crate::commands::blocks;

    /// The `forage` commands in a line of a shell block, as words: each part of a pipe on its own, without redirections.
    fn commands(line: &str) -> Vec<Vec<String>> {
        let words = shlex::split(line).unwrap_or_else(|| panic!("`{line}` has an open quote"));
        let mut commands = Vec::new();
        for part in words.split(|word| ["|", "||", "&&", ";"].contains(&word.as_str())) {
            let plain: Vec<String> = part
                .iter()
                .take_while(|word| !word.starts_with('>'))
                .cloned()
                .collect();
            let begin = match plain.first().map(String::as_str) {
                Some("forage") => Some(0),
                Some("cargo") => plain
                    .iter()
                    .position(|word| word == "--")
                    .filter(|_| plain.contains(&"run".to_owned())),
                _ => None,
            };
            commands.extend(begin.map(|begin| {
                let arguments = plain[begin + 1..].iter().cloned();
                std::iter::once("forage".to_owned())
                    .chain(arguments)
                    .collect()
            }));
        }
        commands
    }

    #[test]
    fn the_help_lists_every_command_once_in_few_words() {
        let mut listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let command = Cli::command();
        let mut visible: Vec<&str> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        listed.sort_unstable();
        visible.sort_unstable();
        assert_eq!(listed, visible);
        let below = command
            .get_subcommands()
            .flat_map(clap::Command::get_subcommands);
        for command in command.get_subcommands().chain(below) {
            let about = command.get_about().unwrap().to_string();
            assert!(
                about.split_whitespace().count() <= 10,
                "{}: {about}",
                command.get_name()
            );
        }
        let help = super::command().render_help().to_string();
        for part in [
            "Begin with `forage quickstart`",
            "\n\nStart:\n  quickstart ",
            "\n\nLook:\n  runs ",
            "Evaluate:\n  eval ",
            "Serve:\n  serve ",
            "--version",
        ] {
            assert!(help.contains(part), "{part}: {help}");
        }
    }

    #[test]
    fn a_command_below_another_is_named_with_it() {
        let told = |words: [&str; 3]| {
            let refused = super::command().try_get_matches_from(words);
            super::placed(refused.unwrap_err()).to_string()
        };
        for (words, near) in [
            (["forage", "completions", "bash"], "'shell completions'"),
            (["forage", "man", "man1"], "'shell man'"),
            (["forage", "collct", "smoke"], "'collect'"),
        ] {
            let told = told(words);
            assert!(told.contains(near), "{near}: {told}");
        }
        assert!(!told(["forage", "zzz", "smoke"]).contains("tip:"));
    }

    #[test]
    fn the_device_of_an_evaluation_is_not_that_of_its_encoder() {
        let words = [
            "forage",
            "eval",
            "--index",
            "wiki",
            "--device",
            "wgpu:cpu",
            "--model-device",
            "cpu",
        ];
        let shown = format!("{:?}", Cli::try_parse_from(words).unwrap());
        assert!(
            shown.contains("device: Some(Wgpu(Software))") && shown.contains("device: Cpu"),
            "{shown}"
        );
    }

    #[test]
    fn commands_of_the_documentation_are_understood() {
        Cli::command().debug_assert();
        let mut seen = 0;
        for document in blocks::documents() {
            for block in blocks::blocks(&blocks::read(&document))
                .iter()
                .filter(|block| block.is_shell())
            {
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
