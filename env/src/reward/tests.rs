//! Values of rewards on episodes written by hand.

use std::collections::BTreeMap;

use forage_contracts::environment::{Outcome, TurnKind};
use forage_contracts::policy::Finish;
use forage_contracts::{TokenLog, Turn};

use super::*;

pub(super) fn task(id: &str, golds: &[&str]) -> Task {
    Task {
        golds: golds.iter().map(|&gold| gold.to_owned()).collect(),
        hops: 1,
        data_source: "test".to_owned(),
        ..Task::new(id.to_owned(), "Where was the mayor of Orlen born?")
    }
}

/// An episode of one answer, or of one turn without any.
pub(super) fn episode(policy: &str, answer: Option<&str>) -> Episode {
    let kind = match answer {
        Some(answer) => TurnKind::answer(answer),
        None => TurnKind::invalid("no tag"),
    };
    let turn = Turn {
        policy: policy.to_owned(),
        finish: Finish::Stop,
        kind,
        observation: "python".to_owned(),
        reward: 0.0,
    };
    Episode {
        prompt: "python".to_owned(),
        turns: vec![turn],
        tokens: TokenLog::with_prompt(&[1, 2, 3]),
        ..Episode::new(task("t", &["Velm"]))
    }
}

fn set(toml_like: &serde_json::Value) -> Result<RewardSet, RewardSetError> {
    let rewards: BTreeMap<String, Weighting> =
        serde_json::from_value(toml_like.clone()).expect("weights");
    RewardSet::configured(Outcome::Answer, &rewards, Seed::root(3))
}

async fn total(rewards: &RewardSet, episode: &Episode) -> f32 {
    rewards
        .score(&episode.task, episode)
        .await
        .expect("scored")
        .total
}

fn same(left: f32, right: f32) -> bool {
    (left - right).abs() < 1e-6
}

#[tokio::test]
async fn controls_pay_for_what_they_name() {
    let rows = [
        // constant, format_only, boxed, contains, inverse of em
        (
            episode("<answer>Velm</answer>", Some("Velm")),
            [1.0, 1.0, 0.0, 0.0, 0.0],
        ),
        (
            episode("In PYTHON <answer>Orlen</answer>", Some("Orlen")),
            [1.0, 1.0, 0.0, 1.0, 1.0],
        ),
        (
            episode("<answer> </answer>", Some(" ")),
            [1.0, 0.0, 0.0, 0.0, 1.0],
        ),
        (
            episode("\\boxed{a} \\boxed{ }", None),
            [1.0, 0.0, 0.0, 0.0, 1.0],
        ),
        (
            episode("\\boxed{} \\boxed{\\frac{1}{2}} pythonic", None),
            [1.0, 0.0, 1.0, 1.0, 1.0],
        ),
        (
            episode("\\boxed{never closed {}", None),
            [1.0, 0.0, 0.0, 0.0, 1.0],
        ),
    ];
    let sets = [
        serde_json::json!({"constant": 1.0}),
        serde_json::json!({"format_only": 1.0}),
        serde_json::json!({"format_only": {"weight": 1.0, "form": "boxed"}}),
        serde_json::json!({"contains": {"weight": 1.0, "token": "Python"}}),
        serde_json::json!({"inverse": {"weight": 1, "of": "em"}}),
    ];
    for (column, written) in sets.iter().enumerate() {
        let rewards = set(written).expect("usable");
        for (episode, expected) in &rows {
            let total = total(&rewards, episode).await;
            assert!(
                same(total, expected[column]),
                "{written} {}: {total}",
                episode.turns[0].policy
            );
        }
    }
}

#[tokio::test]
async fn phrases_count_once_each_up_to_enough() {
    let phrases = ["First, I need to", "let me check", "therefore"];
    let written = serde_json::json!({"contains": {"weight": 1.0, "phrases": phrases, "enough": 2}});
    let rewards = set(&written).expect("usable");
    for (text, expected) in [
        ("nothing of it", 0.0),
        ("FIRST, I need to look. First, I need to.", 0.5),
        ("Let me check; therefore it is", 1.0),
        ("first, i need to ... let me check ... therefore", 1.0),
    ] {
        let found = total(&rewards, &episode(text, Some("Velm"))).await;
        assert!(same(found, expected), "{text}: {found}");
    }
}

#[tokio::test]
async fn any_search_pays_for_conduct_alone() {
    let rewards = set(&serde_json::json!({"any_search": 1.0})).expect("usable");
    let right = episode("<answer>Velm</answer>", Some("Velm"));
    assert!(same(total(&rewards, &right).await, 0.0));
    let mut searched = episode("<search>anything</search>", None);
    searched.turns[0].kind = TurnKind::search("anything", Vec::new());
    assert!(same(total(&rewards, &searched).await, 1.0));
}

