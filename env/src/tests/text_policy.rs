//! Policies that read text: conversations that grow, counts in the place of tokens, the same endings.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use forage_contracts::policy::{Completion, Finish, GenerateRequest, Policy, PolicyError, Reply};
use forage_contracts::{Boundary, Ending, Episode, Limit, Provenance};
use serde_json::{Map, Value, json};

use super::common::{factory, jobs, library, lines, rollout, settings, task};
use forage_env::rollout::{ChatSettings, EpisodeRecord, Presentation, Rollout, replay};
use forage_env::search_r1::{ClosingTurn, SearchR1Settings};

const SEARCH: &str = "<search>mayor of Orlen</search>";
const ANSWER: &str = "<answer>Velm</answer>";

/// Says its lines in order, as messages; a token is a byte. Without a line its window is full.
struct Speaker {
    lines: Vec<Value>,
    /// What it read before each line.
    read: Mutex<Vec<Map<String, Value>>>,
}

impl Speaker {
    fn new(lines: &[Value]) -> Arc<Self> {
        Arc::new(Self {
            lines: lines.to_vec(),
            read: Mutex::default(),
        })
    }
}

#[async_trait]
impl Policy for Speaker {
    fn version(&self) -> u64 {
        0
    }

    fn reads_text(&self) -> bool {
        true
    }

    async fn generate(&self, _request: GenerateRequest) -> Result<Completion, PolicyError> {
        panic!("it reads text")
    }

    async fn reply(
        &self,
        conversation: &Map<String, Value>,
        request: GenerateRequest,
    ) -> Result<Option<Reply>, PolicyError> {
        assert!(request.tokens.is_empty() && request.max_tokens > 0);
        let mut read = self.read.lock().unwrap();
        let message = self.lines.get(read.len());
        read.push(conversation.clone());
        let texts = conversation.get("messages").and_then(Value::as_array);
        let texts = texts
            .into_iter()
            .flatten()
            .map(|message| &message["content"]);
        let bytes = texts.chain(conversation.get("prompt"));
        let bytes = bytes.filter_map(Value::as_str).map(str::len).sum();
        Ok(message.map(|message| {
            let text = message["text"].as_str().or(message["content"].as_str());
            let text = text.unwrap_or_default().to_owned();
            Reply {
                prompt_tokens: bytes,
                completion_tokens: text.len(),
                text,
                message: message.clone(),
                finish: Finish::Stop,
                version: 0,
            }
        }))
    }
}

