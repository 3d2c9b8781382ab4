//! `forage/code-search-v0`: think, write Python that searches and reads pages, read what it prints, answer.
//!
//! The policy writes `<python>code</python>` and reads what the program printed in a `<python_output>` block, or writes
//! `<answer>text</answer>` and is done. Programs call `search_pages`, `view_sections` and `read_section` over a
//! [`Wiki`](crate::wiki::Wiki). The same environment speaks Hermes tool calls, of `python` or of the three functions; every
//! published variant is a `Profile` of `CodeSearchSettings`.

mod action;
mod interpreter;
pub(crate) mod observation;
mod profile;
mod programs;
mod prompt;
mod repr;
mod scripts;
pub(crate) mod settings;
mod telemetry;
mod tools;
mod turn;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnKind,
    TurnTool,
};
use forage_contracts::seed::Seed;
use forage_contracts::{
    Boundary, EnvEntry, Passages, Pieces, RegistryError, Resolved, Resources, Task, Vocabulary,
};
use forage_sandbox::{CallRecord, Notice, SandboxError, Status, Tools, TurnOutput};
use serde_json::Value;

use crate::chat::hermes::ToolCall;
use crate::chat::tools::can_be_written;
use crate::reward::grading::{normalize, stands_in};
use crate::settings::{OnInvalid, QUESTION, SettingsError, files, resolved};
use crate::wiki::find::{Finder, SearchMode};

pub(crate) use action::CodeAction;
pub(crate) use action::CodeFault;
pub(crate) use action::parse;
pub(crate) use interpreter::Interpreter;
pub(crate) use interpreter::Interpreters;

pub(crate) use profile::Profile;

pub(crate) use settings::{CodeSearchSettings, Form, StateMode, ToldBy};

use tools::Answered;
pub(crate) use tools::PageTools;
pub(crate) use turn::CodeTurn;

/// The registry's entry.
pub(crate) const ENTRY: EnvEntry = EnvEntry {
    for_bytes: CodeSearchSettings::for_bytes,
    schema: Some(|| schemars::schema_for!(CodeSearchSettings).into()),
    resolve: |written| {
        let settings = CodeSearchSettings::from_value(written)?;
        settings.check()?;
        let spelled = serde_json::to_value(&settings)?;
        Ok(Resolved {
            prompt: resolved(settings.prompt.read(&settings))?,
            wordings: settings.prompt.wordings(&settings),
            files: files(&spelled, &["prompt"]),
            passages: match settings.functions.search {
                SearchMode::Passages => Passages::LeadToPages,
                _ => Passages::Unread {
                    why: "programs search the pages' own index",
                    fix: "write --set environment.settings.functions.search=passages",
                },
            },
            settings: spelled,
        })
    },
    scripts: scripts::SCRIPTS,
    measures: turn::measures,
    declares: turn::DECLARED,
    telemetry: telemetry::TELEMETRY,
    vocabulary: Vocabulary {
        tags: &[
            "<think>",
            "</think>",
            "<python>",
            "</python>",
            "<python_output>",
            "</python_output>",
            "<answer>",
            "</answer>",
        ],
        pieces: Pieces::Code,
    },
    quickstart: Some(include_str!("../../configs/quickstart-code.toml")),
    ..EnvEntry::new(
        "forage/code-search-v0",
        "think, Python over pages, its output and answer tags, or the same by tool calls",
        Outcome::Answer,
        "<think>look</think><python>\nfor page in search_pages(\"first query\"):\n    print(page[\"title\"])\n</python>",
        make,
    )
};

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature of every entry"
)]
fn make(settings: Value, resources: Resources) -> Result<Arc<dyn EnvFactory>, RegistryError> {
    let settings = CodeSearchSettings::from_value(settings)?;
    settings.check()?;
    if settings.form != Form::Tags && !can_be_written(resources.tokenizer.as_ref()) {
        return Err(SettingsError::unwritable_calls().into());
    }
    let finder = finder(&settings, &resources)?;
    let sandbox = match settings.form {
        Form::FunctionCalls => None,
        Form::Tags | Form::PythonCalls => {
            let mut tell = |notice: Notice| (resources.notice)(&notice.to_string());
            let engine = interpreter::sandbox(settings.limits, &mut tell)
                .map_err(|error| RegistryError::Sandbox(error.into()))?;
            let engine: Arc<dyn Interpreters> = Arc::new(engine);
            Some(engine)
        }
    };
    Ok(CodeSearch::factory(settings, finder, sandbox)?)
}

fn finder(settings: &CodeSearchSettings, resources: &Resources) -> Result<Finder, RegistryError> {
    let retriever = Arc::clone(&resources.retriever);
    let found = Finder::new(resources.open_wiki()?, settings.functions.search, retriever);
    found.map_err(|error| RegistryError::Pages(error.into()))
}

