//! Each failure raises its alarm within its window, once; health raises none.

use forage_env::{Alarm, Severity};
use forage_trainer::SentinelConfig;
use forage_trainer::logprobs::ROUNDED_GAP;
use forage_trainer::metrics::Row;
use forage_trainer::watch::Sentinel;
use proptest::prelude::*;

use super::simulate::{Health, Noise, ONSET};

/// A way to fail: changes the row of a step that is `since` steps after the onset.
type Failure = fn(row: &mut Row, since: f64);

fn scale(row: &mut Row, name: &str, factor: f64) {
    row.set(name, row.get(name).unwrap() * factor);
}

/// Kind, the gravest severity it must reach, how it comes about.
const FAILURES: &[(&str, Severity, Failure)] = &[
    ("non_finite", Severity::Stop, |row, _| {
        row.set("policy/loss", f64::NAN);
    }),
    ("non_finite", Severity::Warn, |row, _| {
        row.set("time/rollout_s", f64::INFINITY);
    }),
    ("mismatch", Severity::Stop, |row, _| {
        row.set("mismatch/logprob_abs_diff", 1.01 * ROUNDED_GAP);
    }),
    // A push that differs so much passes, so the rollouts under it stop no run.
    ("mismatch", Severity::Warn, |row, _| {
        row.set("mismatch/logprob_abs_diff", 0.99 * ROUNDED_GAP);
    }),
    ("mismatch", Severity::Warn, |row, _| {
        row.set("mismatch/logprob_abs_diff", 0.025);
    }),
    ("mismatch", Severity::Stop, |row, _| {
        row.set("mismatch/ratio_deviation_max", 2000.0);
    }),
    ("mismatch", Severity::Stop, |row, _| {
        row.set("mismatch/policy_age_mean", 1.0);
        row.set("mismatch/logprob_abs_diff", 0.6);
    }),
    ("divergence", Severity::Stop, |row, since| {
        scale(row, "optim/grad_norm", 1.5_f64.powf(since));
        scale(row, "reward/mean", 0.85_f64.powf(since));
    }),
    ("divergence", Severity::Stop, |row, since| {
        scale(row, "reward/mean", 0.8_f64.powf(since));
        if since > 6.0 {
            row.set("optim/grad_norm", f64::INFINITY);
        }
    }),
    ("gradient_explosion", Severity::Warn, |row, _| {
        scale(row, "optim/grad_norm", 25.0);
    }),
    ("gradient_explosion", Severity::Stop, |row, since| {
        scale(row, "optim/grad_norm", 1.5_f64.powf(since));
    }),
    ("kl_runaway", Severity::Warn, |row, since| {
        row.set("policy/kl_ref", 0.02 * 1.25_f64.powf(since));
    }),
    ("kl_runaway", Severity::Stop, |row, since| {
        row.set("policy/kl_ref", 0.02 * 1.6_f64.powf(since));
    }),
    ("kl_runaway", Severity::Warn, |row, _| {
        row.set("policy/approx_kl_old", -0.3);
    }),
    ("entropy_collapse", Severity::Warn, |row, since| {
        scale(row, "policy/entropy", 0.93_f64.powf(since).max(0.22));
    }),
    ("entropy_collapse", Severity::Stop, |row, since| {
        scale(row, "policy/entropy", 0.8_f64.powf(since));
        row.set("reward/mean", 0.42);
    }),
    ("reward_size", Severity::Warn, |row, _| {
        row.set("reward/mean", 5e29);
    }),
    ("reward_collapse", Severity::Warn, |row, _| {
        scale(row, "reward/mean", 0.3);
    }),
    ("reward_collapse", Severity::Stop, |row, since| {
        scale(row, "reward/mean", 0.85_f64.powf(since));
    }),
    ("repetition", Severity::Warn, |row, _| {
        scale(row, "response/repeated_frac", 3.5);
    }),
    ("repetition", Severity::Stop, |row, since| {
        row.set("response/repeated_frac", (0.12 + 0.06 * since).min(0.95));
    }),
    ("invalid_actions", Severity::Warn, |row, _| {
        scale(row, "action/valid_frac", 0.5);
    }),
    ("invalid_actions", Severity::Stop, |row, since| {
        scale(row, "action/valid_frac", 0.8_f64.powf(since));
    }),
    ("no_variance", Severity::Stop, |row, _| {
        row.set("group/zero_std_frac", 1.0);
    }),
    ("no_variance", Severity::Note, |row, since| {
        row.set(
            "group/zero_std_frac",
            if (since as u64).is_multiple_of(2) {
                0.9
            } else {
                0.95
            },
        );
    }),
    ("truncation", Severity::Stop, |row, since| {
        row.set("response/truncated_frac", (0.1 * since).min(0.97));
    }),
    ("no_search", Severity::Warn, |row, since| {
        scale(row, "search/calls_mean", 0.5_f64.powf(since));
    }),
    ("no_search", Severity::Stop, |row, _| {
        row.set("search/calls_mean", 0.0);
        scale(row, "reward/mean", 0.55);
    }),
    ("empty_search", Severity::Warn, |row, _| {
        row.set("search/empty_frac", 1.0);
    }),
    ("length_collapse", Severity::Stop, |row, since| {
        scale(row, "response/tokens_mean", 0.8_f64.powf(since).max(0.04));
    }),
    ("length_explosion", Severity::Warn, |row, since| {
        scale(row, "response/tokens_mean", 1.15_f64.powf(since).min(8.0));
    }),
    ("keyword_bag", Severity::Stop, |row, since| {
        scale(row, "query/words_mean", 1.0 + 0.15 * since);
        scale(row, "query/distinct_frac", 0.9_f64.powf(since));
        scale(row, "query/stop_word_frac", 0.85_f64.powf(since));
    }),
    ("keyword_bag", Severity::Warn, |row, since| {
        scale(row, "query/operator_frac", 0.7_f64.powf(since));
    }),
    // A list of words with one operator at its end.
    ("keyword_bag", Severity::Warn, |row, since| {
        scale(row, "query/words_mean", (1.0 + 0.2 * since).min(2.5));
        row.set("query/operator_frac", 1.0);
    }),
];

