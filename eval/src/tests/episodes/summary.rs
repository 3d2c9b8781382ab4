use std::collections::BTreeMap;

use forage_contracts::environment::TurnKind;
use forage_contracts::{Episode, Split, TokenLog};
use forage_eval::{Comparison, EvalSummary, Report, StatsError, Telemetry};
use serde_json::json;

use super::fixtures::{SETTINGS, episode, episodes, infra, truncated};
use super::telemetry::recorded;

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// The measures of one episode.
fn measured(episode: &Episode) -> BTreeMap<String, f64> {
    let summary = EvalSummary::from_episodes(std::slice::from_ref(episode), SETTINGS).unwrap();
    let metrics = summary.metrics.into_iter();
    metrics
        .map(|(name, metric)| (name, metric.interval.estimate))
        .collect()
}

#[test]
fn an_episode_is_measured_by_authorship() {
    let measures = measured(&episode(0, true));
    let of = |name: &str| measures.get(name).copied().unwrap_or(f64::NAN);
    assert!((of("searches") - 2.0).abs() < 1e-9 && (of("turns") - 4.0).abs() < 1e-9);
    assert!(
        (of("repeated_queries") - 0.5).abs() < 1e-9,
        "case and spacing do not make a new query"
    );
    assert!((of("invalid_actions") - 0.25).abs() < 1e-9);
    assert!(
        of("policy_tokens") < of("response_tokens") && of("response_tokens") < of("episode_tokens")
    );
    assert!((of("answered") - 1.0).abs() < 1e-9 && of("truncated").abs() < 1e-9);
    assert!(measured(&infra(0)).is_empty());
    let mut idle = episode(0, false);
    idle.turns.clear();
    let measures = measured(&idle);
    assert!(
        !measures.contains_key("repeated_queries") && !measures.contains_key("invalid_actions")
    );
}

fn code(status: Option<&str>, printed: bool, queries: &[&str]) -> TurnKind {
    let call = |query: &&str| json!({"tool": "search_pages", "argument": query, "found": ["p1"], "size": 1});
    let calls: Vec<_> = queries.iter().map(call).collect();
    let payload = json!({"status": status, "error": null, "printed": printed, "calls": calls});
    recorded(payload, false)
}

#[test]
fn programs_are_measured_where_there_are_any() {
    let plain = measured(&episode(0, true));
    for name in ["working_code_rate", "unprinted_results"] {
        assert!(!plain.contains_key(name), "{name}");
    }
    assert!(
        plain["give_up_rate"].abs() < 1e-9,
        "an answer gives up or does not, code or not"
    );
    let mut coded = episode(0, true);
    coded.turns[0].kind = code(Some("ok"), true, &["a", "A ", "b"]);
    coded.turns[1].kind = code(Some("ok"), false, &["c"]);
    coded.turns[2].kind = code(Some("timeout"), false, &[]);
    coded.turns.insert(3, coded.turns[2].clone());
    coded.turns[3].kind = code(None, false, &[]);
    let measures = measured(&coded);
    let of = |name: &str| measures.get(name).copied().unwrap_or(f64::NAN);
    assert!((of("searches") - 4.0).abs() < 1e-9 && (of("repeated_queries") - 0.25).abs() < 1e-9);
    assert!(
        (of("working_code_rate") - 2.0 / 3.0).abs() < 1e-9,
        "what was not run is not counted"
    );
    assert!((of("unprinted_results") - 1.0 / 3.0).abs() < 1e-9 && of("give_up_rate").abs() < 1e-9);
    coded.turns[4].kind = TurnKind::answer("Unknown.");
    assert!((measured(&coded)["give_up_rate"] - 1.0).abs() < 1e-9);
}

#[test]
fn infra_faults_are_counted_and_in_no_number() -> TestResult {
    let clean = episodes(60, |index| index % 3 == 0);
    let mut faulty = clean.clone();
    faulty.extend((60..75).map(infra));
    let (clean, faulty) = (
        EvalSummary::from_episodes(&clean, SETTINGS)?,
        EvalSummary::from_episodes(&faulty, SETTINGS)?,
    );
    assert_eq!(
        (faulty.questions, faulty.episodes, faulty.infra),
        (60, 60, 15)
    );
    assert_eq!(clean.metrics, faulty.metrics);
    assert!(
        faulty
            .to_text()
            .contains("15 lost to infrastructure faults")
    );
    Ok(())
}

