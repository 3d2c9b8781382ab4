//! Warnings about configs that run and may not mean what they say.

use forage_env::registry;
use forage_env::reward::PublishedSettings;
use serde_json::Value;

use crate::config::{Resolved, RunConfig};

impl Resolved {
    /// Warnings about settings that may be meant otherwise, a sentence or two each. Settings that cannot be read are left to where
    /// they are used.
    pub fn warnings(&self) -> Vec<String> {
        let found = prompt(self).and_then(|text| answer_in_prompt(&text, grades_prompt(self)));
        found.into_iter().collect()
    }
}

/// The prompt template of a config's environment.
fn prompt(config: &RunConfig) -> Option<String> {
    let written = Value::Object(config.environment.settings.clone());
    (registry::find(&config.environment.id).ok()?.resolve)(written)
        .ok()?
        .prompt
}

/// True where a reward of the config grades the words of the prompt.
fn grades_prompt(config: &RunConfig) -> bool {
    let settings = config
        .reward
        .get("published")
        .map(|reward| Value::Object(reward.settings()));
    settings
        .and_then(|settings| PublishedSettings::read(settings).ok())
        .is_some_and(|settings| settings.reads_prompt())
}

/// An answer in the prompt itself: the text between the two tags when they are named in one breath ("<answer> and
/// </answer>") is not an answer to a reader, but is one to a grader of the prompt.
fn answer_in_prompt(prompt: &str, graded: bool) -> Option<String> {
    let blocks = prompt
        .split("<answer>")
        .skip(1)
        .filter_map(|after| after.split_once("</answer>"));
    let mut blocks = blocks.map(|(content, _)| content.trim());
    let found = blocks.find(|content| graded || !["and", "or", "..."].contains(content))?;
    let reason = if graded {
        "[reward.published] grades prompt and response together: an episode without an answer may be graded as if it had \
         given this one; write scope = \"policy\" there, or take the tags out of the prompt"
    } else {
        "graders that read prompt and response together (Search-R1, slime) take it for the answer of an episode without \
         one; this project's read what the policy wrote, so nothing is lost here; describe the tags without an example"
    };
    Some(format!(
        "the prompt template has an answer of its own, <answer>{found}</answer>: {reason}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICKSTART: &str = include_str!("../../configs/quickstart.toml");

    fn of(overrides: &[&str]) -> Vec<String> {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let config = RunConfig::parse(QUICKSTART, &overrides).unwrap();
        config.resolve(None).unwrap().warnings()
    }

    #[test]
    fn an_example_answer_in_the_prompt_is_named_with_the_reason() {
        assert!(of(&[]).is_empty());
        assert!(
            of(&["environment.settings.prompt=\"search_r1\""]).is_empty(),
            "tags are named, no example is given"
        );
        let example = "environment.settings.prompt={ text = \"Like <answer> Beijing </answer>. {question}\" }";
        let found = of(&[example]);
        assert!(
            found[0].contains("<answer>Beijing</answer>")
                && found[0].contains("nothing is lost here"),
            "{found:?}"
        );
        let graded = "reward.published={ weight = 1.0, grader = \"slime\" }";
        let found = of(&["environment.settings.prompt=\"search_r1\"", graded]);
        assert!(
            found[0].contains("<answer>and</answer>") && found[0].contains("scope = \"policy\""),
            "{found:?}"
        );
        let policy = "reward.published={ weight = 1.0, grader = \"slime\", scope = \"policy\" }";
        assert!(of(&["environment.settings.prompt=\"search_r1\"", policy]).is_empty());
    }
}