fn sentinel(config: SentinelConfig) -> Sentinel {
    Sentinel::new(config, true)
}

/// The alarms of a run of `steps` that fails from the onset on, until `recovers`.
fn run(
    sentinel: &mut Sentinel,
    seed: u64,
    steps: u64,
    failure: Failure,
    recovers: u64,
) -> Vec<Alarm> {
    let mut noise = Noise::new(seed);
    let rows = (0..steps).map(|step| {
        let mut row = noise.healthy(step, &Health::USUAL);
        if (ONSET..recovers).contains(&step) {
            failure(&mut row, (step - ONSET) as f64);
        }
        row
    });
    rows.flat_map(|row| sentinel.observe(&row)).collect()
}

#[test]
fn every_failure_raises_its_alarm_within_its_window() {
    let config = SentinelConfig::default();
    let last = ONSET + (config.window + config.patience) as u64;
    for (case, (kind, severity, failure)) in FAILURES.iter().enumerate() {
        for seed in 0..5 {
            let alarms = run(&mut sentinel(config), seed, last, *failure, u64::MAX);
            let what = format!("case {case}, {kind:?}, seed {seed}: {alarms:#?}");
            assert!(
                alarms.iter().all(|alarm| alarm.step >= Some(ONSET)),
                "{what}"
            );
            let gravest = alarms
                .iter()
                .filter(|alarm| alarm.kind == *kind)
                .map(|alarm| alarm.severity)
                .max();
            assert_eq!(gravest, Some(*severity), "{what}");
        }
    }
}

#[test]
fn every_kind_is_simulated_and_explains_itself() {
    for kind in Sentinel::kinds() {
        let (_, _, failure) = FAILURES
            .iter()
            .find(|(simulated, ..)| *simulated == kind)
            .expect("a simulated failure");
        let alarms = run(
            &mut sentinel(SentinelConfig::default()),
            1,
            ONSET + 25,
            *failure,
            u64::MAX,
        );
        let alarm = alarms.iter().find(|alarm| alarm.kind == kind).unwrap();
        let sentences = alarm.message.split(". ").count();
        assert!(
            sentences >= 2,
            "{kind:?} says too little: {}",
            alarm.message
        );
        let numbers = kind == "non_finite"
            || alarm
                .message
                .contains(|letter: char| letter.is_ascii_digit());
        assert!(
            numbers && !alarm.message.contains("  "),
            "{kind:?}: {}",
            alarm.message
        );
    }
}

