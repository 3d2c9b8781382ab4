//! Part of a file of a run's checkpoint is other bytes: the run is resumed from it, or it is refused with the file.
//!
//! Byte 0 of the input chooses the file, byte 1 how it is changed, bytes 2 and 3 where; the rest is written there. The lowest three
//! bits of the second: with 0 the digests stay as they were and refuse the file, with 1 there are none, as in checkpoints of older
//! versions; else they are those of the changed files, as whoever means harm would write them. With bit 0x08 the file ends behind the
//! bytes, with 0x10 the checkpoint begins another run too, with 0x20 it is that of an adapter.

#![no_main]

use std::cell::RefCell;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use forage_contracts::environment::TurnKind;
use forage_contracts::policy::Finish;
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Score, Task, TokenLog, Turn};
use forage_env::{EpisodeWriter, HfTokenizer};
use forage_trainer::checkpoint::{fork, newest};
use forage_trainer::device::DeviceSpec;
use forage_trainer::run::{Control, GrpoConfig, RunError, RunPlace, Source, run_grpo};
use forage_trainer::{
    Architecture, Checkpoint, Decoder, EngineConfig, Learner, LoraConfig, ModelConfig, Sample,
    Targets, Workers,
};
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime;

const VOCABULARY: usize = 16;
const CONTEXT: usize = 32;
const SUMS: &str = "BLAKE3SUMS";
/// Files that are copied and never read again: the run has them from its start.
const UNREAD: [&str; 3] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
];
const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
    "model":{"type":"WordLevel","vocab":{"[END]":0,"[UNK]":1,"a":2},"unk_token":"[UNK]"}}"#;
/// A group of two rollouts that earned differently, with the log-probabilities of a policy that knows nothing.
const ROLLOUTS: &str = r#"{"group":0,"ids":[2,3,4,5],"mask":[0,0,1,1],"logprobs":[0,0,-2.77,-2.77],"reward":1.0}
{"group":0,"ids":[2,3,6,7],"mask":[0,0,1,1],"logprobs":[0,0,-2.77,-2.77],"reward":0.0}
"#;

thread_local! {
    /// A run of whole weights and one of an adapter, each with a critic. They are never dropped: there is nothing left to wait for
    /// when a process ends.
    static RUNS: &'static RefCell<[Run; 2]> =
        Box::leak(Box::new(RefCell::new([false, true].map(Run::make))));
}

/// A run that has done a step, and its checkpoint.
struct Run {
    place: TempDir,
    checkpoint: PathBuf,
    /// Every file but the digests by its path in the checkpoint.
    files: Vec<(String, Vec<u8>)>,
    learner: Learner,
    groups: Vec<Vec<Sample>>,
    runtime: runtime::Runtime,
}

impl Run {
    fn make(is_adapter: bool) -> Self {
        let place = tempfile::tempdir().expect("a temporary folder");
        let rollouts = place.path().join("rollouts.jsonl");
        std::fs::write(&rollouts, ROLLOUTS).expect("room for a small file");
        let mut run = Self {
            groups: Sample::read_groups(&rollouts, VOCABULARY, CONTEXT, None).expect("rollouts"),
            learner: learner(is_adapter),
            runtime: runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime"),
            checkpoint: PathBuf::new(),
            files: Vec::new(),
            place,
        };
        run.go(1, false).expect("a step");
        let saved = newest(run.folder()).expect("a checkpoint");
        run.checkpoint = saved.expect("a checkpoint");
        for name in ["ahead.jsonl", "replay.jsonl", "solved.jsonl"] {
            let path = run.checkpoint.join(name);
            let mut writer = EpisodeWriter::create(&path).expect("room for a small file");
            writer.write(episode()).expect("room for a small file");
            writer.finish().expect("room for a small file");
        }
        let asked =
            json!({"questions": "", "asked": [{"question": 0, "step": 0, "accuracy": 0.5}]});
        std::fs::write(run.checkpoint.join("asked.json"), asked.to_string())
            .expect("room for a small file");
        files(&run.checkpoint, "", &mut run.files);
        run.files.sort();
        run.put(SUMS, run.sums("", &[]).as_bytes());
        run.go(0, true).expect("a checkpoint that nobody changed");
        let state = std::fs::read_to_string(run.checkpoint.join("state.json")).expect("a state");
        for part in ["\"updates\": 1", "\"critic_updates\": 1"] {
            assert!(state.contains(part), "nothing was learned: {state}");
        }
        run
    }

    fn folder(&self) -> &Path {
        self.place.path()
    }

    /// Runs to so many steps in all; where these are done, the checkpoint is read and nothing else happens.
    fn go(&mut self, steps: u64, resume: bool) -> Result<(), RunError> {
        let config = json!({
            "steps": steps,
            "prompts_per_step": 1,
            "group_size": 2,
            "update": {"objective": {"algorithm": "ppo"}},
            "sentinel": {"stop": false},
        });
        let config: GrpoConfig = serde_json::from_value(config).expect("a config");
        let place = RunPlace {
            folder: self.folder().to_owned(),
            seed: 1,
            config_digest: "fuzz".to_owned(),
            resume,
            ranks: None,
        };
        let source = Source::Recorded(&self.groups);
        let learner = &mut self.learner;
        let ran = run_grpo(learner, source, &config, &place, |_, _, _| {
            Control::Continue
        });
        self.runtime.block_on(Box::pin(ran))
    }

