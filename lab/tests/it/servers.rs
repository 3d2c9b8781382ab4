//! Policies that a server runs: the same policy here and behind its own server plays the same episodes.

use std::path::Path;
use std::sync::mpsc;

use forage_contracts::{Episode, Tokenizer};
use forage_env::chat::{ChatTemplate, SpecialTokens};
use forage_env::{EpisodeRecord, Keep};
use forage_lab::{
    CollectOptions, EvaluateOptions, Resolved, RunConfig, TrainOptions, collect, evaluate,
    open_policy, replay_files, train,
};
use forage_trainer::device::DeviceSpec;
use forage_trainer::server::{Model, ServerConfig};
use forage_trainer::{
    Checkpoint, DemonstrationChoice, Demonstrations, EngineConfig, Precision, Workers,
};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// Writes a conversation as the running text that it is.
const PLAIN: &str = "{% for message in messages %}{{ message.content }}{% endfor %}";

fn quickstart() -> Checkpoint {
    let name = "builtin:quickstart";
    let mut checkpoint = open_policy(name, Precision::Full, &DeviceSpec::default()).unwrap();
    let template = ChatTemplate::from_source(PLAIN, SpecialTokens::default());
    checkpoint.chat = Some(template.unwrap());
    checkpoint
}

/// Serves the policy of the quickstart until the process ends; its address.
fn served() -> String {
    let engine = EngineConfig {
        context: 512,
        cache_tokens: 8192,
        step_tokens: 512,
        sequences: 16,
        bf16: false,
    };
    let pool = Workers::new(1).kernel_pool();
    let model = Model::start("quickstart", &quickstart(), engine, pool);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            let forever = std::future::pending();
            model
                .serve(listener, ServerConfig::default(), forever)
                .await
        })
    });
    format!("http://{}", told.recv().unwrap())
}

/// A small quickstart whose observations are never cut, so that it does not matter what counts them.
fn config(more: &[&str]) -> Resolved {
    let small = [
        "data.world.pages=300",
        "data.train_questions=12",
        "data.dev_questions=0",
        "data.test_questions=24",
        "evaluation.samples=0",
        "grpo.evaluate_every=0",
        "engine.context_tokens=512",
        "engine.sequences=8",
        "environment.settings.max_episode_tokens=512",
        "environment.settings.observation.limit_tokens=0",
    ];
    let set: Vec<String> = small
        .iter()
        .chain(more)
        .map(|&item| item.to_owned())
        .collect();
    let config = RunConfig::parse(include_str!("../../../configs/quickstart.toml"), &set);
    config.unwrap().resolve(None).unwrap()
}

fn episodes(path: &Path) -> Vec<Episode> {
    let records = EpisodeRecord::read_all(path).unwrap();
    records.map(|record| record.unwrap().episode).collect()
}

#[test]
fn a_policy_plays_the_same_here_and_behind_its_own_server() {
    let url = served();
    let folder = tempfile::tempdir().unwrap();
    let played = |name: &str, config: &Resolved, policy: Option<&str>| {
        let out = folder.path().join(name);
        let options = EvaluateOptions {
            policy: policy.map(str::to_owned),
            out: Some(out.clone()),
            ..EvaluateOptions::default()
        };
        let found = evaluate(config, &options, &()).unwrap();
        assert_eq!(
            (found.greedy.episodes, found.greedy.infra),
            (24, 0),
            "{name}"
        );
        episodes(&out)
    };
    let plain = config(&[]);
    let here = played("here.jsonl", &plain, None);

    // Token ids and log-probabilities travel: not even a bit differs.
    let sampler = format!(
        "sampler={{ kind = \"vllm\", url = \"{url}\", model = \"quickstart\", context = 512 }}"
    );
    assert_eq!(played("sampler.jsonl", &config(&[&sampler]), None), here);

    // Text travels: all is the same but the tokens, of which only the number is known.
    let chat = config(&["policy.chat={}"]);
    for (name, config, is_chat) in [("text.jsonl", &plain, false), ("chat.jsonl", &chat, true)] {
        let there = played(name, config, Some(&format!("{url}/v1")));
        for (there, here) in there.iter().zip(&here) {
            let task = here.task.name();
            assert_eq!(there.turns, here.turns, "{name}: {task}");
            assert_eq!(
                (&there.ending, &there.score),
                (&here.ending, &here.score),
                "{name}: {task}"
            );
            assert_eq!(there.tokens.len(), here.tokens.len(), "{name}: {task}");
            assert!(!there.tokens.has_ids());
            assert_eq!(there.conversation.is_some(), is_chat);
        }
        let files = [folder.path().join(name)];
        let again = replay_files(config, &files, None, Some(&url), false, &()).unwrap();
        assert_eq!((again.episodes, again.equal), (24, 24), "{name}");
    }
}

