//! Turns by calls of tools: the environment's own actions, and whole turns.

use forage_contracts::environment::{TurnForm, TurnTool};
use serde_json::{Value, json};

use super::app::App;
use super::body::Arguments;
use super::fault::MOST_WORDS;
use super::play::Turn;

/// Why a call is not a turn, in words for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallFault {
    NotFound(String),
    Arguments(String),
}

impl CallFault {
    /// As long as those of other faults at most.
    pub(super) fn words(&self) -> &str {
        let (Self::NotFound(words) | Self::Arguments(words)) = self;
        &words[..words.floor_char_boundary(MOST_WORDS)]
    }
}

/// Every tool that takes a turn.
pub(super) fn all(app: &App) -> Vec<TurnTool> {
    let mut tools = app.served.factory.tools();
    tools.push(TurnTool {
        name: "write_turn",
        about: "Writes a whole turn in the environment's own text protocol, thoughts and tags included.",
        parameter: "text",
        form: TurnForm::Text,
    });
    tools
}

/// The turn that a call writes.
pub(super) fn turn(app: &App, name: &str, arguments: &Arguments) -> Result<Turn, CallFault> {
    let tools = all(app);
    let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
        let known: Vec<&str> = tools.iter().map(|tool| tool.name).collect();
        return Err(CallFault::NotFound(format!(
            "there is no tool `{name}`; there are {}",
            known.join(", ")
        )));
    };
    let wrong = |words: String| Err(CallFault::Arguments(words));
    if let Some(unknown) = arguments.keys().find(|key| *key != tool.parameter) {
        return wrong(format!(
            "{name} takes no `{unknown}`; it takes `{}`",
            tool.parameter
        ));
    }
    let argument = arguments.get(tool.parameter);
    let argument = argument.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let Some(argument) = argument else {
        return wrong(format!("{name} needs `{}`, a string", tool.parameter));
    };
    // A stop string ends the turn within an argument too: a program that prints an answer in tags would be that answer.
    let stops = &app.served.factory.spec().stop;
    if let TurnForm::Tags { .. } = tool.form
        && let Some(stop) = stops.iter().find(|stop| argument.contains(stop.as_str()))
    {
        return wrong(format!(
            "`{}` contains {stop}, which would end it there; write it without",
            tool.parameter
        ));
    }
    match tool.turn(&argument) {
        Ok(text) => Ok(Turn { text, finish: None }),
        Err(error) => wrong(error.to_string()),
    }
}

/// The tools as OpenEnv lists them.
pub(super) fn listed(app: &App) -> Value {
    let tools = all(app);
    let list = tools.iter().map(
        |tool| json!({"name": tool.name, "description": tool.about, "input_schema": tool.schema()}),
    );
    Value::Array(list.collect())
}
