//! Statistics against `SciPy` (`tests/fixtures/make_fixtures.py`) and against the truth.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;

use crate::stats::{
    Bootstrap, Interval, bootstrap_mean, mcnemar_exact, normal_cdf, percentile_mean,
};

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn fixture() -> Result<Value, serde_json::Error> {
    serde_json::from_str(include_str!("../../tests/fixtures/statistics.json"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn intervals_equal_scipy_within_monte_carlo_error() -> TestResult {
    let fixture = fixture()?;
    let cases = list(&fixture, "bootstrap");
    assert_eq!(cases.len(), 10);
    for case in cases {
        let values: Vec<f64> = list(case, "values").iter().map(number).collect();
        let settings = Bootstrap {
            resamples: 100_000,
            confidence: number(&case["confidence"]),
            seed: 5,
        };
        // Ends of 100,000 resamples scatter by about 1 % of a standard error; lattice data by one step of 1/n.
        let lattice = if values.iter().all(|value| value.fract() == 0.0) {
            1.01 / values.len() as f64
        } else {
            0.0
        };
        let tolerance = lattice.max(0.03 * number(&case["standard_error"]));
        let check = |method: &str, got: Interval| {
            let (low, high) = (number(&case[method][0]), number(&case[method][1]));
            let close = (got.low - low).abs() <= tolerance && (got.high - high).abs() <= tolerance;
            assert!(
                close,
                "{} {method}: {got:?}, SciPy [{low}, {high}]",
                case["name"]
            );
        };
        check("bca", bootstrap_mean(&values, settings)?);
        check("percentile", percentile_mean(&values, settings)?);
    }
    Ok(())
}

#[test]
fn mcnemar_and_normal_equal_scipy() -> TestResult {
    let fixture = fixture()?;
    for case in list(&fixture, "mcnemar") {
        let (b, c) = (
            case["b"].as_u64().unwrap_or(0),
            case["c"].as_u64().unwrap_or(0),
        );
        let expected = number(&case["p"]);
        let got = mcnemar_exact(b, c);
        assert!(
            (got - expected).abs() <= 1e-9 * expected,
            "{b} {c}: {got} {expected}"
        );
        assert!((mcnemar_exact(c, b) - got).abs() < 1e-15);
    }
    for case in list(&fixture, "normal") {
        let got = normal_cdf(number(&case["x"]));
        assert!((got - number(&case["cdf"])).abs() < 1e-14, "{case} {got}");
    }
    Ok(())
}

/// Of a few thousand experiments with a known truth, 95 % intervals must cover it in 93 to 97 %.
#[test]
fn intervals_cover_the_truth_as_often_as_they_say() -> TestResult {
    const EXPERIMENTS: u64 = 3000;
    for (truth, count) in [(0.5, 150), (0.3, 100), (0.12, 250)] {
        let mut rng = ChaCha8Rng::seed_from_u64(99);
        let mut covered = 0;
        for seed in 0..EXPERIMENTS {
            let outcome = |rng: &mut ChaCha8Rng| {
                f64::from(u8::from(f64::from(rng.next_u32()) < truth * 2_f64.powi(32)))
            };
            let values: Vec<f64> = (0..count).map(|_| outcome(&mut rng)).collect();
            let interval = bootstrap_mean(
                &values,
                Bootstrap {
                    resamples: 600,
                    confidence: 0.95,
                    seed,
                },
            )?;
            covered += u32::from(interval.low <= truth && truth <= interval.high);
        }
        let coverage = f64::from(covered) / EXPERIMENTS as f64;
        assert!(
            (0.93..=0.97).contains(&coverage),
            "truth {truth}, n = {count}: coverage {coverage}"
        );
    }
    Ok(())
}