/// The functions of programs under the default settings.
pub(crate) fn functions(
    resources: &Resources,
) -> Result<impl Fn() -> Arc<dyn Tools> + Send + Sync + use<>, RegistryError> {
    let settings = CodeSearchSettings::default();
    let finder = finder(&settings, resources)?;
    Ok(move || -> Arc<dyn Tools> {
        Arc::new(PageTools::new(finder.clone(), settings.functions.clone()))
    })
}

/// What the policy reads before its last turn when answers stand in tags.
pub(crate) const REMINDER: &str =
    "\nThis is your last turn. Answer now between <answer> and </answer>.\n";

/// What all episodes share.
struct Shared {
    settings: CodeSearchSettings,
    template: String,
    spec: EnvSpec,
    finder: Finder,
    sandbox: Option<Arc<dyn Interpreters>>,
}

/// What belongs to one episode.
struct Episode {
    seed: Seed,
    /// Normalised, none empty.
    golds: Vec<String>,
    tools: Arc<PageTools>,
    /// Opened by the first program.
    interpreter: Option<Box<dyn Interpreter>>,
}

/// The code-search environment.
pub(crate) struct CodeSearch {
    shared: Arc<Shared>,
    episode: Option<Episode>,
}

struct Factory(Arc<Shared>);

impl EnvFactory for Factory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(CodeSearch {
            shared: Arc::clone(&self.0),
            episode: None,
        })
    }

    fn spec(&self) -> &EnvSpec {
        &self.0.spec
    }

    fn tools(&self) -> Vec<TurnTool> {
        action::tools(&self.0.settings)
    }
}

impl CodeSearch {
    /// Checks the settings, reads the prompt template and returns a maker of environments.
    ///
    /// `sandbox` runs the programs; `Form::FunctionCalls` needs none, and without one the other forms are refused.
    ///
    /// # Errors
    /// When the settings contradict themselves or the prompt template cannot be read.
    pub(crate) fn factory(
        settings: CodeSearchSettings,
        finder: Finder,
        sandbox: Option<Arc<dyn Interpreters>>,
    ) -> Result<Arc<dyn EnvFactory>, SettingsError> {
        settings.check()?;
        if sandbox.is_none() && settings.form != Form::FunctionCalls {
            return Err(SettingsError::Excluded {
                what: "`form` runs programs and there is no sandbox",
                fix: "give one, or write form = \"function_calls\"",
            });
        }
        let template = settings.prompt.read(&settings)?;
        let spec = EnvSpec {
            id: ENTRY.id.to_owned(),
            outcome: ENTRY.outcome,
            max_turns: settings.max_generations,
            max_turn_tokens: settings.max_turn_tokens,
            max_episode_tokens: settings.max_episode_tokens,
            stop: action::stops(&settings),
            append_eos_after_stop: settings.append_eos_after_stop,
            tools: match settings.tools {
                ToldBy::Prompt => Vec::new(),
                ToldBy::Template => tools::schemas(&settings),
            },
        };
        Ok(Arc::new(Factory(Arc::new(Shared {
            settings,
            template,
            spec,
            finder,
            sandbox,
        }))))
    }
}

impl Shared {
    /// The reaction to a turn of a running episode.
    async fn react(&self, episode: &mut Episode, action: &Action) -> Result<Step, EnvError> {
        let (observation, kind) = match parse(&action.text, &self.settings) {
            CodeAction::Answer(answer) => return Ok(Step::end(TurnKind::Answer { answer })),
            CodeAction::Invalid(fault) => return Ok(self.invalid(&fault, action.turns_left)),
            CodeAction::Code(_) | CodeAction::Calls(_) if action.is_last() => {
                (Observation::default(), CodeTurn::default().record(false))
            }
            CodeAction::Code(code) => self.run(episode, &code).await?,
            CodeAction::Calls(calls) => self.call(episode, calls).await?,
        };
        Ok(self.going_on(observation, kind, action.turns_left))
    }

    /// Runs a program; gives the observation and the record.
    async fn run(
        &self,
        episode: &mut Episode,
        code: &str,
    ) -> Result<(Observation, TurnKind), EnvError> {
        let output = if code.is_empty() {
            TurnOutput::default()
        } else {
            self.execute(episode, code).await?
        };
        let content = observation::of_program(&output, &self.settings);
        let turn = CodeTurn {
            status: Some(output.status),
            error: output
                .error
                .filter(|_| output.status == Status::Exception)
                // A program names its classes, at any length.
                .map(|error| CallRecord::abridged(error.kind)),
            printed: !output.stdout.trim().is_empty(),
            calls: episode.tools.take_calls(),
            redefined: output.redefined,
        };
        let kind = turn.record(episode.reads_gold(&content)?);
        Ok((self.answered(vec![content]), kind))
    }

