//! Files of demonstrations: which tokens of each form are learned, and which lines are refused.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use forage_contracts::scripted::{Haste, OracleStyle};
use forage_contracts::seed::Seed;
use forage_contracts::{Boundary, ByteTokenizer, Ending, Provenance, TokenLog, Tokenizer};

use crate::tests::common::problem::{checkpoint, problem};
use forage_env::chat::{ChatTemplate, SpecialTokens};
use forage_env::{EpisodeWriter, HfTokenizer, demonstrate};
use forage_trainer::Sample;
use forage_trainer::demonstrations::{Choice, Demonstrations};
use forage_trainer::model::ModelConfig;
use forage_trainer::sequence::Sequence;
use forage_trainer::weights::Checkpoint;
use serde_json::{Value, json};

pub(crate) const ALL: Choice = Choice {
    context: 220,
    skip_long: false,
    min_reward: None,
};

/// A template that ends every message with the end-of-sequence token.
const ENDING: &str = "{%- for message in messages %}{{ message.role + ': ' + message.content + eos_token + '\\n' }}\
                      {%- endfor %}{%- if add_generation_prompt %}{{ 'assistant: ' }}{%- endif %}";

fn with_template(source: &str) -> Checkpoint {
    let eos = Some("<|endoftext|>".to_owned());
    let specials = SpecialTokens {
        eos,
        ..SpecialTokens::default()
    };
    let mut start = checkpoint(1);
    start.chat = Some(ChatTemplate::from_source(source, specials).unwrap());
    start
}

pub(crate) fn read_lines(
    lines: &[String],
    checkpoint: &Checkpoint,
    choice: &Choice,
) -> Result<Demonstrations, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demonstrations.jsonl");
    std::fs::write(&path, lines.join("\n")).unwrap();
    Demonstrations::read(&path, checkpoint, choice).map_err(|error| {
        let causes = std::iter::successors(Some(&error as &dyn Error), |&error| error.source());
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
        causes.join(": ")
    })
}

fn read(line: &Value, checkpoint: &Checkpoint) -> Sequence {
    let mut found = read_lines(&[line.to_string()], checkpoint, &ALL).unwrap();
    assert_eq!(found.sequences.len(), 1);
    found.sequences.remove(0)
}

/// The sequence of texts, of which those with `true` are learned.
fn sequence(tokenizer: &HfTokenizer, pieces: &[(&str, bool)]) -> Sequence {
    let mut sequence = Sequence::default();
    for (text, learned) in pieces {
        for id in tokenizer.encode(text) {
            if *learned {
                sequence.targets.push(sequence.ids.len());
            }
            sequence.ids.push(id);
        }
    }
    sequence
}

#[test]
fn of_raw_text_the_completion_and_its_end_are_learned() {
    let start = checkpoint(1);
    let expected = sequence(
        &start.tokenizer,
        &[
            ("Question: Who?\n", false),
            ("Nobody.", true),
            ("<|endoftext|>", true),
        ],
    );
    let line =
        json!({"prompt": "Question: Who?\n", "completion": "Nobody.", "source": "a further field"});
    assert_eq!(read(&line, &start), expected);
    let ended = json!({"prompt": "Question: Who?\n", "completion": "Nobody.<|endoftext|>"});
    assert_eq!(read(&ended, &start), expected);
}

#[test]
fn of_a_conversation_what_the_assistant_wrote_is_learned() {
    let start = with_template(ENDING);
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let mut messages = vec![
        message("system", "Be brief."),
        message("user", "Hi."),
        message("assistant", "Yes? "),
        message("user", "A"),
    ];
    messages.push(message("assistant", "B"));
    let pieces = [
        (
            "system: Be brief.<|endoftext|>\nuser: Hi.<|endoftext|>\nassistant: ",
            false,
        ),
        ("Yes? <|endoftext|>", true),
        ("\nuser: A<|endoftext|>\nassistant: ", false),
        ("B<|endoftext|>", true),
        ("\n", false),
    ];
    assert_eq!(
        read(&json!({"messages": messages}), &start),
        sequence(&start.tokenizer, &pieces)
    );
    messages[2]["weight"] = json!(0);
    let context = [pieces[0].0, pieces[1].0, pieces[2].0].concat();
    let expected = sequence(&start.tokenizer, &[(&context, false), pieces[3], pieces[4]]);
    assert_eq!(read(&json!({"messages": messages}), &start), expected);
}

