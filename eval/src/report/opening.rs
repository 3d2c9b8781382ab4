//! The opening of a page on runs that are compared with nothing: what their own records tell of their training.

use forage_contracts::Metric;
use forage_env::Alarm;
use maud::{Markup, html};
use serde_json::Value;

use super::arms::{Arm, values};
use super::curves::title;
use super::html::coded;
use crate::stats::{Bootstrap, Interval};
use crate::summary::number;

/// The measures of a validation; the first that a run has is its own.
const VALIDATIONS: [&str; 4] = [
    Metric::VAL_EM,
    Metric::VAL_NDCG,
    Metric::VAL_REWARD,
    Metric::SFT_VAL_LOSS,
];
/// The measures that training goes by, of which a run has one.
const GOALS: [&str; 2] = [Metric::REWARD, Metric::SFT_LOSS];
/// The parts of a step's time.
const TIMES: [&str; 3] = [Metric::TIME_ROLLOUT, Metric::TIME_UPDATE, Metric::TIME_WAIT];

/// A score of validations, and the steps that it is of.
type Score = (String, Interval);

/// A lead sentence and tiles of figures for each arm; then the newest alarm, and where to look.
pub(super) fn of_arms(arms: &[Arm], alarms: &[(String, Alarm)], has_trajectories: bool) -> Markup {
    html! {
        @for arm in arms {
            @if arms.len() > 1 { h3 { (arm.name) } }
            p.lead { (coded(&lead(arm))) }
            div.tiles {
                @for (name, value, note) in tiles(arm) {
                    div.tile { span { (name) } b { (value) } small { (note) } }
                }
            }
        }
        @if !arms.is_empty() {
            @let count = alarms.len();
            @let plural = if count == 1 { "" } else { "s" };
            p.caption {
                @if let Some((run, alarm)) = alarms.iter().max_by_key(|(_, alarm)| alarm.step) {
                    a href="#alarms" { (count) " alarm" (plural) } ", the newest of " (run) ": " (coded(&alarm.message)) " "
                } @else {
                    "No alarm was raised. "
                }
                @if has_trajectories { "What figures do not show, " a href="#trajectories" { "trajectories" } " do." }
            }
        }
    }
}

/// The sentence that says whether the run learned anything, and what it is compared with.
pub(super) fn lead(arm: &Arm) -> String {
    let plays = has(arm, Metric::REWARD);
    let arm = &arm.own();
    let compared = if plays {
        " forage eval --controls RUN compares it with its start."
    } else {
        ""
    };
    let Some((name, [first, last])) = validations(arm) else {
        let fix = if plays {
            " grpo.evaluate_every asks for some."
        } else {
            ""
        };
        return format!(
            "Nothing was validated, so nothing here says whether it learned.{fix}{compared}"
        );
    };
    let [(before, first), (after, last)] = [&first, &last];
    let name = title(name);
    if before == after {
        let score = with_ends(*last);
        return format!(
            "{name}: {score} {after}, and no other validation to compare it with.{compared}"
        );
    }
    let [first, last] = [first, last].map(|score| with_ends(*score));
    format!("{name}: {first} {before}, {last} {after}.{compared}")
}

/// The tiles with the reward or loss of training, its time and its tokens: names, values and notes.
fn tiles(arm: &Arm) -> Vec<(String, String, String)> {
    let arm = &arm.own();
    let mut tiles = Vec::new();
    let goal = GOALS.into_iter().find(|name| has(arm, name));
    if let Some(trend) = goal.and_then(|name| arm.trend(name)) {
        let first = number(trend.first.estimate);
        tiles.push((
            title(&trend.metric),
            number(trend.last.estimate),
            format!("last tenth of the steps; {first} in the first"),
        ));
    }
    let runs = if arm.runs.len() > 1 {
        format!(", {} runs together", arm.runs.len())
    } else {
        String::new()
    };
    let seconds: f64 = TIMES.iter().map(|name| sum(arm, name)).sum();
    if seconds > 0.0 {
        let steps: usize = arm.runs.iter().map(Vec::len).sum();
        tiles.push((
            "Time".to_owned(),
            time(seconds),
            format!("of {steps} steps without validations{runs}"),
        ));
    }
    let tokens = sum(arm, Metric::OPTIM_TOKENS);
    if tokens > 0.0 {
        tiles.push((
            "Tokens".to_owned(),
            count(tokens),
            format!("learned from{runs}"),
        ));
    }
    tiles
}

/// The first and the last validation of a run; of several runs the means over the first and the last tenth of theirs.
fn validations(arm: &Arm) -> Option<(&'static str, [Score; 2])> {
    let name = VALIDATIONS.into_iter().find(|name| has(arm, name))?;
    let [rows] = arm.runs.as_slice() else {
        let trend = arm.trend(name)?;
        let ends = [("first", trend.first), ("last", trend.last)];
        let end = |(which, score)| (format!("in the {which} tenth of the validations"), score);
        return Some((name, ends.map(end)));
    };
    let mut scored = rows.iter().filter(|row| row[name].is_number());
    let first = scored.next()?;
    let last = scored.next_back().unwrap_or(first);
    Some((name, [first, last].map(|row| validated(row, name))))
}