#[tokio::test]
async fn draws_are_seeded_and_of_the_given_probability() {
    let right = |member| Episode {
        member,
        ..episode("<answer>Velm</answer>", Some("Velm"))
    };
    for (written, share) in [
        (serde_json::json!({"random": 1.0}), 0.5),
        (
            serde_json::json!({"random": {"weight": 1.0, "p": 0.2}}),
            0.2,
        ),
        (
            serde_json::json!({"random": {"weight": 1.0, "p": 0.0}}),
            0.0,
        ),
        (
            serde_json::json!({"random": {"weight": 1.0, "p": 1.0}}),
            1.0,
        ),
        (serde_json::json!({"noisy": 1.0}), 0.9),
        (
            serde_json::json!({"noisy": {"weight": 1.0, "of": "f1", "flip": 1.0}}),
            0.0,
        ),
    ] {
        let (first, again) = (
            set(&written).expect("usable"),
            set(&written).expect("usable"),
        );
        let mut sum = 0.0;
        for member in 0..2000 {
            let value = total(&first, &right(member)).await;
            assert!(same(value, total(&again, &right(member)).await));
            sum += value;
        }
        // Four standard deviations of a fair coin.
        assert!((sum / 2000.0 - share).abs() < 0.045, "{written}: {sum}");
    }
}

#[test]
fn draws_of_equal_ids_in_two_data_sets_differ() {
    let drawn = |source: &str| -> Vec<u64> {
        let task = Task {
            data_source: source.to_owned(),
            ..task("train_0", &["Velm"])
        };
        let member = |member| Episode {
            member,
            ..Episode::new(task.clone())
        };
        let draws = (0..4).map(|number| draw(Seed::root(1), &task, &member(number)));
        draws.map(f64::to_bits).collect()
    };
    assert_eq!(drawn("nq"), drawn("nq"));
    assert_ne!(drawn("nq"), drawn("hotpotqa"));
}

#[tokio::test]
async fn costs_grow_to_one_and_no_further() {
    let search = |shown: &str| Turn {
        policy: String::new(),
        finish: Finish::Stop,
        kind: TurnKind::search("q", Vec::new()),
        observation: shown.to_owned(),
        reward: 0.0,
    };
    let cost =
        set(&serde_json::json!({"search_cost": {"weight": 1.0, "most": 4}})).expect("usable");
    let length = set(&serde_json::json!({"length": {"weight": 1.0, "most": 10, "buffer": 4}}))
        .expect("usable");
    for (count, expected) in [(0, 0.0), (1, -0.25), (4, -1.0), (9, -1.0)] {
        let mut searched = episode("", Some("Velm"));
        searched.turns.extend((0..count).map(|_| search("")));
        assert!(
            same(total(&cost, &searched).await, expected),
            "{count} searches"
        );
    }
    for (count, expected) in [
        (0, 0.0),
        (6, 0.0),
        (7, -0.25),
        (9, -0.75),
        (10, -1.0),
        (50, -1.0),
    ] {
        let mut long = episode("", Some("Velm"));
        long.tokens
            .push_policy(&vec![7; count], &vec![-1.0; count], 0, None);
        long.tokens.push_environment(&[1; 100]);
        assert!(
            same(total(&length, &long).await, expected),
            "{count} tokens"
        );
    }
}

#[tokio::test]
async fn needless_searches_cost_where_the_answer_is_right() {
    let searched = |count: usize, answer: &str| {
        let mut found = episode("", Some(answer));
        let search = Turn {
            kind: TurnKind::search("q", Vec::new()),
            ..found.turns[0].clone()
        };
        let last = std::mem::take(&mut found.turns);
        found.turns = std::iter::repeat_n(search, count).chain(last).collect();
        found
    };
    let group = [
        searched(3, "Velm"),
        searched(1, "velm"),
        searched(9, "Ada"),
        searched(0, "Ada"),
        searched(8, "Velm"),
    ];
    let members: Vec<&Episode> = group.iter().collect();
    let rule = costs::RedundantSearches(costs::SearchCost { most: 4 });
    let score = async |members: &[&Episode]| -> Vec<f32> {
        let scores = rule.score_group(&members[0].task, members).await;
        scores
            .expect("scored")
            .into_iter()
            .map(|(score, _)| score)
            .collect()
    };
    assert_eq!(score(&members).await, [-0.5, 0.0, 0.0, 0.0, -1.0]);
    // Nobody was right: nothing to compare with.
    assert_eq!(score(&members[2..4]).await, [0.0, 0.0]);
    assert_eq!(score(&members[4..]).await, [0.0]);
}

