//! `forage/search-r1-v0`: think, search, read, answer.
//!
//! The policy writes `<search>query</search>` and reads passages in an `<information>` block, or writes
//! `<answer>text</answer>` and is done; the same environment speaks tool calls. Every published variant of this protocol is
//! a `Profile` of `SearchR1Settings`.

mod action;
pub(crate) mod forms;
pub(crate) mod observation;
mod profile;
pub(crate) mod prompt;
mod scripts;
mod settings;

use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, Call, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnKind,
    TurnTool,
};
use forage_contracts::retriever::Retriever;
use forage_contracts::seed::Seed;
use forage_contracts::{
    EnvEntry, EnvTelemetry, Passages, Pieces, Resolved, Tag, Task, Tokenizer, Vocabulary,
};

use crate::ask::ask;
use crate::chat::tools::{CallFault, can_be_written};
use crate::experience::Memory;
use crate::reward::grading::{normalize, stands_in};
use crate::reward::retrieval::passages;
use crate::settings::{OnInvalid, QUESTION, SettingsError, files, resolved};

pub(crate) use action::Asked;
pub(crate) use action::parse;
pub(crate) use forms::{ClosingTurn, SearchForm, Searcher};

pub(crate) use observation::ObservationSettings;
use observation::{Found, Rendered};
pub(crate) use profile::Profile;

pub(crate) use settings::SearchR1Settings;

/// The registry's entry.
pub(crate) const ENTRY: EnvEntry = EnvEntry {
    for_bytes: SearchR1Settings::for_bytes,
    schema: Some(|| schemars::schema_for!(SearchR1Settings).into()),
    resolve: |written| {
        let settings = SearchR1Settings::from_value(written)?;
        settings.check()?;
        let spelled = serde_json::to_value(&settings)?;
        Ok(Resolved {
            prompt: resolved(settings.prompt.read(&settings))?,
            wordings: settings.prompt.wordings(&settings),
            files: files(&spelled, &["prompt", "experience"]),
            settings: spelled,
            passages: Passages::Read,
        })
    },
    tells_golds: |settings| {
        let paid = settings["gold_shown_reward"].as_f64().unwrap_or_default();
        (paid.abs() > 0.0).then_some("gold_shown_reward")
    },
    scripts: scripts::SCRIPTS,
    vocabulary: Vocabulary {
        tags: &[
            "<think>",
            "</think>",
            "<search>",
            "</search>",
            "<information>",
            "</information>",
            "<answer>",
            "</answer>",
        ],
        pieces: Pieces::Words,
    },
    quickstart: Some(include_str!("../../configs/quickstart.toml")),
    telemetry: EnvTelemetry {
        actions: &[[Tag::Search.opening(), Tag::Search.closing()]],
        observations: &[Tag::Information.opening()],
        searches: true,
        ..EnvTelemetry::COMMON
    },
    ..EnvEntry::new(
        "forage/search-r1-v0",
        "think, search, information and answer tags over any retriever",
        Outcome::Answer,
        "<think>look</think><search>first query</search>",
        |settings, resources| {
            let settings = SearchR1Settings::from_value(settings)?;
            Ok(SearchR1::factory(
                settings,
                resources.retriever,
                resources.tokenizer,
            )?)
        },
    )
};

/// What the policy reads after a turn that is not an action.
pub(crate) const NOTICE: &str = "\nThat was not a valid action. To search, put a query between <search> and </search>. \
                          To answer, put the answer between <answer> and </answer>. Try again.\n";

/// What the policy reads before its closing turn under `ClosingTurn::Reminder`.
pub(crate) const REMINDER: &str =
    "\nNo searches are left. Answer now between <answer> and </answer>.\n";

/// What all episodes share.
struct Shared {
    settings: SearchR1Settings,
    template: String,
    /// What is shown before the prompt.
    memory: Option<Memory>,
    spec: EnvSpec,
    retriever: Arc<dyn Retriever>,
    tokenizer: Arc<dyn Tokenizer>,
}

/// The search environment.
pub(crate) struct SearchR1 {
    shared: Arc<Shared>,
    /// Queries run.
    queries: usize,
    /// Golds that the reward of a turn waits for, normalised, none of them empty; none once it is paid.
    golds: Vec<String>,
}

struct Factory(Arc<Shared>);

impl EnvFactory for Factory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(SearchR1 {
            shared: Arc::clone(&self.0),
            queries: 0,
            golds: Vec::new(),
        })
    }

    fn spec(&self) -> &EnvSpec {
        &self.0.spec
    }

    fn tools(&self) -> Vec<TurnTool> {
        action::tools(&self.0.settings)
    }
}

