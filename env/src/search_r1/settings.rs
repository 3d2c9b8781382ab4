//! Settings of the search environment.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::forms::{CallSettings, ClosingTurn, SearchAnswer, SearchForm, Searcher, Take};
use super::observation::{Cut, ObservationSettings};
use super::profile::Profile;
use super::prompt::PromptTemplate;
use crate::experience::ExperienceSettings;
use crate::merge::over;
use crate::settings::{OnInvalid, SettingsError, exclusive, positive};

/// Settings of `forage/search-r1-v0`. Missing keys take those of the profile; unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SearchR1Settings {
    /// The set of values that the other settings start from.
    pub profile: Profile,
    /// The form in which the policy asks for a search.
    pub form: SearchForm,
    /// The form of an answer.
    pub answer: SearchAnswer,
    /// The tags of a turn that count.
    pub take: Take,
    /// Settings of search calls.
    pub calls: CallSettings,
    /// Most completions, a closing turn not counted.
    pub max_generations: usize,
    /// The turn that may follow them.
    pub closing_turn: ClosingTurn,
    /// Whether the end-of-sequence token follows `</search>` and `</answer>` in the log, as forced: some chat templates
    /// expect it. It is not trained on, because the policy did not sample it.
    pub append_eos_after_stop: bool,
    /// The source of the passages of a search.
    pub searcher: Searcher,
    /// Most queries of an episode; 0 for as many as its turns have room for.
    pub search_budget: usize,
    /// Passages asked of the retriever.
    pub top_k: usize,
    /// Most tokens per completion.
    pub max_turn_tokens: usize,
    /// Most tokens per episode, prompt and observations included.
    pub max_episode_tokens: usize,
    /// The form in which passages are shown.
    pub observation: ObservationSettings,
    /// The consequence of a turn that is not an action.
    pub on_invalid: OnInvalid,
    /// The opening prompt.
    pub prompt: PromptTemplate,
    /// Experience with other questions, shown before it; none without it (`LightSearcher`, arXiv 2512.06653).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experience: Option<ExperienceSettings>,
    /// Reward of the first turn whose passages show a gold answer, on top of the score. MT-GRPO (arXiv 2505.11821) pays 0.5.
    pub gold_shown_reward: f32,
}

impl Default for SearchR1Settings {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            form: SearchForm::default(),
            answer: SearchAnswer::default(),
            take: Take::default(),
            calls: CallSettings::default(),
            max_generations: 4,
            closing_turn: ClosingTurn::default(),
            append_eos_after_stop: false,
            searcher: Searcher::default(),
            search_budget: 0,
            top_k: 3,
            max_turn_tokens: 500,
            max_episode_tokens: 4096,
            observation: ObservationSettings::default(),
            on_invalid: OnInvalid::default(),
            prompt: PromptTemplate::default(),
            experience: None,
            gold_shown_reward: 0.0,
        }
    }
}

impl SearchR1Settings {
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

    /// Settings as written, for scripts: with room for a token per byte, tags, and passages in the default format, since scripts write and
    /// read no others.
    pub(super) fn for_bytes(written: Map<String, Value>) -> Map<String, Value> {
        // What is wrong with them is said where the environment is opened.
        let Ok(settings) = Self::from_value(Value::Object(written.clone())) else {
            return written;
        };
        let default = Self::default();
        let prompt = match settings.form {
            SearchForm::Tags => settings.prompt,
            SearchForm::ToolCalls => default.prompt,
        };
        let played = Self {
            form: default.form,
            answer: default.answer,
            take: default.take,
            calls: default.calls,
            append_eos_after_stop: false,
            searcher: default.searcher,
            max_turn_tokens: 4_000,
            max_episode_tokens: 40_000,
            observation: ObservationSettings {
                limit_tokens: 4_000,
                ..default.observation
            },
            prompt,
            ..settings
        };
        match serde_json::to_value(played) {
            Ok(Value::Object(spelled)) => spelled,
            _ => written,
        }
    }

    /// Checks what types cannot.
    ///
    /// # Errors
    /// When a number is 0 that must not be, two settings exclude each other, or the passage format shows no text.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        positive(&[
            ("max_generations", self.max_generations),
            ("top_k", self.top_k),
            ("max_turn_tokens", self.max_turn_tokens),
            ("max_episode_tokens", self.max_episode_tokens),
        ])?;
        exclusive(&self.exclusions())?;
        if self.observation.passage.contains("{text}") {
            Ok(())
        } else {
            Err(SettingsError::NoText)
        }
    }
}

