//! The functions over a wiki, and a log of what was called.

mod more;
mod published;

use std::sync::{Mutex, MutexGuard, PoisonError};

use forage_contracts::Page;
use forage_contracts::retriever::{CancelFlag, RetrieverError};
use forage_sandbox::{CallRecord, ToolError, ToolSpec, Tools, Wait};
use futures::FutureExt;
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use super::action::PYTHON_TOOL;
use super::settings::{CodeSearchSettings, Flavour, Form, FunctionSettings};
use super::turn::FunctionCall;
use crate::ask::{Refused, within};
use crate::chat::hermes::ToolCall;
use crate::chat::tools::{Parameter, Tool};
use crate::reward::grading::{normalize, stands_in};
use crate::wiki::find::{FindError, Finder};
use crate::wiki::section;

use more::{FIND_TOOL, OPEN_TOOL, RANK_TOOL};
pub(super) use published::{READ_TOOL, SEARCH_TOOL, VIEW_TOOL};

/// The tools of a form as the chat template shows them.
pub(super) fn schemas(settings: &CodeSearchSettings) -> Vec<Value> {
    let tools = functions(&settings.functions);
    match settings.form {
        Form::Tags => Vec::new(),
        Form::FunctionCalls => tools.iter().map(Tool::schema).collect(),
        Form::PythonCalls => {
            let signature = |tool: &Tool| {
                let parameters: Vec<&str> = tool
                    .parameters
                    .iter()
                    .map(|parameter| parameter.name)
                    .collect();
                format!("{}({}): {}", tool.name, parameters.join(", "), tool.about)
            };
            let about = format!(
                "Runs a Python program and returns what it prints. Python's standard modules are there, except for files, \
                 processes and the network; programs can call {} functions. {}",
                if settings.functions.more {
                    "six"
                } else {
                    "three"
                },
                tools.iter().map(signature).collect::<Vec<_>>().join(" ")
            );
            vec![Tool::of_one(PYTHON_TOOL, about, ("code", "The program.")).schema()]
        }
    }
}

/// The functions, three or six.
fn functions(settings: &FunctionSettings) -> Vec<Tool> {
    let name = |tool: &str| format!("{}{tool}", settings.flavour.prefix());
    let mut tools = Vec::from(published::functions(name, settings));
    if settings.more {
        tools.extend(more::functions(name));
    }
    tools
}

/// The functions of one episode.
pub(crate) struct PageTools {
    finder: Finder,
    settings: FunctionSettings,
    /// What remote retrievers wait on; `None` outside of a Tokio runtime, where only local ones work.
    runtime: Option<Handle>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    /// Calls since they were last taken.
    calls: Vec<FunctionCall>,
    /// What tools have returned in this episode, each thing once.
    returned: Vec<Returned>,
    /// Why the retriever failed.
    fault: Option<RetrieverError>,
}

/// Something a tool returned, as a name for its text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Returned {
    /// Titles of found pages.
    Titles(Vec<String>),
    /// The names of a page's sections.
    Names(String),
    /// A section, by page and key.
    Section(String, String),
    /// The text itself.
    Text(String),
}

/// What a call comes to.
struct Outcome {
    value: Value,
    found: Vec<String>,
    size: usize,
    returned: Option<Returned>,
}

/// Why a call has no value.
enum Failure {
    Raise(&'static str, String),
    Retriever(RetrieverError),
}

/// The outcome of a direct call, which the policy reads.
pub(crate) enum Answered {
    Value(Value),
    /// The text of an exception.
    Error(String),
}

impl From<RetrieverError> for Failure {
    fn from(error: RetrieverError) -> Self {
        Self::Retriever(error)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Raise("ValueError", refused.to_string())
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Refused(refused) => refused.into(),
            FindError::Retriever(error) => error.into(),
        }
    }
}

fn raise<T>(kind: &'static str, message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Raise(kind, message.into()))
}