#[test]
fn a_sampler_with_other_weights_stops_the_run_in_its_first_step() {
    let stale: Failure = |row, _| row.set("mismatch/logprob_abs_diff", 0.06);
    let fresh = || sentinel(SentinelConfig::default());
    let alarms = run(&mut fresh(), 1, ONSET + 1, stale, u64::MAX);
    let [alarm] = alarms.as_slice() else {
        panic!("{alarms:#?}")
    };
    assert_eq!(
        (alarm.kind.as_str(), alarm.severity, alarm.step),
        ("mismatch", Severity::Stop, Some(ONSET))
    );
    // Groups of earlier steps and recorded rollouts are of other weights by design.
    let mut row = Noise::new(1).healthy(0, &Health::USUAL);
    row.set("mismatch/logprob_abs_diff", 0.4);
    row.set("replay/groups", 2.0);
    assert_eq!(fresh().observe(&row), []);
    row.0.remove("mismatch/policy_age_mean");
    row.0.remove("replay/groups");
    assert_eq!(fresh().observe(&row), []);
    row.set("mismatch/policy_age_mean", 0.0);
    assert_eq!(fresh().observe(&row).len(), 1);
}

/// Raised once however long it stands; raised again only after a window of health.
#[test]
fn alarms_do_not_repeat_until_they_are_armed_again() {
    let failure: Failure = |row, since| {
        row.set(
            "response/truncated_frac",
            if since as u64 % 200 < 60 { 0.7 } else { 0.0 },
        );
    };
    let alarms = run(
        &mut sentinel(SentinelConfig::default()),
        3,
        400,
        failure,
        u64::MAX,
    );
    let steps: Vec<u64> = alarms.iter().filter_map(|alarm| alarm.step).collect();
    assert_eq!(alarms.len(), 2, "{alarms:#?}");
    assert!(
        (ONSET..ONSET + 15).contains(&steps[0]) && (ONSET + 200..ONSET + 215).contains(&steps[1]),
        "{steps:?}"
    );
    // A pause shorter than the window arms nothing.
    let flicker: Failure = |row, since| {
        row.set(
            "response/truncated_frac",
            if since as u64 % 20 < 12 { 0.7 } else { 0.0 },
        );
    };
    assert_eq!(
        run(
            &mut sentinel(SentinelConfig::default()),
            3,
            400,
            flicker,
            u64::MAX
        )
        .len(),
        1
    );
}

/// Changes that stay within what healthy runs do raise nothing, however long they stand.
#[test]
fn near_misses_raise_nothing() {
    let misses: &[(&str, Failure)] = &[
        ("gradient_explosion", |row, _| {
            scale(row, "optim/grad_norm", 5.0);
        }),
        ("mismatch", |row, _| {
            row.set("mismatch/logprob_abs_diff", 0.018);
            row.set("mismatch/ratio_deviation_max", 30.0);
        }),
        ("mismatch", |row, _| {
            row.set("mismatch/policy_age_mean", 1.0);
            row.set("mismatch/logprob_abs_diff", 0.15);
        }),
        ("kl_runaway", |row, _| row.set("policy/kl_ref", 0.2)),
        ("kl_runaway", |row, _| row.set("policy/approx_kl_old", 0.05)),
        ("entropy_collapse", |row, _| {
            scale(row, "policy/entropy", 0.6);
        }),
        ("reward_size", |row, _| row.set("reward/std", 9e5)),
        ("reward_collapse", |row, _| scale(row, "reward/mean", 0.7)),
        ("repetition", |row, _| {
            scale(row, "response/repeated_frac", 2.0);
        }),
        ("invalid_actions", |row, _| {
            scale(row, "action/valid_frac", 0.8);
        }),
        ("no_variance", |row, _| row.set("group/zero_std_frac", 0.85)),
        ("truncation", |row, _| {
            row.set("response/truncated_frac", 0.4);
        }),
        ("no_search", |row, _| scale(row, "search/calls_mean", 0.1)),
        ("empty_search", |row, _| row.set("search/empty_frac", 0.9)),
        ("length_collapse", |row, _| {
            scale(row, "response/tokens_mean", 0.4);
        }),
        ("length_explosion", |row, _| {
            scale(row, "response/tokens_mean", 2.0);
        }),
        ("keyword_bag", |row, _| {
            scale(row, "query/words_mean", 3.0);
            scale(row, "query/complexity_mean", 2.0);
        }),
        // Longer because every query became a phrase AND a word, and alike because questions are.
        ("keyword_bag", |row, _| {
            scale(row, "query/words_mean", 1.8);
            scale(row, "query/complexity_mean", 4.0);
            scale(row, "query/distinct_frac", 0.4);
            scale(row, "query/stop_word_frac", 0.3);
        }),
        ("keyword_bag", |row, _| {
            scale(row, "query/stop_word_frac", 0.3);
        }),
    ];
    for (kind, miss) in misses {
        for seed in 0..5 {
            let alarms = run(
                &mut sentinel(SentinelConfig::default()),
                seed,
                ONSET + 80,
                *miss,
                u64::MAX,
            );
            assert_eq!(alarms, [], "{kind:?}, seed {seed}");
        }
    }
}

