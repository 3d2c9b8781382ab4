//! The terminal: answers on stdout, everything else on stderr.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use forage_lab::RunError;

/// Prints to stdout; a reader that left early ends the process quietly.
pub(crate) fn out(text: &str) {
    if let Err(error) = writeln!(std::io::stdout(), "{text}") {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            note(&format!("error: cannot write to stdout: {error}"));
            std::process::exit(1);
        }
        std::process::exit(0);
    }
}

/// Prints to stderr.
/// A terminal that was closed takes nothing: that ends no run.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints an error with its causes. Exit code 1, or 2 when the config or an argument was at fault.
pub(crate) fn exit_code(result: Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    let mut lines = vec![format!("error: {error}")];
    let mut before = error.to_string();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        // A transparent wrapper repeats its source's words.
        if text != before {
            lines.push(format!("  because: {text}"));
        }
        before = text;
    }
    note(&lines.join("\n"));
    let config = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(RunError::Config { .. }))
    };
    ExitCode::from(if error.chain().any(config) { 2 } else { 1 })
}
