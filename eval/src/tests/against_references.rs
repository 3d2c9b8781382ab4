//! Statistics and metrics against rliable, `SciPy`, statsmodels, scikit-learn and exact fractions
//! (`tests/fixtures/make_references.py`).

use serde::Deserialize;

use crate::at_k::{Attempts, majority_at_k, pass_at_k};
use crate::calibration::Calibration;
use crate::cost::{PerCorrect, per_correct};
use crate::probe::posix;
use crate::stats::{
    Better, Bootstrap, Interval, NonInferiority, holm, interquartile_mean, mcnemar_exact,
    minimum_detectable_effect, paired_bootstrap, paired_permutation, performance_profile,
    probability_of_improvement, stratified_bootstrap_pair, wilson,
};
use crate::swiss;

type TestResult = Result<(), Box<dyn std::error::Error>>;

const SETTINGS: Bootstrap = Bootstrap {
    resamples: 50_000,
    confidence: 0.95,
    seed: 9,
};

#[derive(Deserialize)]
struct References {
    runs: Vec<Runs>,
    interquartile: Vec<Interquartile>,
    posix: Vec<Posix>,
    swiss: Vec<Swiss>,
    permutation: Vec<Permutation>,
    multiple: Vec<Multiple>,
    power: Vec<PowerCase>,
    mcnemar: Vec<McNemar>,
    wilson: Vec<Wilson>,
    pass: Vec<(usize, usize, usize, f64)>,
    majority: Vec<Majority>,
    calibration: Vec<Calibrated>,
    ratio: Vec<RatioCase>,
    inferiority: Vec<Inferiority>,
}

#[derive(Deserialize)]
struct Runs {
    x: Vec<Vec<f64>>,
    y: Vec<Vec<f64>>,
    improvement: f64,
    improvement_ends: [f64; 2],
    thresholds: Vec<f64>,
    profile: Vec<f64>,
    band: Vec<[f64; 2]>,
}

#[derive(Deserialize)]
struct Interquartile {
    scores: Vec<Vec<f64>>,
    mean: f64,
}

#[derive(Deserialize)]
struct Posix {
    logprobs: Vec<Vec<Vec<f32>>>,
    index: f64,
}

#[derive(Deserialize)]
struct Swiss {
    scores: Vec<Vec<f64>>,
    out: usize,
    points: Vec<f64>,
}

#[derive(Deserialize)]
struct Permutation {
    values: Vec<f64>,
    exact: bool,
    p: f64,
}

#[derive(Deserialize)]
struct Multiple {
    p: Vec<f64>,
    holm: Vec<f64>,
}

#[derive(Deserialize)]
struct PowerCase {
    differences: Vec<f64>,
    confidence: f64,
    power: f64,
    detectable: f64,
}

#[derive(Deserialize)]
struct McNemar {
    b: u64,
    c: u64,
    p: f64,
}

#[derive(Deserialize)]
struct Wilson {
    successes: u64,
    trials: u64,
    confidence: f64,
    ends: [f64; 2],
}

#[derive(Deserialize)]
struct Majority {
    right: Vec<usize>,
    wrong: Vec<usize>,
    blank: usize,
    k: usize,
    value: f64,
}

#[derive(Deserialize)]
struct Calibrated {
    stated: Vec<f64>,
    right: Vec<u8>,
    bins_right: Vec<f64>,
    bins_stated: Vec<f64>,
    brier: f64,
    ece: f64,
}

#[derive(Deserialize)]
struct RatioCase {
    costs: Vec<f64>,
    correct: Vec<f64>,
    ratio: f64,
    ends: [f64; 2],
}

#[derive(Deserialize)]
struct Inferiority {
    a: Vec<f64>,
    b: Vec<f64>,
    margin: f64,
    p: f64,
}

fn references() -> Result<References, serde_json::Error> {
    serde_json::from_str(include_str!("../../tests/fixtures/references.json"))
}

fn close(got: f64, expected: f64) -> bool {
    (got - expected).abs() <= 1e-9 * expected.abs().max(1.0)
}

/// Ends of two bootstraps of 50,000 resamples scatter by about 0.5 % of the width; `step` is that of a statistic on a lattice.
fn close_ends(got: Interval, expected: [f64; 2], step: f64) -> bool {
    let tolerance = (0.02 * (expected[1] - expected[0])).max(1.01 * step);
    got.ends()
        .iter()
        .zip(expected)
        .all(|(got, expected)| (got - expected).abs() <= tolerance)
}

