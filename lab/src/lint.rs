//! Warnings about configs that run and may not mean what they say.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forage_env::reward::PublishedSettings;
use forage_env::{Labels, registry};
use forage_net::Client;
use serde_json::{Map, Value};

use crate::builtin;
use crate::config::{EnvironmentConfig, Resolved, RunConfig};
use crate::error::Result;
use crate::memory::Start;
use crate::policy::{BUILTIN, is_server, nowhere, taught_another};
use crate::session::check_window;

impl RunConfig {
    /// The files that a run would not find: the key of each file or folder that is not there, with its path. Addresses on the hub and
    /// servers are not asked.
    pub fn missing(&self) -> Vec<String> {
        let files = self.missing_files().into_iter();
        files.chain(self.missing_policy()).collect()
    }

    /// As [`Self::missing`], for everything but the policy.
    pub(crate) fn missing_files(&self) -> Vec<String> {
        let environment = self.environment.resolved().ok();
        let of_environment: Vec<(String, PathBuf)> = environment
            .into_iter()
            .flat_map(|resolved| resolved.files)
            .map(|(key, path)| (format!("environment.settings.{key}"), path))
            .collect();
        let mut named: Vec<(&str, &Path)> = Vec::new();
        named.extend(of_environment.iter().map(|(key, path)| (&**key, &**path)));
        let retriever = &self.retriever;
        named.extend(
            retriever
                .encoder
                .iter()
                .map(|path| ("retriever.encoder", &**path)),
        );
        named.extend(
            retriever
                .reranker
                .iter()
                .map(|path| ("retriever.reranker", &**path)),
        );
        if let Some(files) = &self.data.files {
            for (key, path) in [
                ("data.files.index", &files.index),
                ("data.files.pages", &files.pages),
            ] {
                named.extend(path.iter().map(|path| (key, &**path)));
            }
            for (key, paths) in [
                ("data.files.corpus", &files.corpus),
                ("data.files.train", &files.train),
                ("data.files.dev", &files.dev),
                ("data.files.test", &files.test),
            ] {
                named.extend(paths.iter().map(|path| (key, &**path)));
            }
            if let Some(ids) = &files.ids {
                for (key, path) in [
                    ("data.files.ids.train", &ids.train),
                    ("data.files.ids.dev", &ids.dev),
                    ("data.files.ids.test", &ids.test),
                ] {
                    named.extend(path.iter().map(|path| (key, &**path)));
                }
            }
        }
        if let Labels::Majority(file) | Labels::WrongMajority(file) = &self.data.labels {
            named.push(("data.labels", file.as_path()));
        }
        let gone = |path: &Path| !path.starts_with("hf:") && !path.exists();
        named
            .into_iter()
            .filter(|(_, path)| gone(path))
            .map(|(key, path)| {
                // As recipes and the guide name the folders of generated worlds.
                let above = path.parent().unwrap_or(path);
                let is_of_world = path.starts_with("worlds") && path.ends_with("beir");
                let path = path.display();
                let fix = if key == "data.files.index" {
                    format!(" (`forage index build --corpus CORPUS --out {path}` makes it)")
                } else if key == "data.files.corpus" && is_of_world {
                    format!(
                        " (`forage world --pages 300 --out {}` writes one)",
                        above.display()
                    )
                } else {
                    String::new()
                };
                format!("{key}: there is no {path}{fix}")
            })
            .collect()
    }

    /// Tells whether there are questions to learn from: without, a config is for evaluations.
    pub fn trains(&self) -> bool {
        let files = self.data.files.as_ref();
        files.is_none_or(|files| !files.train.is_empty())
    }

    /// As [`Self::missing`], for the policy alone.
    pub(crate) fn missing_policy(&self) -> Option<String> {
        let gone = nowhere(&self.policy.checkpoint)?;
        Some(format!("policy.checkpoint: {gone}"))
    }