#[test]
fn samples_of_a_question_are_one_cluster() -> TestResult {
    let once = episodes(50, |index| index % 2 == 0);
    let many: Vec<_> = once
        .iter()
        .flat_map(|episode| vec![episode.clone(); 4])
        .collect();
    let (once, many) = (
        EvalSummary::from_episodes(&once, SETTINGS)?,
        EvalSummary::from_episodes(&many, SETTINGS)?,
    );
    assert_eq!((many.questions, many.episodes), (50, 200));
    assert_eq!(once.metric("em"), many.metric("em"));
    Ok(())
}

/// Wilson's interval reaches from 0 towards 1, which is where a share of 0 may lie, and a cost of 0 may not.
#[test]
fn parts_have_intervals_within_their_range() -> TestResult {
    let mut set = episodes(20, |_| false);
    for episode in &mut set {
        let score = episode.score.as_mut().ok_or("a score")?;
        for part in ["search_cost", "length", "precision"] {
            score.parts.insert(part.to_owned(), 0.0);
        }
        for part in ["published", "published_correct"] {
            score.parts.insert(part.to_owned(), 1.0);
        }
    }
    let summary = EvalSummary::from_episodes(&set, SETTINGS)?;
    // Of 0 in 20 it is z^2 / (20 + z^2), and z is 1.959964.
    for (name, [low, high]) in [
        ("em", [0.0, 0.161_125]),
        ("precision", [0.0, 0.161_125]),
        ("answered", [0.838_875, 1.0]),
        ("search_cost", [0.0, 0.0]),
        ("length", [0.0, 0.0]),
        ("published_excess", [0.0, 0.0]),
        ("published_correct", [1.0, 1.0]),
    ] {
        let found = summary.metric(name).ok_or(name)?;
        assert!(
            (found.low - low).abs() < 1e-6 && (found.high - high).abs() < 1e-6,
            "{name}: {found:?}"
        );
    }
    Ok(())
}

#[test]
fn a_table_too_wide_for_a_screen_lists_its_rows() -> TestResult {
    let summary = EvalSummary::from_episodes(&[episode(0, true)], SETTINGS)?;
    let page = |count: u64| {
        let labels = (0..count).map(|place| format!("policy {place}"));
        let report = labels.fold(Report::new("policies"), |report, label| {
            report.evaluation(label, summary.clone())
        });
        report.render()
    };
    let many = "<div class=\"rows many\">";
    assert!(page(8).contains(many) && !page(7).contains(many));
    Ok(())
}

#[test]
fn bytes_of_a_script_are_not_shown_as_tokens() -> TestResult {
    let prompt = "Who?";
    let bytes: Vec<u32> = prompt.bytes().map(u32::from).collect();
    let scripted = Episode {
        prompt: prompt.to_owned(),
        tokens: TokenLog::with_prompt(&bytes),
        ..episode(0, true)
    };
    let (scripted, sampled) = ([scripted], [episode(0, true)]);
    let words =
        |set: &[Episode]| Ok::<_, StatsError>(EvalSummary::from_episodes(set, SETTINGS)?.to_text());
    assert!(words(&scripted)?.contains("are bytes here"));
    assert!(!words(&sampled)?.contains("bytes"));
    let conduct =
        |set: &[Episode]| Ok::<_, StatsError>(Telemetry::from_episodes(set, SETTINGS)?.to_text());
    assert!(conduct(&scripted)?.contains("are bytes here"));
    assert!(!conduct(&sampled)?.contains("are bytes"));
    let summary = EvalSummary::from_episodes(&scripted, SETTINGS)?;
    let report = Report::new("a script").evaluation("oracle", summary);
    for shown in [
        report.render(),
        report.to_markdown(),
        report.to_json().to_string(),
    ] {
        assert!(shown.contains("are bytes in oracle: "), "{shown}");
    }
    assert!(report.render().contains("<td data-of=\"oracle\">"));
    let compared = Comparison::from_episodes(&sampled, &scripted, SETTINGS)?;
    let caveat = compared.caveat().unwrap_or_default();
    assert!(
        caveat.contains("are bytes on the second side alone"),
        "{caveat}"
    );
    Ok(())
}

#[test]
fn several_evaluations_share_a_table() -> TestResult {
    let summary = |right: usize, count: usize| {
        let set = episodes(count, |index| index < right);
        EvalSummary::from_episodes(&set, SETTINGS)
    };
    let (greedy, sampled) = (summary(1, 2)?, summary(30, 40)?);
    let alone = EvalSummary::beside(&[("greedy", &greedy)]);
    assert_eq!(alone, format!("greedy\n{}", greedy.to_text()));
    let both = EvalSummary::beside(&[("greedy", &greedy), ("sampled", &sampled)]);
    let row = |name: &str| {
        let mut found = both.lines().filter(|line| line.starts_with(name));
        let row = found.next().unwrap_or_default();
        assert_eq!(found.next(), None, "{both}");
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("metric"), "metric greedy sampled");
    assert_eq!(row("em "), "em 0.500 [0.095, 0.905] 0.750 [0.598, 0.858]");
    assert!(row("sampled: ").starts_with("sampled: 40 questions, 40 episodes"));
    Ok(())
}