#[test]
fn improvement_equals_rliable() -> TestResult {
    for case in references()?.runs {
        let found =
            stratified_bootstrap_pair(&case.x, &case.y, SETTINGS, probability_of_improvement)?
                .ok_or("defined")?;
        let step = 0.5 / (case.x.concat().len() * case.y.len()) as f64;
        let (expected, ends) = (case.improvement, case.improvement_ends);
        assert!(close(found.estimate, expected), "{found:?} {expected}");
        assert!(close_ends(found, ends, step), "{found:?} {ends:?}");
    }
    Ok(())
}

#[test]
fn profiles_equal_rliable() -> TestResult {
    for case in references()?.runs {
        let step = 1.0 / case.x.concat().len() as f64;
        let profile = performance_profile(&case.x, &case.thresholds, SETTINGS)?;
        assert_eq!(profile.len(), 9);
        for ((point, expected), band) in profile.iter().zip(case.profile).zip(case.band) {
            assert!(
                close(point.share.estimate, expected),
                "{point:?} {expected}"
            );
            assert!(close_ends(point.share, band, step), "{point:?} {band:?}");
        }
    }
    Ok(())
}

#[test]
fn interquartile_means_equal_rliable() -> TestResult {
    for case in references()?.interquartile {
        let found = interquartile_mean(&case.scores).ok_or("defined")?;
        assert!(close(found, case.mean), "{found} {}", case.mean);
    }
    assert_eq!(interquartile_mean(&[]), None);
    Ok(())
}

#[test]
fn the_prompt_sensitivity_index_equals_its_definition_in_numpy() -> TestResult {
    for case in references()?.posix {
        let found = posix(&case.logprobs).ok_or("defined")?;
        // The fixture's numbers are not f32's.
        assert!((found - case.index).abs() < 1e-6, "{found} {}", case.index);
        let mut silent = case.logprobs.clone();
        for row in &mut silent {
            row[0].clear();
        }
        assert_eq!(posix(&silent), None, "a response without tokens");
    }
    let same = vec![vec![vec![-0.5_f32, -2.0]; 3]; 3];
    assert!(posix(&same).is_some_and(|index| index.abs() < 1e-12));
    assert_eq!(posix(&same[..1]), None, "one wording");
    Ok(())
}

#[test]
fn points_of_a_swiss_contest_equal_exact_ones_and_those_of_numpy() -> TestResult {
    let cases = references()?.swiss;
    assert_eq!(cases.len(), 10);
    for Swiss {
        scores,
        out,
        points,
    } in cases
    {
        let contests = 100_000;
        let found = swiss::points(&scores, out, contests, 5);
        // Points of a contest lie within its rounds, so their standard deviation is at most half of that; both sides may be drawn.
        let rounds = scores[0].len() as f64;
        let tolerance = 5.0 * (rounds / 2.0) * (2.0 / contests as f64).sqrt();
        let mut pairs = found.iter().zip(&points);
        let close = pairs.all(|(found, expected)| (found - expected).abs() <= tolerance);
        assert!(close, "{found:?} {points:?}");
        let again = swiss::points(&scores, out, 1000, 5);
        assert_eq!(again, swiss::points(&scores, out, 1000, 5), "seeded");
    }
    Ok(())
}

#[test]
fn tests_equal_scipy_and_statsmodels() -> TestResult {
    let references = references()?;
    for case in references.permutation {
        let p = paired_permutation(&vec![0.0; case.values.len()], &case.values, 99_999, 3)?;
        // Both p-values are drawn where they are not exact; SciPy doubles the smaller side.
        let tolerance = if case.exact {
            1e-9
        } else {
            5.0 * (2.0 * case.p / 99_999.0).sqrt()
        };
        assert!(
            (p - case.p).abs() <= tolerance,
            "{:?}: {p} {}",
            case.values,
            case.p
        );
    }
    for case in references.multiple {
        let found = holm(&case.p)?;
        let mut pairs = found.iter().zip(&case.holm);
        let equal = pairs.all(|(got, expected)| close(*got, *expected));
        assert!(equal, "{found:?} {:?}", case.holm);
    }
    for McNemar { b, c, p } in references.mcnemar {
        assert!(close(mcnemar_exact(b, c), p), "{b} {c}");
    }
    for case in references.wilson {
        let found = wilson(case.successes, case.trials, case.confidence)?;
        let equal = found
            .ends()
            .iter()
            .zip(case.ends)
            .all(|(got, expected)| close(*got, expected));
        assert!(equal, "{found:?} {:?}", case.ends);
    }
    for case in references.inferiority {
        let difference = paired_bootstrap(&case.a, &case.b, SETTINGS)?;
        let over = (case.a.len(), SETTINGS.confidence);
        let found = NonInferiority::of(difference, over, case.margin, Better::Lower)?;
        assert!(
            !(0.01..0.05).contains(&case.p),
            "the fixture must be clear: {}",
            case.p
        );
        assert_eq!(found.holds, case.p < 0.025, "{found:?} {}", case.p);
    }
    Ok(())
}

