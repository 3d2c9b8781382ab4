//! The command line: its commands, and what its help lists.

use std::error::Error as _;
use std::fmt::Write as _;

use anyhow::Result;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use forage_contracts::nearest;

use super::{
    audit, bench, collect, compare, config, data, doctor, envs, eval, export, index, judge,
    licenses, play, policy, python, quickstart, recipes, replay, runs, search, serve, sft, shell,
    telemetry, train, world,
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
    Runs(runs::Runs),
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
    ("Look", &["runs", "telemetry"]),
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
    let mut found: Vec<String> = above
        .map(|above| format!("{} {name}", above.get_name()))
        .collect();
    // The name of a view of runs before it stood below them.
    if name == "inspect" {
        found.push("runs show".to_owned());
    }
    if !found.is_empty() {
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(found),
        );
    }
    error
}

/// The error of an option that is not there; one that has the name of a key of a config is answered with the key, and one that is like no
/// other names none. `words` are those of the command line.
fn keyed(mut error: clap::Error, words: &[String]) -> clap::Error {
    let told = |kind| match error.get(kind) {
        Some(ContextValue::String(told)) => Some(told.clone()),
        _ => None,
    };
    let option = told(ContextKind::InvalidArg).unwrap_or_default();
    let Some(name) = option.strip_prefix("--") else {
        return error;
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let near = told(ContextKind::SuggestedArg).unwrap_or_default();
    let near = near.trim_start_matches('-');
    let is_begun = !near.is_empty() && near.starts_with(name);
    let is_like = nearest(name, [near]).is_some();
    let mut keys = Vec::new();
    let options = options(words);
    if options.iter().any(|option| option == "set") && !is_begun {
        keys = config::ending_in(&name.replace('-', "_"));
    }
    let is_key = keys
        .iter()
        .any(|key| key.rsplit('.').next() == Some(&*name.replace('-', "_")));
    if is_key || !is_like {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::Usage);
    }
    let tips = match error.remove(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips,
        _ => Vec::new(),
    };
    // No argument here begins with two dashes.
    let is_kept = |tip: &StyledStr| !tip.to_string().contains("' as a value");
    let mut tips: Vec<StyledStr> = tips.into_iter().filter(is_kept).collect();
    let meant = MEANT.iter().find(|(theirs, _, _)| *theirs == name);
    if let Some((_, ours, about)) = meant
        && options.iter().any(|option| option == ours)
    {
        tips.push(format!("'--{ours}' {about}").into());
    }
    if !keys.is_empty() {
        let written = keys.iter().map(|key| format!("'--set {key}=VALUE'"));
        let written = written.collect::<Vec<_>>().join(" or ");
        tips.push(format!("a key of the config is set by {written}").into());
    }
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Options of other commands and systems, the option to give in place of each, and its use.
const MEANT: [(&str, &str, &str); 2] = [
    ("index", "corpus", "takes an index too"),
    ("n", "limit", "takes the number of questions"),
];

/// The long options of the command that a command line calls.
fn options(words: &[String]) -> Vec<String> {
    let mut command = &Cli::command();
    for word in words.iter().filter(|word| !word.starts_with('-')).skip(1) {
        match command.find_subcommand(word) {
            Some(below) => command = below,
            None => break,
        }
    }
    let options = command.get_arguments().filter_map(clap::Arg::get_long);
    options.map(str::to_owned).collect()
}

/// The error of a number that an option does not take, in words for who knows neither Rust's types nor its parser; `words` are those of the
/// command line. The parser takes a negative number for another option.
fn plain(error: clap::Error, words: &[String]) -> clap::Error {
    let told = |kind| match error.get(kind) {
        Some(ContextValue::String(told)) => Some(told.as_str()),
        _ => None,
    };
    let argument = told(ContextKind::InvalidArg).unwrap_or_default();
    if error.kind() == ErrorKind::UnknownArgument
        && argument == "--config"
        && let Some(line) = without_option(words)
    {
        let message = format!(
            "unexpected argument '--config' found: name the config without it, `{line}`\n\nFor more information, try '--help'.\n"
        );
        return clap::Error::raw(ErrorKind::UnknownArgument, message).with_cmd(&Cli::command());
    }
    if let Some(advice) = beside_config(&error, words) {
        let message = format!("{advice}\n\nFor more information, try '--help'.\n");
        return clap::Error::raw(ErrorKind::ArgumentConflict, message).with_cmd(&Cli::command());
    }
    let fault = match error.kind() {
        ErrorKind::UnknownArgument => words.windows(2).find_map(|pair| {
            let is_it = pair[1].starts_with(argument) && pair[1].parse::<f64>().is_ok();
            (argument.starts_with('-') && pair[0].starts_with('-') && is_it).then(|| {
                (
                    pair[0].as_str(),
                    pair[1].as_str(),
                    "a number that is not negative",
                )
            })
        }),
        ErrorKind::ValueValidation => {
            let source = error.source().map(ToString::to_string);
            let takes = match source.as_deref() {
                Some("number would be zero for non-zero type") => "a whole number from 1 on",
                Some(
                    "invalid digit found in string" | "cannot parse integer from empty string",
                ) => "a whole number",
                Some("invalid float literal" | "cannot parse float from empty string") => {
                    "a number"
                }
                Some("number too large to fit in target type") => "a smaller number",
                _ => return error,
            };
            told(ContextKind::InvalidValue).map(|value| (argument, value, takes))
        }
        _ => None,
    };
    let Some((option, value, takes)) = fault else {
        return error;
    };
    let message = format!(
        "invalid value '{value}' for '{option}': write {takes}\n\nFor more information, try '--help'.\n"
    );
    clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(&Cli::command())
}

/// The error of an evaluation with a config and an option that stands for one of its parts.
fn beside_config(error: &clap::Error, words: &[String]) -> Option<String> {
    const OPTIONS: [&str; 4] = ["--env ", "--index ", "--corpus ", "--format "];
    let told = |kind| error.get(kind).map(ToString::to_string);
    let both = [told(ContextKind::InvalidArg)?, told(ContextKind::PriorArg)?];
    let is_option = |told: &&String| OPTIONS.iter().any(|option| told.starts_with(option));
    let option = both.iter().find(is_option)?;
    let is_it = error.kind() == ErrorKind::ArgumentConflict
        && words.get(1).is_some_and(|word| word == "eval")
        && both.iter().any(|told| told == "[CONFIG]");
    is_it.then(|| {
        format!(
            "the argument '[CONFIG]' cannot be used with '{option}', since a config names environment, documents and questions: change \
             its keys by `--set data.files.index=INDEX --set data.files.test=FILE`, begin one for another environment with `forage config \
             init FILE --env ENV`, or leave it out and give --env, --index and --questions"
        )
    })
}

/// The beginning of a command line with its config in place, where an option names the config of a command that takes it without one.
fn without_option(words: &[String]) -> Option<String> {
    let root = Cli::command();
    let (mut command, mut named) = (&root, vec!["forage"]);
    for word in words.iter().skip(1) {
        let Some(below) = command.find_subcommand(word) else {
            break;
        };
        named.push(below.get_name());
        command = below;
    }
    let mut places = command.get_positionals();
    let place = words.iter().position(|word| word.starts_with("--config"))?;
    let config = match words[place].strip_prefix("--config") {
        Some("") => words.get(place + 1)?,
        rest => rest?.strip_prefix('=')?,
    };
    places
        .any(|place| place.get_id() == "config")
        .then(|| format!("{} {config}", named.join(" ")))
}

impl Cli {
    /// The command that the process was called with; ends the process where there is none.
    pub(crate) fn of_process() -> Self {
        let matches = command().try_get_matches();
        let matches = matches.unwrap_or_else(|error| {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            let words: Vec<String> = words.collect();
            plain(keyed(placed(error), &words), &words).exit()
        });
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
            (["forage", "inspect", "runs/mine"], "exists: 'runs show'"),
            (["forage", "watch", "--once"], "exists: 'runs watch'"),
            (["forage", "report", "runs/mine"], "exists: 'runs report'"),
            (["forage", "collct", "smoke"], "'collect'"),
        ] {
            let told = told(words);
            assert!(told.contains(near), "{near}: {told}");
        }
        assert!(!told(["forage", "zzz", "smoke"]).contains("tip:"));
    }

    #[test]
    fn an_option_that_is_a_key_of_the_config_is_answered_with_it() {
        let told = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let refused = super::command().try_get_matches_from(&words).unwrap_err();
            super::keyed(refused, &words).to_string()
        };
        for (line, tip) in [
            ("forage eval smoke --n 5", "'--limit' takes the number of"),
            (
                "forage config init a.toml --index wiki",
                "'--corpus' takes an index too",
            ),
            ("forage train smoke --steps 3", "'--set grpo.steps=VALUE'"),
            ("forage train smoke --step 3", "'--set grpo.steps=VALUE'"),
            (
                "forage train smoke --group-size 3",
                "'--set grpo.group_size=VALUE'",
            ),
            (
                "forage quickstart --num_generations 3",
                "'--set grpo.group_size=VALUE'",
            ),
            (
                "forage train smoke --outt runs/a",
                "a similar argument exists: '--out'",
            ),
        ] {
            let told = told(line);
            assert!(told.contains(tip), "{line}: {told}");
        }
        for line in ["forage eval smoke --zz 5", "forage world --steps 3"] {
            let told = told(line);
            assert!(
                told.contains("unexpected argument") && !told.contains("tip:"),
                "{line}: {told}"
            );
        }
        let exact = told("forage train smoke --steps 3");
        assert!(!exact.contains("similar"), "{exact}");
    }

    #[test]
    fn a_number_that_an_option_does_not_take_is_told_in_plain_words() {
        for (line, expected) in [
            (
                "forage eval smoke --samples -1",
                "invalid value '-1' for '--samples': write a number that is not negative",
            ),
            (
                "forage search wiki Ada -k -12",
                "invalid value '-12' for '-k': write a number that is not negative",
            ),
            (
                "forage search wiki Ada -k 0",
                "invalid value '0' for '--k <K>': write a whole number from 1 on",
            ),
            (
                "forage eval smoke --limit few",
                "invalid value 'few' for '--limit <LIMIT>': write a whole number\n",
            ),
            (
                "forage sft lessons.jsonl --learning-rate fast",
                "invalid value 'fast' for '--learning-rate <LEARNING_RATE>': write a number\n",
            ),
            (
                "forage train --config smoke --dry-run",
                "name the config without it, `forage train smoke`\n",
            ),
            (
                "forage train --config=smoke",
                "name the config without it, `forage train smoke`\n",
            ),
            (
                "forage search wiki Ada --config smoke",
                "tip: to pass '--config' as a value",
            ),
            (
                "forage eval smoke --env rerank",
                "cannot be used with '--env <ENV>', since a config names environment",
            ),
            (
                "forage eval smoke --zzz",
                "unexpected argument '--zzz' found",
            ),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let refused = super::command().try_get_matches_from(&words).unwrap_err();
            let told = super::plain(refused, &words).to_string();
            assert!(told.contains(expected), "{line}: {told}");
        }
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