#[test]
fn rows_of_parquet_are_the_lines_of_the_same_content() {
    let start = with_template(ENDING);
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/demonstrations.parquet");
    let found = Demonstrations::read(&path, &start, &ALL).unwrap();
    let line = |question: &str, query: &str| {
        let answer = format!("<query>{query}</query>");
        let messages = json!([{"role": "user", "content": question}, {"role": "assistant", "content": answer}]);
        json!({"messages": messages}).to_string()
    };
    let lines = [line("tides", "tides AND moon"), line("wind", "wind")];
    assert_eq!(found, read_lines(&lines, &start, &ALL).unwrap());
    let error = Demonstrations::read(&path, &start, &Choice { context: 3, ..ALL })
        .unwrap_err()
        .to_string();
    assert!(error.contains("row 1 has"), "{error}");
}

#[test]
fn a_template_without_an_end_gets_the_end_of_sequence() {
    let start = with_template(&ENDING.replace("+ eos_token ", ""));
    let line = json!({"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes?"}]});
    let pieces = [
        ("user: Hi.\nassistant: ", false),
        ("Yes?", true),
        ("<|endoftext|>", true),
        ("\n", false),
    ];
    assert_eq!(read(&line, &start), sequence(&start.tokenizer, &pieces));
}

/// A checkpoint that speaks as a Qwen model does; missing where the shared data are. Its weights are none of Qwen's.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn qwen(name: &str) -> Option<Checkpoint> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/qwen");
    let Ok(source) = std::fs::read_to_string(folder.join(format!("chat_template.{name}.jinja")))
    else {
        eprintln!("skipped: {} is missing", folder.display());
        return None;
    };
    let tokenizer =
        HfTokenizer::from_file(&folder.join(format!("tokenizer.{name}.json")), "<|im_end|>")
            .unwrap();
    let tiny = checkpoint(1);
    let config = ModelConfig {
        vocab_size: 151_936,
        ..tiny.config
    };
    let mut start = Checkpoint::new(config, tiny.decoder, tokenizer, Vec::new());
    start.chat = Some(ChatTemplate::from_source(&source, SpecialTokens::default()).unwrap());
    Some(start)
}

/// What stands between the beginning of an assistant's turn and its end, the end included, found by the tokens alone.
fn turns_of_assistant(ids: &[u32], tokenizer: &HfTokenizer) -> Vec<usize> {
    let opening = tokenizer.encode("<|im_start|>assistant\n");
    let end = tokenizer.token_to_id("<|im_end|>").unwrap();
    let mut inside = false;
    let mut found = Vec::new();
    for position in 0..ids.len() {
        inside |= ids[..position].ends_with(&opening);
        if inside {
            found.push(position);
        }
        inside &= ids[position] != end;
    }
    found
}

#[test]
fn qwen_conversations_with_tools_are_learned_token_by_token() {
    for name in ["qwen2.5", "qwen3"] {
        let Some(start) = qwen(name) else { return };
        let call = json!({"type": "function", "function": {"name": "search", "arguments": "{\"query\": \"Orlen\"}"}});
        let line = json!({
            "messages": [
                {"role": "user", "content": "Who is the mayor of Orlen?"},
                {"role": "assistant", "content": "", "reasoning_content": "I search.", "tool_calls": [call]},
                {"role": "tool", "content": "<|im_start|> is a mark. Ada is the mayor."},
                {"role": "assistant", "content": "Ada.", "reasoning_content": "It says so."},
            ],
            "tools": [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}],
        });
        let found = read(&line, &start);
        let tokenizer = &start.tokenizer;
        assert_eq!(
            found.targets,
            turns_of_assistant(&found.ids, tokenizer),
            "{name}"
        );
        assert_eq!(
            found.ids,
            tokenizer.encode(&tokenizer.decode(&found.ids)),
            "pieces have the tokens of the whole"
        );
        let learned: Vec<u32> = found
            .targets
            .iter()
            .map(|&position| found.ids[position])
            .collect();
        let call = "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"Orlen\"}}\n</tool_call><|im_end|>";
        let expected = match name {
            "qwen2.5" => format!("{call}Ada.<|im_end|>"),
            _ => format!(
                "<think>\nI search.\n</think>\n\n{call}<think>\nIt says so.\n</think>\n\nAda.<|im_end|>"
            ),
        };
        assert_eq!(tokenizer.decode(&learned), expected);
    }
}

