//! Runs whose episodes begin with hints, and runs that learn later from what their batches left out.

use std::path::Path;

use forage_trainer::metrics::Row;
use forage_trainer::run::{
    Control, GrpoConfig, HintConfig, RecompositionConfig, ReplayConfig, RunError, Source, run_grpo,
};

use super::reference::assert_close;
use super::resume::{config, place, rows, run_as, run_in};
use crate::learner::UpdateConfig;
use crate::tests::common::floats;
use crate::tests::common::problem::{checkpoint, learner, problem, problem_of, settings};

fn recomposed() -> GrpoConfig {
    let written = serde_json::json!({"share": 0.5, "compensation": 1.0, "capacity": 4});
    GrpoConfig {
        steps: 8,
        group_size: 6,
        recomposition: Some(serde_json::from_value::<RecompositionConfig>(written).unwrap()),
        ..config()
    }
}

#[tokio::test]
async fn a_run_that_recomposes_learns_later_from_what_it_left_out_and_resumes_with_it() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = recomposed();
    let (result, expected) = run_as(&config, checkpoint(1), whole.path(), false, u64::MAX).await;
    result.unwrap();
    let plain = GrpoConfig {
        recomposition: None,
        ..config.clone()
    };
    let folder = tempfile::tempdir().unwrap();
    let (_, at_once) = run_as(&plain, checkpoint(1), folder.path(), false, u64::MAX).await;
    assert!(expected != at_once, "it changes what is learned");
    let rows_of_whole = Row::read_all(&whole.path().join("metrics.jsonl")).unwrap();
    let figures = |name: &str| -> Vec<f64> {
        let figure = |row: &Row| row.get(name).unwrap();
        rows_of_whole.iter().map(figure).collect()
    };
    let at_once = figures("recomposition/priority_frac");
    assert!(at_once.iter().all(|share| (0.5..1.0).contains(share)));
    // The first step has nothing to make up for, and at the last there is no chance of it.
    let later = figures("replay/groups");
    assert_eq!((later[0], later[7]), (0.0, 0.0));
    let updates = figures("policy/updates");
    assert!(later.contains(&2.0), "{later:?}");
    for (groups, updates) in later.iter().zip(updates) {
        assert!([0.0, 2.0].contains(groups), "whole batches");
        assert!(updates <= 1.0 + groups / 2.0);
    }
    let (first, _) = run_as(&config, checkpoint(1), broken.path(), false, 3).await;
    assert!(
        matches!(first, Err(RunError::Interrupted { step: 3, .. })),
        "{first:?}"
    );
    let (second, found) = run_as(&config, checkpoint(1), broken.path(), true, u64::MAX).await;
    second.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
}

#[tokio::test]
async fn averages_of_hidden_states_move_once_per_step() {
    let folder = tempfile::tempdir().unwrap();
    let objective = serde_json::json!({"rank_shaping": {"stride": 2, "positions": 16}});
    let update = UpdateConfig {
        objective: serde_json::from_value(objective).unwrap(),
        ..config().update
    };
    let config = GrpoConfig {
        update,
        ..recomposed()
    };
    let (result, _) = run_as(&config, checkpoint(1), folder.path(), false, u64::MAX).await;
    result.unwrap();
    let rows = Row::read_all(&folder.path().join("metrics.jsonl")).unwrap();
    let compensated = |row: &Row| row.get("replay/groups") == Some(2.0);
    assert!(rows.iter().any(compensated));
    let names = ["", "_velocity", "_acceleration"].map(|of| format!("policy/effective_rank{of}"));
    let mut expected: Option<[f64; 3]> = None;
    for row in &rows {
        let [Some(rank), Some(velocity), Some(acceleration)] =
            names.each_ref().map(|name| row.get(name))
        else {
            continue;
        };
        let means = [rank, velocity, acceleration];
        let before = expected.unwrap_or(means);
        expected = Some([0, 1, 2].map(|kind: usize| 0.7 * before[kind] + 0.3 * means[kind]));
    }
    let state = folder.path().join("checkpoints/step-000008/state.json");
    let state: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(state).unwrap()).unwrap();
    for (found, expected) in floats(&state["averages"]).iter().zip(expected.unwrap()) {
        assert_close(*found, expected, 1e-5, "an average");
    }
}

