//! The outcome of one turn of code.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::host::{Limit, Turn};
use crate::live::Reply;

/// The outcome of one program; by default of one that did nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnOutput {
    /// The code's output, up to the output limit, also that from before a failure.
    pub stdout: String,
    /// Its error stream, warnings included; the traceback is not in it.
    pub stderr: String,
    /// The exception that ended the code, or the limit it ran into.
    pub error: Option<PyError>,
    /// The way it ended.
    pub status: Status,
    /// True where the interpreter was stopped, which gives it back its state of before the turn.
    pub undone: bool,
    /// Its calls of tools, in order.
    pub calls: Vec<CallRecord>,
    /// Its duration in microseconds, calls of tools included.
    pub wall_us: u64,
    /// Tools whose names the code has given to something else, which it will call from now on.
    pub redefined: Vec<String>,
}

impl TurnOutput {
    /// A turn that the interpreter ran to its end.
    pub(crate) fn finished(reply: Reply, turn: Turn, wall_us: u64) -> Self {
        let status = match &reply.error {
            None => Status::Ok,
            Some(error) if turn.limit == Some(Limit::Output) && error.kind == "OutputLimit" => {
                Status::Output
            }
            Some(error) if turn.limit == Some(Limit::Calls) && error.kind == "ToolCallLimit" => {
                Status::Calls
            }
            Some(_) => Status::Exception,
        };
        Self {
            error: reply.error,
            redefined: reply.redefined,
            ..Self::empty(status, turn, wall_us)
        }
    }

    /// A turn that was stopped from outside, or never begun.
    pub(crate) fn stopped(
        status: Status,
        kind: &str,
        message: String,
        turn: Turn,
        wall_us: u64,
    ) -> Self {
        let traceback = format!("{kind}: {message}\n");
        let error = Some(PyError {
            kind: kind.to_owned(),
            message,
            traceback,
        });
        Self {
            error,
            ..Self::empty(status, turn, wall_us)
        }
    }

    fn empty(status: Status, turn: Turn, wall_us: u64) -> Self {
        Self {
            stdout: text(turn.stdout),
            stderr: text(turn.stderr),
            error: None,
            status,
            undone: false,
            calls: turn.calls,
            wall_us,
            redefined: Vec::new(),
        }
    }
}

/// The output without the character that the limit has cut in two.
fn text(mut bytes: Vec<u8>) -> String {
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The way a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The code ran to its end.
    #[default]
    Ok,
    /// It raised; what it did before is kept.
    Exception,
    /// It printed more than the output limit and got an exception; its earlier effects are kept.
    Output,
    /// It called tools more often than allowed and was told by an exception; what it did before is kept, unless it would not
    /// stop.
    Calls,
    /// It ran past the time limit; what it did to its variables is undone.
    Timeout,
    /// It ran out of memory; what it did is undone.
    Memory,
    /// It ran out of stack; what it did is undone.
    Stack,
    /// It is longer than the limit and was not run.
    CodeSize,
    /// The interpreter itself failed on this code; what it did is undone.
    Crash,
    /// It was not run: all sessions together keep so much between their turns that the memory of this one found no room, also because
    /// the disk has little. Its variables are gone, and it begins anew.
    Lost,
}

/// An exception as Python reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PyError {
    /// The exception's class, as a traceback names it: `ValueError`, `json.decoder.JSONDecodeError`.
    pub kind: String,
    /// `str()` of the exception.
    pub message: String,
    /// The traceback as CPython prints it, its last line being kind and message.
    pub traceback: String,
}

/// One call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The tool.
    pub tool: String,
    /// Its arguments by name; what is longer than a kilobyte is abridged, see [`CallRecord::abridged`].
    pub arguments: Map<String, Value>,
    /// The size of the result: characters of a string, items of a list, 1 for anything else.
    pub size: usize,
    /// The exception it raised, if any, abridged as the arguments are.
    pub error: Option<String>,
    /// Its duration in microseconds.
    pub wall_us: u64,
}
