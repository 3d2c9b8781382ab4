//! A run of supervised fine-tuning: what it learns, and how it goes on when it was interrupted.

use std::path::{Path, PathBuf};

use forage_contracts::Tokenizer;
use forage_contracts::policy::{GenerateRequest, Policy, Sampling};
use forage_contracts::seed::Seed;

use super::demonstrations::{ALL, read_lines};
use crate::tests::common::problem::{ENGINE, checkpoint};
use forage_trainer::metrics::Row;
use forage_trainer::run::{Control, RunError, RunPlace};
use forage_trainer::weights::Checkpoint;
use forage_trainer::weights::write::save_decoder;
use forage_trainer::{
    Engine, Lessons, LoraConfig, SftConfig, Targets, Workers, checkpoint as checkpoints, run_sft,
};
use serde_json::{Value, json};

/// Questions and answers to learn by heart.
const LESSONS: [(&str, &str); 5] = [
    ("Question: Who fixes clocks?\n", "<answer>Ada</answer>"),
    ("Question: Who sings?\n", "<search>the singer</search>"),
    ("Question: Where is Orlen?\n", "<answer>by the sea</answer>"),
    (
        "Question: When was it built?\n",
        "<search>built in</search>",
    ),
    ("Question: Who sleeps?\n", "<answer>nobody</answer>"),
];

fn lessons(share: f64) -> Lessons {
    let line = |(prompt, completion): &(&str, &str)| {
        json!({"prompt": prompt, "completion": completion}).to_string()
    };
    let lines: Vec<String> = LESSONS.iter().map(line).collect();
    let sequences = read_lines(&lines, &checkpoint(1), &ALL).unwrap().sequences;
    Lessons::split(sequences, share, Seed::root(3)).unwrap()
}

fn config() -> SftConfig {
    SftConfig {
        epochs: 3,
        batch: 2,
        learning_rate: 1e-2,
        micro_batch_tokens: 60,
        validate_every: 2,
        gradient_spectra_every: 0,
        checkpoint_every: 2,
        keep_checkpoints: 2,
    }
}

fn place(folder: &Path, resume: bool) -> RunPlace {
    RunPlace {
        folder: folder.to_owned(),
        seed: 11,
        config_digest: "one".to_owned(),
        resume,
        ranks: None,
    }
}

/// Lessons that the policy repeats to the letter, and then ends.
async fn repeated(checkpoint: &Checkpoint) -> usize {
    let engine = Engine::start(checkpoint, ENGINE, Workers::new(1).kernel_pool());
    let mut count = 0;
    for (episode, (prompt, completion)) in (0..).zip(LESSONS) {
        let request = GenerateRequest {
            episode,
            tokens: checkpoint.tokenizer.encode(prompt),
            max_tokens: 40,
            stop: Vec::new(),
            ignore_eos: false,
            sampling: Sampling::GREEDY,
            seed: Seed::root(0),
        };
        let found = engine.generate(request).await.unwrap();
        count += usize::from(
            checkpoint.tokenizer.decode(&found.tokens) == format!("{completion}<|endoftext|>"),
        );
    }
    count
}

#[tokio::test]
async fn demonstrations_are_learned_by_heart() {
    let folder = tempfile::tempdir().unwrap();
    let config = SftConfig {
        epochs: 80,
        checkpoint_every: 0,
        validate_every: 0,
        ..config()
    };
    let start = checkpoint(1);
    assert_eq!(repeated(&start).await, 0);
    let run = place(folder.path(), false);
    let trained = run_sft(start, &lessons(0.0), &config, &run, Workers::new(2), |_| {
        Control::Continue
    })
    .unwrap();
    let rows = Row::read_all(&folder.path().join("metrics.jsonl")).unwrap();
    assert_eq!(rows.len(), 240, "three steps an epoch");
    let loss = |row: &Row| row.get("sft/loss").unwrap();
    assert!(
        loss(&rows[0]) > 4.0 && loss(&rows[239]) < 0.1,
        "{} to {}",
        loss(&rows[0]),
        loss(&rows[239])
    );
    let rates: Vec<f64> = rows
        .iter()
        .map(|row| row.get("optim/lr").unwrap())
        .collect();
    let highest = rates.iter().copied().fold(0.0, f64::max);
    assert!(
        rates[0] < 0.2 * highest && rates[239] < 0.01 * highest,
        "warm-up, then half a cosine: {rates:?}"
    );
    assert!(
        rows.iter().all(|row| row.get("sft/val_loss").is_none()),
        "nothing was held out"
    );
    assert_eq!(repeated(&trained).await, LESSONS.len());
}

/// Runs until done or until `stop_after` steps of this session; what it leaves is its weights.
fn run(
    start: Checkpoint,
    folder: &Path,
    resume: bool,
    stop_after: u64,
) -> Result<Vec<u8>, RunError> {
    let mut seen = 0;
    let trained = run_sft(
        start,
        &lessons(0.2),
        &config(),
        &place(folder, resume),
        Workers::new(2),
        |_| {
            seen += 1;
            if seen >= stop_after {
                Control::Stop
            } else {
                Control::Continue
            }
        },
    )?;
    let path = folder.join("trained.safetensors");
    save_decoder(&path, &trained.merge().decoder).unwrap();
    Ok(std::fs::read(path).unwrap())
}

/// Metrics without what the clock says.
fn rows(folder: &Path) -> Vec<String> {
    let rows = Row::read_all(&folder.join("metrics.jsonl")).unwrap();
    rows.into_iter()
        .map(|mut row| {
            row.0.retain(|name, _| !name.starts_with("time/"));
            Value::Object(row.0).to_string()
        })
        .collect()
}

fn newest(folder: &Path) -> PathBuf {
    checkpoints::newest(folder).unwrap().unwrap()
}

#[test]
fn resumed_equals_uninterrupted() {
    let adapted = || {
        let mut start = checkpoint(1);
        let targets = Targets::AllLinear;
        let lora = LoraConfig {
            rank: 4,
            alpha: 8.0,
            rank_stabilised: false,
            dropout: 0.0,
            targets,
            base: "base".to_owned(),
        };
        start.adapt(lora, Seed::root(2)).unwrap();
        start
    };
    for (start, file) in [
        (
            &(|| checkpoint(1)) as &dyn Fn() -> Checkpoint,
            "model/model.safetensors",
        ),
        (&adapted, "model/adapter_model.safetensors"),
    ] {
        let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let expected = run(start(), whole.path(), false, u64::MAX).unwrap();
        let first = run(start(), broken.path(), false, 3).unwrap_err();
        assert!(
            matches!(first, RunError::Interrupted { step: 3, .. }),
            "{first:?}"
        );
        let words = first.to_string();
        assert!(
            words.starts_with("interrupted after step 3 of 6; "),
            "{words}"
        );
        let found = run(start(), broken.path(), true, u64::MAX).unwrap();
        assert!(expected == found, "weights differ");
        assert_eq!(rows(whole.path()), rows(broken.path()));
        for file in [file, "optimizer.safetensors"] {
            let bytes = |folder: &Path| std::fs::read(newest(folder).join(file)).unwrap();
            assert!(
                bytes(whole.path()) == bytes(broken.path()),
                "{file} differs"
            );
        }
        let rows = Row::read_all(&whole.path().join("metrics.jsonl")).unwrap();
        let measured = rows.iter().filter(|row| row.get("sft/val_loss").is_some());
        assert_eq!(
            measured.map(Row::step).collect::<Vec<_>>(),
            [1, 3, 5],
            "six steps, every second one"
        );
    }
}
