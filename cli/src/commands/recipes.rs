//! `forage recipes`: published recipes as configs, how two configs differ, and a rehearsal of each.

mod rehearsal;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use forage_contracts::suggestion;
use forage_env::registry;
use forage_lab::{EnvironmentConfig, RunConfig, RunError};
use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use crate::figures::columns;
use crate::terminal::{out, word};

/// Shows published recipes as configs, compares or rehearses them.
#[derive(Subcommand, Debug)]
pub(crate) enum Recipes {
    /// Lists their names, those of forage's own configs last.
    List {
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Prints one as a config, every setting spelled out.
    ///
    /// Its notes come first. What is printed is a config file for `forage train`.
    Show {
        /// Its name.
        name: String,
    },
    /// Prints the settings in which two differ, side by side.
    Diff {
        /// A recipe's name or a config file.
        a: String,
        /// Another.
        b: String,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Sees one through in miniature, in seconds.
    ///
    /// `forage train NAME` trains it as it is. In miniature a tiny random model of the same family learns for three steps from tiny generated data of the same shape, on
    /// the processor. What differs from the recipe is printed.
    Run {
        /// Its name, or a config file.
        name: String,
        /// Rehearse it: tiny model, tiny data, three steps.
        #[arg(long, required = true)]
        miniature: bool,
        /// Change a config value: key.path=value; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
        /// Folder for `start`, with its model and data, and `run`; a temporary one by default.
        #[arg(long)]
        out: Option<PathBuf>,
    },
}

/// A config inside the program.
struct Recipe {
    name: &'static str,
    /// The system and the run, in a few words.
    about: &'static str,
    /// The file in `configs`.
    text: &'static str,
}

/// Makes a table of configs, each named as its file in this folder is.
macro_rules! configs {
    ($folder:literal: $($name:literal: $about:literal;)*) => {
        &[$(Recipe {
            name: $name,
            about: $about,
            text: include_str!(concat!("../../../", $folder, "/", $name, ".toml")),
        }),*]
    };
}

/// Every published recipe there is. A new one is a file and a line here.
const RECIPES: &[Recipe] = configs! { "configs/recipes":
    "search_r1_v01": "Search-R1 v0.1: GRPO, 305 batches of 512 x 5 in 10 steps each";
    "search_r1_v02": "Search-R1 v0.2: GRPO, 1,005 batches of 512 x 5 in 10 steps each";
    "search_r1_v02_ppo": "Search-R1 v0.2: PPO with a critic, 1,005 batches of 512 in 2 steps each";
    "search_r1_v03": "Search-R1 v0.3: half the rate, exact match and format as reward";
    "slime": "slime's Search-R1: clip-higher, 32 x 8 in one step, two turns";
    "verl": "verl's Search-R1-like: 512 x 5 in 2 steps, dual clip, two turns";
    "skyrl": "SkyRL's Search-R1: 512 x 5 in 2 steps, truncated importance weights";
    "tinker": "tinker-cookbook's Search-R1: adapter of rank 32, no clip, no penalty";
    "torchtitan": "torchtitan's Search-R1: Qwen3, clip-higher, no penalty, 8 x 8";
    "prime_rl_wiki": "prime-rl's wiki-search: DPPO, adapter of rank 8, tool calls over pages";
    "slm_code_search": "SLM-RL-Search: Python over pages, REINFORCE by turns";
    "spurious": "Spurious Rewards: a coin as reward, on problems of mathematics";
    "searchlm_v1": "SearchLM v1: boolean queries, NDCG and MRR as reward, two episodes per question";
    "searchlm_v2": "SearchLM v2: gain over keywords, halved without operators, bonus for reasoning";
    "minisearch": "minisearch-r1: Qwen2.5-1.5B, adapter, hybrid search, F1 and format";
    "ssrl": "SSRL: the policy answers its own searches and does not learn the information";
};

/// The configs that nobody published and that have names too, since the guide runs them and a program may be all that its reader has.
const OWN: &[Recipe] = configs! { "configs":
    "quickstart": "forage's own: the quickstart, search-r1 over a generated world";
    "quickstart-code": "forage's own: the quickstart of code-search, Python over generated pages";
    "smoke": "forage's own: the quickstart in seconds, as a check";
    "query-writer": "forage's own: the quickstart of query-writer, boolean queries";
    "rerank": "forage's own: passages put in order, on the files of a BEIR folder";
};

/// Every config that has a name, the published ones first.
fn all() -> impl Iterator<Item = &'static Recipe> {
    RECIPES.iter().chain(OWN)
}

impl Recipe {
    fn find(name: &str) -> Option<&'static Self> {
        all().find(|recipe| recipe.name == name)
    }

