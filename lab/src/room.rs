//! Room for a turn: before anything is played, questions are refused where the opening prompts of all would end their episodes, and
//! warned of where those of some would.

use std::path::Path;
use std::sync::Arc;

use forage_contracts::policy::Sampling;
use forage_contracts::scripted::Scripted;
use forage_contracts::seed::Seed;
use forage_contracts::{Ending, Episode, Limit, Task};
use forage_env::{Rollout, registry};
use forage_trainer::Checkpoint;

use crate::config::Resolved;
use crate::data::{Corpus, Data};
use crate::error::{Result, RunError};
use crate::memory::Start;
use crate::observer::Observer;
use crate::policy::{BUILTIN, EXTERNAL, PolicyFormat};
use crate::runtime::runtime;
use crate::session::Session;
use crate::splits::questions_here;

/// Questions whose prompts are read, at most: where none of so many leaves room, a question that does teaches and tells nothing; and their
/// share tells that of all.
const READ: usize = 100;

/// The way out of prompts that leave no room.
pub(crate) const SHORTER: &str = "name a policy that reads more and raise the limit, or show less in the prompt by environment.settings: \
                                  `forage config init FILE --policy POLICY --env NAME` writes settings for the policies inside the program";

/// The fault of prompts that leave no room for a turn.
pub(crate) struct NoRoom {
    /// The fault in words.
    pub(crate) found: String,
    /// True where no prompt leaves room.
    pub(crate) is_of_all: bool,
}

impl NoRoom {
    /// The fault of prompts of which the shortest has so many tokens.
    fn of_all(rollout: &Rollout, shortest: usize, of: &str) -> Self {
        let found = format!(
            "no prompt{of} leaves room for a turn: the shortest has {shortest} tokens, and an episode {} \
             (environment.settings.max_episode_tokens)",
            rollout.factory.spec().max_episode_tokens
        );
        Self {
            found,
            is_of_all: true,
        }
    }

    /// The error of a fault where no prompt leaves room, else a warning of those that leave none.
    fn refused(fault: Option<Self>) -> Result<Option<String>> {
        match fault {
            Some(Self {
                found,
                is_of_all: true,
            }) => Err(RunError::config_because(found, SHORTER)),
            Some(Self { found, .. }) => Ok(Some(format!("warning: {found}; {SHORTER}"))),
            None => Ok(None),
        }
    }
}

/// Tokens of the opening prompts of the first questions; empty where they tell nothing. An episode that cannot be opened is left to those
/// who play it, and so are the prompts of a policy that counts their tokens itself.
async fn prompts(rollout: &Rollout, tasks: &[Arc<Task>], seed: Seed) -> Vec<usize> {
    let served = registry::find(EXTERNAL);
    let is_served = served.is_ok_and(|entry| entry.id == rollout.factory.entry());
    let mut prompts = Vec::new();
    for task in tasks.iter().take(READ) {
        let Some(tokens) = rollout.prompt_tokens(task, seed).await else {
            return Vec::new();
        };
        prompts.push(tokens);
        // Episodes on a server may be slow to open.
        if is_served && tokens < rollout.factory.spec().max_episode_tokens {
            return Vec::new();
        }
    }
    prompts
}

/// Says which episodes of these questions could not begin, where some or all could not.
fn without_room(rollout: &Rollout, tasks: &[Arc<Task>], seed: u64) -> Result<Option<NoRoom>> {
    let seed = Seed::root(seed).child("room", &[]);
    let prompts = runtime()?.block_on(prompts(rollout, tasks, seed));
    let episode = rollout.factory.spec().max_episode_tokens;
    let full = prompts.iter().filter(|tokens| **tokens >= episode).count();
    let Some(shortest) = prompts.iter().min().filter(|_| full > 0) else {
        return Ok(None);
    };
    let has_more = tasks.len() > READ;
    if full == prompts.len() {
        let of = if has_more {
            format!(" of the first {READ} questions")
        } else {
            String::new()
        };
        return Ok(Some(NoRoom::of_all(rollout, *shortest, &of)));
    }
    let first = if has_more { "the first " } else { "" };
    let found = format!(
        "the opening prompts of {full} of {first}{} questions leave no room for a turn: an episode has {episode} tokens \
         (environment.settings.max_episode_tokens)",
        prompts.len()
    );
    Ok(Some(NoRoom {
        found,
        is_of_all: false,
    }))
}

