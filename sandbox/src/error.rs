//! Infrastructure failures, which say nothing about the code that was run.

use std::path::PathBuf;

/// The reason why the sandbox could not run code at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// A tool failed, as opposed to refusing a call.
    #[error("tool `{tool}` failed: {reason}")]
    Tool {
        /// The tool.
        tool: String,
        /// The cause.
        reason: String,
    },
    /// The interpreter could not be compiled or loaded.
    #[error("the Python interpreter cannot be loaded: {0}")]
    Interpreter(String),
    /// The cache folder cannot be read.
    #[error("cannot use the interpreter's cache at `{}`; give another folder", path.display())]
    Cache {
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// No more sessions fit.
    #[error("no room for another session beside the {limit} there may be: {reason}")]
    Full {
        /// The most there may be.
        limit: u32,
        /// The cause, in the runtime's words.
        reason: String,
    },
    /// A turn was given up by its caller before it ended; the session is gone.
    #[error("the session was lost when one of its turns was abandoned; begin a new one")]
    Abandoned,
}