#[test]
fn a_single_bad_step_is_no_alarm() {
    let names = [
        "optim/grad_norm",
        "policy/kl_ref",
        "response/tokens_mean",
        "response/truncated_frac",
    ];
    let mut noise = Noise::new(8);
    let mut sentinel = sentinel(SentinelConfig::default());
    for step in 0..200 {
        let mut row = noise.healthy(step, &Health::USUAL);
        if step == ONSET {
            for name in names {
                scale(&mut row, name, 12.0);
            }
            for name in [
                "reward/mean",
                "search/calls_mean",
                "action/valid_frac",
                "policy/entropy",
            ] {
                row.set(name, 0.0);
            }
        }
        assert_eq!(sentinel.observe(&row), []);
    }
}

#[test]
fn a_run_without_stops_warns() {
    let config = SentinelConfig {
        stop: false,
        ..SentinelConfig::default()
    };
    for (_, _, failure) in FAILURES {
        let alarms = run(&mut sentinel(config), 2, ONSET + 60, *failure, u64::MAX);
        assert!(
            !alarms.is_empty() && alarms.iter().all(|alarm| alarm.severity < Severity::Stop),
            "{alarms:#?}"
        );
    }
}

#[test]
fn policies_that_never_search_or_never_follow_the_protocol() {
    let never: Failure = |row, _| row.set("search/calls_mean", 0.0);
    let rows = |change: fn(&mut Row)| {
        let mut noise = Noise::new(4);
        (0..60).map(move |step| {
            let mut row = noise.healthy(step, &Health::USUAL);
            change(&mut row);
            row
        })
    };
    let kinds = |sentinel: &mut Sentinel, change: fn(&mut Row)| -> Vec<(String, Option<u64>)> {
        rows(change)
            .flat_map(|row| sentinel.observe(&row))
            .map(|alarm| (alarm.kind, alarm.step))
            .collect()
    };
    let no_search = |row: &mut Row| row.set("search/calls_mean", 0.0);
    assert_eq!(
        kinds(&mut sentinel(SentinelConfig::default()), no_search),
        [("no_search".to_owned(), Some(19))]
    );
    let finds_nothing = |row: &mut Row| row.set("search/empty_frac", 1.0);
    assert_eq!(
        kinds(&mut sentinel(SentinelConfig::default()), finds_nothing),
        [("empty_search".to_owned(), Some(19))]
    );
    let dies = |row: &mut Row| {
        if row.step() >= 2 {
            row.set("search/empty_frac", 1.0);
        }
    };
    assert_eq!(
        kinds(&mut sentinel(SentinelConfig::default()), dies),
        [("empty_search".to_owned(), Some(6))]
    );
    let mut closed_book = Sentinel::new(SentinelConfig::default(), false);
    assert!(kinds(&mut closed_book, no_search).is_empty());
    let mut closed_book = Sentinel::new(SentinelConfig::default(), false);
    // What was searched before and is no longer needs no word of the environment.
    let ceased = run(&mut closed_book, 4, 200, never, u64::MAX);
    assert!(
        ceased.iter().any(|alarm| alarm.kind == "no_search"),
        "{ceased:?}"
    );
    let invalid = |row: &mut Row| row.set("action/valid_frac", 0.1);
    assert_eq!(
        kinds(&mut sentinel(SentinelConfig::default()), invalid),
        [("invalid_actions".to_owned(), Some(19))]
    );
}

/// A run that has learned everything ends with little entropy and equal rewards; that is no reason for a stop by entropy.
#[test]
fn a_solved_run_is_told_that_its_groups_teach_nothing() {
    let mut noise = Noise::new(6);
    let mut sentinel = sentinel(SentinelConfig::default());
    let mut alarms = Vec::new();
    for step in 0..200 {
        let mut row = noise.healthy(step, &Health::USUAL);
        let learned = (step as f64 / 100.0).min(1.0);
        row.set("reward/mean", 0.2 + 0.79 * learned);
        row.set("group/zero_std_frac", 0.97 * learned);
        scale(&mut row, "policy/entropy", 1.0 - 0.97 * learned);
        alarms.extend(sentinel.observe(&row));
    }
    let found: Vec<(&str, Severity)> = alarms
        .iter()
        .map(|alarm| (alarm.kind.as_str(), alarm.severity))
        .collect();
    assert!(
        found.contains(&("no_variance", Severity::Note)),
        "{alarms:#?}"
    );
    assert!(
        found.iter().all(|(_, severity)| *severity < Severity::Stop),
        "{alarms:#?}"
    );
}

