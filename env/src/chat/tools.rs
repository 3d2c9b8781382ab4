//! Tools that a policy may call: what a chat template says of them, and what is wrong with a call.

use forage_contracts::{Tokenizer, suggestion};
use serde_json::{Map, Value, json};

use super::hermes::{Fault, ToolCall};

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// A whole number.
    Integer,
}

impl Kind {
    fn schema(self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Self::Integer => json!({"type": "integer"}),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Texts => "a list of texts",
            Self::Integer => "a whole number",
        }
    }

    fn holds(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Texts => value
                .as_array()
                .is_some_and(|list| !list.is_empty() && list.iter().all(Value::is_string)),
            Self::Integer => value.is_i64() || value.is_u64(),
        }
    }
}

/// An argument of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// Its type.
    pub kind: Kind,
    /// True when a call must have it.
    pub required: bool,
}

/// A tool that a policy may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    /// Its name.
    pub name: String,
    /// Its effect.
    pub about: String,
    /// Its arguments.
    pub parameters: Vec<Parameter>,
}

impl Tool {
    /// A tool of one required argument.
    pub(crate) fn of_one(
        name: impl Into<String>,
        about: impl Into<String>,
        parameter: (&'static str, &'static str),
    ) -> Self {
        let (argument, purpose) = parameter;
        let parameter = Parameter {
            name: argument,
            about: purpose,
            kind: Kind::Text,
            required: true,
        };
        Self {
            name: name.into(),
            about: about.into(),
            parameters: vec![parameter],
        }
    }

    /// The form in which `OpenAI` and chat templates take it: `{"type": "function", "function": {...}}`.
    pub(crate) fn schema(&self) -> Value {
        let property = |parameter: &Parameter| {
            let mut schema = parameter.kind.schema();
            schema["description"] = parameter.about.into();
            (parameter.name.to_owned(), schema)
        };
        let properties: Map<String, Value> = self.parameters.iter().map(property).collect();
        let required: Vec<&str> = self
            .parameters
            .iter()
            .filter(|parameter| parameter.required)
            .map(|parameter| parameter.name)
            .collect();
        json!({"type": "function", "function": {
            "name": self.name,
            "description": self.about,
            "parameters": {"type": "object", "properties": properties, "required": required},
        }})
    }

    /// Checks that a call of this tool has its arguments and no others.
    fn check(&self, arguments: &Map<String, Value>) -> Result<(), CallFault> {
        let tool = || self.name.clone();
        let names = || self.parameters.iter().map(|parameter| parameter.name);
        if let Some(unknown) = arguments
            .keys()
            .find(|name| !names().any(|known| known == name.as_str()))
        {
            return Err(CallFault::UnknownArgument {
                tool: tool(),
                name: unknown.clone(),
                suggestion: suggestion(unknown, names()),
            });
        }
        for Parameter {
            name,
            kind,
            required,
            ..
        } in &self.parameters
        {
            match arguments.get(*name) {
                None if *required => {
                    return Err(CallFault::Missing {
                        tool: tool(),
                        name,
                        form: kind.words(),
                    });
                }
                Some(value) if !kind.holds(value) => {
                    return Err(CallFault::WrongType {
                        tool: tool(),
                        name,
                        form: kind.words(),
                    });
                }
                None | Some(_) => {}
            }
        }
        Ok(())
    }
}

/// The fault of a call, in words for the policy that made it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallFault {
    /// A tool call that cannot be parsed.
    #[error("{0}")]
    Malformed(#[from] Fault),
    /// No tool has the name.
    #[error("there is no tool `{name}`; {suggestion}")]
    UnknownTool {
        /// The value as written.
        name: String,
        /// The nearest name of a tool, or all of them.
        suggestion: String,
    },
    /// The tool has no such argument.
    #[error("`{tool}` has no argument `{name}`; {suggestion}")]
    UnknownArgument {
        /// The tool.
        tool: String,
        /// The value as written.
        name: String,
        /// The nearest name of an argument, or all of them.
        suggestion: String,
    },
    /// An argument is missing.
    #[error("the call of `{tool}` lacks the argument `{name}`, {form}")]
    Missing {
        /// The tool.
        tool: String,
        /// The argument.
        name: &'static str,
        /// The type in words.
        form: &'static str,
    },
    /// An argument is something else.
    #[error("the argument `{name}` of `{tool}` must be {form}")]
    WrongType {
        /// The tool.
        tool: String,
        /// The argument.
        name: &'static str,
        /// The type in words.
        form: &'static str,
    },
    /// A turn has more calls than are run.
    #[error("this call was not run: a turn may have {most}; make it in another turn")]
    TooMany {
        /// Calls that are run.
        most: usize,
    },
    /// A turn has more queries than are run.
    #[error(
        "this call was not run: a turn may have {most} queries; ask for fewer, or in another turn"
    )]
    TooManyQueries {
        /// Queries that are run.
        most: usize,
    },
}

