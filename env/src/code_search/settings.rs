//! Settings of the code-search environment.

use std::time::Duration;

use forage_sandbox::Limits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::profile::Profile;
use super::prompt::CodePrompt;
use crate::merge::over;
use crate::settings::{OnInvalid, SettingsError, exclusive, positive};
use crate::wiki::SectionMode;
use crate::wiki::find::SearchMode;

/// The form in which the policy asks for something to be done.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// A program between `<python>` and `</python>`; its output comes in `<python_output>`.
    #[default]
    Tags,
    /// A Hermes tool call of `python` with the program as its argument `code`; its output comes in `<tool_response>`.
    PythonCalls,
    /// Hermes tool calls of the three functions themselves, any number in a turn, without programs.
    FunctionCalls,
}

/// The form of an answer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AnswerForm {
    /// The text between `<answer>` and `</answer>`.
    #[default]
    Tag,
    /// A turn without a call, after its thoughts. For `form = "python_calls"` and `"function_calls"`.
    Message,
}

/// The place where the policy is told of the tools.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToldBy {
    /// The prompt, in words: episodes may be plain text.
    #[default]
    Prompt,
    /// The chat template, by the tools' schemas. For `form = "python_calls"` and `"function_calls"`.
    Template,
}

/// Where the content of a tag begins when the tag was opened more than once.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Opening {
    /// At the last opening: a tag only mentioned before does not become part of the program.
    #[default]
    Last,
    /// At the first, as a non-greedy regular expression takes it.
    First,
}

/// Whether variables live from turn to turn.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StateMode {
    /// They do, as in a notebook.
    #[default]
    Kept,
    /// Every turn begins with a new interpreter.
    Fresh,
}

/// What the policy reads of an exception.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorForm {
    /// The printed text, then the traceback, which names the failing line. It stands at the end, and is cut where it is longer than
    /// 40 % of the limit.
    #[default]
    Traceback,
    /// The printed text, then the exception's class and message, of a `SyntaxError` with the number of the line.
    LastLine,
    /// `Error: Type: message` in place of what was printed.
    Alone,
}

/// How what came of a turn is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CodeObservation {
    /// Before the output; by the form when absent: `\n<python_output>\n` or `\n<tool_response>\n`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opening: Option<String>,
    /// After the output; by the form when absent: `\n</python_output>\n` or `\n</tool_response>\n`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closing: Option<String>,
    /// Most characters of an output. A longer one keeps 40 % of this at its beginning and 40 % at its end, with a line
    /// between them that says how many characters are left out.
    pub limit_chars: usize,
    /// The part of an exception that is shown.
    pub error: ErrorForm,
    /// Whether a program that printed nothing is answered with a line that says so.
    pub nothing_printed: bool,
}

impl Default for CodeObservation {
    fn default() -> Self {
        Self {
            opening: None,
            closing: None,
            limit_chars: 6000,
            error: ErrorForm::default(),
            nothing_printed: true,
        }
    }
}

/// Which publication of the three functions is followed where they differ.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Flavour {
    /// Unknown pages and sections raise `ValueError`; results of direct calls are written as Python writes them.
    #[default]
    V0,
    /// The names begin with `wiki_`; an unknown section is a text, an unknown page raises `KeyError`; results of direct
    /// calls are JSON.
    V1,
}

impl Flavour {
    /// What function names begin with.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::V0 => "",
            Self::V1 => "wiki_",
        }
    }
}

/// The behaviour of the functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FunctionSettings {
    /// The texts that a search looks at.
    pub search: SearchMode,
    /// Whether programs and calls have `open_page`, `find_in_page` and `rank_pages` besides the three published functions.
    pub more: bool,
    /// Pages a search finds, unless the call says otherwise.
    pub top_k: usize,
    /// Whether `search_pages` takes the number of pages as its second parameter `n`.
    pub takes_n: bool,
    /// Whether hits carry `similarity`, the score mapped to `[0, 1)` as `s / (1 + s)`.
    pub similarity: bool,
    /// The definition of a section.
    pub section_mode: SectionMode,
    /// The publication that is followed where they differ.
    pub flavour: Flavour,
}

impl Default for FunctionSettings {
    fn default() -> Self {
        Self {
            search: SearchMode::default(),
            more: false,
            top_k: 10,
            takes_n: true,
            similarity: false,
            section_mode: SectionMode::default(),
            flavour: Flavour::default(),
        }
    }
}

