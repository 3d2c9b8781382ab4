//! `forage config init`: a short config to begin with.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use forage_env::registry;
use forage_lab::{EnvironmentConfig, RunConfig, open_policy};
use forage_trainer::Precision;
use forage_trainer::device::DeviceSpec;
use toml::Value;

use super::keys::{Key, keys};
use crate::commands::recipes;
use crate::terminal::{note, out, word};

/// Writes a short config to begin with.
///
/// Every key that is not in it has a default that fits the others.
#[derive(Args, Debug)]
pub(crate) struct Init {
    /// The file to write; it must not exist.
    file: PathBuf,
    /// The policy to begin with: a folder, a name on the hub, or `builtin:quickstart`.
    #[arg(long, default_value = "builtin:quickstart")]
    policy: String,
    /// The passages to search, or the folder of an index of them; corpus.jsonl by default, none for an environment that brings its
    /// questions.
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// The questions to learn from; train.jsonl by default, or those that the environment brings. `data.files.train` may be a list too.
    #[arg(long)]
    questions: Option<PathBuf>,
    /// Questions for evaluations during training.
    #[arg(long)]
    dev: Option<PathBuf>,
    /// The environment; `forage envs` lists them.
    #[arg(long, default_value_t = EnvironmentConfig::default().id)]
    env: String,
}

impl Init {
    pub(super) fn run(self) -> Result<()> {
        let mut text = self.text(self.window()?);
        if let Some(cache) = larger_cache(&text) {
            let _ = write!(
                text,
                "\n# MiB of the key-value cache: the default has no room for the longest episode of this policy.\n\
                 [engine]\ncache_mib = {cache}\n"
            );
        }
        // What is written here can be used, or is refused before it is written.
        let config = RunConfig::parse(&text, &[])?;
        config.check()?;
        let mut file = std::fs::File::create_new(&self.file).map_err(|error| {
            let file = self.file.display();
            match error.kind() {
                ErrorKind::AlreadyExists => {
                    anyhow!("{file} is there already; name another file, or remove it")
                }
                _ => Error::new(error).context(format!("cannot write {file}")),
            }
        })?;
        file.write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", self.file.display()))?;
        for missing in config.missing() {
            note(&format!("warning: {missing}"));
        }
        let name = word(&self.file);
        let served = super::served(&keys(&RunConfig::schema()), &config);
        let then = if config.trains() {
            format!("forage train {name}{served} --dry-run")
        } else {
            format!("forage eval {name}{served}")
        };
        if let Ok(config) = config.resolve(None)
            && let Some(other) = config.untaught()
        {
            note(&format!("warning: {other}"));
        }
        out(&format!(
            "wrote {name}; next: forage config check {name}; {then}"
        ));
        Ok(())
    }

    /// Most tokens of an episode of a policy inside the program. `None` for another policy: its folder may come to be, and what is on the
    /// hub is fetched by the run. A server is refused.
    fn window(&self) -> Result<Option<usize>> {
        let mut known = ["builtin:", "http://", "https://"].into_iter();
        if !known.any(|begin| self.policy.starts_with(begin)) {
            return Ok(None);
        }
        let policy = open_policy(&self.policy, Precision::Full, &DeviceSpec::Cpu)?;
        Ok(Some(policy.config.max_position_embeddings))
    }