    async fn execute(&self, episode: &mut Episode, code: &str) -> Result<TurnOutput, EnvError> {
        let Some(sandbox) = &self.sandbox else {
            let error = SandboxError::Interpreter("none was given".to_owned());
            return Err(failed(error));
        };
        let interpreter = match &mut episode.interpreter {
            Some(interpreter) => {
                if self.settings.state == StateMode::Fresh {
                    interpreter.reset();
                }
                interpreter
            }
            none => {
                let tools: Arc<dyn Tools> = episode.tools.clone();
                let seed = episode.seed.child("sandbox", &[]).0;
                none.insert(sandbox.open(tools, seed))
            }
        };
        let prelude = &self.settings.prelude;
        let code = if prelude.is_empty() {
            Cow::Borrowed(code)
        } else {
            Cow::Owned(format!("{prelude}\n{code}"))
        };
        interpreter
            .run(&code)
            .await
            .map_err(|error| match episode.tools.take_fault() {
                Some(fault) => fault.into(),
                None => failed(error),
            })
    }

    /// Calls functions directly; gives the observation and the record.
    async fn call(
        &self,
        episode: &mut Episode,
        calls: Vec<Result<ToolCall, CodeFault>>,
    ) -> Result<(Observation, TurnKind), EnvError> {
        let mut results = Vec::with_capacity(calls.len());
        let mut failed = None;
        let most = self.settings.limits.calls;
        for (number, call) in calls.into_iter().enumerate() {
            let answered = match call {
                _ if number >= most => Answered::Error(format!(
                    "not run: a turn may have {most} calls; make this one in another turn"
                )),
                Ok(call) => episode.tools.call_directly(&call).await?,
                Err(fault) => Answered::Error(fault.to_string()),
            };
            let content = match answered {
                Answered::Value(value) => {
                    observation::of_value(&value, self.settings.functions.flavour)
                }
                Answered::Error(message) => {
                    failed = Some(Status::Exception);
                    message
                }
            };
            results.push(observation::cut(&content, &self.settings.observation));
        }
        let turn = CodeTurn {
            status: Some(failed.unwrap_or(Status::Ok)),
            printed: true,
            calls: episode.tools.take_calls(),
            ..CodeTurn::default()
        };
        let kind = turn.record(episode.reads_gold(&results.join("\n"))?);
        Ok((self.answered(results), kind))
    }

    /// What the policy reads of a program or of each call.
    fn answered(&self, results: Vec<String>) -> Observation {
        let text = results.iter().map(|content| self.wrap(content)).collect();
        let results = if self.settings.form == Form::Tags {
            Vec::new()
        } else {
            results
        };
        Observation { text, results }
    }

    fn wrap(&self, content: &str) -> String {
        let (opening, closing) = self.settings.wrapper();
        [opening, content, closing].concat()
    }

    fn invalid(&self, fault: &CodeFault, turns_left: usize) -> Step {
        let kind = TurnKind::invalid(fault.to_string());
        let on_invalid = self.settings.on_invalid;
        if on_invalid == OnInvalid::End {
            return Step::end(kind);
        }
        let observation = match (on_invalid, fault) {
            // The model reads what is wrong with its call where it waits for the result.
            (OnInvalid::Notice, CodeFault::BadCall(message)) => {
                self.answered(vec![message.clone()])
            }
            (OnInvalid::Notice, _) => Observation::new(prompt::notice(self.settings.form)),
            (OnInvalid::Empty, _) => self.answered(vec![String::new()]),
            (OnInvalid::Silent | OnInvalid::End, _) => Observation::default(),
        };
        self.going_on(observation, kind, turns_left)
    }

    /// A step after which the policy writes again, with what announces its last turn.
    fn going_on(&self, mut observation: Observation, kind: TurnKind, turns_left: usize) -> Step {
        if self.settings.final_reminder && turns_left == 1 {
            observation.add(prompt::reminder(self.settings.answer));
        }
        Step::reply(observation, kind)
    }
}

impl Episode {
    /// Whether a gold stands in what is shown and in what a tool has returned.
    fn reads_gold(&self, shown: &str) -> Result<bool, EnvError> {
        let shown = normalize(shown);
        let golds: Vec<&str> = self
            .golds
            .iter()
            .map(String::as_str)
            .filter(|gold| stands_in(gold, &shown))
            .collect();
        Ok(!golds.is_empty() && self.tools.returned_any(&golds)?)
    }
}

fn failed(error: SandboxError) -> EnvError {
    EnvError::at(Boundary::Sandbox, error)
}

#[async_trait]
impl Environment for CodeSearch {
    async fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        let golds = task
            .golds
            .iter()
            .map(|gold| normalize(gold))
            .filter(|gold| !gold.is_empty())
            .collect();
        let tools = PageTools::new(
            self.shared.finder.clone(),
            self.shared.settings.functions.clone(),
        );
        self.episode = Some(Episode {
            seed,
            golds,
            tools: Arc::new(tools),
            interpreter: None,
        });
        Ok(Observation::new(
            self.shared.template.replace(QUESTION, task.question.trim()),
        ))
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        self.shared.react(episode, action).await
    }

    fn spec(&self) -> &EnvSpec {
        &self.shared.spec
    }
}

#[cfg(test)]
mod tests;
