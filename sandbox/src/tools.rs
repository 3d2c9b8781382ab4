//! The functions that model-written code may call.

use serde_json::{Map, Value};

use crate::Wait;

/// The functions a session's code finds among its builtins.
pub trait Tools: Send + Sync {
    /// The functions, with their parameters. Asked once per session.
    fn specs(&self) -> Vec<ToolSpec>;

    /// Answers one call. `arguments` holds every parameter of the specification by name, defaults filled in.
    ///
    /// Called on a thread of the sandbox, which may wait; the time does not count against the turn's limit.
    ///
    /// # Errors
    ///
    /// [`ToolError::Raise`] becomes a Python exception in the calling code; [`ToolError::Fault`] ends the turn as a failure of
    /// ours.
    fn call(&self, name: &str, arguments: &Map<String, Value>) -> Result<Value, ToolError>;

    /// As [`Self::call`], while somebody waits. A tool that can take long looks at `wait` and fails once it is over, so that an
    /// abandoned turn ends; the others need not know.
    ///
    /// # Errors
    ///
    /// As [`Self::call`].
    fn call_within(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        _wait: &Wait,
    ) -> Result<Value, ToolError> {
        self.call(name, arguments)
    }
}

/// One function: `search_pages(query, n=10)`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ToolSpec {
    /// The function's name, a Python identifier.
    pub name: String,
    /// Its parameters, in order; those with a default come last.
    pub parameters: Vec<Parameter>,
    /// Its documentation string.
    pub doc: String,
}

/// A parameter of a tool.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Parameter {
    /// The parameter's name.
    pub name: String,
    /// The value when the call leaves it out; a parameter without one is required.
    pub default: Option<Value>,
}

impl ToolSpec {
    /// A function of required parameters.
    pub fn new(name: &str, parameters: &[&str], doc: &str) -> Self {
        let parameters = parameters
            .iter()
            .map(|name| Parameter {
                name: (*name).to_owned(),
                default: None,
            })
            .collect();
        Self {
            name: name.to_owned(),
            parameters,
            doc: doc.to_owned(),
        }
    }

    /// Adds a parameter with a default.
    #[must_use]
    pub fn with_default(mut self, name: &str, default: Value) -> Self {
        self.parameters.push(Parameter {
            name: name.to_owned(),
            default: Some(default),
        });
        self
    }
}

/// The reason why a tool did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The call was wrong: the code sees a Python exception.
    #[error("{kind}: {message}")]
    Raise {
        /// The name of a builtin exception: `ValueError`, `KeyError`.
        kind: &'static str,
        /// Its message.
        message: String,
    },
    /// The infrastructure failed: the turn ends with [`crate::SandboxError::Tool`], which is not a wrong answer.
    #[error("{0}")]
    Fault(String),
}

/// No tools at all.
impl Tools for () {
    fn specs(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    fn call(&self, name: &str, _: &Map<String, Value>) -> Result<Value, ToolError> {
        Err(ToolError::Fault(format!("there is no tool `{name}`")))
    }
}
