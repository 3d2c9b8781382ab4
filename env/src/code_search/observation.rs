//! What the policy reads of a program's run and of a direct call.

use forage_sandbox::{PyError, Status, TurnOutput};
use serde_json::Value;

use super::repr::repr;
use super::settings::{
    CodeObservation, CodeSearchSettings, ErrorForm, Flavour, LimitSettings, StateMode,
};

/// What the policy reads when a program printed nothing.
pub(crate) const NOTHING_PRINTED: &str = "(Nothing was printed. Use print() to see a value.)";

/// The content of an observation: what was printed, then what went wrong.
pub(super) fn of_program(output: &TurnOutput, settings: &CodeSearchSettings) -> String {
    let form = &settings.observation;
    let printed = output.stdout.trim_end();
    let text = match (error_text(output, settings), form.error) {
        (Some(error), ErrorForm::Alone) => error,
        (Some(error), _) if printed.is_empty() => error,
        (Some(error), _) => format!("{printed}\n{error}"),
        (None, _) if printed.trim().is_empty() && form.nothing_printed => {
            NOTHING_PRINTED.to_owned()
        }
        (None, _) => printed.to_owned(),
    };
    cut(&text, form)
}

/// What a direct call shows of a value.
pub(super) fn of_value(value: &Value, flavour: Flavour) -> String {
    match (value, flavour) {
        (Value::String(text), _) => text.clone(),
        (_, Flavour::V0) => repr(value),
        (_, Flavour::V1) => value.to_string(),
    }
}

/// The content of an observation, cut in the middle to its limit.
pub(super) fn cut(text: &str, form: &CodeObservation) -> String {
    let length = text.chars().count();
    if length <= form.limit_chars {
        return text.to_owned();
    }
    let kept = form.limit_chars * 2 / 5;
    let byte_of = |number: usize| {
        text.char_indices()
            .nth(number)
            .map_or(text.len(), |(at, _)| at)
    };
    let (head, tail) = (&text[..byte_of(kept)], &text[byte_of(length - kept)..]);
    format!(
        "{head}\n... [{} characters left out] ...\n{tail}",
        length - 2 * kept
    )
}

/// What went wrong, in the form the policy reads.
fn error_text(output: &TurnOutput, settings: &CodeSearchSettings) -> Option<String> {
    let text = match (output.status, &output.error) {
        (Status::Ok, _) => return None,
        (Status::Exception, Some(error)) => exception(error, settings.observation.error),
        (Status::Exception, None) => "The program raised an exception.".to_owned(),
        _ => {
            let text = stopped(output, settings);
            if settings.observation.error == ErrorForm::Alone {
                format!("Error: {text}")
            } else {
                text
            }
        }
    };
    Some(text)
}

fn exception(error: &PyError, form: ErrorForm) -> String {
    let PyError {
        kind,
        message,
        traceback,
    } = error;
    match form {
        ErrorForm::Traceback => traceback.trim_end().to_owned(),
        ErrorForm::LastLine if message.is_empty() => kind.clone(),
        ErrorForm::LastLine => format!("{kind}: {message}"),
        ErrorForm::Alone => format!("Error: {kind}: {message}"),
    }
}