#[test]
fn hops_and_endings_are_broken_down() -> TestResult {
    let mut set = episodes(30, |index| index % 3 == 0);
    set.extend((30..40).map(truncated));
    let summary = EvalSummary::from_episodes(&set, SETTINGS)?;
    assert!(
        summary
            .metric("truncated")
            .is_some_and(|share| (share.estimate - 0.25).abs() < 1e-9)
    );
    let one_hop = &summary.by_hops[&1];
    assert_eq!(one_hop.questions, 14);
    assert!((one_hop.metrics["em"].interval.estimate - 10.0 / 14.0).abs() < 1e-9);
    insta::assert_snapshot!(summary.to_text());
    Ok(())
}

/// Questions of two data sets whose ids begin anew in each.
pub(crate) fn two_sources(
    nq: &dyn Fn(usize) -> bool,
    hotpotqa: &dyn Fn(usize) -> bool,
) -> Vec<Episode> {
    let of = |source: &str, mut set: Vec<Episode>| {
        for episode in &mut set {
            source.clone_into(&mut episode.task.data_source);
        }
        set
    };
    [
        of("nq", episodes(30, nq)),
        of("hotpotqa", episodes(10, hotpotqa)),
    ]
    .concat()
}

#[test]
fn data_sets_are_told_apart_and_averaged_both_ways() -> TestResult {
    let set = two_sources(&|index| index < 15, &|index| index < 1);
    let summary = EvalSummary::from_episodes(&set, SETTINGS)?;
    assert_eq!(summary.questions, 40, "equal ids are other questions");
    let em = |source: &str| summary.by_source[source].metrics["em"].interval;
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(near(em("nq").estimate, 0.5) && near(em("hotpotqa").estimate, 0.1));
    let (micro, average) = (
        summary.metrics["em"].interval.estimate,
        summary.macro_average["em"],
    );
    assert!(near(micro, 0.4) && near(average.estimate, 0.3));
    let half = ((em("nq").estimate - em("nq").low).powi(2)
        + (em("hotpotqa").estimate - em("hotpotqa").low).powi(2))
    .sqrt()
        / 2.0;
    assert!(near(average.low, 0.3 - half), "{average:?}");
    let text = summary.to_text();
    for row in ["em, nq ", "em, hotpotqa ", "em, macro average "] {
        assert!(text.contains(row), "{text}");
    }
    // One data set has its own figures; there is nothing to average.
    let one = EvalSummary::from_episodes(&set[..30], SETTINGS)?;
    assert_eq!(one.by_source["nq"].metrics, one.metrics);
    assert!(one.macro_average.is_empty() && !one.to_text().contains("em, nq"));
    Ok(())
}

#[test]
fn several_splits_are_told_apart() -> TestResult {
    let mut set = two_sources(&|_| true, &|_| false);
    for episode in &mut set[20..] {
        episode.task.split = Split::Dev;
    }
    let summary = EvalSummary::from_episodes(&set, SETTINGS)?;
    let names: Vec<&str> = summary.by_source.keys().map(String::as_str).collect();
    assert_eq!(names, ["hotpotqa, dev", "nq, dev", "nq, test"]);
    assert_eq!(summary.by_source["nq, dev"].questions, 10);
    Ok(())
}

#[test]
fn summaries_survive_json_and_emptiness() -> TestResult {
    let summary = EvalSummary::from_episodes(&episodes(20, |index| index < 5), SETTINGS)?;
    let json = serde_json::to_string(&summary)?;
    assert_eq!(
        serde_json::from_str::<EvalSummary>(&json)?.to_text(),
        summary.to_text()
    );
    let value: serde_json::Value = serde_json::from_str(&json)?;
    assert_eq!(value["metrics"]["em"]["estimate"], 0.25);
    let empty = EvalSummary::from_episodes(&[infra(0)], SETTINGS)?;
    assert_eq!(
        (empty.questions, empty.infra, empty.metrics.len()),
        (0, 1, 0)
    );
    assert!(empty.to_text().contains("0 questions"));
    Ok(())
}
