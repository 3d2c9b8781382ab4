//! The terminal: answers on stdout, everything else on stderr.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use forage_contracts::nearest;
use forage_lab::RunError;
use ratatui::crossterm::terminal::size;

use crate::figures::printable;
use crate::migration::advice;

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

/// Prints text that others wrote to stdout: nothing in it steers the terminal, whose width its lines keep to where they can.
pub(crate) fn prose(text: &str) {
    let is_shown = std::io::stdout().is_terminal();
    let columns = is_shown.then(|| size().ok()).flatten();
    let text = printable(text);
    match columns {
        Some((columns, _)) if columns > 0 => out(&folded(&text, usize::from(columns))),
        _ => out(&text),
    }
}

/// Text whose lines are broken between words where they are wider than `columns`; what follows a break begins as the line does.
fn folded(text: &str, columns: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| fold(line, columns)).collect();
    lines.join("\n")
}

fn fold(line: &str, columns: usize) -> String {
    let words = line.trim_start();
    let (indent, words) = line.split_at(line.len() - words.len());
    let start = indent.chars().count();
    let (mut text, mut column) = (indent.to_owned(), start);
    for (place, word) in words.split(' ').enumerate() {
        let width = word.chars().count();
        if place > 0 && column + 1 + width > columns {
            text.push('\n');
            text.push_str(indent);
            column = start;
        } else if place > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text
}

/// Prints to stderr.
/// A terminal that was closed takes nothing: that ends no run.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Set by `--quiet`: results, warnings and errors alone are printed.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Silences everything but results, warnings and errors, for the life of the process.
pub(crate) fn silence() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Returns true where nothing but results, warnings and errors is printed.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints to stderr what is neither a result nor a warning.
pub(crate) fn hint(text: &str) {
    if !is_quiet() {
        note(text);
    }
}

/// Tells whether a notice is printed: a warning always is.
fn is_shown(notice: &str, quiet: bool) -> bool {
    !quiet || notice.starts_with("warning: ")
}

/// Prints to stderr a warning, or what is neither a result nor a warning.
pub(crate) fn notice(text: &str) {
    if is_shown(text, is_quiet()) {
        note(text);
    }
}

/// A path as a word of a command line, in quotes where a shell would read it otherwise.
pub(crate) fn word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%=".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A number of things: `1 check`, `2 checks`.
pub(crate) fn counted<T: Copy + Display + From<u8> + PartialEq>(count: T, one: &str) -> String {
    let plural = if count == T::from(1) { "" } else { "s" };
    format!("{count} {one}{plural}")
}

/// The name that an error expects and that is like the one which it does not know, as serde puts it.
fn meant(error: &str) -> Option<&str> {
    let mut kinds = ["unknown field `", "unknown variant `"].into_iter();
    let (_, rest) = kinds.find_map(|kind| error.split_once(kind))?;
    let (name, expected) = rest.split_once("`, expected ")?;
    let known = expected.lines().next()?.split('`').skip(1).step_by(2);
    nearest(name, known)
}

/// Advice for the unknown field that an error of serde names, where another trainer has a key of this name.
fn of_another_trainer(error: &str) -> Option<String> {
    let (_, rest) = error.split_once("unknown field `")?;
    let (name, _) = rest.split_once('`')?;
    advice(name).map(|theirs| format!("  {theirs}"))
}

/// An error without the list of names that it expects, where that is long.
fn shortened(error: &str) -> String {
    const MOST: usize = 8;
    let shorten = |line: &str| match line.split_once("`, expected one of `") {
        Some((before, names)) if names.matches("`, `").count() >= MOST => format!("{before}`"),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = error.lines().map(shorten).collect();
    lines.join("\n")
}

/// The way to write a value of which the error says, as serde puts it, that its name alone is not enough.
fn wants_table(error: &str) -> Option<String> {
    let (_, rest) = error.split_once("invalid type: unit variant, expected ")?;
    let key = rest.split('`').nth(1).unwrap_or("KEY");
    let last = key.rsplit('.').next().unwrap_or(key);
    Some(format!(
        "  it has keys of its own: write {last} = {{ NAME = {{ KEY = VALUE }} }}; `forage config explain {key}` lists the names, \
         and `forage config explain {key}.NAME` the keys of one"
    ))
}

/// An error in words for a reader who knows neither Rust's types nor the parser of TOML, which speak in it.
fn without_types(error: &str) -> String {
    const WHOLE: &str = "expected a whole number that is not negative";
    const POSITIVE: &str = "expected a whole number from 1 on";
    const UNQUOTED: &str = "neither a number nor true or false; write text in quotes";
    let sizes = ["u8", "u16", "u32", "u64", "usize"];
    let whole = sizes.map(|of| (format!("expected {of}"), WHOLE));
    let positive = sizes.map(|of| (format!("expected a nonzero {of}"), POSITIVE));
    let numbers = ["f32", "f64"].map(|of| (format!("expected {of}"), "expected a number"));
    // The parser guesses from the first letter which value was meant.
    let guesses = [
        "invalid boolean, expected `true`",
        "invalid boolean, expected `false`",
        "invalid float, expected `nan`",
        "invalid float, expected `inf`",
        "invalid float, expected nothing",
        "string values must be quoted, expected literal string",
    ];
    let guesses = guesses.map(|told| (told.to_owned(), UNQUOTED));
    let words = whole
        .into_iter()
        .chain(positive)
        .chain(numbers)
        .chain(guesses);
    let told = words.fold(error.to_owned(), |text, (of, words)| {
        text.replace(&of, words)
    });
    // The name of a struct of this program says nothing to its user; a variant has words of its own.
    let mut parts = told.split("expected struct ");
    let mut found = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let name = part.find(|char: char| !char.is_alphanumeric() && char != '_');
        let (name, rest) = part.split_at(name.unwrap_or(part.len()));
        if name == "variant" {
            found.push_str("expected struct variant");
        } else {
            found.push_str("expected a table");
        }
        found.push_str(rest);
    }
    found
}

/// Tells whether an error is that of work which was told to stop.
pub(crate) fn is_stopped(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(RunError::Stopped { .. })))
}

