//! Episodes presented as chats in the Qwen templates, with the Qwen tokenizers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forage_contracts::environment::EnvFactory;
use forage_contracts::policy::{GenerateRequest, Policy, Sampling};
use forage_contracts::scripted::{Cast, ScriptEntry, Scripted};
use forage_contracts::{Ending, Episode, Limit, Provenance, Tokenizer};

use super::common::{Recorder, jobs, library, task};
use forage_env::chat::{ChatTemplate, Conversation, SpecialTokens};
use forage_env::reward::RewardSet;
use forage_env::rollout::presentation::ObservationRole;
use forage_env::rollout::{ChatSettings, Presentation, Rollout};
use forage_env::search_r1::prompt::PromptTemplate;
use forage_env::search_r1::{self, ClosingTurn, SearchR1, SearchR1Settings};
use forage_env::settings::OnInvalid;
use forage_env::tokenizer::HfTokenizer;
use serde_json::json;

const SEARCH: &str = "<think>who</think>\n<search>mayor of Orlen</search>";

/// A Qwen model's files; missing where the shared data are.
#[derive(Clone)]
struct Model {
    template: ChatTemplate,
    tokenizer: Arc<HfTokenizer>,
}

#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn model(name: &str, eos: &str) -> Option<Model> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/qwen");
    let file = |file: String| -> PathBuf { folder.join(file) };
    let Ok(source) = std::fs::read_to_string(file(format!("chat_template.{name}.jinja"))) else {
        eprintln!("skipped: {} is missing", folder.display());
        return None;
    };
    let template =
        ChatTemplate::from_source(&source, SpecialTokens::default()).expect("a template");
    let tokenizer =
        HfTokenizer::from_file(&file(format!("tokenizer.{name}.json")), eos).expect("a tokenizer");
    Some(Model {
        template,
        tokenizer: Arc::new(tokenizer),
    })
}

fn settings() -> SearchR1Settings {
    let prompt = PromptTemplate::Text("Use the tags. {question}".to_owned());
    SearchR1Settings {
        prompt,
        ..SearchR1Settings::default()
    }
}

impl Model {
    fn environment(&self, settings: SearchR1Settings) -> Arc<dyn EnvFactory> {
        SearchR1::factory(settings, library(), self.tokenizer.clone()).expect("settings are valid")
    }

    fn lines(&self, lines: &[&str]) -> Arc<dyn Policy> {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        Arc::new(Scripted::human(self.tokenizer.clone(), move |view| {
            lines.get(view.shown.len()).or(lines.last()).cloned()
        }))
    }

    /// Plays one episode; returns it with the requests the policy got.
    async fn play(
        &self,
        policy: Arc<dyn Policy>,
        settings: SearchR1Settings,
        chat: ChatSettings,
    ) -> (Episode, Vec<GenerateRequest>) {
        let recorder = Recorder::new(policy);
        let rollout = Rollout {
            policy: Arc::<Recorder>::clone(&recorder),
            tokenizer: self.tokenizer.clone(),
            factory: self.environment(settings),
            rewards: Arc::new(RewardSet::exact_match()),
            sampling: Sampling::FULL,
            presentation: Presentation::chat(self.template.clone(), chat)
                .expect("the template appends"),
        };
        let episode = rollout.run(jobs(task(), 1)).await.remove(0);
        let requests = recorder.requests.lock().expect("no panic").clone();
        for pair in requests.windows(2) {
            assert!(
                pair[1].tokens.starts_with(&pair[0].tokens),
                "each prompt extends the one before"
            );
        }
        assert!(
            requests
                .last()
                .is_none_or(|last| episode.tokens.ids().starts_with(&last.tokens))
        );
        (episode, requests)
    }

    fn text(&self, episode: &Episode) -> String {
        self.tokenizer.decode(episode.tokens.ids())
    }

    /// The texts of one author, span by span.
    fn spans(&self, episode: &Episode, provenance: Provenance) -> Vec<String> {
        let spans = episode
            .tokens
            .spans()
            .iter()
            .filter(|span| span.provenance == provenance);
        spans
            .map(|span| {
                self.tokenizer
                    .decode(&episode.tokens.ids()[span.start..span.end])
            })
            .collect()
    }
}