impl PageTools {
    /// The functions over what `finder` finds. Made inside a Tokio runtime, they can wait for a remote retriever.
    pub(crate) fn new(finder: Finder, settings: FunctionSettings) -> Self {
        Self {
            finder,
            settings,
            runtime: Handle::try_current().ok(),
            log: Mutex::default(),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls since they were last taken.
    pub(crate) fn take_calls(&self) -> Vec<FunctionCall> {
        std::mem::take(&mut self.log().calls)
    }

    /// Why the retriever failed, if it did.
    pub(crate) fn take_fault(&self) -> Option<RetrieverError> {
        self.log().fault.take()
    }

    /// Whether some of `golds`, which are normalised, stands in something a tool has returned.
    ///
    /// # Errors
    /// When the index of pages is damaged.
    pub(crate) fn returned_any(&self, golds: &[&str]) -> Result<bool, RetrieverError> {
        let log = self.log();
        for returned in &log.returned {
            if self.holds_any(returned, golds)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn holds_any(&self, returned: &Returned, golds: &[&str]) -> Result<bool, RetrieverError> {
        let holds = |text: &str| {
            let text = normalize(text);
            golds.iter().any(|gold| stands_in(gold, &text))
        };
        let mode = self.settings.section_mode;
        let wiki = self.finder.wiki();
        Ok(match returned {
            Returned::Titles(titles) => titles.iter().any(|title| holds(title)),
            Returned::Text(text) => holds(text),
            Returned::Names(id) => wiki.page(id)?.is_some_and(|page| {
                section::list(&page, mode)
                    .iter()
                    .any(|section| holds(&section.name))
            }),
            Returned::Section(id, key) => wiki
                .page(id)?
                .is_some_and(|page| section::read(&page, key, mode).is_some_and(holds)),
        })
    }

    /// Calls a function as a tool call names it.
    ///
    /// # Errors
    /// Faults of the retriever.
    pub(crate) async fn call_directly(&self, call: &ToolCall) -> Result<Answered, RetrieverError> {
        let failure = match bind(&self.specs(), call) {
            Err(failure) => failure,
            Ok(arguments) => match self.answer(&call.name, &arguments).await {
                Ok(value) => return Ok(Answered::Value(value)),
                Err(failure) => failure,
            },
        };
        match failure {
            Failure::Retriever(error) => Err(error),
            Failure::Raise(kind, message) => {
                let text = self.error_text(&call.name, kind, &message);
                Ok(Answered::Error(text))
            }
        }
    }

    /// An exception as a direct call shows it.
    fn error_text(&self, name: &str, kind: &str, message: &str) -> String {
        match self.settings.flavour {
            Flavour::V0 => message.to_owned(),
            // What `str()` makes of a KeyError.
            Flavour::V1 if kind == "KeyError" => {
                format!("Error executing tool {name}: '{message}'")
            }
            Flavour::V1 => format!("Error executing tool {name}: {message}"),
        }
    }

    async fn answer(&self, name: &str, arguments: &Map<String, Value>) -> Result<Value, Failure> {
        let tool = name
            .strip_prefix(self.settings.flavour.prefix())
            .unwrap_or(name);
        let outcome = match tool {
            SEARCH_TOOL => self.search(arguments).await,
            VIEW_TOOL => self.view(arguments),
            READ_TOOL => self.read(arguments),
            OPEN_TOOL if self.settings.more => self.open(arguments),
            FIND_TOOL if self.settings.more => self.find(arguments),
            RANK_TOOL if self.settings.more => self.rank(arguments).await,
            _ => raise("NameError", format!("name '{name}' is not defined")),
        };
        // A map is sorted by name: the number of pages would come before the query.
        let main = ["query", "page_id", "section_id"]
            .iter()
            .find_map(|name| arguments.get(*name));
        let argument = match main.or_else(|| arguments.values().next()) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let mut call = FunctionCall {
            tool: tool.to_owned(),
            argument: CallRecord::abridged(argument),
            found: Vec::new(),
            size: 0,
            error: None,
        };
        let mut log = self.log();
        match outcome {
            Ok(outcome) => {
                call.found = outcome.found;
                call.size = outcome.size;
                log.calls.push(call);
                if let Some(returned) = outcome
                    .returned
                    .filter(|returned| !log.returned.contains(returned))
                {
                    log.returned.push(returned);
                }
                Ok(outcome.value)
            }
            Err(failure) => {
                if let Failure::Raise(kind, message) = &failure {
                    call.error = Some(CallRecord::abridged(format!("{kind}: {message}")));
                    log.calls.push(call);
                }
                Err(failure)
            }
        }
    }

    fn page(&self, id: &str) -> Result<Page<'_>, Failure> {
        let page = self.finder.wiki().page(id)?;
        page.ok_or_else(|| self.no_page(id))
    }

    fn no_page(&self, id: &str) -> Failure {
        match self.settings.flavour {
            Flavour::V0 => Failure::Raise("ValueError", format!("Page not found: {id}")),
            Flavour::V1 => Failure::Raise("KeyError", id.to_owned()),
        }
    }
}

fn text<'a>(tool: &str, arguments: &'a Map<String, Value>, name: &str) -> Result<&'a str, Failure> {
    match arguments.get(name) {
        Some(Value::String(text)) => Ok(text),
        other => Err(wrong_type(tool, name, "str", other.unwrap_or(&Value::Null))),
    }
}

fn wrong_type(tool: &str, name: &str, wanted: &str, found: &Value) -> Failure {
    let found = match found {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    };
    Failure::Raise(
        "TypeError",
        format!("{tool}() argument '{name}' must be {wanted}, not {found}"),
    )
}

/// The arguments of a direct call by name, with defaults, as the sandbox binds those of a program.
fn bind(specs: &[ToolSpec], call: &ToolCall) -> Result<Map<String, Value>, Failure> {
    let name = &call.name;
    let Some(spec) = specs.iter().find(|spec| &spec.name == name) else {
        let known: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        return raise(
            "TypeError",
            format!("there is no tool '{name}'; there are {}", known.join(", ")),
        );
    };
    let mut given = call.arguments.as_object().into_iter().flat_map(Map::keys);
    if let Some(unknown) = given.find(|key| spec.parameters.iter().all(|known| known.name != **key))
    {
        let known = spec.parameters.iter().map(|known| known.name.as_str());
        let known: Vec<&str> = known.collect();
        return raise(
            "TypeError",
            format!(
                "{name}() got an unexpected keyword argument '{unknown}'; it takes {}",
                known.join(", ")
            ),
        );
    }
    let bound = spec.parameters.iter().map(|parameter| {
        let given = call
            .arguments
            .get(&parameter.name)
            .or(parameter.default.as_ref());
        match given {
            Some(given) => Ok((parameter.name.clone(), given.clone())),
            None => raise(
                "TypeError",
                format!(
                    "{name}() missing 1 required positional argument: '{}'",
                    parameter.name
                ),
            ),
        }
    });
    bound.collect()
}

/// A function as programs call it; what may be left out is the first part of a page.
fn spec(tool: &Tool) -> ToolSpec {
    let (required, others): (Vec<&Parameter>, Vec<_>) =
        tool.parameters.iter().partition(|one| one.required);
    let required: Vec<&str> = required.iter().map(|parameter| parameter.name).collect();
    let spec = ToolSpec::new(&tool.name, &required, &tool.about);
    others.into_iter().fold(spec, |spec, parameter| {
        spec.with_default(parameter.name, 1.into())
    })
}

impl Tools for PageTools {
    fn specs(&self) -> Vec<ToolSpec> {
        let name = |tool: &str| format!("{}{tool}", self.settings.flavour.prefix());
        let mut specs = Vec::from(published::specs(name, &self.settings));
        if self.settings.more {
            specs.extend(more::functions(name).iter().map(spec));
        }
        specs
    }

