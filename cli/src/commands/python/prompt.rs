//! A prompt that keeps its variables from line to line.

use std::io::{BufRead, Write};

use anyhow::{Context, Result};
use forage_sandbox::{PyError, Session, TurnOutput};

use super::{exit_code, show};

/// Reads and runs statements until the input ends or the code leaves.
pub(super) fn run(session: &mut Session) -> Result<()> {
    session.echo(true);
    let mut lines = std::io::stdin().lock().lines();
    let mut statement = String::new();
    let mut block = false;
    loop {
        let prompt = if statement.is_empty() { ">>> " } else { "... " };
        let mut stdout = std::io::stdout();
        stdout
            .write_all(prompt.as_bytes())
            .and_then(|()| stdout.flush())
            .context("cannot write to stdout")?;
        let Some(line) = lines.next() else {
            return Ok(());
        };
        let line = line.context("cannot read stdin")?;
        if statement.is_empty() && line.trim().is_empty() {
            continue;
        }
        statement.push_str(&line);
        statement.push('\n');
        block |= is_block(&statement);
        if block && !line.trim().is_empty() {
            continue;
        }
        let output = session.run_blocking(&statement)?;
        if !block && let Some(more) = wanted(&output, statement.lines().count()) {
            block = more == More::Block;
            continue;
        }
        statement.clear();
        block = false;
        show(&output)?;
        if output
            .error
            .as_ref()
            .is_some_and(|error| error.kind == "SystemExit")
        {
            std::process::exit(exit_code(&output));
        }
    }
}

/// Whether this is a compound statement, which ends with an empty line.
fn is_block(statement: &str) -> bool {
    let mut lines = statement.lines();
    let first = lines.next().unwrap_or_default().trim_end();
    first.ends_with(':') || first.starts_with('@')
}

/// What code that was refused for ending too early lacks.
#[derive(Debug, PartialEq, Eq)]
enum More {
    /// A further line.
    Line,
    /// An indented block, which ends with an empty line.
    Block,
}

/// What code lacks that was refused for ending too early: it has not run, and may go on.
fn wanted(output: &TurnOutput, lines: usize) -> Option<More> {
    let refused = |error: &&PyError| {
        let is_syntax = error.kind.ends_with("SyntaxError") || error.kind == "IndentationError";
        // Code that has run may have given Python something of its own to read.
        is_syntax && !error.traceback.contains(", in <module>")
    };
    let error = output.error.as_ref().filter(refused)?;
    let open = [
        "was never closed",
        "unexpected EOF",
        "unterminated triple-quoted",
    ];
    if lines >= 1000 {
        None
    } else if error.message.starts_with("expected an indented block") {
        Some(More::Block)
    } else {
        let is_open = open.iter().any(|words| error.message.contains(words));
        is_open.then_some(More::Line)
    }
}

#[cfg(test)]
mod tests {
    use forage_sandbox::Status;

    use super::*;

    #[test]
    fn compound_statements_end_with_an_empty_line() {
        assert!(is_block("for x in y:\n    print(x)\n"));
        assert!(is_block("@cache\ndef f(): pass\n"));
        assert!(!is_block("x = {1: 2}\n"));
    }

    #[test]
    fn code_that_has_run_is_not_asked_for_more() {
        let wanted = |kind: &str, message: &str, frame: &str| {
            let traceback = format!("  File \"<python>\", line 1{frame}\n{kind}: {message}\n");
            let error = PyError {
                kind: kind.to_owned(),
                message: message.to_owned(),
                traceback,
            };
            let output = TurnOutput {
                error: Some(error),
                status: Status::Exception,
                ..TurnOutput::default()
            };
            super::wanted(&output, 1)
        };
        let open = "'(' was never closed (<python>, line 1)";
        assert_eq!(wanted("SyntaxError", open, ""), Some(More::Line));
        // As of `eval("(")`.
        assert_eq!(wanted("SyntaxError", open, ", in <module>"), None);
        let header = "expected an indented block after 'for' statement on line 1";
        assert_eq!(wanted("IndentationError", header, ""), Some(More::Block));
        assert_eq!(wanted("IndentationError", "unexpected indent", ""), None);
        assert_eq!(wanted("NameError", "name 'x' is not defined", ""), None);
    }
}