#[test]
fn power_equals_statsmodels() -> TestResult {
    for case in references()?.power {
        let PowerCase {
            differences,
            confidence,
            power,
            detectable,
        } = case;
        let found = minimum_detectable_effect(&differences, confidence, power).ok_or("varies")?;
        assert!(close(found, detectable), "{found} {detectable}");
    }
    Ok(())
}

#[test]
fn pass_and_majority_equal_exact_fractions() -> TestResult {
    let references = references()?;
    assert!(references.pass.len() > 80);
    for (samples, correct, k, expected) in references.pass {
        let found = pass_at_k(samples, correct, k).ok_or("in range")?;
        let good = (found - expected).abs() <= 1e-12 * expected.max(1e-3);
        assert!(good, "{correct} of {samples}, k = {k}: {found} {expected}");
    }
    for Majority {
        right,
        wrong,
        blank,
        k,
        value,
    } in references.majority
    {
        let attempts = Attempts {
            right,
            wrong,
            blank,
        };
        let found = majority_at_k(&attempts, k, 0).ok_or("in range")?;
        assert!(
            close(found, value),
            "{attempts:?}, k = {k}: {found} {value}"
        );
    }
    Ok(())
}

#[test]
fn calibration_equals_scikit_learn() -> TestResult {
    for case in references()?.calibration {
        let answers: Vec<(f64, bool)> = case
            .stated
            .iter()
            .zip(&case.right)
            .map(|(stated, right)| (*stated, *right == 1))
            .collect();
        let found = Calibration::of(
            &answers,
            Bootstrap {
                resamples: 100,
                ..SETTINGS
            },
        )?;
        assert!(
            close(found.brier.estimate, case.brier) && close(found.ece, case.ece),
            "{found:?}"
        );
        assert_eq!(
            (found.bins.len(), found.bins.len()),
            (case.bins_right.len(), case.bins_stated.len())
        );
        for ((bin, right), stated) in found.bins.iter().zip(case.bins_right).zip(case.bins_stated) {
            assert!(
                close(bin.right, right) && close(bin.stated, stated),
                "{bin:?} {right} {stated}"
            );
        }
    }
    Ok(())
}

#[test]
fn costs_per_right_answer_equal_scipy() -> TestResult {
    let one_each = |values: &[f64]| values.iter().map(|value| vec![*value]).collect::<Vec<_>>();
    for case in references()?.ratio {
        let found = per_correct(&one_each(&case.costs), &one_each(&case.correct), SETTINGS)?;
        let PerCorrect::Measured(found) = found else {
            panic!("{found:?}")
        };
        assert!(
            close(found.estimate, case.ratio) && close_ends(found, case.ends, 0.0),
            "{found:?} {:?}",
            case.ends
        );
    }
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_numbers() -> TestResult {
    let case = references()?.runs.swap_remove(0);
    let settings = Bootstrap {
        resamples: 300,
        ..SETTINGS
    };
    let other = Bootstrap {
        seed: 10,
        ..settings
    };
    let improvement = |settings| {
        stratified_bootstrap_pair(&case.x, &case.y, settings, probability_of_improvement)
    };
    assert_eq!(improvement(settings)?, improvement(settings)?);
    assert_ne!(improvement(settings)?, improvement(other)?);
    let profile = |settings| performance_profile(&case.x, &[0.3, 0.5], settings);
    assert_eq!(profile(settings)?, profile(settings)?);
    let (a, b) = (
        vec![0.0; 40],
        (0..40)
            .map(|index| f64::from(index % 7) - 2.5)
            .collect::<Vec<_>>(),
    );
    let permutation = |seed| paired_permutation(&a, &b, 500, seed);
    assert_eq!(permutation(1)?.to_bits(), permutation(1)?.to_bits());
    Ok(())
}