    fn config(&self) -> Result<RunConfig> {
        let config = RunConfig::parse(self.text, &[]).and_then(|config| {
            config.check()?;
            Ok(config.of_recipe(self.name, self.text))
        });
        config.with_context(|| format!("the built-in recipe {} is broken", self.name))
    }

    /// The comment at the head of its file, with a line end.
    fn notes(&self) -> String {
        self.text
            .lines()
            .take_while(|line| line.starts_with('#'))
            .flat_map(|line| [line, "\n"])
            .collect()
    }
}

impl Recipes {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::List { json: true } => {
                let entries: Vec<Json> = all()
                    .map(|recipe| json!({"name": recipe.name, "about": recipe.about}))
                    .collect();
                out(&json!({"recipes": entries}).to_string());
            }
            Self::List { json: false } => {
                let width = all().map(|recipe| recipe.name.len()).max();
                let width = width.unwrap_or(0);
                for recipe in all() {
                    out(&format!("{:width$} {}", recipe.name, recipe.about));
                }
            }
            Self::Show { name } => {
                let recipe = Recipe::find(&name).with_context(|| unknown(&name))?;
                let shown = annotated(&spelled_out(&recipe.config()?)?, recipe.text);
                out(&format!("{}\n{shown}", recipe.notes()));
            }
            Self::Diff { a, b, json } => {
                let of = |name: &str| {
                    let config = named(Path::new(name), &[])?;
                    config.check()?;
                    settings(&config, name)
                };
                let differences = differences(&of(&a)?, &of(&b)?);
                out(&if json {
                    as_json(&a, &b, &differences)
                } else {
                    as_text(&a, &b, &differences)
                });
            }
            Self::Run {
                name,
                miniature: _,
                overrides,
                out,
            } => {
                let path = Path::new(&name);
                let config = named(path, &overrides)?;
                let title = path.file_stem().context("a recipe has a name")?;
                rehearsal::rehearse(&config, &title.to_string_lossy(), out.as_deref())?;
            }
        }
        Ok(())
    }
}

fn unknown(name: &str) -> String {
    let suggestion = suggestion(name, all().map(|recipe| recipe.name));
    format!("no recipe `{name}`; {suggestion} (`forage recipes list` describes them)")
}

/// The config of a recipe or file as TOML, with the settings of its environment spelled out too.
fn spelled_out(config: &RunConfig) -> Result<String> {
    let mut config = config.clone();
    let environment = &mut config.environment;
    let entry = registry::find(&environment.id)?;
    environment.id = entry.id.to_owned();
    let written = Json::Object(std::mem::take(&mut environment.settings));
    environment.settings = match (entry.resolve)(written)?.settings {
        Json::Object(settings) => settings,
        _ => Map::new(),
    };
    Ok(config.to_toml()?)
}