impl Session {
    /// Refuses questions of which no episode could begin, because their prompts alone exceed the tokens of an episode; returns a
    /// warning where some could not. Opens episodes of the first questions, on a server until one has room, and plays none. Blocks, so
    /// async code must not call it.
    ///
    /// # Errors
    /// When none of the first hundred has room.
    pub fn check_room(rollout: &Rollout, tasks: &[Arc<Task>], seed: u64) -> Result<Option<String>> {
        NoRoom::refused(without_room(rollout, tasks, seed)?)
    }

    /// As [`Session::check_room`], after episodes of a policy that counts the tokens of its prompts itself.
    ///
    /// # Errors
    /// When none of the episodes had room.
    pub fn check_begun(rollout: &Rollout, episodes: &[Episode]) -> Result<()> {
        let played = || episodes.iter().filter(|one| !one.ending.is_infra());
        let is_full = |episode: &Episode| {
            let limit = Limit::Tokens;
            episode.turns.is_empty() && episode.ending == Ending::Truncated { limit }
        };
        let shortest = played().map(|episode| episode.tokens.len()).min();
        let shortest = shortest.filter(|_| played().all(is_full));
        let fault = shortest.map(|shortest| NoRoom::of_all(rollout, shortest, ""));
        NoRoom::refused(fault).map(drop)
    }

    /// The same before there is a policy: says which episodes of these questions could not begin, where some or all could not.
    pub(crate) fn without_room(&self, tasks: &[Arc<Task>], seed: u64) -> Result<Option<NoRoom>> {
        let nobody = Scripted::constant(Arc::clone(&self.format.tokenizer), "");
        let rollout = self.rollout(Arc::new(nobody), Sampling::GREEDY)?;
        without_room(&rollout, tasks, seed)
    }
}

impl Resolved {
    /// Refuses questions of files of which no episode could begin, or warns of some, as [`Session::check_room`] does, as far as they, the
    /// index and the policy's tokenizer are on this machine: those to learn from, or the held-out ones of a config without. No server and
    /// no model is asked, and no index is built. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When none of the first hundred has room, or a file cannot be read.
    pub fn check_room(&self) -> Result<Option<String>> {
        let (Some(files), name) = (&self.data.files, &self.policy.checkpoint) else {
            return Ok(None);
        };
        let is_here = name.starts_with(BUILTIN) || Path::new(name).is_dir();
        let retriever = &self.retriever;
        let asks_others = retriever.remote.is_some()
            || retriever.encoder.is_some()
            || retriever.reranker.is_some()
            || self.environment.settings.contains_key("url");
        if !is_here || asks_others || files.pages.is_some() {
            return Ok(None);
        }
        let Some(start) = Start::of(self, false)? else {
            return Ok(None);
        };
        let index = files.index.as_deref().filter(|index| index.exists());
        let corpus = match index {
            Some(index) => Corpus::searchable(Some(index), None, retriever, Path::new(""))?,
            None => Corpus::none(),
        };
        let Some([train, _, test]) = questions_here(self, corpus.index.as_deref())? else {
            return Ok(None);
        };
        let asked = if train.is_empty() { test } else { train };
        let window = self.window(start.shape());
        let format = PolicyFormat::without_weights(name, self.policy.chat.as_ref(), window)?;
        let (environment, rewards) = (&self.environment, self.rewards()?);
        // An environment may need more than is here.
        let Ok(session) = Session::new(environment, rewards, &corpus, format, &()) else {
            return Ok(None);
        };
        NoRoom::refused(session.without_room(&asked, self.seed)?)
    }