/// Checks that a call names one of `tools` with its arguments.
///
/// # Errors
/// The fault, with the nearest name that would be right, or all of them.
pub(crate) fn check(tools: &[Tool], call: &ToolCall) -> Result<(), CallFault> {
    let Some(tool) = tools.iter().find(|tool| tool.name == call.name) else {
        let names = tools.iter().map(|tool| tool.name.as_str());
        return Err(CallFault::UnknownTool {
            name: call.name.clone(),
            suggestion: suggestion(&call.name, names),
        });
    };
    match &call.arguments {
        Value::Object(arguments) => tool.check(arguments),
        _ => Err(CallFault::Malformed(Fault::Arguments)),
    }
}

/// Returns true when a tokenizer gives a call back as it was written: one that swallows the tags would hide every call.
pub(crate) fn can_be_written(tokenizer: &dyn Tokenizer) -> bool {
    let call = "<tool_call>\n{\"name\": \"a\"}\n</tool_call>";
    tokenizer.decode(&tokenizer.encode(call)).trim() == call
}

/// The text after the last thought: a model may quote the tags of calls while it thinks.
pub(crate) fn after_thoughts(text: &str) -> &str {
    text.rsplit_once("</think>")
        .map_or(text, |(_, after)| after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<Tool> {
        let mut many = Tool::of_one("search", "Searches.", ("query", "What to find."));
        many.parameters.push(Parameter {
            name: "n",
            about: "How many.",
            kind: Kind::Integer,
            required: false,
        });
        let lists = Parameter {
            name: "query_list",
            about: "Queries.",
            kind: Kind::Texts,
            required: true,
        };
        vec![
            many,
            Tool {
                name: "search_all".to_owned(),
                about: "Searches.".to_owned(),
                parameters: vec![lists],
            },
        ]
    }

    #[test]
    fn schemas_are_those_of_openai() {
        let expected = json!({"type": "function", "function": {
            "name": "search", "description": "Searches.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What to find."},
                    "n": {"type": "integer", "description": "How many."},
                },
                "required": ["query"],
            },
        }});
        assert_eq!(tools()[0].schema(), expected);
    }

    #[test]
    fn faults_name_the_nearest() {
        let fault = |name: &str, arguments: Value| {
            let call = ToolCall {
                name: name.to_owned(),
                arguments,
            };
            check(&tools(), &call).expect_err("a fault").to_string()
        };
        assert_eq!(
            fault("serch", json!({})),
            "there is no tool `serch`; did you mean `search`?"
        );
        let nearest = "`search` has no argument `qury`; did you mean `query`?";
        assert_eq!(fault("search", json!({"qury": "x"})), nearest);
        assert_eq!(
            fault("search", json!({})),
            "the call of `search` lacks the argument `query`, a text"
        );
        assert_eq!(
            fault("search", json!({"query": 3})),
            "the argument `query` of `search` must be a text"
        );
        assert!(
            fault("search", json!({"query": "x", "n": 1.5})).ends_with("must be a whole number")
        );
        for wrong in [json!("x"), json!([]), json!(["x", 1])] {
            assert!(
                fault("search_all", json!({"query_list": wrong}))
                    .ends_with("must be a list of texts")
            );
        }
        let sound = ToolCall {
            name: "search".to_owned(),
            arguments: json!({"query": "x", "n": 2}),
        };
        assert_eq!(check(&tools(), &sound), Ok(()));
    }
}