/// Which limit stopped a program, in words.
fn stopped(output: &TurnOutput, settings: &CodeSearchSettings) -> String {
    let LimitSettings {
        time_ms,
        memory_mib,
        calls,
        code_bytes,
        ..
    } = settings.limits;
    let why = match output.status {
        Status::Timeout => format!("it ran for more than {} s", time_ms as f64 / 1000.0),
        Status::Memory => format!("it used more than {memory_mib} MiB of memory"),
        Status::Stack => "its calls are nested too deep".to_owned(),
        Status::Output => "it printed too much".to_owned(),
        Status::Calls => format!("it called the functions more than {calls} times"),
        Status::CodeSize => {
            return format!(
                "The program was not run: it is longer than {code_bytes} bytes. Write a shorter one."
            );
        }
        Status::Lost => {
            return "The program was not run: MemoryError, what earlier programs kept in memory found no room. All variables are gone."
                .to_owned();
        }
        Status::Crash | Status::Ok | Status::Exception => "the interpreter failed on it".to_owned(),
    };
    let undone = if output.undone && settings.state == StateMode::Kept {
        " What it did to variables is undone."
    } else {
        ""
    };
    format!("The program was stopped: {why}.{undone}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code_search::Profile;

    fn output(stdout: &str, status: Status, error: Option<PyError>) -> TurnOutput {
        TurnOutput {
            stdout: stdout.to_owned(),
            stderr: "noise".to_owned(),
            error,
            status,
            undone: matches!(
                status,
                Status::Timeout | Status::Memory | Status::Stack | Status::Crash
            ),
            calls: Vec::new(),
            wall_us: 1,
            redefined: Vec::new(),
        }
    }

    fn error() -> PyError {
        PyError {
            kind: "NameError".to_owned(),
            message: "name 'x' is not defined".to_owned(),
            traceback:
                "Traceback (most recent call last):\n  File \"<turn>\", line 2, in <module>\nNameError: name 'x' \
                        is not defined\n"
                    .to_owned(),
        }
    }

    #[test]
    fn what_was_printed_comes_before_the_error() {
        let settings = CodeSearchSettings::default();
        let show = |output: &TurnOutput| of_program(output, &settings);
        assert_eq!(show(&output("a\nb\n\n", Status::Ok, None)), "a\nb");
        assert_eq!(show(&output(" \n", Status::Ok, None)), NOTHING_PRINTED);
        let failed = output("one\n", Status::Exception, Some(error()));
        assert_eq!(
            show(&failed),
            format!("one\n{}", error().traceback.trim_end())
        );
        assert_eq!(
            show(&output("", Status::Exception, Some(error()))),
            error().traceback.trim_end()
        );
        let mut last_line = settings.clone();
        last_line.observation.error = ErrorForm::LastLine;
        assert_eq!(
            of_program(&failed, &last_line),
            "one\nNameError: name 'x' is not defined"
        );
    }

    #[test]
    fn the_slm_profile_loses_what_was_printed_and_is_silent_about_nothing() {
        let slm = Profile::Slm.settings();
        let failed = output("one\n", Status::Exception, Some(error()));
        assert_eq!(
            of_program(&failed, &slm),
            "Error: NameError: name 'x' is not defined"
        );
        assert_eq!(of_program(&output("", Status::Ok, None), &slm), "");
        let late = of_program(&output("one\n", Status::Timeout, None), &slm);
        assert_eq!(
            late,
            "Error: The program was stopped: it ran for more than 30 s."
        );
    }

    #[test]
    fn every_limit_has_words() {
        let settings = CodeSearchSettings::default();
        let mut seen = Vec::new();
        for (status, words) in [
            (Status::Timeout, "more than 5 s"),
            (Status::Memory, "128 MiB"),
            (Status::Stack, "too deep"),
            (Status::Output, "too much"),
            (Status::Calls, "more than 64 times"),
            (Status::CodeSize, "longer than 65536 bytes"),
            (Status::Crash, "interpreter failed"),
            (Status::Lost, "All variables are gone"),
        ] {
            let text = of_program(&output("before\n", status, None), &settings);
            assert!(
                text.starts_with("before\nThe program was") && text.contains(words),
                "{text}"
            );
            let keeps = matches!(
                status,
                Status::CodeSize | Status::Output | Status::Calls | Status::Lost
            );
            assert_eq!(text.ends_with("undone."), !keeps, "{text}");
            assert!(!seen.contains(&text));
            seen.push(text);
        }
        let went_on = TurnOutput {
            undone: true,
            ..output("", Status::Calls, None)
        };
        let text = of_program(&went_on, &settings);
        assert!(text.ends_with("64 times. What it did to variables is undone."));
    }

    #[test]
    fn the_middle_is_cut_by_characters() {
        let form = CodeObservation {
            limit_chars: 10,
            ..CodeObservation::default()
        };
        assert_eq!(cut("éééééééééé", &form), "éééééééééé");
        assert_eq!(
            cut("ab€defghijklm", &form),
            "ab€d\n... [5 characters left out] ...\njklm"
        );
    }
}