    fn text(&self, window: Option<usize>) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let path = |path: &Path| quoted(&path.to_string_lossy());
        let above = if window.is_some() {
            "# A small policy, which has learned the names of generated worlds (`forage world`) and reads no other text: for your own\n\
             # begin a config with --policy MODEL.\n"
        } else {
            "# A model of some size wants a GPU: \"cuda:0\". --device of a command replaces the key.\ndevice = \"cpu\"\n\n"
        };
        let mut text = format!(
            "# Keys that are not here have defaults: `forage config explain` lists them, with their meaning.\n\n\
             {above}[policy]\ncheckpoint = {}\n\n[environment]\nid = {}\n{}\n",
            quoted(&self.policy),
            quoted(&self.env),
            window.map_or_else(String::new, |window| self.limits(window))
        );
        if self.has_own_questions() {
            text.push_str("# The environment's own questions.\n[data.own]\nseed = 1\n");
            return text;
        }
        let file = |given: Option<&PathBuf>, usual: &str| {
            path(given.map_or(Path::new(usual), PathBuf::as_path))
        };
        let given = self.corpus.as_deref();
        let source = if given.is_some_and(|path| path.join("manifest.json").is_file()) {
            "index"
        } else {
            "corpus"
        };
        let _ = writeln!(
            text,
            "[data.files]\n{source} = {}",
            file(self.corpus.as_ref(), "corpus.jsonl")
        );
        let questions = file(self.questions.as_ref(), "train.jsonl");
        let _ = match ["train", "test"].map(|split| self.judges(split)) {
            [false, true] => writeln!(
                text,
                "# The folder has judgments of `test` alone: the config is for `forage eval`. To train, name questions to learn from:\n\
                 # train = \"train.jsonl\".\ntest = {questions}"
            ),
            [true, true] => writeln!(
                text,
                "# Of the folder's judgments those of `train` are learned from, and those of `test` held out for `forage eval`.\n\
                 train = {questions}\ntest = {questions}"
            ),
            _ => writeln!(
                text,
                "train = {questions}\n\
                 # The first 80 % of the questions are learned from, the rest is held out for `forage eval`; a file of held-out ones\n\
                 # stands in its place: test = \"test.jsonl\".\ntrain_share = 0.8"
            ),
        };
        if let Some(dev) = &self.dev {
            let _ = write!(text, "dev = {}\n\n[grpo]\nevaluate_every = 25\n", path(dev));
        }
        text
    }

    /// Tells whether the questions are a BEIR folder that has judgments of a split.
    fn judges(&self, split: &str) -> bool {
        let Some(folder) = &self.questions else {
            return false;
        };
        let file = folder.join("qrels").join(split);
        let mut kinds = ["tsv", "parquet"].into_iter();
        kinds.any(|kind| file.with_extension(kind).is_file())
    }

    /// Returns true where the environment brings questions and no files are named.
    fn has_own_questions(&self) -> bool {
        let files = [&self.corpus, &self.questions, &self.dev];
        let entry = registry::find(&self.env).ok();
        files.iter().all(|file| file.is_none())
            && entry.is_some_and(|entry| entry.questions.is_some())
    }

    /// Settings for a policy inside the program: those that it was taught, or as much of another environment as its window has room for.
    fn limits(&self, window: usize) -> String {
        let mut settings = String::new();
        let taught = recipes::taught(&self.policy, &self.env);
        let above = if taught.is_some() {
            format!(
                "# What this policy was taught, and its window of {window} tokens: remove these tables for another one."
            )
        } else {
            format!(
                "# As much as the window of this policy, {window} tokens, has room for. It was taught another environment, and\n\
                 # only shows the parts of this one at work: remove these tables for another policy."
            )
        };
        if let Some(taught) = taught {
            for (path, line) in taught {
                match path.trim_start_matches("environment.settings") {
                    "" => settings.push_str(&limits(line, window)),
                    // Its own questions and answers are shorter than those of others may be.
                    ".max_turn_tokens" | ".max_episode_tokens" => {}
                    _ => {
                        let gap = if line.starts_with('[') { "\n" } else { "" };
                        let _ = writeln!(settings, "{gap}{line}");
                    }
                }
            }
        } else {
            settings.push_str(&self.untaught(window));
        }
        let settings = if settings.is_empty() {
            format!(
                "# The server has limits of its own; the window of this policy is {window} tokens.\n"
            )
        } else {
            format!("{above}\n{settings}")
        };
        format!(
            "\n{settings}\n\
             # Small policies learn at a higher rate than the default of 1e-6.\n\
             [grpo.update.optimizer]\nlearning_rate = 5e-5\n"
        )
    }

    /// Settings of an environment that a policy inside the program was not taught.
    fn untaught(&self, window: usize) -> String {
        let of = registry::find(&self.env).ok().map(|entry| entry.id);
        let keys = keys(&RunConfig::schema());
        let has = |name: &str| {
            let path = format!("environment.settings.{name}");
            let is_it = |key: &Key| key.path() == path && key.of.as_deref() == of;
            keys.iter().any(is_it)
        };
        if has("url") {
            // Limits that are written here would replace those of the class.
            return String::new();
        }
        let prompt = if has("prompt") {
            "prompt = \"short\"\n"
        } else {
            ""
        };
        // Whole passages or pages would leave no room for an answer.
        let [found, observation] = if has("observation.limit_tokens") {
            ["top_k = 1\n", "limit_tokens = 200\n"]
        } else if has("observation.limit_chars") {
            ["", "limit_chars = 240\n"]
        } else if has("passage_words") {
            ["candidates = 2\nwindow = 2\npassage_words = 12\n", ""]
        } else {
            [""; 2]
        };
        let observation = if observation.is_empty() {
            String::new()
        } else {
            format!("\n[environment.settings.observation]\n{observation}")
        };
        let begin = limits("[environment.settings]", window);
        format!("{begin}{prompt}{found}{observation}")
    }
}

