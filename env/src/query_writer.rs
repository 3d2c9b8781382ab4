//! `forage/query-writer-v0`: one turn, one query in boolean syntax, judged by what it finds.
//!
//! The policy reads an information need and writes `<reasoning>text</reasoning><query>query</query>`, the reasoning if it
//! likes. The query is run over BM25 in boolean mode, whose syntax `docs/query-syntax.md` describes, and the episode ends.
//! With `form = "tool_calls"` the query is the argument of a call. What the query found is compared with the task's judgments ([`forage_contracts::Task::judgments`]); a task without any is an
//! error that names it. A turn without a query, a query that had to be repaired and a query that found nothing relevant are
//! three different records: [`TurnKind::Invalid`], [`QueryTurn::repairs`], [`QueryTurn::found`].
//!
//! Collections that share an index are kept apart by the setting `corpus_field`, which restricts the search
//! itself: passages of other collections neither take places among the hits nor have to be removed from them afterwards.
//! Without it an index holds one collection.

mod action;
mod keywords;
mod metrics;
mod scripts;
pub(crate) mod searchlm;
mod settings;
mod telemetry;
mod turn;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnForm,
    TurnKind, TurnTool,
};
use forage_contracts::retriever::{BooleanAnswer, BooleanSearch, Filter, Query};
use forage_contracts::seed::Seed;
use forage_contracts::{EnvEntry, Passages, Pieces, RegistryError, Resolved, Task, Vocabulary};
use serde_json::{Map, Value};

use crate::ask::{Refused, ask_boolean};
use crate::chat::tools::can_be_written;
use crate::protocol::{QUERY_CLOSE, QUERY_OPEN, REASONING};
use crate::settings::{QUESTION, SettingsError, files, resolved};

pub(crate) use action::QueryForm;
pub(crate) use action::SUBMIT_QUERY;
pub(crate) use action::Take;
pub(crate) use action::WrittenQuery;
pub(crate) use action::parse;
pub(crate) use action::parse_call;
pub(crate) use action::quoted;
pub(crate) use keywords::keyword_query;
pub(crate) use settings::QueryWriterSettings;
pub(crate) use turn::QueryTurn;

/// The registry's entry.
pub(crate) const ENTRY: EnvEntry = EnvEntry {
    last: |query| [QUERY_OPEN, query, QUERY_CLOSE].concat(),
    gold: judged_ids,
    for_bytes: |settings| {
        let limits = Map::from_iter([
            // Scripts write tags.
            ("form".to_owned(), Value::from("tags")),
            ("max_turn_tokens".to_owned(), Value::from(4_000)),
            ("max_episode_tokens".to_owned(), Value::from(40_000)),
        ]);
        settings.into_iter().chain(limits).collect()
    },
    refuses: |reward, _| {
        (reward == "score_distribution").then_some(
            "queries give passages no scores: leave the reward out, or set environment.id to \"rerank\" with the form \"groupwise\"",
        )
    },
    schema: Some(|| schemars::schema_for!(QueryWriterSettings).into()),
    resolve: |written| {
        let settings: QueryWriterSettings = serde_json::from_value(written)?;
        settings.check()?;
        let spelled = serde_json::to_value(&settings)?;
        Ok(Resolved {
            prompt: resolved(settings.prompt.read(&settings))?,
            wordings: settings.prompt.wordings(&settings),
            files: files(&spelled, &["prompt"]),
            settings: spelled,
            passages: Passages::Unread {
                why: "the query is judged by what it finds, and nothing is read",
                fix: "use --probe paraphrased-prompt, or a world of another seed",
            },
        })
    },
    scripts: scripts::SCRIPTS,
    vocabulary: Vocabulary {
        tags: &[REASONING[0], REASONING[1], QUERY_OPEN, QUERY_CLOSE],
        pieces: Pieces::Code,
    },
    metrics: metrics::describe,
    measures: turn::measures,
    declares: metrics::DECLARED,
    telemetry: telemetry::TELEMETRY,
    quickstart: Some(include_str!("../../configs/query-writer.toml")),
    ..EnvEntry::new(
        "forage/query-writer-v0",
        "one query in boolean syntax, judged by the ranking it gives",
        Outcome::Ranking,
        "<reasoning>look</reasoning><query>\"first query\" OR second</query>",
        |settings, resources| {
            let settings: QueryWriterSettings = serde_json::from_value(settings)?;
            let index = resources
                .retriever
                .boolean()
                .ok_or(RegistryError::NoBoolean)?;
            if settings.form == QueryForm::ToolCalls
                && !can_be_written(resources.tokenizer.as_ref())
            {
                return Err(SettingsError::unwritable_calls().into());
            }
            Ok(QueryWriter::factory(settings, index)?)
        },
    )
};

/// Best passages of the keyword query that are kept: as many as the NDCG they are for looks at.
const KEYWORD_DEPTH: usize = 10;

/// The query that finds what is relevant and nothing else, in the order of ids: no policy can write it.
fn judged_ids(task: &Task) -> String {
    let judgments = task.judgments();
    let ids = judgments
        .iter()
        .filter(|(_, grade)| **grade > 0)
        .map(|(id, _)| format!("id:{}", quoted(id)));
    format!(
        "{QUERY_OPEN}{}{QUERY_CLOSE}",
        ids.collect::<Vec<_>>().join(" OR ")
    )
}

/// Ids of passages, best first, by data set and question.
type Rankings = HashMap<(String, String), Arc<[String]>>;

/// The parts that all episodes share.
struct Shared {
    settings: QueryWriterSettings,
    template: String,
    spec: EnvSpec,
    index: Arc<dyn BooleanSearch>,
    /// What the keywords of a question find: the same for every episode.
    baselines: Mutex<Rankings>,
}