#[tokio::test]
async fn an_episode_is_a_conversation() {
    for name in ["qwen2.5", "qwen3"] {
        let Some(model) = model(name, "<|im_end|>") else {
            return;
        };
        let turns = [SEARCH, "no tags", "<answer>Velm</answer>"];
        let chat = ChatSettings {
            system: Some("Be brief.".to_owned()),
            ..ChatSettings::default()
        };
        let (episode, requests) = model.play(model.lines(&turns), settings(), chat).await;
        assert_eq!(
            (&episode.ending, episode.reward(), requests.len()),
            (&Ending::Answered, Some(1.0), 3)
        );
        assert_eq!(
            episode.prompt,
            "Use the tags. Where was the mayor of Orlen born?"
        );
        let written: Vec<&str> = episode
            .turns
            .iter()
            .map(|turn| turn.policy.as_str())
            .collect();
        assert_eq!(
            written, turns,
            "the environment reads turns without the end token"
        );

        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        let messages = vec![
            message("system", "Be brief."),
            message("user", &episode.prompt),
            message("assistant", turns[0]),
            message("user", &episode.turns[0].observation),
            message("assistant", turns[1]),
            message("user", &episode.turns[1].observation),
        ];
        let whole = Conversation {
            messages,
            add_generation_prompt: true,
            ..Conversation::default()
        };
        let rendered = if name == "qwen2.5" {
            model.template.render(&whole).expect("renders")
        } else {
            // Qwen3 would strip the thought from the history; the episode keeps it.
            let stripped = model.template.render(&whole).expect("renders");
            stripped.replace(
                "assistant\n<search>",
                &format!(
                    "assistant\n{}",
                    SEARCH.replace("<search>mayor of Orlen</search>", "<search>")
                ),
            )
        };
        assert_eq!(model.text(&episode), [&rendered, turns[2]].concat());
        let ids = model.tokenizer.encode(&rendered);
        assert_eq!(
            requests[2].tokens, ids,
            "the same tokens as the whole text's"
        );
    }
}

#[tokio::test]
async fn only_sampled_tokens_are_trained() {
    let Some(model) = model("qwen2.5", "<|im_end|>") else {
        return;
    };
    let turns = [SEARCH, "no tags", "<answer>Velm</answer>"];
    let (episode, _) = model
        .play(model.lines(&turns), settings(), ChatSettings::default())
        .await;
    let policy = model.spans(&episode, Provenance::Policy);
    assert_eq!(
        policy,
        [SEARCH, "no tags<|im_end|>", "<answer>Velm</answer>"]
    );
    assert_eq!(
        model.spans(&episode, Provenance::Forced),
        ["<|im_end|>"],
        "only what the policy did not end itself"
    );
    let prompt = model.spans(&episode, Provenance::Prompt);
    assert!(
        prompt[0].starts_with("<|im_start|>system\nYou are Qwen")
            && prompt[0].ends_with("<|im_start|>assistant\n")
    );
    let environment = model.spans(&episode, Provenance::Environment);
    assert_eq!(environment.len(), 2);
    assert!(
        environment[0].starts_with("\n<|im_start|>user\n\n\n<information>Doc 1"),
        "{}",
        environment[0]
    );
    assert!(
        environment
            .iter()
            .all(|text| text.ends_with("<|im_end|>\n<|im_start|>assistant\n"))
    );
    let trained: Vec<u32> = episode
        .tokens
        .ids()
        .iter()
        .zip(episode.tokens.loss_mask())
        .filter(|(_, own)| *own)
        .map(|(&id, _)| id)
        .collect();
    assert_eq!(model.tokenizer.decode(&trained), policy.concat());
}

#[tokio::test]
async fn the_end_is_written_once_however_a_turn_ends() {
    let Some(model) = model("qwen2.5", "<|im_end|>") else {
        return;
    };
    let settings = SearchR1Settings {
        append_eos_after_stop: true,
        ..settings()
    };
    let turns = [SEARCH, "<answer>Velm</answer>"];
    let (episode, _) = model
        .play(
            model.lines(&turns),
            settings.clone(),
            ChatSettings::default(),
        )
        .await;
    assert_eq!(
        model.spans(&episode, Provenance::Forced),
        ["<|im_end|>", "<|im_end|>"]
    );
    assert!(!model.text(&episode).contains("<|im_end|><|im_end|>"));
    // A turn that was cut is closed too.
    let cut = SearchR1Settings {
        max_turn_tokens: 4,
        append_eos_after_stop: false,
        ..settings
    };
    let (episode, _) = model
        .play(
            model.lines(&["one two three four five six"]),
            cut,
            ChatSettings::default(),
        )
        .await;
    assert!(
        model
            .text(&episode)
            .contains("one two three four<|im_end|>\n<|im_start|>user\n")
    );
}

#[tokio::test]
async fn a_base_model_ends_with_its_own_token() {
    let Some(model) = model("qwen2.5", "<|endoftext|>") else {
        return;
    };
    let (episode, _) = model
        .play(
            model.lines(&["no tags", "<answer>Velm</answer>"]),
            settings(),
            ChatSettings::default(),
        )
        .await;
    assert_eq!(episode.turns[0].policy, "no tags");
    assert!(
        model
            .text(&episode)
            .contains("no tags<|endoftext|><|im_end|>\n<|im_start|>user\n")
    );
    // A policy that was tuned for chats may end its turns as the template does.
    let (episode, _) = model
        .play(
            model.lines(&["no tags<|im_end|>", "<answer>Velm</answer>"]),
            settings(),
            ChatSettings::default(),
        )
        .await;
    assert_eq!(episode.reward(), Some(1.0));
}

