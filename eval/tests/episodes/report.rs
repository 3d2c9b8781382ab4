use forage_eval::verdict::{Detail, RunFacts};
use forage_eval::{EvalSummary, Report, Verdict};
use serde_json::{Value, json};

use crate::fixtures::{SETTINGS, decode, episode, episodes, infra, truncated};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A run of 120 steps that learns, or not.
fn rows(learns: bool) -> Vec<Value> {
    let row = |step: u32| {
        let progress = if learns { 1.0 - (-f64::from(step) / 45.0).exp() } else { 0.02 };
        let noise = (f64::from(step) * 12.9898).sin() * 0.06;
        let mut row = json!({
            "step": step,
            "reward/mean": 0.12 + 0.35 * progress + noise,
            "policy/entropy": 0.9 - 0.5 * progress + noise / 3.0,
            "policy/kl_ref": 0.002 * f64::from(step) * progress + noise.abs() / 50.0,
            "response/tokens_mean": 180.0 - 60.0 * progress + 90.0 * noise,
            "group/zero_std_frac": 0.55 - 0.2 * progress + noise / 2.0,
            "search/calls_mean": 0.8 + 1.1 * progress + noise,
            "optim/lr": 1e-5,
        });
        if step.is_multiple_of(20) {
            row["val/em"] = json!(0.11 + 0.3 * progress + noise / 4.0);
        }
        row
    };
    (0..=120).map(row).collect()
}

fn sample() -> Result<Report, Box<dyn std::error::Error>> {
    let start = episodes(500, |index| (index * 37) % 100 < 12);
    let trained = episodes(500, |index| (index * 37) % 100 < 43 - 12 * (index % 3));
    let control = episodes(500, |index| (index * 37 + index / 100) % 100 < 13);
    let facts = RunFacts { seed: 1, minutes: 11.4 };
    let verdict = Verdict::from_episodes(&start, &trained, Some(&control), facts, SETTINGS)?
        .with_sampled(Detail::from_episodes(&start, &trained, Some(&control), SETTINGS)?);
    let mut report = Report::new("forage quickstart, search-r1 on the generated world")
        .verdict(verdict)
        .config("[train]\nsteps = 120\nalgorithm = \"dr_grpo\"\n# <b>not bold</b> & safe\n")
        .series("real reward", rows(true))
        .series("control (random reward)", rows(false));
    for (label, set) in [("start", &start), ("trained", &trained), ("control", &control)] {
        report = report.evaluation(label, EvalSummary::from_episodes(set, SETTINGS)?);
    }
    Ok(report
        .decoded_trajectory("best of the group", &episode(4, true), decode)
        .trajectory("worst of the group", &truncated(5))
        .trajectory("lost", &infra(6)))
}

#[test]
fn the_page_is_whole_and_needs_nothing_else() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("report.html");
    let report = sample()?;
    report.write(&path)?;
    let html = std::fs::read_to_string(&path)?;
    assert_eq!(html, report.render(), "same input, same page");
    for needle in ["Training raised held-out exact match", "reward/mean", "val/em", "<svg", "author-forced", "dr_grpo"]
    {
        assert!(html.contains(needle), "{needle}");
    }
    for banned in ["<script", "http://", "https://", "<link", "<img", "url(", "NaN", "inf\""] {
        assert!(!html.contains(banned), "{banned}");
    }
    for tag in ["svg", "figure", "details", "table", "section", "pre", "div", "tr", "text"] {
        let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    Ok(())
}

#[test]
fn text_of_models_and_tasks_cannot_break_the_page() {
    let evil = "</pre></details><script>alert(1)</script><img src=x onerror=\"alert(2)\">";
    let mut hostile = episode(1, false);
    hostile.prompt = evil.into();
    hostile.task.question = evil.into();
    hostile.task.golds = vec![evil.into()];
    hostile.task.id = evil.into();
    for turn in &mut hostile.turns {
        turn.policy = evil.into();
        turn.observation = evil.into();
    }
    let html = Report::new(evil)
        .config(evil)
        .series(evil, vec![json!({"step": 1, "<script>": 1.0, "reward/mean": 0.5})])
        .trajectory(evil, &hostile)
        .decoded_trajectory(evil, &hostile, |_| evil.to_owned())
        .render();
    assert!(!html.contains("<script") && !html.contains("<img") && !html.contains("onerror=\""));
    assert_eq!(html.matches("</details>").count(), 3);
    assert!(html.contains("&lt;script&gt;alert(1)"));
}

#[test]
fn an_empty_report_is_still_a_page() {
    let html = Report::new("nothing yet").render();
    assert!(html.starts_with("<!doctype html>") && html.contains("nothing yet") && !html.contains("<h2>"));
    let odd = Report::new("odd")
        .series("run", vec![json!({"step": 1, "a": 1e300}), json!({"step": 2, "a": -1e300}), json!(null)]);
    assert!(!odd.render().contains("NaN"));
}
