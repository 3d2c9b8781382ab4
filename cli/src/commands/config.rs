//! `forage config`: a config to begin with, what its keys mean, and whether it can be used.

mod init;
mod keys;
mod page;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Error, Result};
use clap::{Args, Subcommand};
use forage_contracts::nearest;
use forage_env::registry;
use forage_lab::{EnvironmentConfig, RunConfig, RunError};
use forage_trainer::device::DeviceSpec;
use toml::{Table, Value};

use self::init::Init;
use self::keys::{Key, join, keys};
use super::recipes;
use super::train::absent_devices;
use crate::config::again;
use crate::migration;
use crate::terminal::{hint, note, out, word};

/// Begins, explains and checks configs.
#[derive(Subcommand, Debug)]
pub(crate) enum Config {
    Init(Init),
    Explain(Explain),
    Check(Check),
    /// Prints the JSON schema of configs, for editors.
    ///
    /// It holds every key with its type, default and meaning; those of environments, rewards and retrievers from outside too.
    Schema,
}

/// Says what a key means, or all keys.
///
/// The form of its value, its default, its meaning, and the recipes that write it. A part of a key is enough where it is clear. Without a
/// key, the whole reference as Markdown.
#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// A key or a table, `grpo.group_size` or `grpo.update` for instance.
    key: Option<String>,
}

/// Checks a config without starting anything.
///
/// Names every key that does not exist with the nearest one that does; else whatever else is wrong with it, a policy or files that are not
/// there or hold something else, questions that two splits share, evidence that the index does not have, prompts that leave no room for a
/// turn, a device that this build lacks, a policy that was taught another environment, and settings that may be meant otherwise. Exit code
/// 2 when it cannot be used. `forage train --dry-run` says besides what a run takes.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Config file, or the name of a recipe.
    config: PathBuf,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Compute device instead of the config's: cpu, cuda:0, ...
    #[arg(long)]
    device: Option<DeviceSpec>,
}

impl Config {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Init(command) => command.run(),
            Self::Explain(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Schema => {
                out(&serde_json::to_string_pretty(&RunConfig::schema())?);
                Ok(())
            }
        }
    }
}

impl Explain {
    fn run(self) -> Result<()> {
        let keys = keys(&RunConfig::schema());
        let Some(name) = self.key else {
            out(page::page(&keys).trim_end());
            return Ok(());
        };
        let found = named(&keys, &name);
        if found.is_empty() {
            let near = match meant(&keys, &name).join("`, `") {
                near if near.is_empty() => near,
                near => format!(" did you mean `{near}`?"),
            };
            let theirs = migration::advice(&name);
            let theirs = theirs.map_or_else(String::new, |theirs| format!(" {theirs};"));
            let wrong = format!("no key `{name}`;{near}{theirs} `forage config explain` lists all");
            return Err(RunError::config(wrong).into());
        }
        let texts: Vec<String> = found.iter().map(|key| explained(key, &keys)).collect();
        out(texts.join("\n").trim_end());
        Ok(())
    }
}

/// The keys of this path, else those whose path ends in it.
fn named<'a>(keys: &'a [Key], name: &str) -> Vec<&'a Key> {
    let exact: Vec<&Key> = keys.iter().filter(|key| key.path() == name).collect();
    if !exact.is_empty() {
        return exact;
    }
    let ending = format!(".{name}");
    let ends = |key: &&Key| key.path().ends_with(&ending);
    keys.iter().filter(ends).collect()
}

/// Names that other trainers give to keys, with those that they have here.
const SYNONYMS: [(&str, &str); 5] = [
    ("batch_size", "prompts_per_step"),
    ("lr", "learning_rate"),
    ("max_turns", "max_generations"),
    ("model", "checkpoint"),
    ("num_generations", "group_size"),
];
/// Keys that are suggested, at most.
const SUGGESTED: usize = 5;

