//! A prompt that keeps its variables from line to line.

use std::io::{BufRead, Write};

use anyhow::{Context, Result};
use forage_sandbox::{Session, TurnOutput};

use super::{exit_code, show};

/// Reads and runs statements until the input ends or the code leaves.
pub(super) fn run(session: &mut Session) -> Result<()> {
    session.echo(true);
    let mut lines = std::io::stdin().lock().lines();
    let mut statement = String::new();
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
        let block = is_block(&statement);
        if block && !line.trim().is_empty() {
            continue;
        }
        let output = session.run_blocking(&statement)?;
        if !block && wants_more(&output, statement.lines().count()) {
            continue;
        }
        statement.clear();
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

/// Whether the code was refused for ending too early: it has not run, and may go on.
fn wants_more(output: &TurnOutput, lines: usize) -> bool {
    let Some(error) = output
        .error
        .as_ref()
        .filter(|error| error.kind.ends_with("SyntaxError"))
    else {
        return false;
    };
    let open = [
        "was never closed",
        "unexpected EOF",
        "unterminated triple-quoted",
    ];
    open.iter().any(|words| error.message.contains(words)) && lines < 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compound_statements_end_with_an_empty_line() {
        assert!(is_block("for x in y:\n    print(x)\n"));
        assert!(is_block("@cache\ndef f(): pass\n"));
        assert!(!is_block("x = {1: 2}\n"));
    }
}