/// The gravest severity of `kind` in a run whose reward is `reward` and which changes by `change` from step 40 on.
fn gravest(kind: &str, reward: fn(u64) -> f64, change: fn(&mut Row)) -> Option<Severity> {
    let (mut noise, mut sentinel) = (Noise::new(9), sentinel(SentinelConfig::default()));
    let alarms = (0..80).flat_map(|step| {
        let mut row = noise.healthy(step, &Health::USUAL);
        row.set("reward/mean", reward(step));
        if step >= 40 {
            change(&mut row);
        }
        sentinel.observe(&row)
    });
    alarms
        .filter(|alarm| alarm.kind == kind)
        .map(|alarm| alarm.severity)
        .max()
}

/// A swing by 0.05 from step to step.
fn swing(step: u64) -> f64 {
    if step.is_multiple_of(2) { 0.05 } else { -0.05 }
}

#[test]
fn entropy_may_go_while_the_reward_clearly_rises() {
    let no_entropy: fn(&mut Row) = |row| scale(row, "policy/entropy", 0.03);
    let judge = |reward| gravest("entropy_collapse", reward, no_entropy);
    assert_eq!(
        judge(|step| 0.008 * step as f64 + swing(step)),
        Some(Severity::Warn)
    );
    assert_eq!(
        judge(|step| 0.3 + 0.001 * step as f64 + swing(step)),
        Some(Severity::Stop)
    );
    assert_eq!(
        judge(|step| 0.9 - 0.008 * step as f64 + swing(step)),
        Some(Severity::Stop)
    );
}

/// With a reward that swings by more than it seems to fall, large gradients are only that.
#[test]
fn divergence_needs_a_fall_beyond_noise() {
    let burst: fn(&mut Row) = |row| scale(row, "optim/grad_norm", 500.0);
    let judge = |reward| gravest("divergence", reward, burst);
    assert_eq!(judge(|step| 0.5 + 6.0 * swing(step)), None);
    assert_eq!(judge(|step| 0.5 + swing(step)), None);
    assert_eq!(
        judge(|step| if step < 40 {
            0.5 + swing(step)
        } else {
            0.2 + swing(step)
        }),
        Some(Severity::Stop)
    );
}

/// Saved as JSON and read back after every step, through all failures, nothing differs in any bit.
#[test]
fn a_resumed_sentinel_judges_like_an_uninterrupted_one() {
    for (case, (_, _, failure)) in FAILURES.iter().enumerate() {
        let (mut straight, mut resumed) = (
            sentinel(SentinelConfig::default()),
            sentinel(SentinelConfig::default()),
        );
        let mut noise = Noise::new(case as u64);
        for step in 60..160 {
            let mut row = noise.healthy(step, &Health::USUAL);
            if step >= ONSET {
                failure(&mut row, (step - ONSET) as f64);
            }
            let saved = serde_json::to_string(&resumed).unwrap();
            resumed = serde_json::from_str(&saved).unwrap();
            assert_eq!(
                straight.observe(&row),
                resumed.observe(&row),
                "case {case}, step {step}"
            );
            assert_eq!(straight, resumed, "case {case}, step {step}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Healthy runs of all kinds: strong and weak learners, punished ones, small batches, growing and shrinking answers.
    #[test]
    fn health_raises_no_stop(
        seed in any::<u64>(),
        reward in (-1.0..0.6_f64, 0.0..0.5_f64),
        entropy in (0.05..1.5_f64, 0.4..1.3_f64),
        tokens in (10.0..400.0_f64, 0.5..2.5_f64),
        episodes in 16.0..256.0_f64,
        zero_variance in 0.0..0.85_f64,
    ) {
        let health = Health {
            reward: (reward.0, reward.0 + reward.1),
            entropy: (entropy.0, entropy.0 * entropy.1),
            tokens: (tokens.0, tokens.0 * tokens.1),
            episodes: episodes.round(),
            zero_variance,
        };
        let (mut noise, mut sentinel) = (Noise::new(seed), sentinel(SentinelConfig::default()));
        for step in 0..300 {
            let alarms = sentinel.observe(&noise.healthy(step, &health));
            prop_assert!(alarms.iter().all(|alarm| alarm.severity < Severity::Stop), "{alarms:#?}");
        }
    }

    /// With the batches of a usual run nothing is said at all.
    #[test]
    fn usual_runs_raise_nothing(seed in any::<u64>()) {
        let (mut noise, mut sentinel) = (Noise::new(seed), sentinel(SentinelConfig::default()));
        for step in 0..300 {
            prop_assert_eq!(sentinel.observe(&noise.healthy(step, &Health::USUAL)), []);
        }
    }
}