/// The keys that may be meant by a name that is none: those that have it, or its synonym, in their last part, else the nearest that is
/// like it.
fn meant(keys: &[Key], name: &str) -> Vec<String> {
    let synonym = SYNONYMS.iter().find(|(theirs, _)| *theirs == name);
    let wanted = synonym.map_or(name, |(_, ours)| *ours);
    let paths: BTreeSet<String> = keys.iter().map(Key::path).collect();
    let with = |fits: &dyn Fn(&str) -> bool| -> Vec<String> {
        let found = paths.iter().filter(|path| fits(last(path)));
        found.take(SUGGESTED).cloned().collect()
    };
    let mut found = with(&|own| own == wanted);
    if found.is_empty() && wanted.len() > 2 {
        found = with(&|own| own.contains(wanted));
    }
    if found.is_empty() && name.contains('.') {
        let near = nearest(name, paths.iter().map(String::as_str));
        let near = near.filter(|near| nearest(last(name), [last(near)]).is_some());
        found.extend(near.map(str::to_owned));
    } else if found.is_empty()
        && let Some(near) = nearest(name, paths.iter().map(|path| last(path)))
    {
        found = with(&|own| own == near);
    }
    found
}

/// The keys that may be meant by an option, at most three, those nearest to the top first: keys of every config whose last part is its name
/// or a synonym of that, else those of an environment too, and those whose last part begins like it.
pub(super) fn ending_in(name: &str) -> Vec<String> {
    const MOST: usize = 3;
    // Letters that two names share at the beginning to count as alike.
    const LEAST: usize = 4;
    let synonym = SYNONYMS.iter().find(|(theirs, _)| *theirs == name);
    let wanted = synonym.map_or(name, |(_, ours)| *ours);
    let mut keys = keys(&RunConfig::schema());
    // A list of tables is not set by its parts, and digests are written by the program.
    keys.retain(|key| {
        let path = key.path();
        !key.is_table && !path.contains("[]") && !path.starts_with("data.digests")
    });
    let with = |fits: &dyn Fn(&Key, &str) -> bool| -> BTreeSet<String> {
        let fits = |key: &&Key| fits(key, last(&key.path()));
        keys.iter().filter(fits).map(Key::path).collect()
    };
    let mut found = with(&|key, own| key.of.is_none() && own == wanted);
    if found.is_empty() {
        let is_like = |own: &str| {
            let (short, long) = if own.len() < wanted.len() {
                (own, wanted)
            } else {
                (wanted, own)
            };
            short.len() >= LEAST && long.starts_with(short)
        };
        found = with(&|key, own| own == wanted || key.of.is_none() && is_like(own));
    }
    let mut found: Vec<String> = found.into_iter().collect();
    // A rate is that of the policy before that of a critic.
    found.sort_by_key(|path| {
        (
            path.matches('.').count(),
            path.contains(".critic."),
            path.len(),
        )
    });
    found.truncate(MOST);
    found
}

/// The last part of a path.
fn last(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, last)| last)
}

/// The form of a key's value, and its default or that it is required.
fn form(key: &Key) -> String {
    match &key.default {
        Some(default) if !key.is_table => format!("{}, by default {default}", key.form),
        None if key.required => format!("{}, required", key.form),
        _ => key.form.clone(),
    }
}

fn explained(key: &Key, keys: &[Key]) -> String {
    let path = key.path();
    let mut text = path.clone();
    if let Some(of) = &key.of {
        let _ = write!(text, ", of {of}");
    }
    let _ = writeln!(text, "\n  {}", form(key));
    if !key.meaning.is_empty() {
        let _ = writeln!(text, "  {}", key.meaning);
    }
    for (choice, about) in &key.choices {
        let _ = writeln!(text, "    {choice}  {about}");
    }
    // The keys of a variant are listed in the section of the key that selects it.
    let under = format!("{path}.");
    let inside = |other: &&Key| {
        (other.section == path || other.section == key.section)
            && (key.of.is_none() || other.of == key.of)
    };
    for other in keys.iter().filter(|_| key.is_table).filter(inside) {
        if let Some(name) = other.path().strip_prefix(&under) {
            let colon = if other.meaning.is_empty() { "" } else { ": " };
            let _ = writeln!(text, "    {name}  {}{colon}{}", form(other), other.meaning);
        }
    }
    let environment = key
        .of
        .as_deref()
        .filter(|_| path.starts_with("environment."));
    let written = recipes::written(&path, environment);
    if !key.is_table && !written.is_empty() {
        let written: Vec<String> = written
            .into_iter()
            .map(|(recipe, value)| format!("{recipe} {value}"))
            .collect();
        let _ = writeln!(text, "  in recipes: {}", written.join(", "));
    }
    text
}