#[test]
fn what_a_server_plays_can_be_learned_from_its_text() {
    let url = served();
    let folder = tempfile::tempdir().unwrap();
    for (name, more) in [
        ("text.jsonl", &[][..]),
        ("chat.jsonl", &["policy.chat={}"][..]),
    ] {
        let options = CollectOptions {
            policy: Some(url.clone()),
            model: Some("quickstart".to_owned()),
            token_file: None,
            samples: 2,
            out: folder.path().join(name),
            keep: Keep::Best,
            min_reward: 0.0,
            temperature: None,
            questions: Some(6),
            record_tools: None,
            resume: false,
        };
        let counts = collect(&config(more), &options, &()).unwrap();
        assert_eq!((counts.kept, counts.faults), (6, 0), "{name}");
        let choice = DemonstrationChoice {
            context: 512,
            skip_long: false,
            min_reward: None,
        };
        let learner = quickstart();
        let found = Demonstrations::read(&options.out, &learner, &choice).unwrap();
        let kept = episodes(&options.out);
        assert_eq!(found.sequences.len(), kept.len());
        for (sequence, episode) in found.sequences.iter().zip(&kept) {
            assert!(!sequence.targets.is_empty() && !episode.tokens.has_ids());
            let written: Vec<u32> = sequence
                .targets
                .iter()
                .map(|&at| sequence.ids[at])
                .collect();
            // The end of a turn is learned as well.
            let written: Vec<u32> = written
                .into_iter()
                .filter(|&id| id != learner.tokenizer.eos())
                .collect();
            let written = learner.tokenizer.decode(&written);
            let turns: String = episode
                .turns
                .iter()
                .map(|turn| turn.policy.as_str())
                .collect();
            assert!(written.starts_with(&turns), "{written} is {turns}");
        }
    }
}

#[test]
fn a_server_that_is_gone_is_one_error_that_names_it() {
    let gone = "http://127.0.0.1:9";
    let error = |config: &Resolved, policy: Option<&str>| {
        let options = EvaluateOptions {
            policy: policy.map(str::to_owned),
            ..EvaluateOptions::default()
        };
        let error = evaluate(config, &options, &()).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", cause.unwrap_or_default())
    };
    let said = error(&config(&[]), Some(gone));
    assert!(
        said.contains(gone) && said.contains("cannot connect"),
        "{said}"
    );
    let sampler = format!(
        "sampler={{ kind = \"vllm\", url = \"{gone}\", model = \"m\", context = 512, ready_timeout_s = 0.2 }}"
    );
    let said = error(&config(&[&sampler]), None);
    assert!(said.contains("[sampler]") && said.contains(gone), "{said}");

    // It has no weights to train, and its name is not a checkpoint.
    let folder = tempfile::tempdir().unwrap();
    let options = TrainOptions {
        folder: folder.path().join("run"),
        ..TrainOptions::default()
    };
    let checkpoint = format!("policy.checkpoint={gone}");
    let error = train(&config(&[&checkpoint]), &options, &()).unwrap_err();
    let said = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(
        said.contains("is a server") && said.contains("[sampler]"),
        "{said}"
    );
}

#[test]
fn a_server_that_fails_halfway_loses_episodes_and_grades_none() {
    // Lists its model, and has no completions.
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        tell.send(listener.local_addr().unwrap()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or(0);
            let models = head[..read].starts_with(b"GET /v1/models");
            let (status, body) = if models {
                ("200 OK", "{\"data\": [{\"id\": \"m\"}]}")
            } else {
                ("404 Not Found", "{\"detail\": \"Not Found\"}")
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let url = format!("http://{}", told.recv().unwrap());
    let options = EvaluateOptions {
        policy: Some(url.clone()),
        ..EvaluateOptions::default()
    };
    let error = evaluate(&config(&["data.test_questions=3"]), &options, &()).unwrap_err();
    let said = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        said.contains("the policy 3 times") && said.contains(&url) && said.contains("policy.chat"),
        "{said}"
    );
}