#[tokio::test]
async fn a_run_with_hints_resumes_and_learns_from_what_follows_them() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let written = serde_json::json!({"rounds": 3, "first": 1.0, "style": "terse"});
    let config = GrpoConfig {
        steps: 4,
        group_size: 4,
        hints: Some(serde_json::from_value::<HintConfig>(written).unwrap()),
        lookahead: 1,
        ..config()
    };
    // Room for the oracle's turns.
    let mut room = settings();
    room["max_turn_tokens"] = 30.into();
    let problem = problem_of(&checkpoint(1), &[("random", 1.0)], room);
    let run = async |config: &GrpoConfig, folder: &Path, resume, stop_after| {
        let start = checkpoint(1);
        Box::pin(run_in(&problem, config, start, folder, resume, stop_after)).await
    };
    let (result, expected) = run(&config, whole.path(), false, u64::MAX).await;
    result.unwrap();
    let of_whole = Row::read_all(&whole.path().join("metrics.jsonl")).unwrap();
    let hinted = of_whole
        .iter()
        .map(|row| row.get("curriculum/hinted_turns_mean").unwrap());
    let hinted: Vec<f64> = hinted.collect();
    assert!(hinted.iter().any(|&turns| turns > 0.0), "{hinted:?}");
    let plain = GrpoConfig {
        hints: None,
        ..config.clone()
    };
    let folder = tempfile::tempdir().unwrap();
    let (_, without) = run(&plain, folder.path(), false, u64::MAX).await;
    assert!(expected != without, "hints change what is learned");
    let (first, _) = run(&config, broken.path(), false, 3).await;
    assert!(
        matches!(first, Err(RunError::Interrupted { step: 3, .. })),
        "{first:?}"
    );
    let (second, found) = run(&config, broken.path(), true, u64::MAX).await;
    second.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
}

#[tokio::test]
async fn hints_are_refused_where_nothing_is_played() {
    let folder = tempfile::tempdir().unwrap();
    let written = serde_json::json!({"rounds": 2, "first": 0.5});
    let config = GrpoConfig {
        hints: Some(serde_json::from_value::<HintConfig>(written).unwrap()),
        ..config()
    };
    let mut learner = learner(checkpoint(1), config.update.clone());
    let recorded = [Vec::new()];
    let (source, place) = (Source::Recorded(&recorded), place(folder.path(), false));
    let ran = run_grpo(&mut learner, source, &config, &place, |_, _, _| {
        Control::Continue
    });
    let error = Box::pin(ran).await.unwrap_err().to_string();
    assert!(
        error.contains("grpo.hints: recorded rollouts have the hints"),
        "{error}"
    );
}

#[tokio::test]
async fn what_cannot_be_recomposed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let start = checkpoint(1);
    let problem = problem(&start, &[("random", 1.0)]);
    let mut learner = learner(start, config().update);
    let recorded = [Vec::new()];
    let replay = Some(ReplayConfig {
        capacity: 2,
        share: 0.5,
    });
    for (source, replay, expected) in [
        (Source::Play(&problem), replay, "remove grpo.replay"),
        (
            Source::Recorded(&recorded),
            None,
            "grpo.recomposition: recorded rollouts are learned from as they are",
        ),
    ] {
        let config = GrpoConfig {
            replay,
            ..recomposed()
        };
        let place = place(folder.path(), false);
        let ran = run_grpo(&mut learner, source, &config, &place, |_, _, _| {
            Control::Continue
        });
        let error = Box::pin(ran).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
