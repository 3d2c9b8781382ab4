use forage_env::environment::TurnKind;
use forage_env::episode::Episode;
use forage_env::tokens::Provenance;
use forage_eval::answers::Answers;
use forage_eval::at_k::{Attempts, attempts_by_question};
use forage_eval::calibration::stated;
use forage_eval::cost::{CostPerCorrect, PerCorrect, budget_curve};
use forage_eval::stats::{StatsError, wilson};
use forage_eval::{EvalSummary, Interval};

use super::fixtures::{SETTINGS, episode, episodes, infra, truncated};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// The same without its first search.
fn hasty(index: usize, correct: bool) -> Episode {
    let mut hasty = episode(index, correct);
    hasty.turns.remove(0);
    hasty
}

#[test]
fn samples_are_counted_by_normalised_answer() {
    let mut shouted = episode(0, true);
    shouted.turns[3].kind = TurnKind::answer("The VARNHOLT.");
    let mut silent = truncated(0);
    silent.turns.pop();
    let samples = [
        episode(0, true),
        shouted,
        episode(0, false),
        silent,
        infra(0),
        episode(1, false),
    ];
    let found: Vec<Attempts> = attempts_by_question(&samples).into_values().collect();
    assert_eq!(
        found[0],
        Attempts {
            right: vec![2],
            wrong: vec![1],
            blank: 1
        }
    );
    assert_eq!(
        found[1],
        Attempts {
            right: vec![],
            wrong: vec![1],
            blank: 0
        }
    );
    assert!(attempts_by_question(&[infra(0)]).is_empty());
}

#[test]
fn costs_are_shared_out_over_right_answers() -> TestResult {
    let sets = episodes(60, |index| index % 3 == 0);
    let costs = CostPerCorrect::from_episodes(&sets, SETTINGS)?;
    let estimate = |cost| match cost {
        PerCorrect::Measured(Interval { estimate, .. }) => estimate,
        other => panic!("20 of 60 are right: {other:?}"),
    };
    assert!(
        (estimate(costs.searches) - 6.0).abs() < 1e-9
            && (estimate(costs.turns) - 12.0).abs() < 1e-9
    );
    let tokens: usize = sets
        .iter()
        .map(|episode| episode.tokens.count(Provenance::Environment))
        .sum();
    assert!((estimate(costs.observation_tokens) - tokens as f64 / 20.0).abs() < 1e-9);
    assert_eq!(costs.questions, 60);
    let hopeless = CostPerCorrect::from_episodes(&episodes(60, |_| false), SETTINGS)?;
    assert_eq!(
        (hopeless.searches, hopeless.policy_tokens),
        (PerCorrect::NoneCorrect, PerCorrect::NoneCorrect)
    );
    assert_eq!(
        serde_json::to_value(hopeless.turns)?,
        serde_json::json!({"claim": "none_correct"})
    );
    assert_eq!(
        CostPerCorrect::from_episodes(&[infra(0)], SETTINGS),
        Err(StatsError::Empty)
    );
    Ok(())
}

#[test]
fn a_budget_counts_what_was_found_within_it() -> TestResult {
    // Of 40 questions, 10 are solved with one search, 10 with two.
    let mut sets: Vec<Episode> = (0..10).map(|index| hasty(index, true)).collect();
    sets.extend((10..20).map(|index| episode(index, true)));
    sets.extend((20..40).map(|index| episode(index, false)));
    let curve = budget_curve(&sets, &[0, 1, 2, 3], SETTINGS)?;
    let found: Vec<f64> = curve.iter().map(|point| point.em.estimate).collect();
    assert_eq!(found, [0.0, 0.25, 0.5, 0.5]);
    assert_eq!(curve[1].em, wilson(10, 40, 0.95)?);
    Ok(())
}

#[test]
fn certainties_are_read_where_they_are_stated() -> TestResult {
    let says = |index: usize, correct: bool, words: &str| {
        let mut told = episode(index, correct);
        told.turns[3].policy.insert_str(0, words);
        told
    };
    let cases = [
        ("<confidence> 0.8 </confidence>", Some(0.8)),
        (
            "<confidence>0.1</confidence> no, <confidence>65 %</confidence>",
            Some(0.65),
        ),
        ("<confidence>sure</confidence>", None),
        ("<confidence>1.5</confidence>", None),
        ("<confidence>0.5", None),
        ("", None),
    ];
    for (words, certainty) in cases {
        assert_eq!(
            stated(&says(0, true, words)),
            certainty.map(|certainty| (certainty, true)),
            "{words}"
        );
    }
    assert_eq!(stated(&infra(0)), None);
    let sets: Vec<Episode> = (0..40)
        .map(|index| says(index, index < 30, "<confidence>75%</confidence>"))
        .collect();
    let found = Answers::of(&sets, &[], SETTINGS)?.ok_or("graded")?;
    let calibration = found.calibration.as_ref().ok_or("stated")?;
    assert!(calibration.ece < 1e-12 && (calibration.brier.estimate - 0.1875).abs() < 1e-12);
    insta::assert_snapshot!(found.to_text());
    assert!(
        Answers::of(&episodes(9, |_| true), &[], SETTINGS)?
            .ok_or("graded")?
            .calibration
            .is_none()
    );
    Ok(())
}

#[test]
fn none_right_is_no_proof_and_counts_pass_one() -> TestResult {
    let summary = EvalSummary::from_episodes(&episodes(20, |_| false), SETTINGS)?;
    let em = summary.metric("em").ok_or("em")?;
    assert!(em.low.abs() < 1e-12 && em.high > 0.15, "{em:?}");
    let once: Vec<Episode> = (0..20).map(|index| hasty(index, true)).collect();
    let searches = EvalSummary::from_episodes(&once, SETTINGS)?
        .metric("searches")
        .ok_or("searches")?;
    assert!(
        searches.ends().iter().all(|end| (end - 1.0).abs() < 1e-12),
        "{searches:?}"
    );
    Ok(())
}
