//! How often 95 % intervals cover the truth, and how often tests at 5 % find what is not there, over simulated experiments with
//! a known truth. Prints the Markdown tables of `docs/statistics.md`; the same on every machine.
//!
//!     cargo test --release -p forage-eval coverage -- --ignored --nocapture

#![expect(clippy::print_stdout, reason = "the tables are what it is for")]

use forage_eval::stats::{
    Bootstrap, Interval, StatsError, bootstrap_clusters, bootstrap_mean, mcnemar_exact,
    mean_interval, paired_bootstrap, paired_permutation, percentile_mean,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Experiments per cell: a coverage of 95 % is known to half a percent.
const EXPERIMENTS: u64 = 2000;
const RESAMPLES: usize = 600;
/// Samples per question where there are several.
const SAMPLES: usize = 8;

type Share = Result<f64, StatsError>;

#[test]
#[ignore = "prints the tables of the guide, in about 80 s"]
fn coverage_tables() -> Result<(), StatsError> {
    println!(
        "{EXPERIMENTS} experiments a cell, {RESAMPLES} resamples; bold: outside 93 to 97 %, or above 6 % of false positives.\n"
    );
    means()?;
    clusters()?;
    differences()?;
    false_positives()
}

/// Intervals of one set of values.
fn means() -> Result<(), StatsError> {
    header("Mean of", &["percentile", "BCa", "`mean_interval`"]);
    for p in [0.5, 0.2, 0.05, 0.01] {
        for n in [20, 50, 100, 250] {
            let share = |method: Method| {
                coverage(p, method, |rng| (0..n).map(|_| bernoulli(rng, p)).collect())
            };
            let cells = [
                share(percentile_mean)?,
                share(bootstrap_mean)?,
                share(mean_interval)?,
            ];
            row(
                &format!("right or wrong, p = {p}"),
                n,
                &cells.map(interval_cell),
            );
        }
    }
    // Log-normal, as numbers of tokens are; and a reward of 0 that is now and then large.
    let rare = |rng: &mut ChaCha8Rng| bernoulli(rng, 0.1) * (1.0 + 9.0 * uniform(rng).powi(2));
    for n in [20, 50, 100, 250] {
        let cells = mean_cells(n, 0.5_f64.exp(), &|rng| normal(rng).exp())?;
        row("log-normal, sigma = 1", n, &cells);
    }
    for n in [20, 50, 100, 250] {
        row(
            "0 in nine of ten, else 1 to 10",
            n,
            &mean_cells(n, 0.4, &rare)?,
        );
    }
    println!();
    Ok(())
}

type Method = fn(&[f64], Bootstrap) -> Result<Interval, StatsError>;

fn mean_cells(
    n: usize,
    truth: f64,
    draw: &dyn Fn(&mut ChaCha8Rng) -> f64,
) -> Result<[String; 3], StatsError> {
    let share = |method: Method| coverage(truth, method, |rng| (0..n).map(|_| draw(rng)).collect());
    let bca = interval_cell(share(bootstrap_mean)?);
    Ok([interval_cell(share(percentile_mean)?), bca.clone(), bca])
}

fn coverage(truth: f64, method: Method, draw: impl Fn(&mut ChaCha8Rng) -> Vec<f64>) -> Share {
    share_of(|rng, settings| method(&draw(rng), settings).map(|interval| covers(interval, truth)))
}

/// Several samples per question, whose chances differ from question to question.
fn clusters() -> Result<(), StatsError> {
    header(
        &format!("Mean of {SAMPLES} samples per question"),
        &["samples as if independent", "questions"],
    );
    // The chance is u^3: a quarter on average, most questions hard, some easy.
    let draw = |rng: &mut ChaCha8Rng, n: usize| -> Vec<Vec<f64>> {
        let question = |rng: &mut ChaCha8Rng| {
            let chance = uniform(rng).powi(3);
            (0..SAMPLES).map(|_| bernoulli(rng, chance)).collect()
        };
        (0..n).map(|_| question(rng)).collect()
    };
    for n in [20, 50, 100, 250] {
        let questions = share_of(|rng, settings| {
            Ok(covers(bootstrap_clusters(&draw(rng, n), settings)?, 0.25))
        })?;
        let flat = share_of(|rng, settings| {
            Ok(covers(
                percentile_mean(&draw(rng, n).concat(), settings)?,
                0.25,
            ))
        })?;
        row(
            "right or wrong, chance u^3",
            n,
            &[interval_cell(flat), interval_cell(questions)],
        );
    }
    println!();
    Ok(())
}

/// Intervals of the difference of two policies on the same questions.
fn differences() -> Result<(), StatsError> {
    header("Difference of", &["BCa", "`paired_bootstrap`"]);
    for (share, gain) in [(0.5, 0.1), (0.9, 0.1), (0.9, 0.02)] {
        let what = format!(
            "right or wrong, alike in {:.0} %, gain {gain}",
            100.0 * share
        );
        for n in [50, 100, 250, 500] {
            difference_row(&what, n, gain, &|rng| right_or_wrong(rng, n, share, gain))?;
        }
    }
    for n in [50, 100, 250, 500] {
        difference_row("log-normal, half of it shared", n, 0.0, &|rng| {
            heavy_tailed(rng, n)
        })?;
    }
    println!();
    Ok(())
}

fn difference_row(
    what: &str,
    n: usize,
    truth: f64,
    draw: &dyn Fn(&mut ChaCha8Rng) -> Pair,
) -> Result<(), StatsError> {
    let bca = share_of(|rng, settings| {
        let (a, b) = draw(rng);
        let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
        Ok(covers(bootstrap_mean(&differences, settings)?, truth))
    })?;
    let paired = share_of(|rng, settings| {
        let (a, b) = draw(rng);
        Ok(covers(paired_bootstrap(&a, &b, settings)?, truth))
    })?;
    row(what, n, &[interval_cell(bca), interval_cell(paired)]);
    Ok(())
}

/// Tests of two policies that are equally good.
fn false_positives() -> Result<(), StatsError> {
    header(
        "No difference between",
        &["paired bootstrap", "permutation", "McNemar"],
    );
    for share in [0.5, 0.9] {
        for n in [50, 100, 250, 500] {
            let what = format!("right or wrong, alike in {:.0} %", 100.0 * share);
            false_positive_row(&what, n, true, &|rng| right_or_wrong(rng, n, share, 0.0))?;
        }
    }
    for n in [50, 100, 250, 500] {
        false_positive_row("log-normal, half of it shared", n, false, &|rng| {
            heavy_tailed(rng, n)
        })?;
    }
    Ok(())
}

type Pair = (Vec<f64>, Vec<f64>);

fn false_positive_row(
    what: &str,
    n: usize,
    is_binary: bool,
    draw: &dyn Fn(&mut ChaCha8Rng) -> Pair,
) -> Result<(), StatsError> {
    let bootstrap = share_of(|rng, settings| {
        let (a, b) = draw(rng);
        Ok(!covers(paired_bootstrap(&a, &b, settings)?, 0.0))
    })?;
    let permutation = share_of(|rng, settings| {
        let (a, b) = draw(rng);
        Ok(paired_permutation(&a, &b, settings.resamples, settings.seed)? <= 0.05)
    })?;
    let mcnemar = share_of(|rng, _| {
        let (a, b) = draw(rng);
        let only = |one: &[f64], other: &[f64]| {
            one.iter()
                .zip(other)
                .filter(|(one, other)| *one > *other)
                .count() as u64
        };
        Ok(mcnemar_exact(only(&a, &b), only(&b, &a)) <= 0.05)
    })?;
    let mcnemar = if is_binary {
        test_cell(mcnemar)
    } else {
        "-".to_owned()
    };
    row(
        what,
        n,
        &[test_cell(bootstrap), test_cell(permutation), mcnemar],
    );
    Ok(())
}

/// Share of experiments of which `holds`, each with its own stream and seed.
fn share_of(holds: impl Fn(&mut ChaCha8Rng, Bootstrap) -> Result<bool, StatsError>) -> Share {
    let mut rng = ChaCha8Rng::seed_from_u64(2021);
    let mut held = 0_u32;
    for seed in 0..EXPERIMENTS {
        held += u32::from(holds(
            &mut rng,
            Bootstrap {
                resamples: RESAMPLES,
                confidence: 0.95,
                seed,
            },
        )?);
    }
    Ok(f64::from(held) / EXPERIMENTS as f64)
}

fn covers(interval: Interval, truth: f64) -> bool {
    // Means of equal values differ from their truth by rounding.
    interval.low <= truth + 1e-12 && truth <= interval.high + 1e-12
}

/// Two policies of which the first is right on half of the questions, the second on `gain` more; they meet the same luck on
/// `share` of them.
fn right_or_wrong(rng: &mut ChaCha8Rng, n: usize, share: f64, gain: f64) -> Pair {
    let question = |_| {
        let luck = uniform(rng);
        let other = if uniform(rng) < share {
            luck
        } else {
            uniform(rng)
        };
        (
            f64::from(u8::from(luck < 0.5)),
            f64::from(u8::from(other < 0.5 + gain)),
        )
    };
    (0..n).map(question).unzip()
}

/// Two policies of the same costs, whose logarithms are the sum of the question's and their own.
fn heavy_tailed(rng: &mut ChaCha8Rng, n: usize) -> Pair {
    let question = |_| {
        let [shared, a, b] = [normal(rng), normal(rng), normal(rng)];
        ((shared + a).exp(), (shared + b).exp())
    };
    (0..n).map(question).unzip()
}

/// In (0, 1).
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (f64::from(rng.next_u32()) + 0.5) / 2_f64.powi(32)
}

fn bernoulli(rng: &mut ChaCha8Rng, p: f64) -> f64 {
    f64::from(u8::from(uniform(rng) < p))
}

/// Standard normal, by Box and Muller.
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (-2.0 * uniform(rng).ln()).sqrt() * (std::f64::consts::TAU * uniform(rng)).cos()
}

fn header(what: &str, columns: &[&str]) {
    println!("| {what} | n | {} |", columns.join(" | "));
    println!("|---|---:|{}", "---:|".repeat(columns.len()));
}

fn row(what: &str, n: usize, cells: &[String]) {
    println!("| {what} | {n} | {} |", cells.join(" | "));
}

fn interval_cell(share: f64) -> String {
    cell(share, (0.93..=0.97).contains(&share))
}

fn test_cell(share: f64) -> String {
    cell(share, share <= 0.06)
}

fn cell(share: f64, is_good: bool) -> String {
    let percent = 100.0 * share;
    if is_good {
        format!("{percent:.1}")
    } else {
        format!("**{percent:.1}**")
    }
}
