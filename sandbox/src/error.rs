//! Infrastructure failures, which say nothing about the code that was run.

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
    /// No more instances of the interpreter fit.
    #[error("no room for another interpreter beside the {limit} there may be: {reason}")]
    Full {
        /// The most there may be.
        limit: u32,
        /// The cause, in the runtime's words.
        reason: String,
    },
    /// The memory that all sandboxes of the process share does not fit what is asked.
    #[error("the sandboxes of this process share {shared_mib} MiB, {what}")]
    Budget {
        /// The memory they share, in MiB.
        shared_mib: usize,
        /// The contradiction and the fix.
        what: String,
    },
    /// The memory of an idle session could not be put away, because the disk or the system failed; the session is gone. That there
    /// was no room for it is told to its program ([`crate::Status::Lost`]).
    #[error(
        "the state of a session cannot be kept between its turns; look at the disk where the cache folder lies"
    )]
    Park(#[source] std::io::Error),
    /// One call of a tool took longer than all of a turn may. Several together are told to the program, which makes them.
    #[error(
        "one call of tool `{tool}` took {seconds:.0} s; look at what answers it, or raise `tool_time_ms`"
    )]
    Slow {
        /// The tool.
        tool: String,
        /// The time it took.
        seconds: f64,
    },
    /// A turn was given up by its caller before it ended; the session is gone.
    #[error("the session was lost when one of its turns was abandoned; begin a new one")]
    Abandoned,
}
