//! Runs, step by step.

use forage_contracts::{Episode, Score};
use forage_eval::{Course, StepTelemetry};

use super::super::fixtures::SETTINGS;
use super::{COUNT, played, query};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A step whose episodes earn `reward`, of which `bags` in twenty write keywords.
fn step(number: u64, reward: f32, bags: usize) -> StepTelemetry {
    let episodes: Vec<Episode> = (0..COUNT)
        .map(|index| {
            let text = if index < bags {
                "founder works"
            } else {
                "\"Ana Brel\" AND (born OR birth)"
            };
            let score = Some(Score {
                total: reward,
                ..Score::default()
            });
            Episode {
                score,
                ..played(index, vec![query(text)])
            }
        })
        .collect();
    StepTelemetry::of(number, &episodes)
}

#[test]
fn a_collapse_into_keywords_is_told_before_the_reward_peaks() -> TestResult {
    let reward =
        |number: u64| 0.3 + 0.01 * number.min(60) as f32 - 0.002 * number.saturating_sub(60) as f32;
    let steps: Vec<_> = (0..80)
        .map(|number| step(number, reward(number), (2 + number as usize).min(20)))
        .collect();
    let course = Course::of(&steps, SETTINGS)?;
    let bag = course
        .alarms
        .iter()
        .find(|alarm| alarm.kind == "keyword_bag")
        .ok_or("no alarm")?;
    let (first, peak) = (
        bag.step.ok_or("no step")?,
        course.reward_peak.ok_or("no peak")?,
    );
    assert!(first < 25 && (58..=64).contains(&peak), "{first} {peak}");
    assert!(
        bag.message.contains(&format!("best at step {peak}")),
        "{}",
        bag.message
    );
    assert!(
        bag.examples.len() == 3 && bag.examples[0].step.is_some_and(|step| step + 3 > first),
        "{bag:?}"
    );
    let trend = course.items["keyword_bag"];
    assert!(
        trend.first_alarm == Some(first) && trend.change.is_some_and(|change| change.is_positive()),
        "{trend:?}"
    );
    assert!(
        course.items["with_phrase"]
            .change
            .is_some_and(|change| change.is_negative())
    );
    assert!(course.to_text().contains("sign keyword_bag: "));

    let healthy: Vec<_> = (0..80)
        .map(|number| step(number, reward(number), 3))
        .collect();
    let course = Course::of(&healthy, SETTINGS)?;
    assert!(course.alarms.is_empty() && course.items["keyword_bag"].first_alarm.is_none());
    assert!(
        course.items["reward"]
            .change
            .is_some_and(|change| change.is_positive())
    );
    // What training takes away was there before it.
    let unlearned: Vec<_> = (0..80)
        .map(|number| step(number, 0.5, 20 - (number as usize).min(18)))
        .collect();
    assert!(Course::of(&unlearned, SETTINGS)?.alarms.is_empty());
    let kept: Vec<_> = (0..80).map(|number| step(number, 0.5, 20)).collect();
    assert_eq!(
        Course::of(&kept, SETTINGS)?.items["keyword_bag"].first_alarm,
        Some(2)
    );
    assert!(Course::of(&[], SETTINGS).is_err());
    // A reward that never moved has no best step.
    let flat: Vec<_> = (0..5).map(|number| step(number, 0.0, 20)).collect();
    let course = Course::of(&flat, SETTINGS)?;
    let mut raised = course.alarms.iter();
    let raised = raised.find(|alarm| alarm.kind == "keyword_bag");
    let message = &raised.ok_or("no alarm")?.message;
    assert!(
        message.starts_with("first raised over steps 0 to 2, at 1.000, where 0.9 is the limit")
            && !message.contains("best at step"),
        "{message}"
    );
    assert_eq!(course.reward_peak, None);
    // Nor does one that moves by chance rise.
    let noise = |number: u64| if number % 7 == 3 { 0.003 } else { 0.0 };
    let noisy: Vec<_> = (0..80)
        .map(|number| step(number, noise(number), 20))
        .collect();
    let course = Course::of(&noisy, SETTINGS)?;
    assert!(course.reward_peak.is_some() && !course.alarms.is_empty());
    for alarm in &course.alarms {
        assert!(!alarm.message.contains("best at step"), "{}", alarm.message);
    }
    Ok(())
}

#[test]
fn a_step_is_kept_as_it_is() -> TestResult {
    let written = step(3, 0.5, 20);
    assert!(
        written.examples.contains_key("keyword_bag")
            && !written.examples.contains_key("long_query")
    );
    let read: StepTelemetry = serde_json::from_str(&serde_json::to_string(&written)?)?;
    assert_eq!(read, written);
    // Earlier builds wrote no errors.
    let old = r#"{"step":3,"items":{"keyword_bag":{"mean":0.99,"episodes":64}}}"#;
    let old: StepTelemetry = serde_json::from_str(old)?;
    assert_eq!(old.items["keyword_bag"].error, None);
    Ok(())
}

#[test]
fn the_share_of_the_rise_after_the_first_quarter_is_told() -> TestResult {
    let course = |count: u64, reward: &dyn Fn(u64) -> f32| {
        let steps: Vec<_> = (0..count)
            .map(|number| step(number, reward(number), 2))
            .collect();
        Course::of(&steps, SETTINGS)
    };
    // All of it in the first five steps: nothing is left for later.
    let jump = course(40, &|number| if number < 5 { 0.1 } else { 0.6 })?;
    let share = jump.late_gain.ok_or("no share")?;
    assert!(share.estimate.abs() < 1e-6, "{share:?}");
    // A line over 40 steps, from 0.01 (steps 0 to 2) to 0.375 (36 to 39); 0.095 at steps 8 to 11.
    let line = course(40, &|number| 0.01 * number as f32)?;
    let share = line.late_gain.ok_or("no share")?;
    assert!(
        (share.estimate - (0.375 - 0.095) / (0.375 - 0.01)).abs() < 1e-4,
        "{share:?}"
    );
    assert!(share.low < share.estimate && share.estimate < share.high);
    assert_eq!(course(40, &|_| 0.3)?.late_gain, None, "nothing rose");
    let short = course(15, &|number| 0.01 * number as f32)?;
    assert_eq!(short.late_gain, None, "too few steps");
    Ok(())
}

/// A group answers one question: where its members do the same, a step has seen as many policies at work as it has questions.
#[test]
fn members_of_a_group_are_not_independent() -> TestResult {
    let groups = |is_short: &dyn Fn(usize, usize) -> bool| {
        let step = |number: u64| {
            let question = |question: usize| {
                (0..8).map(move |member| {
                    let short = is_short(question, member);
                    let text = if short {
                        "founder"
                    } else {
                        "\"Ana Brel\" AND born"
                    };
                    played(question, vec![query(text)])
                })
            };
            let episodes: Vec<Episode> = (0..8).flat_map(question).collect();
            StepTelemetry::of(number, &episodes)
        };
        Course::of(&(0..12).map(step).collect::<Vec<_>>(), SETTINGS)
    };
    let raised = |course: &Course| course.items["short_query"].first_alarm;
    // Five in eight either way, where half is the limit: 40 of the 64 episodes of a step, 120 of the 192 of three.
    let alike = groups(&|question, _| question < 5)?;
    assert_eq!(raised(&alike), None);
    let apart = groups(&|_, member| member < 5)?;
    assert_eq!(raised(&apart), Some(2));
    Ok(())
}