    /// As [`Self::missing`], with an address of the environment's server, which a config may leave to the command line, and questions to
    /// learn from.
    pub(crate) fn missing_at_start(&self) -> Vec<String> {
        let mut missing = self.missing();
        if !self.trains() {
            let unnamed = "data.files.train: no questions to learn from are named; write a file of them, or a list of files";
            missing.push(unnamed.to_owned());
        }
        let environment = self.environment.resolved().ok();
        let settings = environment.as_ref().map(|found| &found.settings);
        let url = settings.and_then(|settings| settings.get("url"));
        if url.and_then(Value::as_array).is_some_and(Vec::is_empty) {
            let unnamed = "environment.settings.url: no server is named; write http://HOST:PORT there, or start one by --env-command";
            missing.push(unnamed.to_owned());
        }
        missing
    }
}

impl Resolved {
    /// Warnings about settings that may be meant otherwise, a sentence or two each; what cannot be read is left to its use.
    pub fn warnings(&self) -> Vec<String> {
        let found = self
            .prompt()
            .and_then(|text| answer_in_prompt(&text, grades_prompt(self)));
        found
            .into_iter()
            .chain(unvalidated(self))
            .chain(unread_ids(self))
            .chain(unusual_steps(self))
            .chain(unread_turns(self))
            .chain(builtin::unpaid_format(self))
            .chain(readable_credentials(self))
            .collect()
    }

    /// Says that the policy was taught another environment, or in which of its parts the observation is another than the one that a policy
    /// inside the program was taught. Limits do not count: they cut what is read, and leave its form.
    pub fn untaught(&self) -> Option<String> {
        let name = &self.policy.checkpoint;
        if let Some(other) = taught_another(name, &self.environment.id) {
            return Some(other);
        }
        let taught = builtin::environment(name.strip_prefix(BUILTIN)?)?;
        let entry = |config: &EnvironmentConfig| registry::find(&config.id).ok();
        if entry(&taught)?.id != entry(&self.environment)?.id {
            return None;
        }
        let observation = |config: &EnvironmentConfig| -> Option<Map<String, Value>> {
            let settings = config.resolved().ok()?.settings;
            let mut shown = settings.get("observation")?.as_object()?.clone();
            shown.retain(|key, _| !key.starts_with("limit_"));
            Some(shown)
        };
        let (taught, own) = (observation(&taught)?, observation(&self.environment)?);
        let keys: BTreeSet<&String> = taught.keys().chain(own.keys()).collect();
        let differs = |key: &&String| taught.get(*key) != own.get(*key);
        let differing: Vec<String> = keys
            .into_iter()
            .filter(differs)
            .map(|key| match taught.get(key) {
                Some(value) => format!("{key} = {value}"),
                None => format!("no {key}"),
            })
            .collect();
        (!differing.is_empty()).then(|| {
            format!(
                "{name} reads what it was not taught: environment.settings.observation was {} when it was made, and it reads \
                 other forms badly; `forage config init` writes these settings",
                differing.join(", ")
            )
        })
    }

    /// Refuses episodes that do not fit the policy's window, as far as both are known before anything is fetched or opened.
    ///
    /// # Errors
    /// When they do not fit, or the policy's folder cannot be read.
    pub fn check_window(&self) -> Result<()> {
        if is_server(&self.policy.checkpoint) {
            return Ok(());
        }
        let Some(episode) = self.environment.longest()? else {
            return Ok(());
        };
        let start = Start::of(self, false)?;
        let window = start.as_ref().map_or_else(
            || {
                let served = self.sampler.as_ref().map(|sampler| sampler.context);
                self.engine.context_tokens.min(served.unwrap_or(usize::MAX))
            },
            |start| self.window(start.shape()),
        );
        let cache = start.and_then(|start| self.cache_with_room(start.shape(), episode));
        check_window(episode, window, cache)
    }
}