impl SearchR1Settings {
    /// Settings that exclude each other: whether they are written so, which, and the fix.
    fn exclusions(&self) -> [(bool, &'static str, &'static str); 7] {
        let tags = self.form == SearchForm::Tags;
        [
            (
                !self.gold_shown_reward.is_finite(),
                "`gold_shown_reward` is not a finite number",
                "write one such as 0.5, or leave it out",
            ),
            (
                tags && self.answer != SearchAnswer::Tag,
                "`form` is tags and `answer` is none: every turn without a search would be an answer",
                "write answer = \"tag\", or form = \"tool_calls\"",
            ),
            (
                !tags && self.take != Take::default(),
                "`take` says which tags count and `form` is tool_calls",
                "leave `take` out, or write form = \"tags\"",
            ),
            (
                self.searcher == Searcher::Policy && !tags,
                "`searcher` is policy and `form` is tool_calls: what the policy writes itself is not a tool's result",
                "write form = \"tags\", or searcher = \"retriever\"",
            ),
            (
                self.searcher == Searcher::Policy
                    && (self.search_budget > 0 || self.gold_shown_reward.abs() > 0.0),
                "`searcher` is policy, and nobody counts or reads searches then",
                "leave `search_budget` and `gold_shown_reward` out",
            ),
            (
                self.closing_turn == ClosingTurn::ForcedAnswer && self.answer != SearchAnswer::Tag,
                "`closing_turn` forces an answer tag and `answer` is none",
                "write closing_turn = \"reminder\", or answer = \"tag\"",
            ),
            (
                self.observation.cut == Cut::Middle && self.observation.limit_chars == 0,
                "`observation.cut` is middle, which counts characters, and `observation.limit_chars` sets no limit",
                "write a limit, or another cut",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::forms::OnBadCall;
    use super::*;

    fn read(written: Value) -> SearchR1Settings {
        SearchR1Settings::from_value(written).expect("valid settings")
    }

    #[test]
    fn settings_read_as_written_and_refuse_the_unknown() {
        let settings = read(json!({
            "max_generations": 2, "closing_turn": "forced_answer", "prompt": {"text": "Q: {question}"},
            "observation": {"limit_tokens": 100}, "on_invalid": "end"
        }));
        assert_eq!(settings.closing_turn, ClosingTurn::ForcedAnswer);
        assert_eq!(
            settings.prompt.read(&settings).expect("has the question"),
            "Q: {question}"
        );
        assert_eq!(settings.observation.limit_tokens, 100);
        assert_eq!(
            settings,
            read(serde_json::to_value(&settings).expect("serialises"))
        );
        for wrong in [
            json!({"max_turns": 2}),
            json!({"observation": {"limit": 2}}),
            json!({"prompt": "unknown"}),
            json!({"profile": "search_r1"}),
            json!({"calls": {"many": 2}}),
        ] {
            assert!(
                SearchR1Settings::from_value(wrong.clone()).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_is_written_goes_over_the_profile() {
        assert_eq!(read(json!({})), SearchR1Settings::default());
        let verl = read(
            json!({"profile": "verl", "observation": {"limit_chars": 999}, "calls": {"most": 2}}),
        );
        assert_eq!(
            (verl.form, verl.calls.on_bad),
            (SearchForm::ToolCalls, OnBadCall::Drop)
        );
        assert_eq!((verl.observation.limit_chars, verl.calls.most), (999, 2));
        for profile in Profile::ALL {
            let settings = profile.settings();
            let value = serde_json::to_value(&settings).expect("serialises");
            assert_eq!(read(json!({"profile": value["profile"]})), settings);
            assert_eq!(read(value), settings);
            settings.check().expect("sound");
            assert_eq!(settings.profile, profile);
        }
    }

    #[test]
    fn scripts_play_under_the_settings_but_for_how_they_write_and_read() {
        let played = |written: Value| {
            let written = written.as_object().cloned().expect("an object");
            read(Value::Object(SearchR1Settings::for_bytes(written)))
        };
        let settings = played(json!({
            "top_k": 1, "max_generations": 2, "search_budget": 1, "prompt": "short", "max_episode_tokens": 320,
            "observation": {"limit_tokens": 200, "passage": "{title}: {text}\n"}
        }));
        assert_eq!(
            (
                settings.top_k,
                settings.max_generations,
                settings.search_budget
            ),
            (1, 2, 1)
        );
        assert_eq!(settings.prompt, read(json!({"prompt": "short"})).prompt);
        assert_eq!(
            settings.observation.passage,
            ObservationSettings::default().passage
        );
        for profile in Profile::ALL {
            let settings =
                played(json!({"profile": serde_json::to_value(profile).expect("serialises")}));
            settings.check().expect("sound");
            assert_eq!(settings.form, SearchForm::Tags);
            assert_eq!(settings.max_generations, profile.settings().max_generations);
        }
        let wrong = json!({"topk": 1}).as_object().cloned().expect("an object");
        assert_eq!(SearchR1Settings::for_bytes(wrong.clone()), wrong);
    }

    #[test]
    fn contradictions_are_named() {
        let zero = SearchR1Settings {
            top_k: 0,
            ..SearchR1Settings::default()
        };
        assert_eq!(
            zero.check().expect_err("zero").to_string(),
            "`top_k` is 0; write at least 1"
        );
        let reward = SearchR1Settings {
            gold_shown_reward: f32::NAN,
            ..SearchR1Settings::default()
        };
        assert!(
            reward
                .check()
                .expect_err("not finite")
                .to_string()
                .contains("`gold_shown_reward` is not a finite number")
        );
        for (written, words) in [
            (
                json!({"answer": "message"}),
                "`form` is tags and `answer` is none",
            ),
            (
                json!({"form": "tool_calls", "take": "first_opened"}),
                "leave `take` out",
            ),
            (
                json!({"profile": "torchtitan", "closing_turn": "forced_answer"}),
                "closing_turn = \"reminder\"",
            ),
            (
                json!({"observation": {"cut": "middle"}}),
                "`observation.limit_chars` sets no limit",
            ),
        ] {
            let error = read(written.clone())
                .check()
                .expect_err("excluded")
                .to_string();
            assert!(error.contains(words), "{written}: {error}");
        }
    }
}
