//! Facts of episodes.

use std::collections::BTreeMap;

use forage_env::environment::TurnKind;
use forage_env::episode::{Boundary, Ending, Episode, Turn};
use forage_env::policy::Finish;
use forage_env::task::{Split, Task};
use forage_env::tokens::TokenLog;
use forage_trainer::metrics::Row;
use forage_trainer::watch::{AlarmKind, Sentinel, SentinelConfig, TextFacts};

/// An episode whose policy wrote `spans`, with an observation of equal tokens behind each.
fn episode(spans: &[&[u32]], kinds: Vec<TurnKind>) -> Episode {
    let mut tokens = TokenLog::with_prompt(&[1, 1, 1, 1, 1, 1, 1, 1]);
    for span in spans {
        tokens.push_policy(span, &vec![-0.5; span.len()], 0);
        tokens.push_environment(&[2, 2, 2, 2, 2, 2]);
    }
    let turn =
        |kind| Turn { policy: String::new(), finish: Finish::Stop, kind, observation: String::new(), reward: 0.0 };
    let task = Task {
        id: "1".into(),
        question: "Who?".into(),
        golds: vec!["Ada".into()],
        evidence: Vec::new(),
        qrels: BTreeMap::new(),
        hops: 0,
        oracle: Vec::new(),
        data_source: "test".into(),
        split: Split::Train,
    };
    let turns = kinds.into_iter().map(turn).collect();
    let (prompt, ending) = (String::new(), Ending::Answered);
    Episode { task, group: 0, member: 0, branch: None, prompt, turns, tokens, ending, score: None, seed: None }
}

fn search() -> TurnKind {
    TurnKind::Search { query: "ada".into(), more: Vec::new(), shown: Vec::new() }
}

fn answer() -> TurnKind {
    TurnKind::Answer { answer: "Ada".into() }
}

fn invalid() -> TurnKind {
    TurnKind::Invalid { fault: "no tag".into() }
}

#[test]
fn facts_are_those_of_the_policys_own_tokens() {
    // 4-grams of the first: 5, then 3 of which 2 were seen before: 2/8. Those of the second: 7, all alike but one: 6/7.
    let first = episode(&[&[1, 2, 3, 4, 5, 6, 7, 8], &[1, 2, 3, 4, 5, 9]], vec![search(), answer()]);
    let second = episode(&[&[7; 10]], vec![invalid()]);
    let mut lost = episode(&[&[3; 100]], vec![invalid(), invalid()]);
    lost.ending = Ending::Infra { boundary: Boundary::Retriever, message: "down".into() };
    let facts = TextFacts::of(&[first, lost.clone(), second]).unwrap();
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
    close(facts.repeated_frac, f64::midpoint(2.0 / 8.0, 6.0 / 7.0));
    close(facts.policy_tokens_mean, 12.0);
    close(facts.searches_mean, 0.5);
    close(facts.valid_frac, 2.0 / 3.0);
    assert_eq!(TextFacts::of(&[lost]), None);
    let silent = TextFacts::of(&[episode(&[&[4, 5]], Vec::new())]).unwrap();
    close(silent.repeated_frac, 0.0);
}

/// What rows lack is taken from the episodes.
#[test]
fn loops_in_the_text_alone_raise_the_alarm() {
    let varied: Vec<u32> = (0..40).collect();
    let facts = |spans: &[&[u32]]| TextFacts::of(&[episode(spans, vec![search(), answer()])]).unwrap();
    let (healthy, looping) = (facts(&[&varied]), facts(&[&[7; 40]]));
    let mut sentinel = Sentinel::new(SentinelConfig::default(), true).unwrap();
    for step in 0..40 {
        let facts = if step < 25 { &healthy } else { &looping };
        let kinds: Vec<AlarmKind> =
            sentinel.observe(&Row::new(step), Some(facts)).iter().map(|alarm| alarm.kind).collect();
        let expected = if step == 31 { vec![AlarmKind::Repetition] } else { Vec::new() };
        assert_eq!(kinds, expected, "step {step}");
    }
}
