//! The table of metrics says what runs write: every key of every row is in it, and every row of it is written by some run.

use std::collections::BTreeSet;
use std::path::Path;

use forage_contracts::environment::Outcome;
use forage_contracts::seed::Seed;
use forage_contracts::{Metric, STEP_METRICS, Treatment};
use forage_env::registry;
use forage_trainer::metrics::Row;
use forage_trainer::run::{Control, Endings, GrpoConfig, ReplayConfig, RunPlace, Source, run_grpo};
use forage_trainer::sequence::Sequence;
use forage_trainer::{Lessons, SftConfig, UpdateConfig, Workers, run_sft};
use serde_json::json;

use crate::tests::common::problem::{checkpoint, learner, problem};

fn place(folder: &Path) -> RunPlace {
    RunPlace {
        folder: folder.to_owned(),
        seed: 11,
        config_digest: "one".to_owned(),
        resume: false,
        ranks: None,
    }
}

/// The names of all rows of a run.
fn names(folder: &Path) -> BTreeSet<String> {
    let rows = Row::read_all(&folder.join("metrics.jsonl")).unwrap();
    let keys = rows.iter().flat_map(|row| row.0.keys().cloned());
    keys.filter(|name| name != "step").collect()
}

async fn reinforced(algorithm: &str) -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let start = checkpoint(1);
    let curriculum = serde_json::json!({"difficulty": {
        "target": 0.5, "temperature": 0.1, "reference": 1, "attention": 0.2,
    }});
    let update = UpdateConfig {
        objective: serde_json::from_value(json!({
            "algorithm": algorithm,
            "rank_shaping": {"stride": 4},
        }))
        .unwrap(),
        gradient_spectra_every: 1,
        ..UpdateConfig::default()
    };
    let config = GrpoConfig {
        update,
        steps: 3,
        curriculum: serde_json::from_value(curriculum).unwrap(),
        // Of the two this one drops groups.
        refills: usize::from(algorithm == "dapo"),
        prompts_per_step: 2,
        group_size: 3,
        trees: Some(2),
        solved: 2,
        evaluate_every: 2,
        lookahead: 1,
        replay: Some(ReplayConfig {
            capacity: 2,
            share: 0.5,
        }),
        endings: Endings {
            out_of_time: Treatment::Mask,
            ..Endings::default()
        },
        ..GrpoConfig::default()
    };
    let problem = problem(&start, &[("random", 1.0)]);
    let mut learner = Box::new(learner(start, config.update.clone()));
    let (source, place) = (Source::Play(&problem), place(folder.path()));
    let ran = run_grpo(&mut learner, source, &config, &place, |_, _, _| {
        Control::Continue
    });
    Box::pin(ran).await.unwrap();
    names(folder.path())
}

fn imitated() -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let sequence = |first: u32| Sequence {
        ids: vec![first, 1, 2, 3],
        targets: vec![2, 3],
        ..Sequence::default()
    };
    let lessons = Lessons::split((0..5).map(sequence).collect(), 0.2, Seed::root(3)).unwrap();
    let config = SftConfig {
        epochs: 1,
        batch: 2,
        learning_rate: 1e-2,
        micro_batch_tokens: 60,
        validate_every: 2,
        gradient_spectra_every: 2,
        checkpoint_every: 0,
        keep_checkpoints: 1,
    };
    run_sft(
        checkpoint(1),
        &lessons,
        &config,
        &place(folder.path()),
        Workers::new(1),
        |_| Control::Continue,
    )
    .unwrap();
    names(folder.path())
}

#[tokio::test]
async fn rows_and_the_table_have_the_same_names() {
    let mut written = reinforced("dapo").await;
    written.extend(reinforced("ppo").await);
    written.extend(imitated());
    for name in &written {
        assert!(registry::metric(name).is_some(), "the table lacks {name}");
    }
    // Those of turns that are paid, of a penalty for leaving the reference, of published graders, of searches and of several data sets are
    // tested beside the row (`run/rows.rs`), those of pushes with servers (`remote/verified.rs`), what a curriculum leaves out or weighs
    // beside it (`curriculum/tests.rs`), batches put together anew and hints in `batches.rs`; a validation has the name of its measure.
    let elsewhere = [
        Metric::REWARD_TURNS,
        Metric::KL_REFERENCE,
        Metric::PUBLISHED_DIFFERS,
        Metric::PUBLISHED_EXCESS,
        Metric::SEARCH_EMPTY,
        Metric::QUESTIONS_LEFT,
        Metric::LARGEST_SHARE,
        Metric::HINTED,
        Metric::PRIORITY,
        Metric::PUSH_VERIFIED,
        Metric::PUSH_GAP,
    ];
    written.extend(elsewhere.map(str::to_owned));
    let measures = [Outcome::Answer, Outcome::Ranking].map(Outcome::measure);
    for measure in measures.into_iter().chain(["reward"]) {
        let name = Metric::VAL.replace('*', measure);
        assert!(STEP_METRICS.iter().any(|metric| metric.name == name));
        written.extend([format!("{name}_macro"), name.replace('/', "/nq/"), name]);
    }
    for metric in STEP_METRICS {
        let seen = |name: &String| Metric::part(metric.name, name).is_some();
        assert!(written.iter().any(seen), "nobody writes {}", metric.name);
    }
    let all: Vec<&str> = registry::metrics().map(|metric| metric.name).collect();
    let distinct: BTreeSet<&&str> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "a name comes twice");
}