impl SearchR1 {
    /// Checks the settings, reads the prompt template and returns a maker of environments.
    ///
    /// `tokenizer` counts the tokens of observations: give the policy's own.
    ///
    /// # Errors
    /// When the settings contradict themselves, or the prompt template or the file of experience cannot be read.
    pub(crate) fn factory(
        settings: SearchR1Settings,
        retriever: Arc<dyn Retriever>,
        tokenizer: Arc<dyn Tokenizer>,
    ) -> Result<Arc<dyn EnvFactory>, SettingsError> {
        settings.check()?;
        let calls = settings.form == SearchForm::ToolCalls;
        if calls && !can_be_written(tokenizer.as_ref()) {
            return Err(SettingsError::unwritable_calls());
        }
        let template = settings.prompt.read(&settings)?;
        let memory = settings.experience.as_ref().map(Memory::open).transpose()?;
        let closing = usize::from(settings.closing_turn != ClosingTurn::None);
        let spec = EnvSpec {
            id: ENTRY.id.to_owned(),
            outcome: ENTRY.outcome,
            max_turns: settings.max_generations + closing,
            max_turn_tokens: settings.max_turn_tokens,
            max_episode_tokens: settings.max_episode_tokens,
            stop: match (calls, settings.searcher) {
                (true, _) => Vec::new(),
                (false, Searcher::Retriever) => [Tag::Search, Tag::Answer]
                    .map(|tag| tag.closing().to_owned())
                    .into(),
                (false, Searcher::Policy) => vec![Tag::Answer.closing().to_owned()],
            },
            append_eos_after_stop: settings.append_eos_after_stop,
            tools: if calls {
                vec![action::tool(&settings.calls).schema()]
            } else {
                Vec::new()
            },
        };
        Ok(Arc::new(Factory(Arc::new(Shared {
            settings,
            template,
            memory,
            spec,
            retriever,
            tokenizer,
        }))))
    }

    /// Runs the searches of a turn, all queries together, and answers each call.
    async fn search(
        &mut self,
        calls: Vec<Result<Vec<String>, CallFault>>,
        turns_left: usize,
    ) -> Result<Step, EnvError> {
        let settings = &self.shared.settings;
        let record = |queries: &[String]| Call::search(queries.to_vec(), Vec::new());
        let mut records: Vec<Call> = calls.iter().flatten().map(|call| record(call)).collect();
        if turns_left == 0 {
            let observation = Observation::default();
            return Ok(Step::reply(observation, TurnKind::Calls { calls: records }));
        }
        let queries = calls.iter().flatten().flatten().map(String::as_str);
        let queries: Vec<&str> = queries.collect();
        let budget = settings.search_budget;
        if budget > 0 && self.queries + queries.len() > budget {
            return Ok(self.over_budget(queries.len(), calls.len(), turns_left));
        }
        self.queries += queries.len();
        let found = ask(self.shared.retriever.as_ref(), &queries, settings.top_k).await?;
        let found = queries.into_iter().zip(&found);
        let mut found = found.map(|(query, hits)| match hits {
            Ok(hits) => Ok(Found { query, hits }),
            Err(refused) => Err(refused),
        });
        let (mut results, mut read) = (Vec::with_capacity(calls.len()), String::new());
        let mut recorded = records.iter_mut();
        for call in &calls {
            let rendered = match call {
                Err(fault) => self.shared.wrapped(fault.to_string()),
                Ok(queries) => {
                    let of_call: Vec<_> = found.by_ref().take(queries.len()).collect();
                    let record = recorded.next();
                    match of_call.into_iter().collect::<Result<Vec<_>, _>>() {
                        Err(refused) => self.shared.wrapped(refused.to_string()),
                        Ok(found) => {
                            let tokenizer = self.shared.tokenizer.as_ref();
                            let rendered = settings.observation.render(&found, tokenizer);
                            if let Some(record) = record {
                                let hits = found.iter().flat_map(|found| found.hits);
                                let ids = hits.take(rendered.shown).map(|hit| hit.id.clone());
                                record.shown.extend(ids);
                            }
                            let queries = queries.iter().map(String::as_str);
                            read.push_str(&passages(&rendered.content, queries));
                            read.push('\n');
                            rendered
                        }
                    }
                }
            };
            results.push(rendered);
        }
        let reward = self.pay(&read);
        let kind = TurnKind::Calls { calls: records };
        let observation = self.shared.observation(results);
        Ok(Step {
            reward,
            ..self.going_on(observation, kind, turns_left)
        })
    }

    /// What a turn earns that shows `passages`: the reward of an episode's first gold.
    fn pay(&mut self, passages: &str) -> f32 {
        if self.golds.is_empty() {
            return 0.0;
        }
        let passages = normalize(passages);
        if !self.golds.iter().any(|gold| stands_in(gold, &passages)) {
            return 0.0;
        }
        self.golds.clear();
        self.shared.settings.gold_shown_reward
    }