#[tokio::test]
async fn observations_may_be_results_of_tools() {
    let Some(model) = model("qwen3", "<|im_end|>") else {
        return;
    };
    let chat: ChatSettings = serde_json::from_value(
        json!({"observations": "tool", "options": {"enable_thinking": false}}),
    )
    .expect("settings");
    let (episode, _) = model
        .play(
            model.lines(&[SEARCH, "<answer>Velm</answer>"]),
            settings(),
            chat,
        )
        .await;
    let between = &model.spans(&episode, Provenance::Environment)[0];
    assert!(
        between.starts_with("\n<|im_start|>user\n<tool_response>\n\n\n<information>"),
        "{between}"
    );
    assert!(
        between.ends_with(
            "\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        ),
        "{between}"
    );
    assert!(serde_json::from_value::<ChatSettings>(json!({"observation": "tool"})).is_err());
}

#[tokio::test]
async fn forced_answers_and_silence_keep_their_place() {
    let Some(model) = model("qwen2.5", "<|im_end|>") else {
        return;
    };
    let forced = SearchR1Settings {
        max_generations: 1,
        closing_turn: ClosingTurn::ForcedAnswer,
        ..settings()
    };
    let (episode, _) = model
        .play(
            model.lines(&[SEARCH, "Velm</answer>"]),
            forced,
            ChatSettings::default(),
        )
        .await;
    assert_eq!(
        (episode.turns[1].policy.as_str(), episode.reward()),
        ("<answer>Velm</answer>", Some(1.0))
    );
    assert!(
        model
            .text(&episode)
            .ends_with("<|im_start|>assistant\n<answer>Velm</answer>")
    );
    let silent = SearchR1Settings {
        on_invalid: OnInvalid::Silent,
        ..settings()
    };
    let (episode, _) = model
        .play(
            model.lines(&["hm", "<answer>Velm</answer>"]),
            silent,
            ChatSettings::default(),
        )
        .await;
    assert!(
        model
            .text(&episode)
            .ends_with("hm<|im_end|>\n<|im_start|>assistant\n<answer>Velm</answer>")
    );
}

#[tokio::test]
async fn the_template_counts_towards_the_token_budget() {
    let Some(model) = model("qwen2.5", "<|im_end|>") else {
        return;
    };
    let (full, requests) = model
        .play(
            model.lines(&[SEARCH, "<answer>Velm</answer>"]),
            settings(),
            ChatSettings::default(),
        )
        .await;
    assert_eq!(full.ending, Ending::Answered);
    let limit = |max_episode_tokens| SearchR1Settings {
        max_episode_tokens,
        ..settings()
    };
    let second = requests[1].tokens.len();
    for (tokens, turns) in [(second - 1, 1), (second + 1, 2)] {
        let (episode, _) = model
            .play(
                model.lines(&[SEARCH, "<answer>"]),
                limit(tokens),
                ChatSettings::default(),
            )
            .await;
        assert_eq!(
            (episode.turns.len(), episode.tokens.len() <= tokens),
            (turns, true)
        );
        assert_eq!(
            episode.ending,
            Ending::Truncated {
                limit: Limit::Tokens
            }
        );
    }
}

#[tokio::test]
async fn scripts_read_chats() {
    let Some(model) = model("qwen2.5", "<|im_end|>") else {
        return;
    };
    let prompt = PromptTemplate::Short;
    let oracle = search_r1::ENTRY
        .script(
            ScriptEntry::ORACLE,
            Cast::new(model.tokenizer.clone(), [Arc::new(task())]),
        )
        .expect("an oracle");
    let settings = SearchR1Settings {
        prompt,
        ..SearchR1Settings::default()
    };
    let (episode, _) = model.play(oracle, settings, ChatSettings::default()).await;
    assert_eq!(
        (episode.reward(), episode.searches()),
        (Some(1.0), 2),
        "{}",
        model.text(&episode)
    );
}

#[test]
fn a_template_without_a_role_is_refused_before_any_episode() {
    let alternating = "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no ' + m.role) }}\
                       {% endif %}[{{ m.content }}]{% endfor %}";
    let template =
        ChatTemplate::from_source(alternating, SpecialTokens::default()).expect("a template");
    let refused = |settings| {
        Presentation::chat(template.clone(), settings)
            .expect_err("refused")
            .to_string()
    };
    let tool = ChatSettings {
        observations: ObservationRole::Tool,
        ..ChatSettings::default()
    };
    assert!(refused(tool).ends_with("refuses the conversation: no tool"));
    let system = ChatSettings {
        system: Some("x".to_owned()),
        ..ChatSettings::default()
    };
    assert!(refused(system).ends_with("refuses the conversation: no system"));
    assert!(Presentation::chat(template, ChatSettings::default()).is_ok());
}
