//! `[stamp]`: digests of the texts behind a run, as its record has them.

use forage_env::chat::ChatTemplate;
use serde::{Deserialize, Serialize};

use super::RunConfig;

/// Where a config comes from, and the texts that a run was played with. Nothing follows from it: it says whether two runs are of the
/// same recipe, prompt and chat template, whose texts may change under their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Stamp {
    /// The recipe that the config was made from, changed since or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipe: Option<String>,
    /// BLAKE3 of the recipe's file as this program holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipe_digest: Option<String>,
    /// BLAKE3 of the environment's prompt template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// BLAKE3 of the policy's chat template, where it plays in chats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The version of forage that started the run, and the commit it was built from where its build named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Stamp {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The digests of texts with what they are of.
    pub(crate) fn digests(&self) -> [(&'static str, Option<&String>); 3] {
        [
            ("recipe as published", self.recipe_digest.as_ref()),
            ("prompt", self.prompt.as_ref()),
            ("chat template", self.template.as_ref()),
        ]
    }

    /// The names of the texts that both have and that differ.
    pub(crate) fn differing(&self, other: &Self) -> Vec<&'static str> {
        let mut found = Vec::new();
        for ((name, own), (_, others)) in self.digests().into_iter().zip(other.digests()) {
            if own.is_some() && others.is_some() && own != others {
                found.push(name);
            }
        }
        found
    }
}

impl RunConfig {
    /// The config with the note that it is made from this recipe, whose file holds `text`.
    #[must_use]
    pub fn of_recipe(mut self, name: &str, text: &str) -> Self {
        self.stamp.recipe = Some(name.to_owned());
        self.stamp.recipe_digest = Some(digest(text));
        self
    }

    /// The prompt template of its environment; `None` where its settings cannot be read.
    pub(crate) fn prompt(&self) -> Option<String> {
        self.environment.resolved().ok()?.prompt
    }

    /// The stamp of a run of this config whose policy has this chat template.
    pub(crate) fn stamped(&self, template: Option<&ChatTemplate>) -> Stamp {
        let template = template.filter(|_| self.policy.chat.is_some());
        Stamp {
            prompt: self.prompt().as_deref().map(digest),
            template: template.map(|template| digest(template.source())),
            version: Some(version()),
            ..self.stamp.clone()
        }
    }
}

/// The version of this program, `0.1.0+COMMIT` where its build was told the commit in `FORAGE_COMMIT`.
pub(crate) fn version() -> String {
    let commit = option_env!("FORAGE_COMMIT").map(|commit| format!("+{commit}"));
    env!("CARGO_PKG_VERSION").to_owned() + &commit.unwrap_or_default()
}

fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICKSTART: &str = include_str!("../../../configs/quickstart.toml");

    fn stamp(overrides: &[&str]) -> Stamp {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let config = RunConfig::parse(QUICKSTART, &overrides).unwrap();
        config.of_recipe("mine", QUICKSTART).stamped(None)
    }

    #[test]
    fn other_texts_have_other_stamps() {
        let plain = stamp(&[]);
        assert!(plain.prompt.is_some() && plain.template.is_none());
        assert_eq!(plain.recipe.as_deref(), Some("mine"));
        let version = plain.version.as_deref();
        assert!(version.is_some_and(|found| found.starts_with(env!("CARGO_PKG_VERSION"))));
        assert_eq!(stamp(&["grpo.steps=3"]), plain);
        let text = "environment.settings.prompt={ text = \"Search. {question}\" }";
        assert_eq!(plain.differing(&stamp(&[text])), ["prompt"]);
        assert!(plain.differing(&Stamp::default()).is_empty());
    }

    #[test]
    fn a_stamp_is_written_and_read_and_changes_nothing() {
        let config = RunConfig::parse(QUICKSTART, &[]).unwrap();
        assert!(!config.to_toml().unwrap().contains("[stamp]"));
        let stamped = config.clone().of_recipe("mine", QUICKSTART);
        let written = stamped.to_toml().unwrap();
        let mut again = RunConfig::parse(&written, &[]).unwrap();
        assert_eq!(again.stamp, stamped.stamp);
        again.stamp = Stamp::default();
        assert_eq!(again.to_toml().unwrap(), config.to_toml().unwrap());
    }
}
