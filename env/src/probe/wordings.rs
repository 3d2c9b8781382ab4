//! The instructions in other words.

use serde_json::Value;

use super::{Probe, ProbeError};
use crate::registry;

impl Probe {
    /// The opening prompt of an environment's settings in other words, as values of its setting `prompt`.
    ///
    /// # Errors
    /// [`ProbeError`] when the settings cannot be read, or name a prompt of which there are no other wordings.
    pub fn wordings(id: &str, settings: &Value) -> Result<Vec<Value>, ProbeError> {
        let entry = registry::find(id)?;
        let found = (entry.resolve)(settings.clone())?.wordings;
        if found.is_empty() {
            return Err(ProbeError::Environment {
                probe: Self::ParaphrasedPrompt.name(),
                what: format!("there are no other wordings of the prompt of {}", entry.id),
                fix: "use a built-in prompt for tags, or compare prompts of yours with --set and `forage compare`",
            });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wordings_differ_and_ask_the_question() {
        let plain = [
            ("search-r1", json!({})),
            ("code-search", json!({})),
            ("query-writer", json!({})),
            ("rerank", json!({})),
        ];
        let short = ["search-r1", "code-search", "query-writer", "rerank"]
            .map(|id| (id, json!({"prompt": "short"})));
        for (id, settings) in plain.into_iter().chain(short) {
            let found = Probe::wordings(id, &settings).expect("wordings");
            let texts: std::collections::BTreeSet<String> =
                found.iter().map(Value::to_string).collect();
            assert_eq!(texts.len(), 3, "{id}");
            assert!(texts.iter().all(|text| text.contains("{question}")), "{id}");
        }
        let error = Probe::wordings("search-r1", &json!({"form": "tool_calls"}))
            .expect_err("calls")
            .to_string();
        assert!(
            error.contains("no other wordings") && error.contains("built-in"),
            "{error}"
        );
    }
}