    /// Refuses the questions of a run that begins with this checkpoint where no episode of them could begin, and warns of some.
    pub(crate) fn check_prompts(
        &self,
        data: &Data,
        start: &Checkpoint,
        observer: &dyn Observer,
    ) -> Result<()> {
        let session = Session::of(self, &data.corpus, start, observer)?;
        let warning = NoRoom::refused(session.without_room(&data.train, self.seed)?)?;
        if let Some(warning) = warning {
            observer.warn(&warning);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::Split;
    use forage_trainer::device::DeviceSpec;

    use super::*;
    use crate::config::RunConfig;
    use crate::error::causes;
    use crate::evaluate::EvaluateOptions;
    use crate::layout::RunLayout;
    use crate::retrieval::RetrieverConfig;
    use crate::sources::Sources;
    use crate::train::{TrainOptions, train};

    /// The smoke config with so many tokens for an episode.
    fn smoke(tokens: usize, more: &[String]) -> Resolved {
        let text = include_str!("../../configs/smoke.toml");
        let most = format!("environment.settings.max_episode_tokens={tokens}");
        let overrides = [&[most], more].concat();
        RunConfig::parse(text, &overrides)
            .unwrap()
            .resolve(None)
            .unwrap()
    }

    #[test]
    fn prompts_without_room_are_refused_before_anything_is_played() {
        let folder = tempfile::tempdir().unwrap();
        let config = smoke(8, &[]);
        let options = TrainOptions {
            folder: folder.path().join("run"),
            ..TrainOptions::default()
        };
        let error = causes(&train(&config, &options, &()).unwrap_err());
        assert!(
            error.contains("leaves room for a turn: the shortest has ")
                && error.contains("and an episode 8 (environment.settings.max_episode_tokens)"),
            "{error}"
        );
        assert!(!RunLayout::new(&options.folder).holds_run());
        let checks = config.audit(1, &()).unwrap();
        let (of, last) = checks.last().unwrap();
        assert_eq!((*of, last.name, last.holds), ("rollouts", "prompt", false));
        assert!(last.found.contains("an episode 8"), "{}", last.found);
    }

    #[test]
    fn an_evaluation_without_room_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let sources = Sources {
            environment: "code-search",
            questions: None,
            index: None,
            corpus: None,
            retrieval: &RetrieverConfig::default(),
            split: Split::Test,
            limit: Some(4),
            usual: 4,
            pages: Some(100),
            seed: 1,
        };
        let options = EvaluateOptions {
            policy: Some("builtin:quickstart-code".to_owned()),
            out: Some(folder.path().join("episodes.jsonl")),
            ..EvaluateOptions::default()
        };
        // It may be repeated.
        for _ in 0..2 {
            let found = sources.evaluate(DeviceSpec::Cpu, &options, &());
            let error = causes(&found.unwrap_err());
            assert!(error.contains("leaves room for a turn"), "{error}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn files_are_looked_into_before_a_run_as_far_as_they_are_here() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let corpus = "{\"id\": \"1\", \"contents\": \"\\\"Ada\\\"\\nAda sings.\"}\n";
        std::fs::write(at("corpus.jsonl"), corpus).unwrap();
        let question =
            "{\"id\": \"a\", \"question\": \"Who sings?\", \"golden_answers\": [\"Ada\"]}\n";
        std::fs::write(at("train.jsonl"), question).unwrap();
        let files = |searched: &str| {
            let train = at("train.jsonl");
            vec![
                format!("data={{ files = {{ train = {train:?}, {searched} }} }}"),
                "grpo.evaluate_every=0".to_owned(),
            ]
        };
        let corpus = format!("corpus = {:?}", at("corpus.jsonl"));
        Data::load(&smoke(320, &files(&corpus)), folder.path()).unwrap();
        let index = format!("index = {:?}", RunLayout::new(folder.path()).index());
        // The prompt has the question alone, whatever is searched.
        for searched in [corpus, index] {
            assert_eq!(smoke(320, &files(&searched)).check_room().unwrap(), None);
            let refused = smoke(8, &files(&searched)).check_room();
            let error = causes(&refused.unwrap_err());
            assert!(error.contains("an episode 8"), "{error}");
        }
    }

    #[test]
    fn prompts_without_room_are_counted_where_others_have_some() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let corpus = "{\"id\": \"1\", \"contents\": \"\\\"Ada\\\"\\nAda sings.\"}\n";
        std::fs::write(at("corpus.jsonl"), corpus).unwrap();
        let row = |id: &str, times: usize| {
            let question = vec!["Who sings?"; times].join(" ");
            format!(
                "{{\"id\": \"{id}\", \"question\": \"{question}\", \"golden_answers\": [\"Ada\"]}}\n"
            )
        };
        let rows = [row("a", 320), row("b", 1), row("c", 321)].concat();
        std::fs::write(at("train.jsonl"), rows).unwrap();
        let (train, corpus) = (at("train.jsonl"), at("corpus.jsonl"));
        let files = [
            format!("data={{ files = {{ train = {train:?}, corpus = {corpus:?} }} }}"),
            "grpo.evaluate_every=0".to_owned(),
        ];
        let warning = smoke(320, &files).check_room().unwrap().unwrap();
        assert!(
            warning.starts_with(
                "warning: the opening prompts of 2 of 3 questions leave no room for a turn: an episode has 320 tokens \
                 (environment.settings.max_episode_tokens); "
            ),
            "{warning}"
        );
    }
}
