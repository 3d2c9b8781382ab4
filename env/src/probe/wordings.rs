//! The instructions in other words.

use serde_json::Value;

use super::{Probe, ProbeError};
use crate::code_search::{self, CodePrompt, CodeSearchSettings, Form, ToldBy};
use crate::query_writer::{self, QueryForm, QueryPrompt, QueryWriterSettings};
use crate::registry::{self, RegistryError};
use crate::search_r1::{self, PromptTemplate, SearchForm, SearchR1Settings, Searcher};

/// The same instructions three times over.
type Wordings = [&'static str; 3];

macro_rules! wordings_of {
    ($name:literal) => {
        [
            include_str!(concat!("../../../configs/prompts/paraphrases/", $name, "_1.txt")),
            include_str!(concat!("../../../configs/prompts/paraphrases/", $name, "_2.txt")),
            include_str!(concat!("../../../configs/prompts/paraphrases/", $name, "_3.txt")),
        ]
    };
}

const SEARCH_R1: Wordings = wordings_of!("search_r1");
const CODE_SEARCH: Wordings = wordings_of!("code_search");
const QUERY_WRITER: Wordings = wordings_of!("query_writer");
const SHORT: Wordings = wordings_of!("short");

/// The opening prompt of an environment's settings in other words, as values of its setting `prompt`.
///
/// # Errors
/// [`ProbeError`] when the settings cannot be read, or name a prompt of which there are no other wordings.
pub fn wordings(id: &str, settings: &Value) -> Result<Vec<Value>, ProbeError> {
    let entry = registry::find(id)?;
    let unreadable = |error: serde_json::Error| ProbeError::from(RegistryError::from(error));
    let found = match entry.id {
        id if id == search_r1::ENTRY.id => {
            let settings = SearchR1Settings::from_value(settings.clone()).map_err(unreadable)?;
            let tags = settings.form == SearchForm::Tags && settings.searcher == Searcher::Retriever;
            match settings.prompt {
                PromptTemplate::SearchR1 if tags => Some(SEARCH_R1),
                PromptTemplate::Short => Some(SHORT),
                _ => None,
            }
        }
        id if id == code_search::ENTRY.id => {
            let settings = CodeSearchSettings::from_value(settings.clone()).map_err(unreadable)?;
            match settings.prompt {
                CodePrompt::Full if settings.form == Form::Tags && settings.tools == ToldBy::Prompt => {
                    Some(CODE_SEARCH)
                }
                CodePrompt::Short => Some(SHORT),
                _ => None,
            }
        }
        id if id == query_writer::ENTRY.id => {
            let settings: QueryWriterSettings = serde_json::from_value(settings.clone()).map_err(unreadable)?;
            match settings.prompt {
                QueryPrompt::Full if settings.form == QueryForm::Tags => Some(QUERY_WRITER),
                QueryPrompt::Short => Some(SHORT),
                _ => None,
            }
        }
        _ => None,
    };
    let found = found.ok_or_else(|| ProbeError::Environment {
        probe: Probe::ParaphrasedPrompt.name(),
        what: format!("there are no other wordings of the prompt of {}", entry.id),
        mend: "use a built-in prompt for tags, or compare prompts of yours with --set and `forage compare`",
    })?;
    Ok(found.iter().map(|text| serde_json::json!({"text": text})).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wordings_differ_and_ask_the_question() {
        let plain = [("search-r1", json!({})), ("code-search", json!({})), ("query-writer", json!({}))];
        let short = ["search-r1", "code-search", "query-writer"].map(|id| (id, json!({"prompt": "short"})));
        for (id, settings) in plain.into_iter().chain(short) {
            let found = wordings(id, &settings).expect("wordings");
            let texts: std::collections::BTreeSet<String> = found.iter().map(Value::to_string).collect();
            assert_eq!(texts.len(), 3, "{id}");
            assert!(texts.iter().all(|text| text.contains("{question}")), "{id}");
        }
        let error = wordings("search-r1", &json!({"form": "tool_calls"})).expect_err("calls").to_string();
        assert!(error.contains("no other wordings") && error.contains("built-in"), "{error}");
    }
}