    fn call(&self, name: &str, arguments: &Map<String, Value>) -> Result<Value, ToolError> {
        self.call_within(name, arguments, &Wait::default())
    }

    fn call_within(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        wait: &Wait,
    ) -> Result<Value, ToolError> {
        let watched = wait.clone();
        let over = CancelFlag::when(move || watched.is_over());
        let mut answer = std::pin::pin!(within(over, self.answer(name, arguments)));
        let guard = self.runtime.as_ref().map(Handle::enter);
        // A local index answers at once; what does not is waited for on the runtime.
        let answered = answer.as_mut().now_or_never();
        drop(guard);
        let answered = match (answered, &self.runtime) {
            (Some(answered), _) => answered,
            (None, Some(runtime)) => {
                let waited = runtime.block_on(async {
                    tokio::select! {
                        biased;
                        answered = answer => Some(answered),
                        () = wait.given_up() => None,
                    }
                });
                let given_up = || ToolError::Fault("nobody waits for the call".to_owned());
                waited.ok_or_else(given_up)?
            }
            (None, None) => {
                return Err(ToolError::Fault(
                    "a remote retriever needs an async runtime".to_owned(),
                ));
            }
        };
        answered.map_err(|failure| match failure {
            Failure::Raise(kind, message) => ToolError::Raise { kind, message },
            Failure::Retriever(error) => {
                let text = error.to_string();
                // Why a search was given up is the sandbox's to say: the retriever is sound.
                if !matches!(error.root(), RetrieverError::Cancelled) {
                    self.log().fault = Some(error);
                }
                ToolError::Fault(text)
            }
        })
    }
}

#[cfg(test)]
mod tests;