/// The resources that one program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSettings {
    /// Processor time, searches and reading excluded, in milliseconds.
    pub time_ms: u64,
    /// Memory of the interpreter in MiB, of which it needs 35 itself. A program that needs more gets a `MemoryError`.
    pub memory_mib: usize,
    /// Memory in MiB that all programs of the process share; a quarter of what is free when the first is run unless given.
    /// Turns wait for room in it. It changes no outcome but one: where sessions keep more between turns than eight times as much, a
    /// large one loses its variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_mib: Option<usize>,
    /// Calls of functions in a turn, by a program or directly.
    pub calls: usize,
    /// Time that the functions of one program may take together, by the clock on the wall, in milliseconds. No call begins after it: the
    /// program gets a `TimeoutError`. One call that takes as long is a fault of the infrastructure: the episode has no score.
    pub tool_time_ms: u64,
    /// Length of the program in bytes.
    pub code_bytes: usize,
}

impl Default for LimitSettings {
    fn default() -> Self {
        let Limits {
            time,
            memory_bytes,
            calls,
            tool_time,
            code_bytes,
            ..
        } = Limits::default();
        Self {
            time_ms: time.as_millis() as u64,
            memory_mib: memory_bytes >> 20,
            total_mib: None,
            calls,
            tool_time_ms: tool_time.as_millis() as u64,
            code_bytes,
        }
    }
}

impl LimitSettings {
    /// As the sandbox takes them.
    pub(crate) fn limits(self) -> Limits {
        Limits {
            time: Duration::from_millis(self.time_ms),
            memory_bytes: self.memory_mib << 20,
            calls: self.calls,
            tool_time: Duration::from_millis(self.tool_time_ms),
            code_bytes: self.code_bytes,
            ..Limits::default()
        }
    }
}

/// Settings of `forage/code-search-v0`. Missing keys take those of the profile; unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CodeSearchSettings {
    /// The set of values that the other settings start from.
    pub profile: Profile,
    /// The form in which the policy asks for something to be done.
    pub form: Form,
    /// The form of an answer.
    pub answer: AnswerForm,
    /// The place where the policy is told of the tools.
    pub tools: ToldBy,
    /// Most completions. A program in the last of them is not run, because nobody would read its output.
    pub max_generations: usize,
    /// Whether the last observation before the last completion says that an answer is due.
    pub final_reminder: bool,
    /// Whether the end-of-sequence token follows a stop string in the log, as forced.
    pub append_eos_after_stop: bool,
    /// Most tokens per completion.
    pub max_turn_tokens: usize,
    /// Most tokens per episode, prompt and observations included.
    pub max_episode_tokens: usize,
    /// The place where the content of a tag begins.
    pub opening: Opening,
    /// Whether variables live from turn to turn.
    pub state: StateMode,
    /// Python put before every program, for names that policies were taught to find: imports, for instance. Tracebacks count
    /// its lines.
    pub prelude: String,
    /// The form in which output is shown.
    pub observation: CodeObservation,
    /// The consequence of a turn that is not an action.
    pub on_invalid: OnInvalid,
    /// The behaviour of the functions.
    pub functions: FunctionSettings,
    /// The resources that one program may use.
    pub limits: LimitSettings,
    /// The opening prompt.
    pub prompt: CodePrompt,
}

impl Default for CodeSearchSettings {
    fn default() -> Self {
        Self {
            profile: Profile::Default,
            form: Form::default(),
            answer: AnswerForm::default(),
            tools: ToldBy::default(),
            max_generations: 4,
            final_reminder: true,
            append_eos_after_stop: false,
            max_turn_tokens: 512,
            max_episode_tokens: 8192,
            opening: Opening::default(),
            state: StateMode::default(),
            prelude: String::new(),
            observation: CodeObservation::default(),
            on_invalid: OnInvalid::default(),
            functions: FunctionSettings::default(),
            limits: LimitSettings::default(),
            prompt: CodePrompt::default(),
        }
    }
}

impl CodeSearchSettings {
    /// Reads settings as written: what is missing is that of the profile they name.
    ///
    /// # Errors
    /// When a key is unknown or a value has the wrong type.
    pub(crate) fn from_value(written: Value) -> Result<Self, serde_json::Error> {
        let profile = written
            .get("profile")
            .map(Profile::deserialize)
            .transpose()?;
        over(&profile.unwrap_or_default().settings(), written)
    }