impl Check {
    fn run(self) -> Result<()> {
        let schema = keys(&RunConfig::schema());
        let table = recipes::table(&self.config)?;
        let mut unknown = Vec::new();
        find_unknown(&table, "", &owners(&table), &schema, &mut unknown);
        if !unknown.is_empty() {
            let what = format!("config {}: {}", self.config.display(), unknown.join("; "));
            return Err(RunError::config(what).into());
        }
        let config = recipes::named(&self.config, &self.overrides)?;
        let (served, trains) = (served(&schema, &config), config.trains());
        let mut faults = config.missing();
        let is_whole = faults.is_empty();
        match config.check_files() {
            Ok(warnings) => warnings.iter().for_each(|warning| note(warning)),
            Err(error) => faults.push(format!("{:#}", Error::from(error))),
        }
        let mut place = "";
        match config.resolve(self.device) {
            Ok(config) => {
                for warning in config.warnings().into_iter().chain(config.untaught()) {
                    note(&format!("warning: {warning}"));
                }
                if absent_devices(config.device, &[]) {
                    place = " where its device is";
                }
                // The window is that of the policy, which may be what is missing.
                let fits = || config.check_window().and_then(|()| config.check_room());
                match is_whole.then(fits) {
                    Some(Ok(Some(warning))) => note(&warning),
                    Some(Err(error)) => {
                        faults.push(format!("{:#}", Error::from(error)));
                        // The check of the files may have reported the same fault.
                        faults.dedup();
                    }
                    _ => {}
                }
            }
            Err(error) => faults.push(format!("{:#}", Error::from(error))),
        }
        if !faults.is_empty() {
            let what = format!(
                "config {} cannot be used: {}",
                self.config.display(),
                faults.join("; ")
            );
            return Err(RunError::config(what).into());
        }
        out(&format!("{} can be used{place}", self.config.display()));
        let words = word(&self.config) + &again(&self.overrides);
        hint(&if trains {
            format!("next: forage audit {words}{served}; forage train {words}{served} --dry-run")
        } else {
            format!("next: forage eval {words}{served}")
        });
        Ok(())
    }
}

/// The option that commands need beside a config whose environment is on a server, where it names no address; else nothing.
fn served(schema: &[Key], config: &RunConfig) -> &'static str {
    let environment = &config.environment;
    let id = registry::find(&environment.id).ok().map(|entry| entry.id);
    let is_address =
        |key: &Key| key.path() == "environment.settings.url" && key.of.as_deref() == id;
    if schema.iter().any(is_address) && !environment.settings.contains_key("url") {
        " --env-command \"python3 FILE\""
    } else {
        ""
    }
}

/// The environment and the kind of retriever that a config names, as keys name them.
fn owners(config: &Table) -> [Option<String>; 2] {
    let named = |path: &[&str]| {
        let mut value = config.get(*path.first()?)?;
        for key in &path[1..] {
            value = value.get(*key)?;
        }
        value.as_str().map(str::to_owned)
    };
    let environment = named(&["environment", "id"]);
    let environment = environment.unwrap_or_else(|| EnvironmentConfig::default().id);
    let environment = registry::find(&environment).ok();
    [
        environment.map(|entry| entry.id.to_owned()),
        named(&["retriever", "remote", "kind"]),
    ]
}

