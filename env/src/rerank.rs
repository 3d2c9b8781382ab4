//! `forage/rerank-v0`: the first hits of a retriever, put in order by the policy.
//!
//! The question is searched for once, at the start of an episode; its hits are the candidates. Turn by turn the policy reads a
//! window of them and writes, between `<answer>` and `</answer>`, what its `Form` asks for: an order, a pick or scores. After
//! the last window the list as it is by then is the ranking, which is compared with the task's judgments
//! ([`forage_contracts::Task::judgments`]); a task without any is an error that names it.
//!
//! Where the policy names or scores a passage, whatever else it writes leads to a ranking: passages that it leaves out keep their order
//! behind those that it names, and what had to be mended is recorded ([`turn::RankTurn`]). An episode that names none has an empty
//! ranking, as one without candidates has: if it had the first stage's, not answering would pay.

mod form;
mod scripts;
mod settings;
mod turn;

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnForm,
    TurnTool,
};
use forage_contracts::retriever::{Hit, Query, Retriever};
use forage_contracts::seed::Seed;
use forage_contracts::{EnvEntry, Passages, Pieces, Resolved, Tag, Task, Vocabulary};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::ask::Waiting;
use crate::settings::{QUESTION, SettingsError, files, resolved};
use form::Verdict;
use settings::RerankSettings;
use turn::RankTurn;

pub(crate) use form::Form;

/// The registry's entry.
pub(crate) const ENTRY: EnvEntry = EnvEntry {
    last: |ranking| Tag::turn("", Tag::Answer.both(), ranking),
    gold: judged_order,
    for_bytes: |settings| {
        let limits = Map::from_iter([
            // Scripts know passages by their ids.
            ("show_ids".to_owned(), Value::from(true)),
            ("max_turn_tokens".to_owned(), Value::from(4_000)),
            ("max_episode_tokens".to_owned(), Value::from(400_000)),
        ]);
        settings.into_iter().chain(limits).collect()
    },
    refuses: |reward, settings| {
        let form = settings.get("form").map(Form::deserialize);
        let scored = form.is_some_and(|form| form.is_ok_and(Form::is_scored));
        (reward == "score_distribution" && !scored).then_some(
            "passages get no scores under this form: set environment.settings.form to \"groupwise\" or \"pointwise\", or leave the \
             reward out",
        )
    },
    schema: Some(|| schemars::schema_for!(RerankSettings).into()),
    resolve: |written| {
        let settings: RerankSettings = serde_json::from_value(written)?;
        settings.check()?;
        let spelled = serde_json::to_value(&settings)?;
        Ok(Resolved {
            prompt: resolved(settings.prompt.read())?,
            wordings: settings.prompt.wordings(),
            files: files(&spelled, &["prompt"]),
            settings: spelled,
            passages: Passages::Read,
        })
    },
    scripts: scripts::SCRIPTS,
    vocabulary: Vocabulary {
        tags: &["<think>", "</think>", "<answer>", "</answer>"],
        pieces: Pieces::Code,
    },
    metrics: turn::describe,
    measures: turn::measures,
    declares: turn::DECLARED,
    telemetry: turn::TELEMETRY,
    ..EnvEntry::new(
        "forage/rerank-v0",
        "the first hits of a retriever, put in order",
        Outcome::Ranking,
        "<think>look</think><answer>[1] > [2]</answer>",
        |settings, resources| {
            let settings: RerankSettings = serde_json::from_value(settings)?;
            Ok(Rerank::factory(settings, resources.retriever)?)
        },
    )
};

/// The relevant passages by their ids, best first.
fn judged_order(task: &Task) -> String {
    let judgments = task.judgments();
    let mut relevant: Vec<(&String, &i32)> =
        judgments.iter().filter(|(_, grade)| **grade > 0).collect();
    relevant.sort_by_key(|(_, grade)| std::cmp::Reverse(**grade));
    let names = relevant.iter().map(|(id, _)| format!("[{id}]"));
    (ENTRY.last)(&names.collect::<Vec<_>>().join(" > "))
}

/// The parts that all episodes share.
struct Shared {
    settings: RerankSettings,
    template: String,
    spec: EnvSpec,
    retriever: Arc<dyn Retriever>,
}

/// The rerank environment.
struct Rerank {
    shared: Arc<Shared>,
    list: Option<List>,
}

/// The candidates while they are put in order.
struct List {
    /// As the first stage ranks them.
    hits: Vec<Hit>,
    /// Places in `hits`, best first as far as is known.
    order: Vec<usize>,
    /// Scores by place in `hits`.
    scores: Vec<Option<f64>>,
    /// The windows that are left, the next one last.
    windows: Vec<Range<usize>>,
    /// Whether a passage of any window was named or scored.
    is_ranked: bool,
}

struct Factory(Arc<Shared>);

