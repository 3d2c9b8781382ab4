//! The opening prompt of the search environment.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::forms::{SearchAnswer, SearchForm, Searcher};
use super::settings::SearchR1Settings;
use crate::paraphrases::{SHORT, paraphrases, prompts};
use crate::settings::{SettingsError, asking, template};

/// The opening prompt; `{question}` stands for the question, `{answering}` for the sentence that says how to answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PromptTemplate {
    /// `configs/prompts/search_r1.txt`, which explains the tags, or `self_search.txt` where the policy answers itself, or `search_r1_calls.txt` with tool calls, whose tool the
    /// chat template explains.
    #[default]
    SearchR1,
    /// `configs/prompts/short.txt`: the question alone, for policies that were taught the protocol.
    Short,
    /// A template file.
    Path(PathBuf),
    /// The template itself.
    Text(String),
}

impl PromptTemplate {
    /// The template's text for some settings, everything but the question filled in.
    ///
    /// # Errors
    /// When the file cannot be read or `{question}` is missing.
    pub(crate) fn read(&self, settings: &SearchR1Settings) -> Result<String, SettingsError> {
        let text = match (self, settings.form) {
            (Self::SearchR1, SearchForm::Tags) if settings.searcher == Searcher::Policy => {
                include_str!("../../../configs/prompts/self_search.txt").to_owned()
            }
            (Self::SearchR1, SearchForm::Tags) => {
                include_str!("../../../configs/prompts/search_r1.txt").to_owned()
            }
            (Self::SearchR1, SearchForm::ToolCalls) => {
                include_str!("../../../configs/prompts/search_r1_calls.txt").to_owned()
            }
            (Self::Short, _) => include_str!("../../../configs/prompts/short.txt").to_owned(),
            (Self::Path(path), _) => template(path)?,
            (Self::Text(text), _) => text.clone(),
        };
        Ok(asking(text)?.replace("{answering}", answering(settings.answer)))
    }

    /// The same instructions in other words, as values of the setting `prompt`; none where there are none.
    pub(crate) fn wordings(&self, settings: &SearchR1Settings) -> Vec<Value> {
        let tags = settings.form == SearchForm::Tags && settings.searcher == Searcher::Retriever;
        prompts(match self {
            Self::SearchR1 if tags => Some(paraphrases!("search_r1")),
            Self::Short => Some(SHORT),
            _ => None,
        })
    }
}

/// How to answer, in a sentence.
fn answering(answer: SearchAnswer) -> &'static str {
    match answer {
        SearchAnswer::Tag => {
            "As soon as you know the answer, write only the answer, without explanation, between <answer> and </answer>."
        }
        SearchAnswer::Message => {
            "As soon as you know the answer, reply with only the answer, without a call and without explanation."
        }
        SearchAnswer::Prefix => {
            "As soon as you know the answer, reply without a call and end with \"Answer:\" and the answer in one to five \
             words. Write \"Answer:\" once only."
        }
    }
}

/// What follows a turn that is not an action.
pub(super) fn notice(settings: &SearchR1Settings) -> String {
    let to_answer = match settings.answer {
        SearchAnswer::Tag => "put the answer between <answer> and </answer>",
        SearchAnswer::Message => "reply with the answer alone",
        SearchAnswer::Prefix => "reply with \"Answer:\" and the answer",
    };
    match settings.form {
        SearchForm::Tags => super::NOTICE.to_owned(),
        SearchForm::ToolCalls => {
            format!(
                "\nThat was not a valid action. To search, call the tool search. To answer, {to_answer}. Try again.\n"
            )
        }
    }
}

/// What announces a closing turn.
pub(super) fn reminder(settings: &SearchR1Settings) -> &'static str {
    match settings.answer {
        SearchAnswer::Tag => super::REMINDER,
        SearchAnswer::Message => "\nNo searches are left. Reply with the answer now.\n",
        SearchAnswer::Prefix => {
            "\nNo searches are left. Reply with \"Answer:\" and the answer now.\n"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_prompts_ask_the_question() {
        let tags = SearchR1Settings::default();
        assert_eq!(
            PromptTemplate::Short.read(&tags).expect("embedded"),
            "Question: {question}\n"
        );
        assert!(
            PromptTemplate::SearchR1
                .read(&tags)
                .expect("embedded")
                .ends_with("Question: {question}\n")
        );
        for answer in [
            SearchAnswer::Tag,
            SearchAnswer::Message,
            SearchAnswer::Prefix,
        ] {
            let settings = SearchR1Settings {
                form: SearchForm::ToolCalls,
                answer,
                ..SearchR1Settings::default()
            };
            let text = PromptTemplate::SearchR1.read(&settings).expect("embedded");
            assert!(
                text.ends_with("Question: {question}\n") && !text.contains("{answering}"),
                "{text}"
            );
            assert_eq!(text.contains("<answer>"), answer == SearchAnswer::Tag);
            assert!(notice(&settings).contains("call the tool search"));
        }
        let prompt = PromptTemplate::Text("no placeholder".to_owned());
        assert!(matches!(prompt.read(&tags), Err(SettingsError::NoQuestion)));
        assert!(matches!(
            PromptTemplate::Path("/nowhere/x.txt".into()).read(&tags),
            Err(SettingsError::Prompt { .. })
        ));
    }
}