#[test]
fn a_history_that_is_written_anew_is_refused() {
    let Some(start) = qwen("qwen3") else { return };
    let mut messages = json!([
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": "B"},
    ]);
    let error = read_lines(&[json!({"messages": messages}).to_string()], &start, &ALL).unwrap_err();
    assert!(
        error.contains("line 1")
            && error.contains("message 2 changes")
            && error.contains("\"weight\": 0"),
        "{error}"
    );
    messages[1]["weight"] = json!(0);
    let found = read(&json!({"messages": messages}), &start);
    let learned: Vec<u32> = found
        .targets
        .iter()
        .map(|&position| found.ids[position])
        .collect();
    assert_eq!(
        start.tokenizer.decode(&learned),
        "<think>\n\n</think>\n\nB<|im_end|>"
    );
    let whole = start.tokenizer.decode(&found.ids);
    assert!(
        whole.contains("<|im_start|>assistant\nYes?<|im_end|>"),
        "{whole}"
    );
}

#[tokio::test]
async fn of_recorded_rollouts_the_policy_s_tokens_are_learned() {
    let start = checkpoint(1);
    let problem = problem(&start, &[("em", 1.0)]);
    let (tokenizer, factory) = (
        Arc::new(start.tokenizer.clone()),
        Arc::clone(&problem.factory),
    );
    let (tasks, rewards) = (&problem.train[..6], Arc::clone(&problem.rewards));
    let mut episodes = demonstrate(
        tasks,
        OracleStyle::Plain,
        Haste::NONE,
        factory,
        tokenizer,
        rewards,
        Seed::root(4),
    )
    .await
    .unwrap();
    for (episode, total) in episodes.iter_mut().zip([1.0, 0.0, 1.0, 1.0, 0.5]) {
        episode.score.as_mut().unwrap().total = total;
    }
    episodes[5].ending = Ending::Infra {
        boundary: Boundary::Retriever,
        message: "down".to_owned(),
    };
    episodes[5].score = None;
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records.jsonl");
    let mut writer = EpisodeWriter::create(&records).unwrap();
    for episode in &episodes {
        writer.write(episode.clone()).unwrap();
    }
    writer.finish().unwrap();
    let bare = folder.path().join("episodes.jsonl");
    let lines: Vec<String> = episodes
        .iter()
        .map(|episode| serde_json::to_string(episode).unwrap())
        .collect();
    std::fs::write(&bare, lines.join("\n")).unwrap();
    for path in [&records, &bare] {
        let found = Demonstrations::read(path, &start, &ALL).unwrap();
        assert_eq!((found.sequences.len(), found.faults), (5, 1));
        for (sequence, episode) in found.sequences.iter().zip(&episodes) {
            assert_eq!(sequence.ids, episode.tokens.ids());
            let policy = episode
                .tokens
                .spans()
                .iter()
                .filter(|span| span.provenance == Provenance::Policy);
            assert_eq!(
                sequence.targets,
                policy
                    .flat_map(|span| span.start..span.end)
                    .collect::<Vec<_>>()
            );
        }
        let good = Demonstrations::read(
            path,
            &start,
            &Choice {
                min_reward: Some(0.5),
                ..ALL
            },
        )
        .unwrap();
        assert_eq!(
            (good.sequences.len(), good.low_reward, good.faults),
            (4, 1, 1)
        );
        // What is imitated can be learned from by reinforcement as well.
        assert_eq!(
            Sample::read_groups(path, 400, 220, Some(&start.tokenizer))
                .unwrap()
                .iter()
                .map(Vec::len)
                .sum::<usize>(),
            5
        );
    }
}

#[tokio::test]
async fn tokens_of_another_tokenizer_are_refused() {
    let start = checkpoint(1);
    let problem = problem(&start, &[("em", 1.0)]);
    let shown = demonstrate(
        &problem.train[..1],
        OracleStyle::Plain,
        Haste::NONE,
        Arc::clone(&problem.factory),
        Arc::new(start.tokenizer.clone()),
        Arc::clone(&problem.rewards),
        Seed::root(4),
    );
    let mut episode = shown.await.unwrap().remove(0);
    episode.tokens = TokenLog::with_prompt(&ByteTokenizer.encode(&episode.prompt));
    let ids = ByteTokenizer.encode(&episode.turns[0].policy);
    let logprobs = vec![0.0; ids.len()];
    episode.tokens.push_policy(&ids, &logprobs, 0, None);
    let line = serde_json::to_string(&episode).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rollouts.jsonl");
    std::fs::write(&path, &line).unwrap();
    let rollouts = Sample::read_groups(&path, 400, 4096, Some(&start.tokenizer));
    let errors = [
        read_lines(&[line], &start, &ALL).unwrap_err(),
        rollouts.unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(
            error.contains("line 1 has tokens of another tokenizer")
                && error.contains("--tokens-of POLICY"),
            "{error}"
        );
    }
    // Where only the work is measured, any tokens do.
    assert!(Sample::read_groups(&path, 400, 4096, None).is_ok());
}

