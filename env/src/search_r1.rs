//! `forage/search-r1-v0`: think, search, read, answer.
//!
//! The policy writes `<search>query</search>` and reads passages in an `<information>` block, or writes
//! `<answer>text</answer>` and is done. Every published variant of this protocol is a setting of [`SearchR1Settings`].

mod observation;
mod settings;

use std::sync::Arc;

use async_trait::async_trait;
use forage_retriever::{Query, Retriever};

use crate::check;
use crate::environment::{Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnKind};
use crate::protocol::{ActionFault, ParsedAction, Tag, parse_action};
use crate::registry::EnvEntry;
use crate::reward::grading::sub_exact_match;
use crate::seed::Seed;
use crate::task::Task;
use crate::tokenizer::Tokenizer;

pub use observation::ObservationSettings;
pub use settings::{ClosingTurn, OnInvalid, PromptTemplate, SearchR1Settings, SettingsError};

/// The registry's entry.
pub const ENTRY: EnvEntry = EnvEntry {
    id: "forage/search-r1-v0",
    outcome: Outcome::Answer,
    about: "think, search, information and answer tags over any retriever",
    probe: "<think>look</think><search>first query</search>",
    gold: check::gold_answer,
    // Scripts read the standard passage format, whatever was configured for a model.
    for_bytes: |_| {
        let limits = serde_json::json!({
            "max_turn_tokens": 4_000,
            "max_episode_tokens": 40_000,
            "observation": {"limit_tokens": 4_000},
        });
        limits.as_object().cloned().unwrap_or_default()
    },
    own: None,
    make: |settings, resources| {
        let settings: SearchR1Settings = serde_json::from_value(settings)?;
        Ok(SearchR1::factory(settings, resources.retriever, resources.tokenizer)?)
    },
};

/// What the policy reads after a turn that is no action.
pub const NOTICE: &str = "\nThat was not a valid action. To search, put a query between <search> and </search>. \
                          To answer, put the answer between <answer> and </answer>. Try again.\n";

/// What the policy reads before its closing turn under [`ClosingTurn::Reminder`].
pub const REMINDER: &str = "\nNo searches are left. Answer now between <answer> and </answer>.\n";

/// What all episodes share.
struct Shared {
    settings: SearchR1Settings,
    template: String,
    spec: EnvSpec,
    retriever: Arc<dyn Retriever>,
    tokenizer: Arc<dyn Tokenizer>,
}

/// Where an episode stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Fresh,
    Running,
    Over,
}

/// The search environment.
pub struct SearchR1 {
    shared: Arc<Shared>,
    phase: Phase,
    /// Turns taken.
    turns: usize,
    /// Golds that the reward of a turn waits for; none once it is paid.
    golds: Vec<String>,
}

struct Factory(Arc<Shared>);

impl EnvFactory for Factory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(SearchR1 { shared: Arc::clone(&self.0), phase: Phase::Fresh, turns: 0, golds: Vec::new() })
    }

    fn spec(&self) -> &EnvSpec {
        &self.0.spec
    }
}

impl SearchR1 {
    /// Checks the settings, reads the prompt template and returns a maker of environments.
    ///
    /// `tokenizer` counts the tokens of observations: give the policy's own.
    ///
    /// # Errors
    /// When the settings contradict themselves or the prompt template cannot be read.
    pub fn factory(
        settings: SearchR1Settings,
        retriever: Arc<dyn Retriever>,
        tokenizer: Arc<dyn Tokenizer>,
    ) -> Result<Arc<dyn EnvFactory>, SettingsError> {
        settings.check()?;
        let template = settings.prompt.read()?;
        let closing = usize::from(settings.closing_turn != ClosingTurn::None);
        let spec = EnvSpec {
            id: ENTRY.id.to_owned(),
            outcome: ENTRY.outcome,
            max_turns: settings.max_generations + closing,
            max_turn_tokens: settings.max_turn_tokens,
            max_episode_tokens: settings.max_episode_tokens,
            stop: vec![Tag::Search.closing().to_owned(), Tag::Answer.closing().to_owned()],
            append_eos_after_stop: settings.append_eos_after_stop,
        };
        Ok(Arc::new(Factory(Arc::new(Shared { settings, template, spec, retriever, tokenizer }))))
    }