    /// Writes a file in place of another: what is mapped still stays as it is.
    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.checkpoint.join(name);
        let _ = std::fs::remove_file(&path);
        std::fs::write(path, bytes).expect("room for a small file");
    }

    /// The digests of all files, of which one holds other bytes.
    fn sums(&self, changed: &str, bytes: &[u8]) -> String {
        let mut text = String::new();
        for (name, before) in &self.files {
            let bytes = if name == changed {
                bytes
            } else {
                before.as_slice()
            };
            let _ = writeln!(text, "{}  {name}", blake3::hash(bytes).to_hex());
        }
        text
    }

    fn meet(&mut self, data: [u8; 4], rest: &[u8]) {
        let [file, how, high, low] = data;
        let read: Vec<&(String, Vec<u8>)> = self
            .files
            .iter()
            .filter(|(name, _)| !UNREAD.iter().any(|unread| name.ends_with(*unread)))
            .collect();
        let whole = self.sums("", &[]).into_bytes();
        // One of them is the digests themselves.
        let (name, before) = match read.get(usize::from(file) % (read.len() + 1)) {
            Some((name, bytes)) => (name.clone(), bytes.clone()),
            None => (SUMS.to_owned(), whole.clone()),
        };
        let mut bytes = before.clone();
        let start = usize::from(u16::from_be_bytes([high, low])) % (bytes.len() + 1);
        let end = if how & 0x08 == 0 {
            bytes.len().min(start + rest.len())
        } else {
            bytes.len()
        };
        bytes.splice(start..end, rest.iter().copied());
        self.put(&name, &bytes);
        match how & 0x07 {
            1 if name != SUMS => {
                std::fs::remove_file(self.checkpoint.join(SUMS)).expect("there are digests");
            }
            2.. if name != SUMS => self.put(SUMS, self.sums(&name, &bytes).as_bytes()),
            _ => {}
        }

        if let Err(error) = self.go(0, true) {
            assert!(matches!(error, RunError::Checkpoint(_)), "{error:?}");
            check(&error);
        }
        if let Err(error) = newest(self.folder()) {
            check(&error);
        }
        if how & 0x10 != 0 {
            self.fork();
        }
        self.put(&name, &before);
        self.put(SUMS, &whole);
    }

    /// A run that begins from the checkpoint has one of its own.
    fn fork(&self) {
        let other = self.folder().join("other");
        match fork(&self.checkpoint, &other, "other", &[]) {
            Ok(_) => match newest(&other) {
                Ok(found) => assert!(found.is_some(), "the copy is lost"),
                // JSON has no word for what is too large for an f32.
                Err(error) => check(&error),
            },
            Err(error) => check(&error),
        }
        let _ = std::fs::remove_dir_all(other);
    }
}

/// The error, with its causes, says which checkpoint it is of.
fn check(error: &dyn Error) {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(told, ": {error}");
        cause = error.source();
    }
    assert!(told.contains("step-"), "{told}");
}

/// A small decoder with its critic.
fn learner(is_adapter: bool) -> Learner {
    let config = ModelConfig {
        architecture: Architecture::named("qwen3").expect("a family"),
        vocab_size: VOCABULARY,
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 1,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        max_position_embeddings: 64,
        rope_theta: 10_000.0,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
    };
    let device = DeviceSpec::default().open().expect("the processor");
    let decoder = Decoder::random(&config, Seed::root(1), &device);
    let tokenizer = HfTokenizer::from_bytes(TOKENIZER.as_bytes(), "[END]").expect("a tokenizer");
    let mut start = Checkpoint::new(config, decoder, tokenizer, TOKENIZER.as_bytes().to_vec());
    if is_adapter {
        let lora = LoraConfig {
            rank: 2,
            alpha: 4.0,
            rank_stabilised: false,
            dropout: 0.0,
            targets: Targets::Names(vec!["q_proj".to_owned(), "down_proj".to_owned()]),
            base: "base".to_owned(),
        };
        start.adapt(lora, Seed::root(2)).expect("projections");
    }
    let update: GrpoConfig =
        serde_json::from_value(json!({"update": {"objective": {"algorithm": "ppo"}}}))
            .expect("a config");
    let engine = EngineConfig {
        context: CONTEXT,
        cache_tokens: 64,
        step_tokens: 32,
        sequences: 1,
        bf16: false,
    };
    Learner::new(start, update.update, engine, Workers::new(1))
}

fn episode() -> Episode {
    let mut tokens = TokenLog::with_prompt(&[2, 3]);
    tokens.push_policy(&[4, 5], &[-2.5, -2.5], 0, None);
    Episode {
        prompt: "a".to_owned(),
        turns: vec![Turn {
            policy: "a".to_owned(),
            finish: Finish::Eos,
            kind: TurnKind::answer("a"),
            observation: String::new(),
            reward: 0.0,
        }],
        tokens,
        score: Some(Score {
            total: 1.0,
            ..Score::default()
        }),
        ..Episode::new(Task::new("1", "Who?"))
    }
}

/// Every file of a folder but the digests, by its path.
fn files(folder: &Path, prefix: &str, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).expect("a checkpoint") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            files(&path, &format!("{name}/"), found);
        } else if name != SUMS {
            found.push((name, std::fs::read(&path).expect("a file of a checkpoint")));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [file, how, high, low, rest @ ..] = data else {
        return;
    };
    RUNS.with(|runs| {
        let mut runs = runs.borrow_mut();
        runs[usize::from(how & 0x20 != 0)].meet([*file, *how, *high, *low], rest);
    });
});