#[test]
fn bare_tokens_need_neither_reward_nor_logprobs() {
    let start = checkpoint(1);
    let line = json!({"group": 1, "ids": [5, 6, 7, 8], "mask": [0, 1, 0, 1]});
    let expected = Sequence {
        ids: vec![5, 6, 7, 8],
        targets: vec![1, 3],
        ..Sequence::default()
    };
    assert_eq!(read(&line, &start), expected);
    let choice = Choice {
        min_reward: Some(0.5),
        ..ALL
    };
    let error = read_lines(&[line.to_string()], &start, &choice).unwrap_err();
    assert!(error.contains("line 1 has no reward"), "{error}");
    let low = json!({"group": 1, "ids": [5, 6], "mask": [0, 1], "reward": 0.0});
    let error = read_lines(&[low.to_string()], &start, &choice).unwrap_err();
    assert!(
        error.contains("nothing to learn") && error.contains("1 rollouts earned too little"),
        "{error}"
    );
}

#[test]
fn bad_lines_are_named() {
    let start = with_template(ENDING);
    let good = json!({"prompt": "a", "completion": "b"}).to_string();
    let user = json!({"role": "user", "content": "a"});
    let assistant = json!({"role": "assistant", "content": "b"});
    let call = json!({"function": {"name": "f", "arguments": "[1]"}});
    let cases = [
        (json!("text"), "is not a demonstration"),
        (json!({"text": "a"}), "is not a demonstration"),
        (json!({"prompt": "a"}), "is not a demonstration"),
        (
            json!({"messages": [user, assistant], "completion": "b"}),
            "is of several forms",
        ),
        (json!({"completion": "b"}), "has no text as its prompt"),
        (
            json!({"prompt": "", "completion": "b"}),
            "has an empty prompt",
        ),
        (
            json!({"prompt": "a", "completion": ""}),
            "has an empty completion",
        ),
        (
            json!({"prompt": [user], "completion": [assistant]}),
            "conversations go under messages",
        ),
        (json!({"messages": []}), "has no message of the assistant"),
        (
            json!({"messages": [user]}),
            "has no message of the assistant",
        ),
        (
            json!({"messages": {"role": "user"}}),
            "has messages that are not a list",
        ),
        (
            json!({"messages": [{"content": "a"}]}),
            "has a message 1 without a role",
        ),
        (
            json!({"messages": [user, {"role": "assistant"}]}),
            "cannot be written",
        ),
        (
            json!({"messages": [user, {"role": "assistant", "content": "b", "weight": 2}]}),
            "message 2 of weight 2",
        ),
        (
            json!({"messages": [user, {"role": "assistant", "content": "b", "tool_calls": [call]}]}),
            "a call in message 2 whose arguments are not an object",
        ),
        (
            json!({"group": 1, "ids": [1, 2], "mask": [0]}),
            "has 2 ids and 1 mask values",
        ),
        (
            json!({"group": 1, "ids": [1, 400], "mask": [0, 1]}),
            "has the token 400",
        ),
        (
            json!({"group": 1, "ids": [1, 2], "mask": [0, 0]}),
            "has no token of the policy",
        ),
        (json!({"episode": {}}), "is not a record of an episode"),
        (
            json!({"prompt": "a", "completion": "b ".repeat(300)}),
            "more than the context of 220",
        ),
    ];
    for (line, expected) in cases {
        let error = read_lines(
            &[good.clone(), String::new(), line.to_string()],
            &start,
            &ALL,
        )
        .unwrap_err();
        let place = "demonstrations.jsonl: line 3 ";
        assert!(
            error.contains(place) && error.contains(expected),
            "{expected}: {error}"
        );
    }
    let error = read_lines(&["{".to_owned()], &start, &ALL).unwrap_err();
    assert!(error.contains("line 1 is not JSON"), "{error}");
    let messages = json!({"messages": [user, assistant]}).to_string();
    let error = read_lines(&[messages], &checkpoint(1), &ALL).unwrap_err();
    assert!(
        error.contains("line 1 has messages, and the policy has no chat template"),
        "{error}"
    );
    let long = json!({"prompt": "a", "completion": "b ".repeat(300)}).to_string();
    let found = read_lines(
        &[good, long],
        &start,
        &Choice {
            skip_long: true,
            ..ALL
        },
    )
    .unwrap();
    assert_eq!((found.sequences.len(), found.too_long), (1, 1));
}