    /// Checks what types cannot.
    ///
    /// # Errors
    /// When a number is 0 that must not be, or two settings exclude each other.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        positive(&[
            ("max_generations", self.max_generations),
            ("max_turn_tokens", self.max_turn_tokens),
            ("max_episode_tokens", self.max_episode_tokens),
            ("observation.limit_chars", self.observation.limit_chars),
            ("functions.top_k", self.functions.top_k),
            ("limits.time_ms", self.limits.time_ms as usize),
            ("limits.memory_mib", self.limits.memory_mib),
            ("limits.total_mib", self.limits.total_mib.unwrap_or(1)),
            ("limits.calls", self.limits.calls),
            ("limits.tool_time_ms", self.limits.tool_time_ms as usize),
            ("limits.code_bytes", self.limits.code_bytes),
        ])?;
        let tags = self.form == Form::Tags;
        exclusive(&[
            (
                tags && self.tools == ToldBy::Template,
                "`tools` is template and `form` is tags: there is no tool to call",
                "write tools = \"prompt\", or another form",
            ),
            (
                tags && self.answer == AnswerForm::Message,
                "`answer` is message and `form` is tags: every turn without a program would be an answer",
                "write answer = \"tag\", or another form",
            ),
        ])
    }

    /// The text before and after an output.
    pub(crate) fn wrapper(&self) -> (&str, &str) {
        let (opening, closing) = match self.form {
            Form::Tags => ("\n<python_output>\n", "\n</python_output>\n"),
            Form::PythonCalls | Form::FunctionCalls => {
                ("\n<tool_response>\n", "\n</tool_response>\n")
            }
        };
        let CodeObservation {
            opening: before,
            closing: after,
            ..
        } = &self.observation;
        (
            before.as_deref().unwrap_or(opening),
            after.as_deref().unwrap_or(closing),
        )
    }

    /// Settings as written, with room for a token per byte.
    pub(super) fn for_bytes(mut written: Map<String, Value>) -> Map<String, Value> {
        // Scripts play plain text.
        written.remove("tools");
        written.insert("max_turn_tokens".to_owned(), 4_000.into());
        written.insert("max_episode_tokens".to_owned(), 80_000.into());
        written
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> CodeSearchSettings {
        CodeSearchSettings::from_value(value).expect("valid settings")
    }

    #[test]
    fn what_is_written_goes_over_the_profile() {
        assert_eq!(read(json!({})), CodeSearchSettings::default());
        let slm = read(
            json!({"profile": "slm", "max_generations": 2, "observation": {"limit_chars": 100}}),
        );
        assert_eq!(
            (slm.max_generations, slm.state, slm.on_invalid),
            (2, StateMode::Fresh, OnInvalid::Silent)
        );
        assert_eq!(
            (slm.observation.limit_chars, slm.observation.error),
            (100, ErrorForm::Alone)
        );
        for profile in Profile::ALL {
            let settings = read(serde_json::to_value(profile.settings()).expect("serialises"));
            assert_eq!(settings, profile.settings());
            settings.check().expect("sound");
        }
        let text = read(json!({"prompt": {"text": "{question} in {turns} turns"}}));
        assert_eq!(
            text.prompt.read(&text).expect("a template"),
            "{question} in 4 turns"
        );
    }

    #[test]
    fn unknown_keys_and_contradictions_are_named() {
        for wrong in [
            json!({"max_turns": 2}),
            json!({"profile": "slim"}),
            json!({"functions": {"k": 2}}),
            json!({"limits": {"time": 2}}),
            json!({"observation": {"limit_tokens": 2}}),
            json!({"state": "lost"}),
        ] {
            assert!(
                CodeSearchSettings::from_value(wrong.clone()).is_err(),
                "{wrong}"
            );
        }
        let zero = read(json!({"functions": {"top_k": 0}}))
            .check()
            .expect_err("zero")
            .to_string();
        assert_eq!(zero, "`functions.top_k` is 0; write at least 1");
        let mixed = read(json!({"answer": "message"}))
            .check()
            .expect_err("excluded")
            .to_string();
        assert!(mixed.contains("`form` is tags"), "{mixed}");
    }
}