impl EnvFactory for Factory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(Rerank {
            shared: Arc::clone(&self.0),
            list: None,
        })
    }

    fn spec(&self) -> &EnvSpec {
        &self.0.spec
    }

    fn tools(&self) -> Vec<TurnTool> {
        let [open, close] = Tag::Answer.both();
        vec![TurnTool {
            name: turn::RANK,
            about: "Answers what is asked below the passages shown last: their order, the best one's number, or scores.",
            parameter: "answer",
            form: TurnForm::Tags {
                open,
                before_close: "",
                close,
            },
        }]
    }
}

impl Rerank {
    /// Checks the settings, reads the prompt template and returns a maker of environments.
    ///
    /// # Errors
    /// When the settings contradict themselves or the prompt template cannot be read.
    fn factory(
        settings: RerankSettings,
        retriever: Arc<dyn Retriever>,
    ) -> Result<Arc<dyn EnvFactory>, SettingsError> {
        settings.check()?;
        let template = settings.prompt.read()?;
        let spec = EnvSpec {
            id: ENTRY.id.to_owned(),
            outcome: ENTRY.outcome,
            max_turns: settings.windows(settings.candidates).len(),
            max_turn_tokens: settings.max_turn_tokens,
            max_episode_tokens: settings.max_episode_tokens,
            stop: vec![Tag::Answer.closing().to_owned()],
            append_eos_after_stop: settings.append_eos_after_stop,
            tools: Vec::new(),
        };
        Ok(Arc::new(Factory(Arc::new(Shared {
            settings,
            template,
            spec,
            retriever,
        }))))
    }
}

impl List {
    fn new(hits: Vec<Hit>, settings: &RerankSettings) -> Self {
        let mut windows = settings.windows(hits.len());
        windows.reverse();
        Self {
            order: (0..hits.len()).collect(),
            scores: vec![None; hits.len()],
            hits,
            windows,
            is_ranked: false,
        }
    }

    /// The passages of the next window, in the order of the list; none after the last window.
    fn window(&self) -> impl Iterator<Item = &Hit> {
        let places = self
            .windows
            .last()
            .map(|window| &self.order[window.clone()]);
        let places = places.into_iter().flatten();
        places.map(|place| &self.hits[*place])
    }

    /// Takes what is said of a window into the list.
    fn take(&mut self, window: Range<usize>, verdict: &Verdict) {
        let places = self.order[window.clone()].to_vec();
        for (place, score) in places.iter().zip(&verdict.scores) {
            self.scores[*place] = *score;
        }
        for (slot, chosen) in self.order[window].iter_mut().zip(&verdict.order) {
            *slot = places[*chosen];
        }
        self.is_ranked |= verdict.says_something;
    }

    /// Sorts by scores where there are any: the highest first, passages without one last, equal ones as they were.
    fn sort(&mut self) {
        let score = |place: &usize| self.scores[*place].unwrap_or(f64::NEG_INFINITY);
        self.order
            .sort_by(|left, right| score(right).total_cmp(&score(left)));
    }

    /// Ids of the passages at some places of the list.
    fn ids(&self, window: Range<usize>) -> Vec<String> {
        let places = self.order[window].iter();
        places.map(|place| self.hits[*place].id.clone()).collect()
    }
}

impl Shared {
    /// The next window as the policy reads it.
    fn show(&self, list: &List) -> String {
        let RerankSettings {
            form,
            passage_words,
            show_ids,
            ..
        } = self.settings;
        form.show(list.window(), passage_words, show_ids)
    }
}

#[async_trait]
impl Environment for Rerank {
    async fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        ENTRY.outcome.check(task)?;
        let shared = &self.shared;
        let question = task.question.trim();
        let waiting = Waiting::begin();
        let queries = [waiting.asks(Query::new(question))];
        let found = shared
            .retriever
            .search(&queries, shared.settings.candidates);
        let hits = found.await?.pop().unwrap_or_default();
        let list = self.list.insert(List::new(hits, &shared.settings));
        // The question first: a passage may hold its mark.
        let prompt = shared.template.replace(QUESTION, question);
        Ok(Observation::new(
            prompt.replace(settings::PASSAGES, &shared.show(list)),
        ))
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let shared = &self.shared;
        let list = self.list.as_mut().ok_or(EnvError::NotReset)?;
        let ids: Vec<&str> = list.window().map(|hit| hit.id.as_str()).collect();
        let verdict = shared.settings.form.read(&action.text, &ids);
        let window = list.windows.pop().ok_or(EnvError::NotReset)?;
        list.take(window.clone(), &verdict);
        if !list.windows.is_empty() {
            let observation = Observation::new(format!("\n\n{}\n", shared.show(list)));
            let kind = RankTurn::record(verdict, list.ids(window), Vec::new());
            return Ok(Step::reply(observation, kind));
        }
        list.sort();
        let ranked = if list.is_ranked { list.order.len() } else { 0 };
        let ranking = list.ids(0..ranked);
        let baseline = list.hits.iter().map(|hit| hit.id.clone()).collect();
        Ok(Step::end(RankTurn::record(verdict, ranking, baseline)))
    }

    fn spec(&self) -> &EnvSpec {
        &self.shared.spec
    }
}

#[cfg(test)]
mod tests;