/// A validation of one run: an exact match with its interval over the questions.
fn validated(row: &Value, name: &str) -> Score {
    let estimate = row[name].as_f64().unwrap_or_default();
    let alone = Interval {
        estimate,
        low: estimate,
        high: estimate,
    };
    let questions = row[Metric::VAL_QUESTIONS].as_f64();
    let share = questions
        .filter(|_| name == Metric::VAL_EM)
        .map(|questions| {
            let right = (estimate * questions).round();
            Bootstrap::new(1).share(right as u64, questions as u64)
        });
    let step = row["step"].as_u64().unwrap_or_default();
    let score = share.and_then(Result::ok).unwrap_or(alone);
    (format!("at step {step}"), score)
}

fn has(arm: &Arm, name: &str) -> bool {
    arm.runs
        .iter()
        .any(|rows| values(rows, name).next().is_some())
}

fn sum(arm: &Arm, name: &str) -> f64 {
    let runs = arm.runs.iter();
    runs.flat_map(|rows| values(rows, name))
        .map(|(_, value)| value)
        .sum()
}

/// `0.633 (0.455 to 0.781)`; the estimate alone where there is no interval.
fn with_ends(score: Interval) -> String {
    let [low, high] = score.ends().map(number);
    let estimate = number(score.estimate);
    if low == high {
        estimate
    } else {
        format!("{estimate} ({low} to {high})")
    }
}

/// `8.2 s`, `12.5 min`, `3.1 h`.
fn time(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{seconds:.1} s")
    } else if seconds < 7200.0 {
        format!("{:.1} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// `950`, `12.5 k`, `3.1 M`.
fn count(tokens: f64) -> String {
    if tokens < 1e4 {
        format!("{tokens:.0}")
    } else if tokens < 1e6 {
        format!("{:.1} k", tokens / 1e3)
    } else {
        format!("{:.1} M", tokens / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Report;
    use super::*;

    fn arm(rows: Vec<Value>) -> Arm {
        Arm {
            name: "run".to_owned(),
            runs: vec![rows],
        }
    }

    #[test]
    fn a_run_by_itself_opens_with_what_it_learned_and_took() {
        let row = |step: u64, reward: f64, em: f64| {
            json!({
                "step": step, "reward/mean": reward, "val/em": em, "val/questions": 100.0, "time/rollout_s": 90.0,
                "time/update_s": 60.0, "optim/tokens": 6000.0,
            })
        };
        let report = Report::new("run").arm(arm(vec![row(0, 0.25, 0.5), row(1, 0.75, 0.7)]));
        let page = report.render();
        let head = page.split("</header>").next().unwrap_or_default();
        let lead = "Validation exact match: 0.500 (0.404 to 0.596) at step 0, 0.700 (0.604 to 0.781) at step 1. forage eval --controls RUN \
                    compares it with its start.";
        for part in [
            lead,
            "<b>0.750</b><small>last tenth of the steps; 0.250 in the first</small>",
            "<b>5.0 min</b><small>of 2 steps without validations</small>",
            "<b>12.0 k</b><small>learned from</small>",
            "No alarm was raised.",
        ] {
            assert!(head.contains(part), "no `{part}` in {head}");
        }
        assert!(report.to_markdown().contains(lead));
    }

    #[test]
    fn a_fork_opens_with_its_own_figures() {
        let row = |step: u64, em: Value, taken_over: bool| {
            json!({
                "step": step, "reward/mean": 0.5, "val/em": em, "time/rollout_s": 90.0, "taken_over": taken_over,
            })
        };
        let forked = |em: Value| arm(vec![row(0, json!(0.9), true), row(1, em, false)]);
        let words = lead(&forked(Value::Null));
        assert!(words.starts_with("Nothing was validated"), "{words}");
        let fork = forked(json!(0.5));
        let words = lead(&fork);
        let own = "Validation exact match: 0.500 at step 1, and no other validation";
        assert!(words.starts_with(own), "{words}");
        assert!(tiles(&fork).iter().any(|(_, value, _)| value == "90.0 s"));
        assert_eq!(fork.points("val/em").len(), 2);
    }

    #[test]
    fn what_was_not_validated_or_validated_once_is_said_to_be() {
        let bare = arm(vec![json!({"step": 0, "reward/mean": 0.5})]);
        assert!(lead(&bare).starts_with("Nothing was validated"));
        assert!(lead(&bare).contains("grpo.evaluate_every"));
        let paid = arm(vec![
            json!({"step": 1, "val/reward": 0.5, "val/questions": 20.0}),
        ]);
        assert!(
            lead(&paid).starts_with("Validation reward: 0.500 at step 1,"),
            "{}",
            lead(&paid)
        );
        let tuned = arm(vec![
            json!({"step": 9, "sft/loss": 1.5, "sft/val_loss": 2.0}),
        ]);
        let words = lead(&tuned);
        assert!(
            words.contains("2.000 at step 9, and no other validation")
                && !words.contains("--controls"),
            "{words}"
        );
        assert_eq!(tiles(&tuned)[0].1, "1.500");
    }
}