    /// What follows searches that the budget has no room for: none of them is run.
    fn over_budget(&self, asked: usize, calls: usize, turns_left: usize) -> Step {
        let settings = &self.shared.settings;
        let budget = settings.search_budget;
        let left = budget.saturating_sub(self.queries);
        let (fault, told) = if left == 0 {
            let fault = format!("the budget of {budget} queries is spent");
            (fault, prompt::reminder(settings).to_owned())
        } else {
            let fault =
                format!("{asked} queries are asked, and {left} of the budget of {budget} left");
            let told = format!("\nNone of these {asked} queries was run. Queries left: {left}.\n");
            (fault, told)
        };
        let kind = TurnKind::invalid(fault);
        if settings.on_invalid == OnInvalid::End {
            return Step::end(kind);
        }
        let observation = match settings.form {
            SearchForm::Tags => Observation::new(told),
            SearchForm::ToolCalls => {
                let told = told.trim().to_owned();
                self.shared
                    .observation(vec![self.shared.wrapped(told); calls])
            }
        };
        self.going_on(observation, kind, turns_left)
    }

    fn invalid(&self, fault: String, calls: &[CallFault], turns_left: usize) -> Step {
        let kind = TurnKind::Invalid { fault };
        let on_invalid = self.shared.settings.on_invalid;
        if on_invalid == OnInvalid::End {
            return Step::end(kind);
        }
        let empty = || {
            self.shared
                .settings
                .observation
                .render(&[], self.shared.tokenizer.as_ref())
        };
        let observation = match on_invalid {
            OnInvalid::Notice if calls.is_empty() => {
                Observation::new(prompt::notice(&self.shared.settings))
            }
            OnInvalid::Notice => self.shared.observation(
                calls
                    .iter()
                    .map(|fault| self.shared.wrapped(fault.to_string()))
                    .collect(),
            ),
            OnInvalid::Empty => self.shared.observation(vec![empty(); calls.len().max(1)]),
            OnInvalid::Silent | OnInvalid::End => Observation::default(),
        };
        self.going_on(observation, kind, turns_left)
    }

    /// A step after which the policy writes again, with what announces a closing turn.
    fn going_on(&self, mut observation: Observation, kind: TurnKind, turns_left: usize) -> Step {
        let settings = &self.shared.settings;
        let mut forced_prefix = None;
        if turns_left == 1 {
            match settings.closing_turn {
                ClosingTurn::None | ClosingTurn::Silent => {}
                ClosingTurn::Reminder => observation.add(prompt::reminder(settings)),
                ClosingTurn::ForcedAnswer => forced_prefix = Some(Tag::Answer.opening().to_owned()),
            }
        }
        Step {
            forced_prefix,
            ..Step::reply(observation, kind)
        }
    }
}

impl Shared {
    /// What answers a call without passages.
    fn wrapped(&self, content: String) -> Rendered {
        let ObservationSettings {
            opening, closing, ..
        } = &self.settings.observation;
        let text = [opening, content.as_str(), closing].concat();
        Rendered {
            content,
            text,
            shown: 0,
        }
    }

    /// The answers to a turn's calls.
    fn observation(&self, rendered: Vec<Rendered>) -> Observation {
        match self.settings.form {
            SearchForm::Tags => {
                Observation::new(rendered.into_iter().map(|one| one.text).collect::<String>())
            }
            SearchForm::ToolCalls => {
                let text = rendered
                    .iter()
                    .map(|one| one.text.as_str())
                    .collect::<Vec<_>>()
                    .join("\n");
                Observation {
                    text,
                    results: rendered.into_iter().map(|one| one.content).collect(),
                }
            }
        }
    }
}

#[async_trait]
impl Environment for SearchR1 {
    async fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        self.queries = 0;
        self.golds.clear();
        if self.shared.settings.gold_shown_reward.abs() > 0.0 {
            let golds = task.golds.iter().map(|gold| normalize(gold));
            self.golds.extend(golds.filter(|gold| !gold.is_empty()));
        }
        let question = task.question.trim();
        let mut text = match &self.shared.memory {
            Some(memory) => memory.shown(question).await?,
            None => String::new(),
        };
        text.push_str(&self.shared.template.replace(QUESTION, question));
        Ok(Observation::new(text))
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let turns_left = action.turns_left;
        match parse(&action.text, &self.shared.settings) {
            Asked::Search(calls) => self.search(calls, turns_left).await,
            Asked::Answer(answer) => Ok(Step::end(TurnKind::Answer { answer })),
            Asked::Invalid { fault, calls } => Ok(self.invalid(fault, &calls, turns_left)),
        }
    }

    fn spec(&self) -> &EnvSpec {
        &self.shared.spec
    }
}
