//! Rewards of queries against numbers computed elsewhere (`fixtures/query_rewards.py`).

use std::collections::BTreeMap;

use forage_contracts::environment::Outcome;
use forage_contracts::policy::Finish;
use forage_contracts::seed::Seed;
use forage_contracts::{Ending, Episode, Task, TokenLog, Turn};

use super::common::task;
use forage_env::query_writer::QueryTurn;
use forage_env::registry::REWARDS;
use forage_env::reward::RewardSet;
use forage_retriever::ParseIssue;
use serde::Deserialize;

#[derive(Deserialize)]
struct Row {
    qrels: BTreeMap<String, i32>,
    query: String,
    found: Vec<String>,
    keywords_found: Vec<String>,
    reasoning_words: usize,
    valid: bool,
    expected: BTreeMap<String, f32>,
}

fn episode(row: &Row) -> Episode {
    let repair = ParseIssue {
        at: 0..1,
        message: "the quote is never closed".to_owned(),
    };
    let turn = QueryTurn {
        query: row.query.clone(),
        found: row.found.clone(),
        repairs: if row.valid { Vec::new() } else { vec![repair] },
        keywords_found: row.keywords_found.clone(),
        reasoning_words: row.reasoning_words,
    };
    Episode {
        task: Task {
            qrels: row.qrels.clone(),
            ..task()
        },
        group: 0,
        member: 0,
        branch: None,
        hinted: 0,
        environment: String::new(),
        prompt: String::new(),
        turns: vec![Turn {
            policy: String::new(),
            finish: Finish::Stop,
            kind: turn.record(),
            observation: String::new(),
            reward: 0.0,
        }],
        tokens: TokenLog::default(),
        conversation: None,
        ending: Ending::Answered,
        score: None,
        seed: None,
    }
}

#[tokio::test]
async fn precision_is_of_the_first_ten_or_of_all_where_there_are_fewer() {
    let weights = BTreeMap::from([("precision".to_owned(), 1.0)]);
    let rewards = RewardSet::new(Outcome::Ranking, &weights, Seed::root(0)).expect("fit");
    for (first, last, expected) in [(1, 2, 0.5), (1, 40, 0.1), (2, 3, 0.0), (1, 0, 0.0)] {
        let episode = episode(&Row {
            qrels: BTreeMap::from([("1".to_owned(), 1)]),
            query: "a AND b".to_owned(),
            found: (first..=last).map(|id| id.to_string()).collect(),
            keywords_found: Vec::new(),
            reasoning_words: 0,
            valid: true,
            expected: BTreeMap::new(),
        });
        let score = rewards.score(&episode.task, &episode).await;
        let earned = score.expect("judged").parts["precision"];
        let near = (earned - expected).abs() < 1e-6;
        assert!(near, "{first} to {last}: {earned}");
    }
}

#[tokio::test]
async fn every_reward_of_every_query_is_equal() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("../../tests/fixtures/query_rewards.json"))
            .expect("rows");
    // Those of orders that a reranker writes, and precision, are tested by themselves.
    let elsewhere = ["rbo", "right_pick", "score_distribution", "precision"];
    let named = REWARDS
        .iter()
        .filter(|entry| entry.judges == Some(Outcome::Ranking) && !elsewhere.contains(&entry.name));
    let weights = named.map(|entry| (entry.name.to_owned(), 1.0)).collect();
    let rewards = RewardSet::new(Outcome::Ranking, &weights, Seed::root(0)).expect("fit");
    let mut earned = BTreeMap::<String, usize>::new();
    for row in &rows {
        let episode = episode(row);
        let parts = rewards
            .score(&episode.task, &episode)
            .await
            .expect("judged")
            .parts;
        assert_eq!(
            parts.keys().collect::<Vec<_>>(),
            row.expected.keys().collect::<Vec<_>>()
        );
        for (name, expected) in &row.expected {
            assert!(
                (parts[name] - expected).abs() < 1e-6,
                "{name} of `{}`: {} {expected}",
                row.query,
                parts[name]
            );
            *earned.entry(name.clone()).or_default() += usize::from(*expected > 0.0);
        }
    }
    assert!(
        earned.len() == 9 && earned.values().all(|&count| count > 3),
        "{earned:?}"
    );
}
