use forage_contracts::Turn;
use forage_env::{Alarm, Example, Severity};
use forage_eval::report::{Arm, Recipe};
use forage_eval::telemetry::course::StepItem;
use forage_eval::{
    Comparison, Course, EvalSummary, Origin, Report, SeedEpisodes, StepTelemetry, Study,
    Trajectory, Verdict,
};
use serde_json::{Value, json};

use super::fixtures::{SETTINGS, decode, episode, episodes, infra, truncated};
use super::summary::two_sources;

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A run of 120 steps that learns, or not.
fn rows(learns: bool) -> Vec<Value> {
    let row = |step: u32| {
        let learned = 1.0 - (-f64::from(step) / 45.0).exp();
        let progress = if learns { learned } else { 0.02 };
        let noise = (f64::from(step) * 12.9898).sin() * 0.06;
        let mut row = json!({
            "step": step,
            "reward/mean": 0.12 + 0.35 * progress + noise,
            "reward/component/em": 0.12 + 0.35 * progress + noise,
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

fn arm(name: &str, runs: Vec<Vec<Value>>) -> Arm {
    Arm {
        name: name.into(),
        runs,
    }
}

fn origin(run: &str, step: Option<u64>) -> Origin {
    Origin {
        run: run.into(),
        step,
        alarms: Vec::new(),
    }
}

/// The course of a policy that writes bags of keywords from the start on, with an example that says `text`.
fn bags(text: &str) -> Course {
    let item = || StepItem {
        mean: 0.99,
        episodes: 64,
        error: None,
    };
    let example = |step| Example {
        step: Some(step),
        data_source: text.into(),
        task: "q7".into(),
        member: 0,
        question: text.into(),
        excerpt: text.into(),
    };
    let step = |step| StepTelemetry {
        step,
        items: [("keyword_bag".to_owned(), item())].into(),
        examples: [("keyword_bag".to_owned(), example(step))]
            .into_iter()
            .filter(|_| step > 1)
            .collect(),
    };
    Course::of(&(0..12).map(step).collect::<Vec<_>>(), SETTINGS).unwrap()
}

fn alarm(kind: &str, message: &str, step: u64) -> Alarm {
    Alarm {
        kind: kind.into(),
        severity: Severity::Warn,
        step: Some(step),
        value: None,
        threshold: None,
        message: message.into(),
        examples: Vec::new(),
    }
}

fn sample() -> Result<Report, Box<dyn std::error::Error>> {
    let start = episodes(500, |index| (index * 37) % 100 < 12);
    let trained = episodes(500, |index| (index * 37) % 100 < 43 - 12 * (index % 3));
    let control = episodes(500, |index| (index * 37 + index / 100) % 100 < 13);
    let sets = SeedEpisodes {
        seed: 1,
        start: start.clone(),
        arms: vec![
            ("trained".to_owned(), trained.clone()),
            ("control".to_owned(), control.clone()),
        ],
        baselines: Vec::new(),
    };
    let verdict = Verdict::of(&sets, Some(&sets), 11.4, SETTINGS)?;
    let alarm = alarm("entropy_collapse", "Entropy fell.", 7);
    let mut report = Report::new("forage quickstart, search-r1 on the generated world")
        .note("real reward: 121 of 200 steps are done.")
        .verdict("quickstart", verdict)
        .recipe(Recipe {
            run: "quickstart".into(),
            config: "[train]\nsteps = 120\nalgorithm = \"dr_grpo\"\n# <b>not bold</b> & safe\n"
                .into(),
            digests: vec![("train questions".into(), "0123abcd".into())],
        })
        .alarms("real reward", [alarm])
        .course("real reward", bags("renvar mala job"))
        .arm(arm("real reward", vec![rows(true), rows(true)]))
        .arm(arm("control (random reward)", vec![rows(false)]));
    for (label, set) in [
        ("start", &start),
        ("trained", &trained),
        ("control", &control),
    ] {
        report = report.evaluation(label, EvalSummary::from_episodes(set, SETTINGS)?);
    }
    Ok(report
        .trajectory(Trajectory::from_tokens(
            origin("trained", Some(40)),
            &episode(4, true),
            decode,
        ))
        .trajectory(Trajectory::from_turns(
            origin("trained", Some(40)),
            &truncated(5),
        ))
        .trajectory(Trajectory::from_turns(origin("trained", None), &infra(6))))
}

/// The JSON of the data elements of a class.
fn data(html: &str, class: &str) -> Vec<Value> {
    let opening = format!("<script type=\"application/json\" class=\"{class}\">");
    let pieces = html.split(&opening).skip(1);
    pieces
        .map(|piece| {
            serde_json::from_str(piece.split("</script>").next().unwrap_or_default()).unwrap()
        })
        .collect()
}

#[test]
fn the_page_is_whole_and_needs_nothing_else() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("report.html");
    let report = sample()?;
    report.write(&path)?;
    let html = std::fs::read_to_string(&path)?;
    assert_eq!(html, report.render(), "same input, same page");
    for needle in [
        "Training raised held-out exact match",
        "reward/mean",
        "val/em",
        "<svg",
        "class=\"band",
        "How the policy comes to be right",
        "Why episodes fail, as shares of all episodes",
        "Parts of the reward",
        "author-forced",
        "dr_grpo",
        "0123abcd",
        "entropy collapse",
        "<b>keyword bag</b> <span class=\"outcome\">real reward, step 2</span>",
        "<li>step 2, q7 (renvar mala job): renvar mala job</li>",
        "steps 0 to 11",
        "121 of 200 steps",
    ] {
        assert!(html.contains(needle), "{needle}");
    }
    for banned in [
        "http://", "https://", "<link", "<img", "url(", "NaN", "inf\"", "src=",
    ] {
        assert!(!html.contains(banned), "{banned}");
    }
    assert!(!html.contains("unsafe-eval"));
    // What the script writes into the page is not markup.
    let body = html.split("<script>").next().unwrap_or_default();
    for tag in [
        "svg", "figure", "details", "table", "section", "pre", "div", "tr", "text", "script",
        "label", "select",
    ] {
        let opened =
            body.matches(&format!("<{tag}>")).count() + body.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, body.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    Ok(())
}

#[test]
fn the_script_of_the_page_is_the_one_its_policy_names() -> TestResult {
    let html = sample()?.render();
    assert_eq!(html.matches("script-src 'sha256-").count(), 1);
    assert_eq!(html.matches("<script>").count(), 1);
    let script = html
        .split("<script>")
        .nth(1)
        .and_then(|rest| rest.split("</script>").next())
        .unwrap_or_default();
    for banned in [
        "innerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
        "import",
    ] {
        assert!(!script.contains(banned), "{banned}");
    }
    Ok(())
}

#[test]
fn text_of_models_and_tasks_cannot_break_the_page() {
    let evil =
        "</pre></details></script><script>alert(1)</script><!--<img src=x onerror=\"alert(2)\">";
    let mut hostile = episode(1, false);
    hostile.prompt = evil.into();
    hostile.task.question = evil.into();
    hostile.task.golds = vec![evil.into()];
    hostile.task.id = evil.into();
    for turn in &mut hostile.turns {
        turn.policy = evil.into();
        turn.observation = evil.into();
    }
    let alarm = alarm(evil, evil, 1);
    let report = Report::new(evil)
        .note(evil)
        .alarms(evil, [alarm])
        .course(evil, bags(evil))
        .recipe(Recipe {
            run: evil.into(),
            config: evil.into(),
            digests: vec![(evil.into(), evil.into())],
        })
        .arm(arm(
            evil,
            vec![vec![
                json!({"step": 1, "<script>": 1.0, "reward/mean": 0.5}),
            ]],
        ))
        .trajectory(Trajectory::from_turns(origin(evil, Some(1)), &hostile))
        .trajectory(Trajectory::from_tokens(
            origin(evil, None),
            &hostile,
            |_| evil.to_owned(),
        ));
    let html = report.render();
    assert!(
        !html.contains("<script>alert") && !html.contains("<img") && !html.contains("onerror=\"")
    );
    assert!(html.contains("&lt;script&gt;alert(1)"));
    // The index, one block and the viewer's script.
    assert_eq!(
        (
            html.matches("<script").count(),
            html.matches("</script").count()
        ),
        (3, 3)
    );
    let block = &data(&html, "block")[0];
    assert_eq!(
        block["texts"].as_array().unwrap().len(),
        1,
        "a text stands once"
    );
    assert_eq!(block["texts"][0], evil);
    assert_eq!(data(&html, "index")[0]["questions"][0][2], evil);
}

#[test]
fn an_empty_report_is_still_a_page() {
    let html = Report::new("nothing yet").render();
    assert!(
        html.starts_with("<!DOCTYPE html>")
            && html.contains("nothing yet")
            && !html.contains("<h2>")
    );
    assert!(
        !html.contains("<script") && !html.contains("script-src"),
        "no trajectories, no script"
    );
    let odd = vec![
        json!({"step": 1, "a": 1e300}),
        json!({"step": 2, "a": -1e300}),
        json!(null),
    ];
    assert!(
        !Report::new("odd")
            .arm(arm("run", vec![odd]))
            .render()
            .contains("NaN")
    );
}

#[test]
fn ten_thousand_trajectories_make_a_page_of_a_few_megabytes() {
    let mut report = Report::new("large");
    for index in 0..10_000 {
        let one = episode(index / 16, index % 3 == 0);
        let place = origin("trained", Some(index as u64 / 160));
        report = report.trajectory(Trajectory::from_turns(place, &one));
    }
    let html = report.render();
    assert!(html.len() < 6_000_000, "{} bytes", html.len());
    let index = &data(&html, "index")[0];
    assert_eq!(index["rows"].as_array().unwrap().len(), 10_000);
    assert_eq!(index["questions"].as_array().unwrap().len(), 625);
    let blocks = data(&html, "block");
    let held: usize = blocks
        .iter()
        .map(|block| block["rows"].as_array().unwrap().len())
        .sum();
    assert_eq!(
        (held, index["blocks"].as_array().unwrap().len()),
        (10_000, blocks.len())
    );
    assert_eq!(html.matches("<details class=\"trajectory\"").count(), 12);
}

#[test]
fn markdown_and_json_say_what_the_page_says() -> TestResult {
    let report = sample()?;
    insta::assert_snapshot!("markdown", report.to_markdown());
    let json = report.to_json();
    assert_eq!(json["verdicts"]["quickstart"]["n"], 500);
    assert!(json["evaluations"]["trained"]["metrics"]["em"]["low"].is_f64());
    let reward = json["training"][0]["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["metric"] == "reward/mean");
    let reward = reward.unwrap();
    assert!(reward["last"]["estimate"].as_f64() > reward["first"]["estimate"].as_f64());
    assert_eq!(reward["runs"], 2);
    Ok(())
}

#[test]
fn data_sets_stand_in_one_table() -> TestResult {
    let start = two_sources(&|_| false, &|index| index < 5);
    let trained = two_sources(&|index| index < 15, &|index| index < 4);
    let seed = SeedEpisodes {
        seed: 1,
        start: start.clone(),
        arms: vec![("trained".to_owned(), trained.clone())],
        baselines: Vec::new(),
    };
    let report = Report::new("two data sets")
        .verdict("run", Verdict::of(&seed, None, 1.0, SETTINGS)?)
        .evaluation("start", EvalSummary::from_episodes(&start, SETTINGS)?)
        .evaluation("trained", EvalSummary::from_episodes(&trained, SETTINGS)?);
    let html = report.render();
    assert_eq!(
        html.matches("em by data set").count(),
        2,
        "scores and gains"
    );
    for row in [
        "nq",
        "hotpotqa",
        "macro average",
        "all questions (micro average)",
    ] {
        assert_eq!(
            html.matches(&format!("<th scope=\"row\">{row}</th>"))
                .count(),
            2,
            "{row}"
        );
    }
    let markdown = report.to_markdown();
    let tables = markdown.matches("| em by data set | start | trained |");
    assert_eq!(tables.count(), 2, "scores and gains: {markdown}");
    assert!(markdown.contains("| nq | 0.000"), "{markdown}");
    let json = report.to_json();
    assert_eq!(
        json["evaluations"]["trained"]["by_source"]["nq"]["questions"],
        30
    );
    Ok(())
}

#[test]
fn failures_are_told_side_by_side() -> TestResult {
    let trained = two_sources(&|index| index < 15, &|index| index < 4);
    let mut base = trained.clone();
    // It answers from memory, and repeats what it was told.
    for episode in &mut base {
        let answer = episode.turns.pop().ok_or("a fixture with turns")?;
        episode.turns = vec![Turn {
            policy: format!(
                "Answer the question. You may search. Question: {}",
                answer.policy
            ),
            ..answer
        }];
    }
    let comparison = Comparison::from_episodes(&base, &trained, SETTINGS)?;
    let report = Report::new("two evaluations")
        .comparison(["base", "trained"], comparison)
        .failures([&base, &trained], SETTINGS)?;
    let json = report.to_json();
    let found = &json["comparison"]["failures"];
    let of = |name: &str| {
        let mut all = found.as_array().into_iter().flatten();
        all.find(|one| one["name"] == name).cloned()
    };
    let unsearched = of("unsearched_answer").ok_or("answers without a search")?;
    let shares = ["a", "b"].map(|side| unsearched["difference"][side].as_f64());
    assert_eq!(shares, [Some(1.0), Some(0.0)]);
    assert_eq!(unsearched["by_source"]["nq"]["a"].as_f64(), Some(1.0));
    assert_eq!(unsearched["macro_average"]["a"].as_f64(), Some(1.0));
    let examples = unsearched["examples"].as_array().ok_or("two sides")?;
    let counts = examples.iter().map(|side| side.as_array().map(Vec::len));
    assert_eq!(counts.collect::<Vec<_>>(), [Some(3), Some(0)]);
    let echoed = of("echoed_instructions").ok_or("repeated instructions")?;
    assert_eq!(echoed["difference"]["a"].as_f64(), Some(1.0));
    let html = report.render();
    for needle in [
        "<h2>Failures</h2>",
        "<th scope=\"row\">answers without a search, nq</th>",
        "<summary>repeats its instructions</summary>",
        "em by data set",
    ] {
        assert!(html.contains(needle), "{needle}");
    }
    let markdown = report.to_markdown();
    assert!(
        markdown.contains("| repeats its instructions | 1.000 | 0.000 |"),
        "{markdown}"
    );
    Ok(())
}

#[test]
fn two_evaluations_of_the_same_questions_are_paired() -> TestResult {
    let start = two_sources(&|_| false, &|index| index < 5);
    let trained = two_sources(&|index| index < 15, &|index| index < 4);
    let comparison = Comparison::from_episodes(&start, &trained, SETTINGS)?;
    let words = comparison.words("em", "start", "trained");
    let gain = comparison.metrics["em"].difference;
    let report = Report::new("two evaluations")
        .evaluation("start", EvalSummary::from_episodes(&start, SETTINGS)?)
        .evaluation("trained", EvalSummary::from_episodes(&trained, SETTINGS)?)
        .comparison(["start", "trained"], comparison);
    let html = report.render();
    assert!(html.contains(&words.replace('<', "&lt;")), "{words}");
    assert!(html.contains("<th scope=\"col\">trained - start</th>"));
    let markdown = report.to_markdown();
    assert!(
        markdown.contains("| question by question | start | trained |"),
        "{markdown}"
    );
    let json = report.to_json();
    let shown = &json["comparison"]["comparison"]["metrics"]["em"]["difference"];
    assert_eq!(shown["estimate"].as_f64(), Some(gain.estimate));
    Ok(())
}

#[test]
fn baselines_and_pass_at_k_are_on_the_page() -> TestResult {
    let share = |tenths: usize| episodes(60, |index| (index * 7) % 10 < tenths);
    let greedy = SeedEpisodes {
        seed: 1,
        start: share(2),
        arms: vec![("trained".to_owned(), share(6))],
        baselines: vec![("forced_search".to_owned(), share(4))],
    };
    let mut sampled = greedy.clone();
    for episodes in [&mut sampled.start, &mut sampled.arms[0].1] {
        let again = episodes.clone();
        episodes.extend(again);
    }
    let page = |sampled| -> Result<Report, Box<dyn std::error::Error>> {
        let verdict = Verdict::of(&greedy, sampled, 1.0, SETTINGS)?;
        Ok(Report::new("beside others").verdict("run", verdict))
    };
    let report = page(Some(&sampled))?;
    let html = report.render();
    for shown in [
        "beside other ways to the same end",
        "<th scope=\"row\">forced_search</th>",
        "<th scope=\"row\">forced_search, sampled</th>",
        "forced search − start",
        "pass@k: a right answer among k samples",
        "trained, pass@2: 0.600",
    ] {
        assert!(html.contains(shown), "{shown}");
    }
    let markdown = report.to_markdown();
    assert!(
        markdown.contains("| forced_search | 0.400 | "),
        "{markdown}"
    );
    let json = report.to_json();
    let verdict = &json["verdicts"]["run"];
    assert_eq!(verdict["greedy"]["baselines"][0]["name"], "forced_search");
    assert_eq!(verdict["pass_at_k"]["b"][1]["k"], 2);
    let plain = page(None)?.render();
    assert!(!plain.contains("pass@k"), "one sample has no curve");
    Ok(())
}

#[test]
fn a_study_is_drawn_as_a_verdict_is() -> TestResult {
    let share = |tenths: usize| episodes(60, |index| (index * 7) % 10 < tenths);
    let greedy = SeedEpisodes {
        seed: 1,
        start: share(2),
        arms: vec![
            ("trained".to_owned(), share(6)),
            ("any_search".to_owned(), share(2)),
        ],
        baselines: vec![("forced_search".to_owned(), share(4))],
    };
    let mut sampled = greedy.clone();
    for episodes in [&mut sampled.start, &mut sampled.arms[0].1] {
        let again = episodes.clone();
        episodes.extend(again);
    }
    let study = |seed: &SeedEpisodes| Study::of(std::slice::from_ref(seed), SETTINGS);
    let report = Report::new("beside others").study("run", study(&greedy)?, Some(study(&sampled)?));
    let html = report.render();
    for shown in [
        "Gain holds against its twins",
        "Training gained +0.40 EM",
        "any search − start",
        "forced search − start, sampled",
        "<th scope=\"row\">forced_search</th>",
        "<th scope=\"row\">any_search, sampled</th>",
        "<th scope=\"row\">P(search), 2 hops</th>",
        "Gain in exact match that each part explains",
        "<th scope=\"row\">copying</th>",
        "trained, pass@2: 0.600",
    ] {
        assert!(html.contains(shown), "{shown}");
    }
    let markdown = report.to_markdown();
    for shown in [
        "| forced_search | 0.400 | ",
        "| P(search), 2 hops | ",
        "| copying | ",
    ] {
        assert!(markdown.contains(shown), "{markdown}");
    }
    let json = report.to_json();
    let found = &json["studies"]["run"];
    assert_eq!(found["greedy"]["baselines"][0]["name"], "forced_search");
    assert_eq!(found["sampled"]["pass_at_k"]["b"][1]["k"], 2);
    Ok(())
}

#[test]
fn a_study_opens_with_what_it_shows() -> TestResult {
    let share = |tenths: usize| episodes(60, |index| (index * 7) % 10 < tenths);
    for (trained, twin, badge) in [
        (0, Some(2), "bad\">Training made it worse<"),
        (2, Some(2), "plain\">No gain shown<"),
        (6, Some(2), "good\">Gain holds against its twins<"),
        (6, Some(4), "plain\">Only the lead is the reward's: a twin"),
        (6, Some(6), "bad\">Suspicious: a twin gained as well<"),
        (6, None, "plain\">Gain without a twin<"),
    ] {
        let arms = [
            Some(("trained", trained)),
            twin.map(|twin| ("random", twin)),
        ];
        let arms = arms.into_iter().flatten();
        let seed = SeedEpisodes {
            seed: 1,
            start: share(2),
            arms: arms
                .map(|(name, tenths)| (name.to_owned(), share(tenths)))
                .collect(),
            baselines: Vec::new(),
        };
        let study = Study::of(&[seed], SETTINGS)?;
        let html = Report::new("opening").study("run", study, None).render();
        assert!(
            html.contains(&format!("<p class=\"badge {badge}")),
            "{badge}"
        );
    }
    Ok(())
}