/// The query-writer environment.
pub(crate) struct QueryWriter {
    shared: Arc<Shared>,
    task: Option<Task>,
}

struct Factory(Arc<Shared>);

impl EnvFactory for Factory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(QueryWriter {
            shared: Arc::clone(&self.0),
            task: None,
        })
    }

    fn spec(&self) -> &EnvSpec {
        &self.0.spec
    }

    fn tools(&self) -> Vec<TurnTool> {
        let about =
            "Runs the one query in boolean syntax that the episode is judged by, and ends it.";
        let form = match self.0.settings.form {
            QueryForm::Tags => TurnForm::Tags {
                open: QUERY_OPEN,
                before_close: "",
                close: QUERY_CLOSE,
            },
            QueryForm::ToolCalls => TurnForm::Call {
                tool: SUBMIT_QUERY.to_owned(),
                argument: "query",
                list: false,
            },
        };
        vec![TurnTool {
            name: SUBMIT_QUERY,
            about,
            parameter: "query",
            form,
        }]
    }
}

impl QueryWriter {
    /// Checks the settings, reads the prompt template and returns a maker of environments.
    ///
    /// # Errors
    /// When a limit is 0 or the prompt template cannot be read.
    pub(crate) fn factory(
        settings: QueryWriterSettings,
        index: Arc<dyn BooleanSearch>,
    ) -> Result<Arc<dyn EnvFactory>, SettingsError> {
        settings.check()?;
        let template = settings.prompt.read(&settings)?;
        let calls = settings.form == QueryForm::ToolCalls;
        let spec = EnvSpec {
            id: ENTRY.id.to_owned(),
            outcome: ENTRY.outcome,
            max_turns: 1,
            max_turn_tokens: settings.max_turn_tokens,
            max_episode_tokens: settings.max_episode_tokens,
            stop: if calls {
                Vec::new()
            } else {
                vec![QUERY_CLOSE.to_owned()]
            },
            append_eos_after_stop: settings.append_eos_after_stop,
            tools: if calls {
                vec![action::tool().schema()]
            } else {
                Vec::new()
            },
        };
        let baselines = Mutex::default();
        Ok(Arc::new(Factory(Arc::new(Shared {
            settings,
            template,
            spec,
            index,
            baselines,
        }))))
    }
}

impl Shared {
    async fn judge(&self, task: &Task, written: WrittenQuery) -> Result<TurnKind, EnvError> {
        let found = self
            .search(task, &written.query, self.settings.limit)
            .await?;
        let BooleanAnswer { hits, issues } = match found {
            Ok(found) => found,
            Err(refused) => return Ok(TurnKind::invalid(refused.to_string())),
        };
        let keywords_found = self.keywords_found(task).await?;
        if hits.is_empty() && keywords_found.is_empty() {
            self.check_corpus(task).await?;
        }
        let turn = QueryTurn {
            query: written.query,
            found: hits.into_iter().map(|hit| hit.id).collect(),
            repairs: issues,
            keywords_found: keywords_found.to_vec(),
            reasoning_words: written.reasoning_words,
        };
        Ok(turn.record())
    }

    /// Refuses a task of a data set that no passage is of: every query would find nothing and earn 0.
    async fn check_corpus(&self, task: &Task) -> Result<(), EnvError> {
        let Some(field) = &self.settings.corpus_field else {
            return Ok(());
        };
        // All passages but those without an id.
        let all = self.search(task, "-id:\"\"", 1).await?;
        if !all.map_err(EnvError::own)?.hits.is_empty() {
            return Ok(());
        }
        Err(EnvError::Task {
            task: task.name(),
            question: task.question.clone(),
            missing: format!(
                "is of the data set `{}`, which no passage has in the field `{field}`; leave corpus_field out where the index is of one \
                 corpus, or name the corpora as the questions name their data sets",
                task.data_source
            ),
        })
    }

    async fn search(
        &self,
        task: &Task,
        text: &str,
        limit: usize,
    ) -> Result<Result<BooleanAnswer, Refused>, EnvError> {
        let corpus = self
            .settings
            .corpus_field
            .iter()
            .map(|field| (field.clone(), vec![task.data_source.clone()]));
        let query = Query::new(text).filtered(Filter(corpus.collect::<BTreeMap<_, _>>()));
        Ok(ask_boolean(self.index.as_ref(), query, limit).await?)
    }

    async fn keywords_found(&self, task: &Task) -> Result<Arc<[String]>, EnvError> {
        let key = (task.data_source.clone(), task.question.clone());
        let known = self
            .baselines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        if let Some(found) = known {
            return Ok(found);
        }
        let answer = self
            .search(task, &keyword_query(&task.question), KEYWORD_DEPTH)
            .await?
            .map_err(EnvError::own)?;
        let found: Arc<[String]> = answer.hits.into_iter().map(|hit| hit.id).collect();
        self.baselines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, Arc::clone(&found));
        Ok(found)
    }
}

#[async_trait]
impl Environment for QueryWriter {
    async fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        ENTRY.outcome.check(task)?;
        self.task = Some(task.clone());
        Ok(Observation::new(
            self.shared.template.replace(QUESTION, task.question.trim()),
        ))
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let task = self.task.as_ref().ok_or(EnvError::NotReset)?;
        let settings = &self.shared.settings;
        let written = match settings.form {
            QueryForm::Tags => parse(&action.text, settings.take),
            QueryForm::ToolCalls => parse_call(&action.text),
        };
        Ok(Step::end(match written {
            Ok(written) => self.shared.judge(task, written).await?,
            Err(fault) => TurnKind::invalid(fault.to_string()),
        }))
    }

    fn spec(&self) -> &EnvSpec {
        &self.shared.spec
    }
}

#[cfg(test)]
mod tests;