/// Names the keys of a table that nothing reads, each with the nearest that something does.
fn find_unknown(
    table: &Table,
    path: &str,
    owners: &[Option<String>; 2],
    keys: &[Key],
    unknown: &mut Vec<String>,
) {
    for (name, value) in table {
        let own = join(path, name);
        let known: Vec<&Key> = keys
            .iter()
            .filter(|key| key.of.is_none() || owners.contains(&key.of))
            .collect();
        let Some(last) = known.iter().rfind(|key| key.path() == own) else {
            let beside =
                |key: &&&Key| key.path().rsplit_once('.').map_or("", |(table, _)| table) == path;
            let paths: Vec<String> = known.iter().filter(beside).map(|key| key.path()).collect();
            let near = nearest(name, paths.iter().map(|path| last(path)));
            let near = near.map_or_else(String::new, |near| {
                format!("; did you mean `{}`?", join(path, near))
            });
            let theirs = migration::advice(&own).or_else(|| migration::advice(name));
            let theirs = theirs.map_or_else(String::new, |theirs| format!("; {theirs}"));
            unknown.push(format!("no key `{own}`{near}{theirs}"));
            continue;
        };
        match value {
            Value::Table(inner) if !last.is_open => {
                find_unknown(inner, &own, owners, keys, unknown);
            }
            Value::Array(items) => {
                let tables = items.iter().filter_map(Value::as_table);
                for inner in tables {
                    find_unknown(inner, &format!("{own}[]"), owners, keys, unknown);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn unknown(text: &str) -> Vec<String> {
        let table: Table = text.parse().unwrap();
        let mut unknown = Vec::new();
        let keys = keys(&RunConfig::schema());
        find_unknown(&table, "", &owners(&table), &keys, &mut unknown);
        unknown
    }

    #[test]
    fn all_unknown_keys_are_named_with_the_nearest() {
        let found = unknown(
            "[grpo]\nsteps = 3\ngroup_sise = 4\n[environment.settings]\ntop_q = 1\n[environment.settings.calls]\nmost = 1\n[reward]\nemm = 1.0",
        );
        let nearest = ["grpo.group_size", "environment.settings.top_k", "reward.em"];
        assert_eq!(found.len(), nearest.len(), "{found:?}");
        for near in nearest {
            assert!(
                found
                    .iter()
                    .any(|text| text.contains(&format!("did you mean `{near}`?"))),
                "{near}: {found:?}"
            );
        }
        // Settings of one environment are not those of another.
        assert_eq!(
            unknown("[environment]\nid = \"code-search\"\nsettings = { top_k = 1 }").len(),
            1
        );
        assert!(unknown("[policy.chat.options]\nanything = true").is_empty());
    }

    #[test]
    fn a_name_that_is_no_key_is_answered_with_keys_that_may_be_meant() {
        let keys = keys(&RunConfig::schema());
        let meant = |name: &str| meant(&keys, name);
        for (name, key) in [
            ("lr", "grpo.update.optimizer.learning_rate"),
            ("max_turns", "environment.settings.max_generations"),
            ("group_sise", "grpo.group_size"),
            ("grpo.group_sise", "grpo.group_size"),
        ] {
            let found = meant(name);
            assert!(found.iter().any(|path| path == key), "{name}: {found:?}");
        }
        assert!(meant("quux").is_empty(), "{:?}", meant("quux"));
        assert!(meant("grpo.qqq").is_empty(), "{:?}", meant("grpo.qqq"));
    }

    #[test]
    fn no_recipe_has_an_unknown_key() {
        for recipe in recipes::names() {
            let table = recipes::table(Path::new(recipe)).unwrap();
            let mut unknown = Vec::new();
            let keys = keys(&RunConfig::schema());
            find_unknown(&table, "", &owners(&table), &keys, &mut unknown);
            assert!(unknown.is_empty(), "{recipe}: {unknown:?}");
        }
    }

    #[test]
    fn the_keys_of_a_choice_are_listed_with_it() {
        let keys = keys(&RunConfig::schema());
        let found = named(&keys, "objective.credit.reward_to_go");
        let text = explained(found[0], &keys);
        assert!(text.contains("\n    gamma  "), "{text}");
    }

    #[test]
    fn every_key_says_what_it_means() {
        for key in keys(&RunConfig::schema()) {
            assert!(
                !key.meaning.is_empty(),
                "{} says nothing: write a doc comment",
                key.path()
            );
            assert!(
                !key.meaning.contains("::"),
                "{}: {}",
                key.path(),
                key.meaning
            );
        }
    }
}