/// The lines of TOML, each with the path of the table or the value that it begins. Texts of several lines begin none.
fn places(toml: &str) -> Vec<(Option<String>, &str)> {
    let mut section = String::new();
    // The quotes of a text that has not ended.
    let mut open: Option<&str> = None;
    let mut found = Vec::new();
    for line in toml.lines() {
        let mut path = None;
        if let Some(quotes) = open {
            open = Some(quotes).filter(|quotes| !line.contains(*quotes));
        } else if let Some((name, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        {
            name.clone_into(&mut section);
            path = Some(section.clone());
        } else if let Some((key, value)) = line.split_once(" = ")
            && !key.contains([' ', '#', '"'])
        {
            let begins = |quotes: &&str| {
                let rest = value.strip_prefix(*quotes);
                rest.is_some_and(|rest| !rest.contains(*quotes))
            };
            open = ["'''", "\"\"\""].into_iter().find(begins);
            let whole = if section.is_empty() {
                key.to_owned()
            } else {
                format!("{section}.{key}")
            };
            path = Some(whole).filter(|_| open.is_none());
        }
        found.push((path, line));
    }
    found
}

/// The lines by which a policy inside the program was taught an environment, as its own config has them: those of `[environment.settings]`,
/// each with its path. `None` for other policies, and in other environments.
pub(crate) fn taught(policy: &str, environment: &str) -> Option<Vec<(String, &'static str)>> {
    let name = policy.strip_prefix("builtin:")?.split('@').next()?;
    let own = OWN.iter().find(|recipe| recipe.name == name)?;
    let table = Value::Table(own.text.parse().ok()?);
    let id = at(&table, "environment.id").and_then(Value::as_str)?;
    if registry::find(id).ok()?.id != registry::find(environment).ok()?.id {
        return None;
    }
    let lines = places(own.text).into_iter();
    let lines = lines.filter_map(|(path, line)| Some((path?, line)));
    Some(
        lines
            .filter(|(path, _)| path.starts_with("environment.settings"))
            .collect(),
    )
}

/// A config as TOML with the notes that its file has behind values: of a value that is spelled out as a table, behind its first line.
fn annotated(toml: &str, file: &str) -> String {
    let noted = places(file).into_iter().filter_map(|(path, line)| {
        let (_, note) = line.split_once("  # ")?;
        Some((path?, note))
    });
    let mut notes: Vec<(String, &str)> = noted.collect();
    let lines = places(toml).into_iter().map(|(path, line)| {
        let is_of = |noted: &str| {
            let rest = path.as_deref().and_then(|path| path.strip_prefix(noted));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        match notes.iter().position(|(noted, _)| is_of(noted)) {
            Some(place) => format!("{line}  # {}", notes.remove(place).1),
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<String>>().join("\n")
}

/// Returns true where a name is a recipe's, or a file's, of which there may be none.
pub(crate) fn names_config(name: &Path) -> bool {
    Recipe::find(&name.to_string_lossy()).is_some() || name.is_file() || name.extension().is_some()
}

/// The config that a recipe or a file holds, with overrides, unchecked.
pub(crate) fn named(name: &Path, overrides: &[String]) -> Result<RunConfig> {
    let text = name.to_string_lossy();
    match Recipe::find(&text) {
        Some(recipe) => RunConfig::parse(recipe.text, overrides)
            .map(|config| config.of_recipe(recipe.name, recipe.text))
            .with_context(|| format!("recipe {text} cannot be used")),
        None if name.exists() => Ok(RunConfig::read(name, overrides)?),
        None if name.extension().is_some() => {
            let wrong = format!(
                "there is no config file {text}; check the path, begin one with `forage config init {}`, or use a name from \
                 `forage recipes list`",
                word(name)
            );
            Err(RunError::config(wrong).into())
        }
        None => {
            let wrong = format!("{}; a config file may stand in its place", unknown(&text));
            Err(RunError::config(wrong).into())
        }
    }
}

/// The names of all published recipes.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    RECIPES.iter().map(|recipe| recipe.name)
}

/// The config that a recipe or a file holds, as it is written: nothing is checked but that it is TOML.
pub(crate) fn table(name: &Path) -> Result<Table> {
    if let Some(recipe) = Recipe::find(&name.to_string_lossy()) {
        return Ok(recipe.text.parse()?);
    }
    if !name.exists() {
        // Says what may stand here.
        named(name, &[])?;
    }
    let text = std::fs::read_to_string(name)
        .with_context(|| format!("cannot read config {}", name.display()))?;
    let wrong = || format!("config {} is not usable", name.display());
    Ok(text
        .parse()
        .map_err(|cause: toml::de::Error| RunError::config_because(wrong(), cause))?)
}

/// The recipes that write a key, each with the value; of an environment's key those that play it.
pub(crate) fn written(path: &str, environment: Option<&str>) -> Vec<(&'static str, String)> {
    let default = EnvironmentConfig::default().id;
    let of = |recipe: &'static Recipe| {
        let table = Value::Table(recipe.text.parse().ok()?);
        let id = at(&table, "environment.id").and_then(Value::as_str);
        let entry = registry::find(id.unwrap_or(&default)).ok()?;
        if environment.is_some_and(|environment| environment != entry.id) {
            return None;
        }
        Some((recipe.name, shown(Some(at(&table, path)?))))
    };
    RECIPES.iter().filter_map(of).collect()
}

/// The value at a path; of lists of tables the first.
fn at<'a>(table: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(table, |value, key| match key.strip_suffix("[]") {
            Some(list) => value.get(list)?.get(0),
            None => value.get(key),
        })
}

/// Every setting of a config by its path; `name` is for its errors.
fn settings(config: &RunConfig, name: &str) -> Result<BTreeMap<Key, Value>> {
    let mut table: Table = spelled_out(config)
        .with_context(|| name.to_owned())?
        .parse()?;
    // The origin of a config is not one of its settings.
    table.remove("stamp");
    let mut settings = BTreeMap::new();
    flatten(&table, "", &mut settings);
    Ok(settings)
}

/// A setting's place; ordered by section, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    section: String,
    name: String,
}

