//! Published trajectories through the parsers of this crate, against the counts of `fixtures/trajectories.py`.
//!
//! R1-Searcher writes other tags than Search-R1 for the same protocol: they are renamed, and what stood between them is
//! read as it is, thoughts that nothing opens included.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use forage_contracts::Tag;
use forage_env::protocol::{Author, Segment, TagEvent, events, is_valid_sequence};
use forage_env::reward::grading::exact_match;
use forage_env::reward::search_r1::{extract_whole_text, graded_whole_text};
use forage_env::search_r1::{Asked, Profile, parse};
use serde::Deserialize;

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Fixture {
    r1_searcher: Counts,
    search_r1: Vec<Case>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
struct Counts {
    rollouts: usize,
    searches: usize,
    repeated: usize,
    answers: usize,
    answers_as_recorded: usize,
    exact_matches: usize,
    think_opened: usize,
    think_closed: usize,
    characters_of_queries: usize,
    characters_of_answers: usize,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Case {
    queries: Vec<String>,
    answer: String,
    answers_in_prompt: usize,
    think: [usize; 2],
}

#[derive(Deserialize)]
struct Rollout {
    answer: String,
    pred_ans: String,
    gen_text_store: String,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("../../tests/fixtures/trajectories.json")).expect("a fixture")
}

/// A file of the shared data; nothing, with a printed reason, where it is missing.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn shared(name: &str) -> Option<String> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data/trajectories")
        .join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) => {
            eprintln!("skipped: {}: {error}", path.display());
            None
        }
    }
}

/// A response cut into what the policy and the environment wrote, by its information blocks.
fn segments(response: &str) -> Vec<(Author, &str)> {
    let mut segments = Vec::new();
    let mut rest = response;
    while let Some(start) = rest.find(Tag::Information.opening()) {
        let end = rest[start..]
            .find(Tag::Information.closing())
            .expect("a whole block")
            + start;
        let end = end + Tag::Information.closing().len();
        segments.extend([
            (Author::Policy, &rest[..start]),
            (Author::Environment, &rest[start..end]),
        ]);
        rest = &rest[end..];
    }
    segments.push((Author::Policy, rest));
    segments
}

/// Opening and closing think tags of a text.
fn thoughts(text: &str) -> [usize; 2] {
    let count = |tag| events(text).filter(|event| *event == tag).count();
    [TagEvent::Open(Tag::Think), TagEvent::Close(Tag::Think)].map(count)
}

fn queries(calls: Vec<Result<Vec<String>, impl Sized>>) -> Vec<String> {
    calls.into_iter().filter_map(Result::ok).flatten().collect()
}

#[test]
fn r1_searcher_rollouts_are_read_to_the_last_query() {
    let Some(text) = shared("r1_searcher.jsonl") else {
        return;
    };
    let mut counts = Counts::default();
    for line in text.lines() {
        let rollout: Rollout = serde_json::from_str(line).expect("a rollout");
        let response = rollout
            .gen_text_store
            .replace("<|begin_of_query|>", Tag::Search.opening())
            .replace("<|end_of_query|>", Tag::Search.closing())
            .replace("<|begin_of_documents|>", Tag::Information.opening())
            .replace("<|end_of_documents|>", Tag::Information.closing());
        counts.rollouts += 1;
        let (mut asked, mut malformed) = (Vec::new(), 0);
        let segments = segments(&response);
        for (_, turn) in segments
            .iter()
            .filter(|(author, _)| *author == Author::Policy)
        {
            let [opened, closed] = thoughts(turn);
            counts.think_opened += opened;
            counts.think_closed += closed;
            for profile in [Profile::SearchR1V02, Profile::Skyrl] {
                assert_eq!(
                    parse(turn, &profile.settings()),
                    parse(turn, &Profile::Forage.settings()),
                    "{turn}"
                );
            }
            match parse(turn, &Profile::Forage.settings()) {
                Asked::Search(calls) => asked.extend(queries(calls)),
                Asked::Answer(answer) => {
                    counts.answers += 1;
                    counts.characters_of_answers += answer.chars().count();
                    counts.answers_as_recorded += usize::from(answer == rollout.pred_ans.trim());
                    counts.exact_matches += usize::from(exact_match(&answer, &[&rollout.answer]));
                }
                Asked::Invalid { .. } => malformed += 1,
            }
        }
        assert_eq!(malformed, 0, "{response}");
        let valid = is_valid_sequence(
            segments
                .iter()
                .map(|&(author, text)| Segment { author, text }),
        );
        assert!(!valid, "nothing opens its thoughts");
        counts.searches += asked.len();
        counts.characters_of_queries += asked
            .iter()
            .map(|query| query.chars().count())
            .sum::<usize>();
        counts.repeated += asked.len() - asked.iter().collect::<HashSet<_>>().len();
    }
    assert_eq!(counts, fixture().r1_searcher);
}

#[test]
fn search_r1_transcripts_are_read_and_graded_as_published() {
    let Some(text) = shared("search_r1_case.txt") else {
        return;
    };
    let expected = fixture().search_r1;
    let texts = text
        .split("<|im_start|>system")
        .filter(|text| !text.trim().is_empty());
    let mut read = Vec::new();
    for text in texts {
        let (prompt, response) = text.split_once("<|im_start|>assistant").expect("a chat");
        let mut case = Case {
            queries: Vec::new(),
            answer: String::new(),
            answers_in_prompt: prompt.matches("<answer>").count(),
            think: thoughts(response),
        };
        for (author, turn) in segments(response) {
            match (author, parse(turn, &Profile::SearchR1V02.settings())) {
                (Author::Environment, _) => {}
                (Author::Policy, Asked::Search(calls)) => case.queries.extend(queries(calls)),
                (Author::Policy, Asked::Answer(answer)) => case.answer = answer,
                (Author::Policy, Asked::Invalid { fault, .. }) => panic!("{fault}: {turn}"),
            }
        }
        assert_eq!(extract_whole_text(text), Some(case.answer.as_str()));
        // Text between the tags, and a thought that is closed twice: neither has the structure of v0.3.
        let whole = ["<|im_start|>system", text].concat();
        let judged = graded_whole_text(&whole, &[&case.answer]);
        assert!(judged.correct == Some(true) && !judged.valid);
        read.push(case);
    }
    assert_eq!(read, expected);
}