/// The heading of a table of settings with the limits of a policy with this window.
fn limits(heading: &str, window: usize) -> String {
    format!("{heading}\nmax_turn_tokens = 56\nmax_episode_tokens = {window}\n")
}

/// The cache, in MiB, that the longest episode of a config needs where the default is too small and a larger one is enough.
fn larger_cache(text: &str) -> Option<usize> {
    let fits = |overrides: &[String]| {
        let config = RunConfig::parse(text, overrides).ok()?;
        let resolved = config.resolve(None).ok()?;
        Some(resolved.check_window().is_ok())
    };
    if fits(&[])? {
        return None;
    }
    let mut caches = [2048, 4096, 8192, 16384, 32768].into_iter();
    caches.find(|cache| fits(&[format!("engine.cache_mib={cache}")]) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_init_writes_can_be_used() {
        let init = |policy: &str, environment: &str| Init {
            file: "x.toml".into(),
            policy: policy.to_owned(),
            corpus: Some("a \"b\".jsonl".into()),
            questions: None,
            dev: Some("d.jsonl".into()),
            env: environment.to_owned(),
        };
        let text = |init: Init| init.text(init.window().unwrap());
        // Episodes fit every policy inside the program, and limits for one are left out beside another.
        for (policy, environment) in [
            ("builtin:quickstart", "search-r1"),
            ("builtin:quickstart", "code-search"),
            ("builtin:quickstart", "query-writer"),
            ("builtin:quickstart", "rerank"),
            ("builtin:quickstart-code", "code-search"),
            ("builtin:query-writer", "query-writer"),
        ] {
            let text = text(init(policy, environment));
            let config = RunConfig::parse(&text, &[]).unwrap();
            config.resolve(None).unwrap().check_window().unwrap();
            for (limited, line) in [
                ("search-r1", "limit_tokens = 200"),
                ("code-search", "limit_chars = 240"),
                ("rerank", "passage_words = 12"),
            ] {
                assert_eq!(text.contains(line), environment == limited, "{text}");
            }
            let is_taught = recipes::taught(policy, environment).is_some();
            assert_eq!(text.contains("was taught another"), !is_taught, "{text}");
            assert_eq!(text.contains("this policy was taught"), is_taught, "{text}");
        }
        // A policy reads and is answered as it was when it was made, whichever name and revision it is asked by.
        for (policy, environment, own) in [
            (
                "builtin:quickstart",
                "search-r1",
                include_str!("../../../../configs/quickstart.toml"),
            ),
            (
                "builtin:quickstart-code",
                "forage/code-search-v0",
                include_str!("../../../../configs/quickstart-code.toml"),
            ),
            (
                "builtin:query-writer",
                "query-writer",
                include_str!("../../../../configs/query-writer.toml"),
            ),
        ] {
            let settings = |text: &str| {
                let mut settings = RunConfig::parse(text, &[]).unwrap().environment.settings;
                settings.retain(|name, _| !name.starts_with("max_") || name == "max_generations");
                settings
            };
            let written = text(init(policy, environment));
            assert_eq!(settings(&written), settings(own), "{written}");
            assert!(
                written.contains("begin a config with --policy MODEL"),
                "{written}"
            );
        }
        assert!(recipes::taught("builtin:quickstart@0123", "search-r1").is_some());
        assert!(recipes::taught("builtin:quickstart", "code-search").is_none());
        let other = text(init("org/model", "search-r1"));
        assert!(!other.contains("generated worlds"), "{other}");
        assert!(!other.contains("[environment.settings]"), "{other}");
        assert!(!other.contains("learning_rate"), "{other}");
        assert!(other.contains("\ndevice = \"cpu\"\n"), "{other}");
        // Pages take more room than the default cache has for a model of this shape.
        let pages = text(init("Qwen/Qwen3-0.6B", "code-search"));
        assert_eq!(larger_cache(&pages), Some(2048));
        assert_eq!(larger_cache(&other), None);
        let text = text(init("builtin:quickstart", "search-r1"));
        let config = RunConfig::parse(&text, &[]).unwrap();
        config.check().unwrap();
        assert_eq!(config.grpo.evaluate_every, 25);
        let files = config.data.files.unwrap();
        assert_eq!(files.corpus, [Path::new("a \"b\".jsonl")]);
        assert_eq!(files.train, [Path::new("train.jsonl")]);
        // What is learned from is not what the policy is evaluated on.
        assert_eq!(files.train_share, Some(0.8));
    }

    #[test]
    fn a_folder_of_judgments_is_read_by_the_splits_that_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let questions = folder.path().join("beir");
        std::fs::create_dir_all(questions.join("qrels")).unwrap();
        let judge = |split: &str| {
            let file = questions.join(format!("qrels/{split}.tsv"));
            std::fs::write(file, "query-id\tcorpus-id\tscore\n").unwrap();
        };
        let begun = || {
            let init = Init {
                file: "x.toml".into(),
                policy: "builtin:query-writer".to_owned(),
                corpus: None,
                questions: Some(questions.clone()),
                dev: None,
                env: "query-writer".to_owned(),
            };
            let text = init.text(init.window().unwrap());
            let config = RunConfig::parse(&text, &[]).unwrap();
            config.check().unwrap();
            (config.trains(), config.data.files.unwrap())
        };
        judge("test");
        let (trains, files) = begun();
        assert!(!trains && files.train_share.is_none());
        assert_eq!(files.test, [questions.as_path()]);
        judge("train");
        let (trains, files) = begun();
        assert!(trains && files.train_share.is_none());
        assert_eq!(files.train, files.test);
    }

    #[test]
    fn an_environment_that_brings_its_questions_needs_no_files() {
        for environment in ["external", "math"] {
            let init = Init {
                file: "x.toml".into(),
                policy: "builtin:quickstart".to_owned(),
                corpus: None,
                questions: None,
                dev: None,
                env: environment.to_owned(),
            };
            let text = init.text(init.window().unwrap());
            assert!(text.contains("[data.own]\n"), "{text}");
            let config = RunConfig::parse(&text, &[]).unwrap();
            config.check().unwrap();
            assert!(config.data.files.is_none());
            let limits = config.environment.settings.contains_key("max_turn_tokens");
            assert_eq!(limits, environment != "external", "{text}");
            let option = super::super::served(&keys(&RunConfig::schema()), &config);
            assert_eq!(option.is_empty(), environment != "external");
        }
    }
}