/// Says why validation would show nothing.
pub(crate) fn unvalidated(config: &RunConfig) -> Option<String> {
    let files = config.data.files.as_ref()?;
    let every = config.grpo.evaluate_every;
    (every > 0 && files.dev.is_empty()).then(|| {
        format!(
            "grpo.evaluate_every is {every} and [data.files] names no `dev`: nothing is validated during training"
        )
    })
}

/// Says which lists of ids pick from no file.
fn unread_ids(config: &RunConfig) -> Vec<String> {
    let files = config.data.files.iter();
    let lists = files.flat_map(|files| {
        let ids = files.ids.clone().unwrap_or_default();
        [
            ("dev", ids.dev, &files.dev),
            ("test", ids.test, &files.test),
        ]
    });
    let unread = lists.filter(|(_, ids, files)| ids.is_some() && files.is_empty());
    unread
        .map(|(split, ..)| {
            format!(
                "data.files.ids.{split} picks from the files of data.files.{split}, which names none: it is not read; write \
                 data.files.{split}, or remove it"
            )
        })
        .collect()
}

/// The highest learning rate that small policies take well; those of whole checkpoints are far lower.
const HIGHEST_RATE: f64 = 0.01;

/// The lowest learning rate of an adapter in a published recipe.
const LOWEST_RATE_OF_ADAPTER: f64 = 5e-6;

/// Tells whether steps at this rate are for whole models, and hardly move a fresh adapter. At rate 0 nothing is meant to move.
pub(crate) fn is_of_whole_models(rate: f64) -> bool {
    rate > 0.0 && rate < LOWEST_RATE_OF_ADAPTER
}

/// Says that nothing is learned, or that steps are too large or too small to learn anything.
fn unusual_steps(config: &RunConfig) -> Vec<String> {
    let mut found = Vec::new();
    if config.grpo.steps == 0 {
        found.push(
            "grpo.steps is 0: the policy stays as it begins; write how many steps it is to learn"
                .to_owned(),
        );
    }
    let rate = config.grpo.update.optimizer.learning_rate;
    if rate > HIGHEST_RATE {
        found.push(format!(
            "grpo.update.optimizer.learning_rate is {rate}: steps of this size leave nothing of what the policy could do; usual \
             are 1e-6 for whole models and 1e-4 for LoRA"
        ));
    }
    if config.policy.lora.is_some() && is_of_whole_models(rate) {
        found.push(format!(
            "grpo.update.optimizer.learning_rate is {rate:e}, a rate for all weights, and [policy.lora] trains an adapter, which hardly \
             moves at it: usual for LoRA is 1e-4"
        ));
    }
    found
}

/// Says which rewards pay turns that the credit does not read.
fn unread_turns(config: &Resolved) -> Vec<String> {
    let reads = config.grpo.update.objective.recipe(1).credit.reads_turns();
    let rewards = if reads { None } else { config.rewards().ok() };
    let unread = |name: &str| {
        format!(
            "[reward.{name}] pays turns, which grpo.update.objective.credit does not read: nothing is learned from it; set credit \
             to process_supervision, information_gain, gigpo, reward_to_go or gae"
        )
    };
    rewards
        .iter()
        .flat_map(|rewards| rewards.turn_parts())
        .map(unread)
        .collect()
}

/// Says which credentials can be read on their way to a server.
fn readable_credentials(config: &RunConfig) -> Vec<String> {
    fn look(value: &Value, place: &str, found: &mut Vec<String>) {
        let Value::Object(table) = value else {
            return;
        };
        let urls = match table.get("url") {
            Some(Value::Array(urls)) => urls.as_slice(),
            Some(url) => std::slice::from_ref(url),
            None => &[],
        };
        let mut urls = urls.iter().filter_map(Value::as_str);
        let has_token = value["token_file"].is_string() || value["http"]["token_file"].is_string();
        if let Some(url) = urls.find(|url| has_token && Client::is_plain(url)) {
            found.push(format!(
                "[{place}] sends the credentials of its `token_file` over plain http to {url}, readable on the way: use https, \
                 unless the network is your own"
            ));
        }
        for (key, value) in table {
            let dot = if place.is_empty() { "" } else { "." };
            look(value, &format!("{place}{dot}{key}"), found);
        }
    }
    let mut found = Vec::new();
    look(
        &serde_json::to_value(config).unwrap_or_default(),
        "",
        &mut found,
    );
    found
}