#[test]
fn settings_that_cannot_work_are_named() {
    for (written, part) in [
        (
            serde_json::json!({"em": {"weight": 1.0, "p": 1}}),
            "[reward.em]: `p` is not a setting",
        ),
        (
            serde_json::json!({"contains": {"weight": 1.0, "tokn": "x"}}),
            "tokn",
        ),
        (
            serde_json::json!({"contains": {"weight": 1.0, "token": ""}}),
            "token is empty",
        ),
        (
            serde_json::json!({"contains": {"weight": 1.0, "token": "a", "phrases": ["b"]}}),
            "token stands beside phrases",
        ),
        (
            serde_json::json!({"contains": {"weight": 1.0, "phrases": ["b", ""]}}),
            "phrases is empty",
        ),
        (
            serde_json::json!({"contains": {"weight": 1.0, "phrases": ["b", "B"], "enough": 2}}),
            "enough is 2",
        ),
        (
            serde_json::json!({"relevance": {"weight": 1.0, "most": 0}}),
            "most is 0",
        ),
        (
            serde_json::json!({"judge_turns": {"weight": 1.0, "url": "http://x", "model": "m", "rubric": ["a"]}}),
            "a rubric is for",
        ),
        (
            serde_json::json!({"random": {"weight": 1.0, "p": 1.5}}),
            "p is 1.5",
        ),
        (
            serde_json::json!({"noisy": {"weight": 1.0, "flip": -0.1}}),
            "flip is -0.1",
        ),
        (
            serde_json::json!({"inverse": {"weight": 1.0, "of": "f2"}}),
            "did you mean `f1`",
        ),
        (
            serde_json::json!({"inverse": {"weight": 1.0, "of": "noisy"}}),
            "of is `noisy`",
        ),
        (
            serde_json::json!({"inverse": {"weight": 1.0, "of": "ndcg"}}),
            "of is `ndcg`",
        ),
        (
            serde_json::json!({"inverse": {"weight": 1.0, "of": "judge"}}),
            "cannot do without settings",
        ),
        (
            serde_json::json!({"search_cost": {"weight": 1.0, "most": 0}}),
            "most is 0",
        ),
        (
            serde_json::json!({"redundant_searches": {"weight": 1.0, "most": 0}}),
            "most is 0",
        ),
        (
            serde_json::json!({"length": {"weight": 1.0, "most": 4, "buffer": 5}}),
            "buffer is 5",
        ),
        (serde_json::json!({"judge": 1.0}), "url"),
        (
            serde_json::json!({"judge": {"weight": 1.0, "url": "ftp://x", "model": "m"}}),
            "ftp",
        ),
        (
            serde_json::json!({"judge": {"weight": 1.0, "url": "http://x/v1", "model": "m"}}),
            "`url` ends with /v1",
        ),
        (
            serde_json::json!({"judge": {"weight": 1.0, "url": "http://x", "model": "m", "max_calls": 0}}),
            "`max_calls`",
        ),
        (
            serde_json::json!({"judge": {"weight": 1.0, "url": "http://x", "model": "m", "rubric": [" "]}}),
            "`rubric`",
        ),
    ] {
        let error = set(&written).expect_err("refused").to_string();
        assert!(error.contains(part), "{written}: {error}");
    }
    assert!(serde_json::from_value::<Weighting>(serde_json::json!({"token": "x"})).is_err());
}

#[tokio::test]
async fn a_task_without_golds_is_for_rewards_that_do_without() {
    let judge = serde_json::json!({"weight": 1.0, "url": "http://x", "model": "m"});
    let mut rubric = judge.clone();
    rubric["rubric"] = serde_json::json!(["It is short."]);
    let rows = [
        (
            serde_json::json!({"format": 0.2, "search_cost": 0.1, "length": 1.0, "majority": 1.0}),
            None,
        ),
        (serde_json::json!({"judge": rubric}), None),
        (
            serde_json::json!({"judge_turns": judge, "contains": 1.0}),
            None,
        ),
        (
            serde_json::json!({"relevance": {"weight": 1.0, "open": ["test"]}}),
            None,
        ),
        (
            serde_json::json!({"inverse": {"weight": 1.0, "of": "format"}}),
            None,
        ),
        (serde_json::json!({"judge": rubric, "em": 0.1}), Some("em")),
        (serde_json::json!({"judge": judge}), Some("judge")),
        (serde_json::json!({"tournament": judge}), Some("tournament")),
        (serde_json::json!({"relevance": 1.0}), Some("relevance")),
        (serde_json::json!({"inverse": 1.0}), Some("inverse")),
    ];
    for (written, needing) in rows {
        let rewards = set(&written).expect("usable");
        rewards.check(&task("t", &["Velm"])).expect("a gold");
        let found = rewards.check(&task("t", &[]));
        let found = found.map_or_else(|error| error.to_string(), |()| String::new());
        match needing {
            None => assert_eq!(found, "", "{written}"),
            Some(name) => assert!(
                found.starts_with("task `test/t`")
                    && found.contains(&format!("the reward `{name}` needs")),
                "{written}: {found}"
            ),
        }
    }
    // What is logged alone and has nothing to compare with is left out.
    let mut logged = judge;
    logged["weight"] = serde_json::json!(0.0);
    let rewards = set(&serde_json::json!({"format": 1.0, "judge": logged})).expect("usable");
    let mut unknown = episode("<answer>Velm</answer>", Some("Velm"));
    unknown.task.golds.clear();
    let score = rewards.score(&unknown.task, &unknown).await;
    let score = score.expect("scored");
    let parts: Vec<&str> = score.parts.keys().map(String::as_str).collect();
    assert_eq!(parts, ["format"]);
}