impl Key {
    /// The path that `--set` takes.
    fn path(&self) -> String {
        if self.section.is_empty() {
            self.name.clone()
        } else {
            format!("{}.{}", self.section, self.name)
        }
    }
}

fn flatten(table: &Table, section: &str, settings: &mut BTreeMap<Key, Value>) {
    for (name, value) in table {
        let key = Key {
            section: section.to_owned(),
            name: name.clone(),
        };
        match value {
            Value::Table(inner) => flatten(inner, &key.path(), settings),
            other => {
                settings.insert(key, other.clone());
            }
        }
    }
}

/// A setting that differs.
#[derive(Debug)]
struct Difference {
    path: String,
    /// None where the first has no such setting.
    a: Option<Value>,
    b: Option<Value>,
}

fn differences(a: &BTreeMap<Key, Value>, b: &BTreeMap<Key, Value>) -> Vec<Difference> {
    let mut keys: Vec<&Key> = a.keys().chain(b.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let differing = keys.into_iter().filter(|key| a.get(key) != b.get(key));
    differing
        .map(|key| Difference {
            path: key.path(),
            a: a.get(key).cloned(),
            b: b.get(key).cloned(),
        })
        .collect()
}

fn as_json(a: &str, b: &str, differences: &[Difference]) -> String {
    let entry = |difference: &Difference| json!({"key": difference.path, "a": difference.a, "b": difference.b});
    let entries: Vec<Json> = differences.iter().map(entry).collect();
    json!({"a": a, "b": b, "differences": entries}).to_string()
}

/// Characters of a value in a table; more are cut, `--json` has all.
const WIDTH: usize = 44;

fn as_text(a: &str, b: &str, differences: &[Difference]) -> String {
    if differences.is_empty() {
        return format!("{a} and {b} say the same");
    }
    let mut rows = vec![vec![String::new(), a.to_owned(), b.to_owned()]];
    rows.extend(differences.iter().map(|difference| {
        vec![
            difference.path.clone(),
            shown(difference.a.as_ref()),
            shown(difference.b.as_ref()),
        ]
    }));
    columns(&rows)
}

/// A value on one line, `-` for none.
fn shown(value: Option<&Value>) -> String {
    let text = match value {
        None => return "-".to_owned(),
        Some(Value::String(text)) => format!("{text:?}"),
        Some(Value::Float(number))
            if number.abs() > 0.0 && !(1e-3..1e6).contains(&number.abs()) =>
        {
            format!("{number:e}")
        }
        Some(value) => value.to_string(),
    };
    short(text)
}

/// A cell of a table, cut where it is too long.
pub(super) fn short(text: String) -> String {
    if text.chars().count() <= WIDTH {
        return text;
    }
    text.chars().take(WIDTH - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests;