/// Prints an error with its causes and returns the exit code: 2 for a faulty config or for an option that sets one of its keys, 130 for
/// work that was stopped by a signal (not an error), and 1 otherwise.
pub(crate) fn exit_code(result: Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    let config = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(RunError::Config { .. }))
    };
    let (begin, code) = if is_stopped(&error) {
        ("stopped", 130)
    } else if error.chain().any(config) {
        ("error", 2)
    } else {
        ("error", 1)
    };
    let mut lines = vec![format!("{begin}: {error}")];
    let mut before = error.to_string();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        // A transparent wrapper repeats its source's words.
        if text != before {
            lines.push(format!("  because: {}", text.trim_end()));
        }
        before = text;
    }
    let near = lines.iter().find_map(|line| meant(line));
    let table = lines.iter().find_map(|line| wants_table(line));
    let mut of_config = lines.iter().filter(|_| code == 2);
    let theirs = of_config.find_map(|line| of_another_trainer(line));
    if let Some(near) = near.map(|near| format!("  did you mean `{near}`?")) {
        lines = lines.iter().map(|line| shortened(line)).collect();
        lines.push(near);
    }
    lines.extend(table);
    lines.extend(theirs);
    note(&printable(&without_types(&lines.join("\n"))));
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{
        counted, folded, is_shown, meant, of_another_trainer, shortened, wants_table,
        without_types, word,
    };

    #[test]
    fn lines_are_broken_between_words() {
        for (text, columns, expected) in [
            ("one two three", 13, "one two three"),
            ("one two three", 12, "one two\nthree"),
            ("  one two\n\nthree four", 7, "  one\n  two\n\nthree\nfour"),
            ("a  b", 80, "a  b"),
            ("a wordthatistoolong b", 8, "a\nwordthatistoolong\nb"),
            ("", 8, ""),
        ] {
            assert_eq!(folded(text, columns), expected);
        }
    }

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        for (path, expected) in [
            ("runs/a-1/config.toml", "runs/a-1/config.toml"),
            ("my runs/a", "'my runs/a'"),
            ("it's", r"'it'\''s'"),
            ("~/a;b", "'~/a;b'"),
        ] {
            assert_eq!(word(Path::new(path)), expected);
        }
    }

    #[test]
    fn quiet_hides_no_warning() {
        for (text, shown) in [
            ("compiling the interpreter", false),
            ("warning: the disk is full", true),
        ] {
            assert!(is_shown(text, false));
            assert_eq!(is_shown(text, true), shown);
        }
    }

    #[test]
    fn one_is_no_plural() {
        let found = [0_u64, 1, 2].map(|count| counted(count, "passage"));
        assert_eq!(found, ["0 passages", "1 passage", "2 passages"]);
    }

    #[test]
    fn types_of_numbers_are_told_in_words() {
        assert_eq!(
            without_types("invalid value: integer `-1`, expected u64\nin `grpo.steps`"),
            "invalid value: integer `-1`, expected a whole number that is not negative\nin `grpo.steps`"
        );
        for (told, expected) in [
            (
                "string \"fast\", expected f64\n",
                "string \"fast\", expected a number\n",
            ),
            (
                "integer `0`, expected a nonzero usize",
                "integer `0`, expected a whole number from 1 on",
            ),
            (
                "learning_rate = fast\ninvalid boolean, expected `false`",
                "learning_rate = fast\nneither a number nor true or false; write text in quotes",
            ),
            (
                "integer `3`, expected struct GrpoConfig\nin `grpo`",
                "integer `3`, expected a table\nin `grpo`",
            ),
            (
                "unit variant, expected struct variant",
                "unit variant, expected struct variant",
            ),
        ] {
            assert_eq!(without_types(told), expected);
        }
    }

    #[test]
    fn long_lists_of_expected_names_are_left_out() {
        let of = |count: usize| {
            let names: Vec<String> = (0..count).map(|name| format!("`{name}`")).collect();
            let names = names.join(", ");
            format!("in x\nunknown field `a`, expected one of {names}\nin `grpo`")
        };
        assert_eq!(shortened(&of(20)), "in x\nunknown field `a`\nin `grpo`");
        assert_eq!(shortened(&of(3)), of(3));
    }

    #[test]
    fn a_value_that_must_be_a_table_is_told_as_one() {
        let toml = "invalid type: unit variant, expected struct variant\nin `grpo.update.credit`\n";
        let told = wants_table(toml).unwrap();
        assert!(
            told.contains("write credit = { NAME = { KEY = VALUE } }")
                && told.contains("`forage config explain grpo.update.credit`"),
            "{told}"
        );
        assert_eq!(wants_table("invalid type: string, expected f64"), None);
    }

    #[test]
    fn a_key_of_another_trainer_leads_to_its_page() {
        let of = |name: &str| {
            of_another_trainer(&format!(
                "unknown field `{name}`, expected one of `seed`, `grpo`"
            ))
        };
        let told = of("actor_rollout_ref").unwrap();
        assert!(told.contains("docs/migration.md"), "{told}");
        assert_eq!(of("gpro"), None);
    }

    #[test]
    fn the_nearest_of_the_expected_names_is_offered() {
        let toml = "TOML parse error at line 1\nunknown field `gpro`, expected one of `seed`, `grpo`, `stamp`\nin `x`\n";
        assert_eq!(meant(toml), Some("grpo"));
        let two = "unknown variant `bm52`, expected `bm25` or `dense`";
        assert_eq!(meant(two), Some("bm25"));
        let far = "unknown field `zzz`, expected one of `seed`, `grpo`, `stamp`";
        assert_eq!(meant(far), None);
        assert_eq!(meant("unknown field `a`, there are no fields"), None);
        assert_eq!(meant("no key `a`; did you mean `b`?"), None);
    }
}
