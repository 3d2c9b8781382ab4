//! Data sets of other kinds.

use forage_contracts::Episode;
use forage_eval::{SeedEpisodes, Study};

use super::super::fixtures::SETTINGS;
use super::super::summary::two_sources;
use super::TestResult;

/// Questions without an accepted answer, which another reward than exact match pays for, have no figures of their own.
#[test]
fn a_data_set_without_exact_match_is_left_out() -> TestResult {
    let open = |mut set: Vec<Episode>| {
        for episode in &mut set[30..] {
            if let Some(score) = &mut episode.score {
                score.parts.remove("em");
            }
        }
        set
    };
    let seed = SeedEpisodes {
        seed: 1,
        start: open(two_sources(&|_| false, &|_| false)),
        arms: vec![(
            "trained".to_owned(),
            open(two_sources(&|index| index < 15, &|_| false)),
        )],
        baselines: Vec::new(),
    };
    let found = Study::of(&[seed], SETTINGS)?;
    assert_eq!(found.questions, 30);
    assert!((found.arms[0].gain.estimate - 0.5).abs() < 1e-9);
    let names: Vec<&str> = found.by_source.keys().map(String::as_str).collect();
    assert_eq!(names, ["nq"]);
    Ok(())
}
