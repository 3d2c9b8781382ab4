use forage_contracts::environment::TurnKind;
use forage_contracts::{Episode, Provenance};
use forage_eval::cost::PerCorrect;
use forage_eval::stats::{StatsError, mean_interval};
use forage_eval::{Answers, EvalSummary, Interval};

use super::fixtures::{SETTINGS, episode, episodes, infra, truncated};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// The same without its first search.
fn hasty(index: usize, correct: bool) -> Episode {
    let mut hasty = episode(index, correct);
    hasty.turns.remove(0);
    hasty
}

/// The part of an evaluation that right answers have.
fn answers(greedy: &[Episode], sampled: &[Episode]) -> Result<Answers, StatsError> {
    Ok(Answers::of(greedy, sampled, SETTINGS)?.expect("they are graded"))
}

#[test]
fn samples_are_counted_by_normalised_answer() -> TestResult {
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
    ];
    let greedy = [episode(0, true)];
    let found = answers(&greedy, &samples)?;
    let ks: Vec<usize> = found.pass_at_k.iter().map(|point| point.k).collect();
    assert_eq!(ks, [1, 2, 4], "a fault is not a sample, silence is one");
    let pass: Vec<f64> = found
        .pass_at_k
        .iter()
        .map(|point| point.value.estimate)
        .collect();
    assert!((pass[0] - 0.5).abs() < 1e-9 && (pass[1] - 5.0 / 6.0).abs() < 1e-9);
    // Two votes for one answer beat one for another; told apart by case they would tie.
    assert!((found.majority_at_k[2].value.estimate - 1.0).abs() < 1e-9);
    // A question with one sample leaves no curve.
    let few = [samples.as_slice(), &[episode(1, false)]].concat();
    assert!(answers(&greedy, &few)?.pass_at_k.is_empty());
    Ok(())
}

#[test]
fn costs_are_shared_out_over_right_answers() -> TestResult {
    let sets = episodes(60, |index| index % 3 == 0);
    let costs = answers(&sets, &[])?.cost;
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
    let hopeless = answers(&episodes(60, |_| false), &[])?.cost;
    assert_eq!(
        (hopeless.searches, hopeless.policy_tokens),
        (PerCorrect::NoneCorrect, PerCorrect::NoneCorrect)
    );
    assert_eq!(
        serde_json::to_value(hopeless.turns)?,
        serde_json::json!({"claim": "none_correct"})
    );
    assert_eq!(Answers::of(&[infra(0)], &[], SETTINGS), Ok(None));
    Ok(())
}

#[test]
fn a_budget_counts_what_was_found_within_it() -> TestResult {
    // Of 40 questions, 10 are solved with one search, 10 with two.
    let mut sets: Vec<Episode> = (0..10).map(|index| hasty(index, true)).collect();
    sets.extend((10..20).map(|index| episode(index, true)));
    sets.extend((20..40).map(|index| episode(index, false)));
    let curve = answers(&sets, &[])?.budgets;
    let found: Vec<f64> = curve.iter().map(|point| point.em.estimate).collect();
    assert_eq!(found, [0.0, 0.25, 0.5, 0.5]);
    let right: Vec<f64> = (0..40)
        .map(|index| f64::from(u8::from(index < 10)))
        .collect();
    assert_eq!(curve[1].em, mean_interval(&right, SETTINGS)?);
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
        let found = answers(&[says(0, true, words)], &[])?.calibration;
        let stated = found.map(|found| (found.bins[0].stated, found.bins[0].right));
        assert_eq!(
            stated,
            certainty.map(|certainty| (certainty, 1.0)),
            "{words}"
        );
    }
    let sets: Vec<Episode> = (0..40)
        .map(|index| says(index, index < 30, "<confidence>75%</confidence>"))
        .collect();
    let found = answers(&sets, &[])?;
    let calibration = found.calibration.as_ref().ok_or("stated")?;
    assert!(calibration.ece < 1e-12 && (calibration.brier.estimate - 0.1875).abs() < 1e-12);
    insta::assert_snapshot!(found.to_text());
    let unstated = answers(&episodes(9, |_| true), &[])?;
    assert!(unstated.calibration.is_none());
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

#[test]
fn samples_are_ranked_by_the_policys_own_grades() -> TestResult {
    let graded = |index: usize, right: bool, grade| (episode(index, right), grade);
    let samples = [
        // It knows the one that is right, where two agree on another answer.
        graded(0, true, Some(0.9)),
        graded(0, false, Some(0.1)),
        graded(0, false, Some(0.3)),
        // It grades nothing.
        graded(1, false, None),
        graded(1, true, None),
        graded(1, false, None),
        (infra(1), Some(1.0)),
    ];
    let pairs: Vec<(&Episode, Option<f64>)> = samples
        .iter()
        .map(|(episode, grade)| (episode, *grade))
        .collect();
    let all: Vec<Episode> = samples.iter().map(|(episode, _)| episode.clone()).collect();
    let found = answers(&[episode(0, true)], &all)?.with_grades(&pairs, SETTINGS)?;
    let ranked = found.self_graded.as_ref().ok_or("graded")?;
    let ks: Vec<usize> = ranked.best_at_k.iter().map(|point| point.k).collect();
    assert_eq!(ks, [1, 2, 3]);
    for (point, expected) in ranked.best_at_k.iter().zip([
        1.0 / 3.0,
        f64::midpoint(2.0 / 3.0, 1.0 / 3.0),
        f64::midpoint(1.0, 1.0 / 3.0),
    ]) {
        assert!(
            (point.value.estimate - expected).abs() < 1e-9,
            "{point:?} {expected}"
        );
    }
    // The majority is wrong on both.
    assert!((ranked.less_majority.estimate - 2.0 / 3.0).abs() < 1e-9);
    assert!((ranked.graded_frac - 0.5).abs() < 1e-12);
    assert!(found.to_text().contains("best by own grade"));
    let few = answers(&[episode(0, true)], &all)?.with_grades(&pairs[..1], SETTINGS)?;
    assert!(few.self_graded.is_none());
    Ok(())
}
