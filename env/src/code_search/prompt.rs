//! Opening prompts, and what the policy is told of a turn that is not an action and before its last one.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::settings::{AnswerForm, CodeSearchSettings, Form, StateMode, ToldBy};
use crate::paraphrases::{SHORT, paraphrases, prompts};
use crate::settings::{SettingsError, asking, template};

/// What the instructions for an answer say.
const BY_TAG: &str = "As soon as you know the answer, write only the answer, without explanation, between <answer> and \
                      </answer>. Answer by your last turn, with your best guess if need be.";
const BY_MESSAGE: &str = "As soon as you know the answer, reply with only the answer, without a call and without \
                          explanation. Answer by your last turn, with your best guess if need be.";

/// What the prompts say of the functions beyond the published three.
const MORE: &str = "- {prefix}open_page(page_id, part=1) returns a part of a page and says how many there are.\n\
                    - {prefix}find_in_page(page_id, text) lists the places where a text stands in a page.\n\
                    - {prefix}rank_pages(query, page_ids) orders pages by what their texts say of a query.\n";

/// The opening prompt. `{question}` stands for the question, `{turns}` for the number of turns, `{prefix}` for what function
/// names begin with, `{more}` and `{count}` for the functions beyond the published three and the number of all, `{state}` for the sentence that says whether variables live from turn to turn, `{answering}` for the sentences that say how to answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CodePrompt {
    /// Explains the form and the functions: `configs/prompts/code_search.txt`, `code_search_python_calls.txt` or
    /// `code_search_function_calls.txt`; `code_search_tools.txt` where the chat template explains them.
    #[default]
    Full,
    /// `configs/prompts/short.txt`: the question alone, for policies that were taught the protocol.
    Short,
    /// A template file.
    Path(PathBuf),
    /// The template itself.
    Text(String),
}

impl CodePrompt {
    /// The template's text for some settings, everything but the question filled in.
    ///
    /// # Errors
    /// When the file cannot be read or `{question}` is missing.
    pub(crate) fn read(&self, settings: &CodeSearchSettings) -> Result<String, SettingsError> {
        let text = match (self, settings.form) {
            (Self::Full, _) if settings.tools == ToldBy::Template => {
                include_str!("../../../configs/prompts/code_search_tools.txt").to_owned()
            }
            (Self::Full, Form::Tags) => {
                include_str!("../../../configs/prompts/code_search.txt").to_owned()
            }
            (Self::Full, Form::PythonCalls) => {
                include_str!("../../../configs/prompts/code_search_python_calls.txt").to_owned()
            }
            (Self::Full, Form::FunctionCalls) => {
                include_str!("../../../configs/prompts/code_search_function_calls.txt").to_owned()
            }
            (Self::Short, _) => include_str!("../../../configs/prompts/short.txt").to_owned(),
            (Self::Path(path), _) => template(path)?,
            (Self::Text(text), _) => text.clone(),
        };
        let answering = match settings.answer {
            AnswerForm::Tag => BY_TAG,
            AnswerForm::Message => BY_MESSAGE,
        };
        let state = match settings.state {
            StateMode::Kept => "Variables stay from turn to turn.",
            StateMode::Fresh => {
                "Each program starts afresh, without the variables of the ones before."
            }
        };
        let text = asking(text)?.replace("{state}", state);
        let (more, count) = if settings.functions.more {
            (MORE, "six")
        } else {
            ("", "three")
        };
        let text = text.replace("{more}", more).replace("{count}", count);
        let prefix = settings.functions.flavour.prefix();
        let turns = settings.max_generations.to_string();
        Ok(text
            .replace("{turns}", &turns)
            .replace("{prefix}", prefix)
            .replace("{answering}", answering))
    }

    /// The same instructions in other words, as values of the setting `prompt`; none where there are none.
    pub(crate) fn wordings(&self, settings: &CodeSearchSettings) -> Vec<Value> {
        prompts(match self {
            Self::Full if settings.form == Form::Tags && settings.tools == ToldBy::Prompt => {
                Some(paraphrases!("code_search"))
            }
            Self::Short => Some(SHORT),
            _ => None,
        })
    }
}

/// What the policy reads after a turn that is not an action.
pub(super) fn notice(form: Form) -> &'static str {
    match form {
        Form::Tags => {
            "\nThat was not a valid action. To run a program, put it between <python> and </python>. \
             To answer, put the answer between <answer> and </answer>. Try again.\n"
        }
        Form::PythonCalls => {
            "\nThat was not a valid action. To run a program, write <tool_call>\n{\"name\": \"python\", \"arguments\": \
             {\"code\": \"...\"}}\n</tool_call>. To answer, put the answer between <answer> and </answer>. Try again.\n"
        }
        Form::FunctionCalls => {
            "\nThat was not a valid action. To call a tool, write <tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n\
             </tool_call>. To answer, put the answer between <answer> and </answer>. Try again.\n"
        }
    }
}

/// What the policy reads before its last turn.
pub(super) fn reminder(answer: AnswerForm) -> &'static str {
    match answer {
        AnswerForm::Tag => super::REMINDER,
        AnswerForm::Message => "\nThis is your last turn. Reply with the answer now.\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code_search::Profile;

    #[test]
    fn embedded_prompts_ask_the_question_and_name_the_functions() {
        for form in [Form::Tags, Form::PythonCalls, Form::FunctionCalls] {
            let settings = CodeSearchSettings {
                form,
                max_generations: 7,
                ..CodeSearchSettings::default()
            };
            let text = CodePrompt::Full.read(&settings).expect("embedded");
            for part in [
                "search_pages(",
                "view_sections(",
                "read_section(",
                "7 turns",
                "<answer>",
            ] {
                assert!(text.contains(part), "{form:?}: {part}");
            }
            assert!(
                !text.contains("{prefix}") && !text.contains("{answering}"),
                "{form:?}"
            );
            assert!(text.ends_with("Question: {question}\n"), "{form:?}");
        }
        for form in [Form::Tags, Form::PythonCalls] {
            let fresh = CodeSearchSettings {
                form,
                state: StateMode::Fresh,
                ..CodeSearchSettings::default()
            };
            let text = CodePrompt::Full.read(&fresh).expect("embedded");
            assert!(
                text.contains("Each program starts afresh") && !text.contains("Variables stay"),
                "{form:?}"
            );
        }
        let v1 = CodePrompt::Full
            .read(&Profile::WikiSearchV1.settings())
            .expect("embedded");
        assert!(
            v1.contains("- wiki_search_pages(query)") && !v1.contains("<answer>"),
            "{v1}"
        );
    }
}