/// True where a reward of the config grades the words of the prompt.
fn grades_prompt(config: &RunConfig) -> bool {
    let settings = config
        .reward
        .get("published")
        .map(|reward| Value::Object(reward.settings()));
    settings
        .and_then(|settings| PublishedSettings::read(settings).ok())
        .is_some_and(|settings| settings.reads_prompt())
}

/// An answer in the prompt itself: the text between the two tags when they are named in one breath ("<answer> and
/// </answer>") is not an answer to a reader, but is one to a grader of the prompt.
fn answer_in_prompt(prompt: &str, graded: bool) -> Option<String> {
    let blocks = prompt
        .split("<answer>")
        .skip(1)
        .filter_map(|after| after.split_once("</answer>"));
    let mut blocks = blocks.map(|(content, _)| content.trim());
    let found = blocks.find(|content| graded || !["and", "or", "..."].contains(content))?;
    let reason = if graded {
        "[reward.published] grades prompt and response together: an episode without an answer may be graded as if it had \
         given this one; write scope = \"policy\" there, or take the tags out of the prompt"
    } else {
        "graders that read prompt and response together (Search-R1, slime) take it for the answer of an episode without \
         one; this project's read what the policy wrote, so nothing is lost here; describe the tags without an example"
    };
    Some(format!(
        "the prompt template has an answer of its own, <answer>{found}</answer>: {reason}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICKSTART: &str = include_str!("../../configs/quickstart.toml");

    fn resolved(overrides: &[&str]) -> Resolved {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let config = RunConfig::parse(QUICKSTART, &overrides).unwrap();
        config.resolve(None).unwrap()
    }

    fn of(overrides: &[&str]) -> Vec<String> {
        resolved(overrides).warnings()
    }

    #[test]
    fn files_of_the_environment_that_are_not_there_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("experience.jsonl");
        let experience = format!(
            "environment.settings.experience={{ path = '{}' }}",
            file.display()
        );
        let prompt = "environment.settings.prompt={ path = 'no-such.txt' }";
        let gone = [
            "environment.settings.prompt.path: there is no no-such.txt".to_owned(),
            format!(
                "environment.settings.experience.path: there is no {}",
                file.display()
            ),
        ];
        assert_eq!(resolved(&[prompt, experience.as_str()]).missing(), gone);
        std::fs::write(&file, "").unwrap();
        assert_eq!(resolved(&[experience.as_str()]).missing(), [""; 0]);
    }

    #[test]
    fn a_server_may_be_left_to_the_command_line_until_a_run_begins() {
        let missing = |settings: &str| {
            let environment = format!("environment={{ id = \"external\", {settings} }}");
            let config = resolved(&[environment.as_str()]);
            assert_eq!(config.missing(), [""; 0]);
            config.missing_at_start()
        };
        let found = missing("settings = { max_turn_tokens = 9 }");
        assert!(
            found.len() == 1 && found[0].contains("--env-command"),
            "{found:?}"
        );
        let named = missing("settings = { url = \"http://127.0.0.1:1\" }");
        assert_eq!(named, [""; 0]);
        assert_eq!(resolved(&[]).missing_at_start(), [""; 0]);
    }

    #[test]
    fn a_policy_that_is_no_name_and_files_that_a_config_names_must_be_here() {
        let missing = |item: &str| resolved(&[item]).missing();
        let policy = |name: &str| missing(&format!("policy.checkpoint=\"{name}\""));
        for name in ["policy", "runs/sft/polcy", "~/models/x", "./x"] {
            let gone = format!("policy.checkpoint: there is no {name}");
            assert_eq!(policy(name), [gone]);
        }
        for name in ["builtin:quickstart", "org/unheard-of", "org/name@main"] {
            assert_eq!(policy(name), [""; 0]);
        }
        let found = missing("data={ files = { index = \"no/index\", train = \"q.jsonl\" } }");
        let index = "data.files.index: there is no no/index (`forage index build --corpus CORPUS \
                     --out no/index` makes it)";
        assert_eq!(found, [index, "data.files.train: there is no q.jsonl"]);
        for kind in ["majority", "wrong-majority"] {
            let found = missing(&format!("data.labels=\"{kind}:no/such.jsonl\""));
            assert_eq!(found, ["data.labels: there is no no/such.jsonl"]);
        }
    }

    #[test]
    fn episodes_that_the_policy_cannot_read_are_refused_before_anything_is_opened() {
        resolved(&[]).check_window().unwrap();
        let long = "environment.settings.max_episode_tokens=1000";
        let refused = |overrides: &[&str]| {
            let error = resolved(overrides).check_window().unwrap_err();
            error.to_string()
        };
        let error = refused(&[long, "engine.context_tokens=1000"]);
        assert!(
            error.contains("is 1000, the policy's window 512"),
            "{error}"
        );
        // Of a policy that is not here the config's own window is known.
        let away = "policy.checkpoint=\"org/unheard-of\"";
        let error = refused(&[away, long, "engine.context_tokens=900"]);
        assert!(error.contains("the policy's window 900"), "{error}");
        let fits = [away, long, "engine.context_tokens=1000"];
        resolved(&fits).check_window().unwrap();
        // A position of this one takes 224 KiB in f32.
        let known = "policy.checkpoint=\"Qwen/Qwen3-0.6B\"";
        let small = [
            known,
            long,
            "engine.context_tokens=1000",
            "engine.cache_mib=128",
        ];
        let error = crate::error::causes(&resolved(&small).check_window().unwrap_err());
        for part in ["the policy's window 592", "engine.cache_mib to 256"] {
            assert!(error.contains(part), "{error}");
        }
        let large = [&small[..3], &["engine.cache_mib=256"]].concat();
        resolved(&large).check_window().unwrap();
        // A server has a cache of its own.
        let sampler = "sampler={ kind = \"sglang\", url = \"http://a\", context = 1000 }";
        let served = [&small[..], &[sampler]].concat();
        resolved(&served).check_window().unwrap();
        for policy in [known, away] {
            let error = refused(&[policy, long, small[2], sampler, "sampler.context=999"]);
            assert!(error.contains("the policy's window 999"), "{error}");
        }
    }

    #[test]
    fn lists_of_ids_that_pick_from_no_file_are_named() {
        let ids = |files: &str| {
            let files = format!("train = \"q.jsonl\", {files}");
            of(&[&format!("data={{ files = {{ {files} }} }}")])
        };
        let found = ids("ids = { train = \"a\", dev = \"b\", test = \"c\" }, test = \"t.jsonl\"");
        let told = |line: &&String| line.contains("data.files.ids.");
        let told: Vec<&String> = found.iter().filter(told).collect();
        assert!(
            told.len() == 1 && told[0].starts_with("data.files.ids.dev picks from"),
            "{found:?}"
        );
    }

    #[test]
    fn a_policy_inside_the_program_is_shown_what_it_was_taught() {
        let untaught = |item: &str| resolved(&[item]).untaught();
        assert_eq!(untaught("seed=2"), None);
        assert_eq!(
            untaught("environment.settings.observation.limit_tokens=150"),
            None
        );
        // The defaults are those of Search-R1.
        let plain = "environment.settings.observation={ limit_tokens = 200 }";
        let told = untaught(plain).unwrap();
        for part in [
            "closing = \"</information>\"",
            "opening = \"<information> \"",
            "passage = \"{title}: {text}\\n\"",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        // Nothing is known of other policies.
        let other = resolved(&[plain, "policy.checkpoint=\"org/name\""]);
        assert_eq!(other.untaught(), None);
        let code = resolved(&[plain, "policy.checkpoint=\"builtin:quickstart-code\""]);
        let told = code.untaught().unwrap();
        assert!(told.contains("was taught code-search"), "{told}");
    }

    #[test]
    fn no_steps_and_too_large_ones_are_named() {
        let found = of(&["grpo.steps=0", "grpo.update.optimizer.learning_rate=5.0"]);
        assert!(
            found.len() == 2
                && found[0].starts_with("grpo.steps is 0")
                && found[1].starts_with("grpo.update.optimizer.learning_rate is 5:"),
            "{found:?}"
        );
        assert!(of(&["grpo.update.optimizer.learning_rate=1e-3"]).is_empty());
        let adapter = "policy.lora={ rank = 16, alpha = 32 }";
        let at = |rate: &str| {
            let rate = format!("grpo.update.optimizer.learning_rate={rate}");
            of(&[adapter, rate.as_str()])
        };
        let found = at("1e-6");
        assert!(
            found.len() == 1 && found[0].contains("learning_rate is 1e-6, a rate for all weights"),
            "{found:?}"
        );
        for rate in ["0.0", "5e-6", "1e-4"] {
            assert!(at(rate).is_empty(), "{rate}");
        }
    }

    #[test]
    fn a_reward_of_turns_needs_a_credit_that_reads_them() {
        let paid =
            "reward.judge_turns={ weight = 0.5, url = \"http://localhost:1\", model = \"m\" }";
        assert!(of(&[paid])[0].starts_with("[reward.judge_turns] pays turns"));
        assert!(of(&[&paid.replace("0.5", "0.0")]).is_empty());
        let credit = "grpo.update.objective.credit=\"process_supervision\"";
        assert!(of(&[paid, credit]).is_empty());
    }

    #[test]
    fn credentials_over_plain_http_to_another_machine_are_named() {
        let remote = |url: &str, token: &str| {
            let http = format!("http = {{ {token} }}");
            let remote =
                format!("retriever.remote={{ kind = \"search-r1\", url = \"{url}\", {http} }}");
            of(&[&remote])
        };
        let token = "token_file = \"token\"";
        let found = remote("http://10.0.0.5:8000", token);
        assert!(
            found.len() == 1
                && found[0].starts_with("[retriever.remote] sends")
                && found[0].contains("http://10.0.0.5:8000"),
            "{found:?}"
        );
        assert!(remote("http://10.0.0.5:8000", "").is_empty());
        assert!(remote("https://10.0.0.5:8000", token).is_empty());
        assert!(remote("http://127.0.0.1:8000", token).is_empty());
    }

    #[test]
    fn an_example_answer_in_the_prompt_is_named_with_the_reason() {
        assert!(of(&[]).is_empty());
        assert!(
            of(&["environment.settings.prompt=\"search_r1\""]).is_empty(),
            "tags are named, no example is given"
        );
        let example = "environment.settings.prompt={ text = \"Like <answer> Beijing </answer>. {question}\" }";
        let found = of(&[example]);
        assert!(
            found[0].contains("<answer>Beijing</answer>")
                && found[0].contains("nothing is lost here"),
            "{found:?}"
        );
        let graded = "reward.published={ weight = 1.0, grader = \"slime\" }";
        let found = of(&["environment.settings.prompt=\"search_r1\"", graded]);
        assert!(
            found[0].contains("<answer>and</answer>") && found[0].contains("scope = \"policy\""),
            "{found:?}"
        );
        let policy = "reward.published={ weight = 1.0, grader = \"slime\", scope = \"policy\" }";
        assert!(of(&["environment.settings.prompt=\"search_r1\"", policy]).is_empty());
    }
}
