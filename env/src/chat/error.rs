//! Errors between messages and text.

use std::path::PathBuf;

use minijinja::ErrorKind;

/// A template could not be read or cannot render what it was given.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// A file of the checkpoint cannot be read.
    #[error("read `{}`: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The fault.
        message: String,
    },
    /// The template is not Jinja, or uses features that this program does not know.
    #[error("chat template {place}: {message}; fix the template or give another one")]
    Syntax {
        /// File and line.
        place: String,
        /// The fault.
        message: String,
    },
    /// The template itself refuses the conversation (`raise_exception`).
    #[error("chat template {place} refuses the conversation: {message}")]
    Refused {
        /// File and line.
        place: String,
        /// The template's words.
        message: String,
    },
    /// The template fails on the conversation, for instance on a message without `content`.
    #[error("chat template {place}: {message}; the messages lack what the template needs")]
    Render {
        /// File and line.
        place: String,
        /// The operation that failed.
        message: String,
    },
    /// Rendering takes too long or writes too much: a template of a published model does neither.
    #[error("chat template {place} does not come to an end: {message}; give another one")]
    Endless {
        /// File and line.
        place: String,
        /// The limit that was reached.
        message: String,
    },
    /// An option has the name of a part of the conversation.
    #[error(
        "option `{0}` of the chat template is a part of the conversation; remove it or fix its name"
    )]
    Option(String),
    /// The template shows nothing of tools, or nothing of what they return.
    #[error(
        "chat template {name}: {message}; use a checkpoint whose template knows tools, or write form = \"tags\" in \
         [environment.settings]"
    )]
    NoTools {
        /// The template's file.
        name: String,
        /// The evidence.
        message: &'static str,
    },
    /// Tools are shown by a template and there is none.
    #[error(
        "the environment's tools are shown by a chat template, and episodes are plain text; add [policy.chat], or write \
         form = \"tags\" in [environment.settings]"
    )]
    NoTemplate,
    /// The template does not put messages one after another, so a conversation cannot grow by appending.
    #[error("chat template {name}: {message}; it cannot serve episodes of several turns")]
    NotAppending {
        /// The template's file.
        name: String,
        /// The evidence.
        message: String,
    },
}

/// The error that `raise_exception` throws through the template engine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

impl ChatError {
    /// Sorts an error of the engine; `rendering` distinguishes a failure on a conversation from one of the template's text.
    pub(super) fn from_engine(error: &minijinja::Error, name: &str, rendering: bool) -> Self {
        let mut line = error.line();
        let place = |line: Option<usize>| match line {
            Some(line) => format!("`{name}` line {line}"),
            None => format!("`{name}`"),
        };
        let mut message = error
            .detail()
            .map_or_else(|| error.kind().to_string(), str::to_owned);
        let beyond = |kind| matches!(kind, ErrorKind::OutOfFuel | ErrorKind::WriteFailure);
        let mut endless = beyond(error.kind());
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            if let Some(Raised(message)) = inner.downcast_ref::<Raised>() {
                return Self::Refused {
                    place: place(line),
                    message: message.clone(),
                };
            }
            if let Some(inner) = inner.downcast_ref::<minijinja::Error>() {
                // The innermost line is where it happened; the outer ones are the macros that led there.
                line = inner.line().or(line);
                endless |= beyond(inner.kind());
            }
            message = format!("{message}: {inner}");
            cause = inner.source();
        }
        let place = place(line);
        if endless {
            Self::Endless { place, message }
        } else if rendering {
            Self::Render { place, message }
        } else {
            Self::Syntax { place, message }
        }
    }
}