    async fn search(&mut self, query: String) -> Result<Step, EnvError> {
        if self.turns >= self.shared.spec.max_turns {
            // Nobody would read the result.
            return Ok(truncated(TurnKind::Search { query, shown: Vec::new() }));
        }
        let settings = &self.shared.settings;
        let queries = [Query::new(query.as_str())];
        let found = self.shared.retriever.search(&queries, settings.top_k).await?;
        let hits = found.into_iter().next().unwrap_or_default();
        let (text, count) = settings.observation.render(&hits, self.shared.tokenizer.as_ref());
        let shown = hits.into_iter().take(count).map(|hit| hit.id).collect();
        let reward = self.pay(&text);
        Ok(Step { reward, ..self.going_on(text, TurnKind::Search { query, shown }) })
    }

    /// What a turn earns that shows `text`: the reward of an episode's first gold.
    fn pay(&mut self, text: &str) -> f32 {
        let ObservationSettings { opening, closing, .. } = &self.shared.settings.observation;
        let passages = text.strip_prefix(opening.as_str()).unwrap_or(text);
        let passages = passages.strip_suffix(closing.as_str()).unwrap_or(passages);
        if self.golds.is_empty() || !sub_exact_match(passages, &self.golds) {
            return 0.0;
        }
        self.golds.clear();
        self.shared.settings.gold_shown_reward
    }

    fn invalid(&self, fault: ActionFault) -> Step {
        let kind = TurnKind::Invalid { fault: fault.to_string() };
        let on_invalid = self.shared.settings.on_invalid;
        if on_invalid == OnInvalid::End {
            return terminated(kind);
        }
        if self.turns >= self.shared.spec.max_turns {
            return truncated(kind);
        }
        let text = match on_invalid {
            OnInvalid::Notice => NOTICE.to_owned(),
            OnInvalid::Empty => self.shared.settings.observation.render(&[], self.shared.tokenizer.as_ref()).0,
            OnInvalid::Silent | OnInvalid::End => String::new(),
        };
        self.going_on(text, kind)
    }

    /// A step after which the policy writes again, with what announces a closing turn.
    fn going_on(&self, mut text: String, kind: TurnKind) -> Step {
        let settings = &self.shared.settings;
        let mut forced_prefix = None;
        if self.turns == settings.max_generations {
            match settings.closing_turn {
                ClosingTurn::None => {}
                ClosingTurn::Reminder => text.push_str(REMINDER),
                ClosingTurn::ForcedAnswer => forced_prefix = Some(Tag::Answer.opening().to_owned()),
            }
        }
        let observation = Observation { text };
        Step { observation, reward: 0.0, terminated: false, truncated: false, kind, forced_prefix }
    }
}

fn terminated(kind: TurnKind) -> Step {
    let observation = Observation::default();
    Step { observation, reward: 0.0, terminated: true, truncated: false, kind, forced_prefix: None }
}

fn truncated(kind: TurnKind) -> Step {
    Step { terminated: false, truncated: true, ..terminated(kind) }
}

#[async_trait]
impl Environment for SearchR1 {
    async fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        self.phase = Phase::Running;
        self.turns = 0;
        self.golds.clear();
        if self.shared.settings.gold_shown_reward.abs() > 0.0 {
            self.golds.clone_from(&task.golds);
        }
        Ok(Observation { text: self.shared.template.replace(settings::QUESTION, task.question.trim()) })
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        match self.phase {
            Phase::Fresh => return Err(EnvError::OutOfOrder("before reset")),
            Phase::Over => return Err(EnvError::OutOfOrder("after the end")),
            Phase::Running => self.turns += 1,
        }
        let step = match parse_action(&action.text) {
            ParsedAction::Search(query) => self.search(query).await?,
            ParsedAction::Answer(answer) => terminated(TurnKind::Answer { answer }),
            ParsedAction::Invalid(fault) => self.invalid(fault),
        };
        if step.terminated || step.truncated {
            self.phase = Phase::Over;
        }
        Ok(step)
    }

    fn spec(&self) -> &EnvSpec {
        &self.shared.spec
    }
}