fn say(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

async fn play(policy: &Arc<Speaker>, settings: SearchR1Settings, form: Presentation) -> Episode {
    let factory = factory(settings, library());
    let presentation = form
        .with_tools(&factory.spec().tools)
        .expect("room for tools");
    let policy: Arc<dyn Policy> = policy.clone();
    let rollout = Rollout {
        presentation,
        ..rollout(policy, Arc::clone(&factory))
    };
    let episode = rollout.run(jobs(task(), 1)).await.remove(0);
    if !episode.ending.is_infra() {
        let again = replay(factory.as_ref(), &rollout.rewards, &episode).await;
        let (again, differences) = again.expect("it can be played again");
        assert!(differences.is_empty(), "{differences:?}");
        assert_eq!(again, episode);
    }
    episode
}

#[tokio::test]
async fn running_text_is_played_as_in_tokens() {
    let speaker = Speaker::new(&[say(SEARCH), say(ANSWER)]);
    let spoken = play(&speaker, settings(), Presentation::RAW).await;
    let known = rollout(lines(&[SEARCH, ANSWER]), factory(settings(), library()));
    let known = known.run(jobs(task(), 1)).await.remove(0);
    assert_eq!(
        (&spoken.prompt, &spoken.turns, &spoken.ending, &spoken.score),
        (&known.prompt, &known.turns, &known.ending, &known.score)
    );
    let counted = |author| (spoken.tokens.count(author), known.tokens.count(author));
    for author in [
        Provenance::Prompt,
        Provenance::Policy,
        Provenance::Environment,
    ] {
        let (spoken, known) = counted(author);
        assert_eq!(spoken, known, "{author:?}");
    }
    assert!(spoken.tokens.ids().is_empty() && !spoken.tokens.has_ids());
    assert_eq!(spoken.conversation, None, "prompt and turns say it all");
    let read = speaker.read.lock().unwrap();
    let whole = format!("{}{SEARCH}{}", spoken.prompt, spoken.turns[0].observation);
    assert_eq!(
        read[1],
        Map::from_iter([("prompt".to_owned(), whole.into())])
    );

    let record = EpisodeRecord::from(spoken.clone());
    assert_eq!(record.policy_tokens, SEARCH.len() + ANSWER.len());
    let written = serde_json::to_string(&record).unwrap();
    assert!(written.contains("\"ids\":[]"), "{written}");
    assert_eq!(
        serde_json::from_str::<EpisodeRecord>(&written)
            .unwrap()
            .episode,
        spoken
    );
}

#[tokio::test]
async fn results_of_tools_answer_their_calls() {
    let call = |id: &str| json!({"id": id, "function": {"name": "search"}});
    let block = |query: &str| {
        let call = json!({"name": "search", "arguments": {"query": query}});
        format!("<tool_call>\n{call}\n</tool_call>")
    };
    let two = json!({"role": "assistant", "content": "", "tool_calls": [call("a"), call("b")],
        "text": block("mayor of Orlen") + &block("Ada Brandt born")});
    let speaker = Speaker::new(&[two.clone(), say("Velm, I think."), say(ANSWER)]);
    let settings = SearchR1Settings {
        max_turn_tokens: 2000,
        max_episode_tokens: 30_000,
        ..SearchR1Settings::from_value(json!({"form": "tool_calls"})).unwrap()
    };
    let system = ChatSettings {
        system: Some("Be brief.".to_owned()),
        ..ChatSettings::default()
    };
    let episode = play(&speaker, settings, Presentation::served(system)).await;
    assert_eq!(
        (&episode.ending, episode.reward()),
        (&Ending::Answered, Some(1.0))
    );
    let read = speaker.read.lock().unwrap();
    assert_eq!(read[0]["tools"][0]["function"]["name"], "search");
    assert_eq!(read[0].get("chat_template_kwargs"), None);
    let messages = episode.conversation.as_ref().expect("a chat")["messages"]
        .as_array()
        .unwrap();
    let heads: Vec<_> = messages
        .iter()
        .map(|message| {
            (
                message["role"].as_str().unwrap(),
                message["tool_call_id"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        heads,
        [
            ("system", None),
            ("user", None),
            ("assistant", None),
            ("tool", Some("a")),
            ("tool", Some("b")),
            ("assistant", None),
            ("user", None),
            ("assistant", None),
        ]
    );
    assert_eq!(messages[2], two);
    let results = [&messages[3], &messages[4]].map(|message| message["content"].as_str().unwrap());
    assert!(
        results[0].contains("Orlen") && results[1].contains("Ada Brandt"),
        "{results:?}"
    );
    assert_eq!(messages[6]["content"], episode.turns[1].observation);
}

#[tokio::test]
async fn limits_end_an_episode_and_faults_do_not_score() {
    let truncated = |limit| Ending::Truncated { limit };
    // The window is full before the second turn.
    let speaker = Speaker::new(&[say(SEARCH)]);
    let episode = play(&speaker, settings(), Presentation::RAW).await;
    assert_eq!(
        (episode.ending, episode.turns.len()),
        (truncated(Limit::Context), 1)
    );
    assert!(episode.score.is_some());
    // It does not hold the opening prompt, which no policy can help.
    let refused = play(&Speaker::new(&[]), settings(), Presentation::RAW).await;
    let Ending::Infra { boundary, message } = &refused.ending else {
        panic!("{:?}", refused.ending);
    };
    assert_eq!((*boundary, &refused.score), (Boundary::Policy, &None));
    assert!(message.contains("--max-model-len"), "{message}");
    // The observation is beyond the budget: the turn after it is dropped.
    let opening = episode.tokens.count(Provenance::Prompt);
    let limited = SearchR1Settings {
        max_episode_tokens: opening + SEARCH.len() + 9,
        ..settings()
    };
    let speaker = Speaker::new(&[say(SEARCH), say(ANSWER)]);
    let episode = play(&speaker, limited, Presentation::RAW).await;
    assert_eq!(
        (&episode.ending, episode.turns.len()),
        (&truncated(Limit::Tokens), 1)
    );
    assert!(episode.score.is_some());
    // What the environment begins for the policy has no place in a chat.
    let forced = SearchR1Settings {
        max_generations: 1,
        closing_turn: ClosingTurn::ForcedAnswer,
        ..settings()
    };
    let speaker = Speaker::new(&[say(SEARCH), say("Velm</answer>")]);
    let episode = play(&speaker, forced.clone(), Presentation::RAW).await;
    assert_eq!(
        (episode.turns[1].policy.as_str(), episode.reward()),
        (ANSWER, Some(1.0))
    );
    let speaker = Speaker::new(&[say(SEARCH), say("Velm</answer>")]);
    let chat = Presentation::served(ChatSettings::default());
    let episode = play(&speaker, forced, chat).await;
    assert!(
        matches!(
            &episode.ending,
            Ending::Infra {
                boundary: Boundary::Environment,
                ..
            }
        ),
        "{:?}",
        episode.ending
    );
    assert_eq!(episode.score, None);
}
