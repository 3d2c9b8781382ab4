use std::collections::BTreeMap;

use forage_contracts::seed::Seed;
use forage_retriever::{Bm25Retriever, Hit, Passage, QueryRecord};
use serde::Deserialize;

use super::attack::raise;
use super::certificate::{Smoothed, certifies, margin};
use super::synonyms::{Synonyms, Words};
use crate::error::Result;

/// What `tests/fixtures/certificate.py` counts out.
#[derive(Deserialize)]
struct Fixture {
    synonyms: String,
    weights: BTreeMap<String, u32>,
    together: [String; 2],
    extra: u32,
    lists: Vec<List>,
}

#[derive(Deserialize)]
struct List {
    passages: Vec<String>,
    top: usize,
    budget: usize,
    smoothed: Vec<f64>,
    change: Vec<f64>,
    margin: f64,
    /// Some attack brings a passage among the first of the smoothed ranker.
    broken: bool,
    greedy: Vec<f64>,
}

impl Fixture {
    fn read() -> Self {
        serde_json::from_str(include_str!("../../tests/fixtures/certificate.json")).unwrap()
    }

    /// The toy ranker.
    fn score(&self, text: &str) -> f64 {
        let words: Vec<&str> = text.split(' ').collect();
        let weight = |word: &&str| self.weights.get(*word).copied().unwrap_or(0);
        let mut sum: u32 = words.iter().map(weight).sum();
        let has = |word: &String| words.contains(&word.as_str());
        if self.together.iter().all(has) {
            sum += self.extra;
        }
        f64::from(sum) / f64::from(5 + sum)
    }

    fn smooth(&self, words: &Words<'_>, list: &List, samples: usize, seed: u64) -> Smoothed {
        let scores = |texts: &[String]| -> Result<Vec<f64>> {
            Ok(texts.iter().map(|text| self.score(text)).collect())
        };
        Smoothed::of(words, &scores, samples, list.budget, Seed::root(seed)).unwrap()
    }
}

/// More than there are texts of any passage of the fixture.
const ALL: usize = 100_000;

#[test]
fn certificates_and_attacks_equal_those_counted_out() {
    let fixture = Fixture::read();
    let synonyms = Synonyms::parse(&fixture.synonyms).unwrap();
    let close = |found: f64, expected: f64| (found - expected).abs() < 1e-6;
    let (mut certified, mut broken) = (0, 0);
    for list in &fixture.lists {
        let words = list.passages.iter().map(|text| synonyms.words(text));
        let words: Vec<Words<'_>> = words.collect();
        let smoothed = words.iter().map(|text| fixture.smooth(text, list, ALL, 0));
        let smoothed: Vec<Smoothed> = smoothed.collect();
        for (place, found) in smoothed.iter().enumerate() {
            assert!(found.drawn.is_none());
            assert!(
                close(found.mean, list.smoothed[place]),
                "{:?}",
                list.passages
            );
            assert!(
                close(found.change, list.change[place]),
                "{:?}",
                list.passages
            );
        }
        let found = margin(&smoothed, list.top);
        assert!(close(found, list.margin), "{found} is not {}", list.margin);
        assert!(!(certifies(found) && list.broken), "{:?}", list.passages);
        certified += usize::from(certifies(found));
        broken += usize::from(list.broken);
        for (words, (text, expected)) in words.iter().zip(list.passages.iter().zip(&list.greedy)) {
            let scores = |texts: &[String]| -> Result<Vec<f32>> {
                let scored = texts.iter().map(|text| fixture.score(text) as f32);
                Ok(scored.collect())
            };
            let start = fixture.score(text) as f32;
            let reached = raise(words, &scores, start, list.budget).unwrap();
            assert!(
                close(reached.into(), *expected),
                "{text}: {reached} is not {expected}"
            );
        }
    }
    assert!(certified > 0 && broken > 0);
}

/// What is certified from drawn texts is certified by all of them too, and repeats with its seed.
#[test]
fn drawn_texts_certify_no_more_than_all() {
    let fixture = Fixture::read();
    let synonyms = Synonyms::parse(&fixture.synonyms).unwrap();
    let mut drawn = 0;
    for list in &fixture.lists {
        let of = |samples| {
            let words = list.passages.iter().map(|text| synonyms.words(text));
            let smoothed = words.map(|words| fixture.smooth(&words, list, samples, 1));
            smoothed.collect::<Vec<Smoothed>>()
        };
        for samples in [16, 80] {
            let smoothed = of(samples);
            let found = margin(&smoothed, list.top);
            let again = margin(&of(samples), list.top);
            assert_eq!(found.to_bits(), again.to_bits());
            // Of other passages than the first, should these be drawn wrongly, nothing is certified at all.
            assert!(
                found <= list.margin.max(0.0) + 1e-9,
                "{found}, {}",
                list.margin
            );
            drawn += usize::from(smoothed.iter().any(|one| one.drawn.is_some()));
        }
    }
    assert!(drawn > 20, "{drawn} lists with drawn texts");
}

#[test]
fn a_mean_of_drawn_texts_is_taken_as_far_off_as_hoeffding_says() {
    let fixture = Fixture::read();
    // Sets that are equal: no substitution changes what is drawn.
    let synonyms = Synonyms::parse("near far by\nfar near by\nby near far").unwrap();
    let list = &fixture.lists[0];
    let smooth = |text: &str| fixture.smooth(&synonyms.words(text), list, 2000, 5);
    let smoothed = [smooth("captain"), smooth(&"near ".repeat(12))];
    assert_eq!((smoothed[0].drawn, smoothed[1].drawn), (None, Some(2000)));
    assert!(smoothed[1].mean.abs() < 1e-12 && smoothed[1].change.abs() < 1e-12);
    let expected = fixture.score("captain") - (40_f64.ln() / 4000.0).sqrt();
    let found = margin(&smoothed, 1);
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    assert!(certifies(found) && !certifies(0.0));
}

#[test]
fn words_are_found_and_replaced_in_place() {
    let synonyms = Synonyms::parse("Big large\nship boat vessel # and so on\n\n").unwrap();
    let words = synonyms.words("A BIG, big-ish ship's Ship; shipping.");
    assert_eq!(words.len(), 4);
    assert_eq!(words.substitutes().collect::<Vec<_>>(), [1, 1, 2, 2]);
    let render = |choices: [Option<usize>; 4]| words.render(&choices);
    assert_eq!(render([None; 4]), "A BIG, big-ish ship's Ship; shipping.");
    assert_eq!(
        render([Some(0), Some(1), None, Some(2)]),
        "A big, large-ish ship's vessel; shipping."
    );
    assert_eq!(synonyms.words("").len(), 0);
    assert_eq!(synonyms.words("").render(&[]), "");
}

#[test]
fn lines_that_cannot_be_used_are_named() {
    for (text, part) in [
        ("big large\nsmall", "line 2: `small` has no substitutes"),
        ("big big", "line 1: `big` has no substitutes"),
        ("big x-large", "line 1: `x-large` is not one word"),
        ("big large\n\nBIG huge", "line 3: `big` has a line above"),
        ("# nothing\n", "there is no word"),
    ] {
        let error = Synonyms::parse(text).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn run_lines() {
    let mut out = String::new();
    let ranking = [("d2", 1.5), ("d1", 0.1)];
    super::write_run(&mut out, "q1", ranking, "forage").unwrap();
    assert_eq!(out, "q1 Q0 d2 1 1.5 forage\nq1 Q0 d1 2 0.1 forage\n");
    for (query, passage) in [("q 1", "d1"), ("q1", "My page#0"), ("q1", "d\u{a0}1")] {
        let error = super::write_run(&mut out, query, [(passage, 1.0)], "forage").unwrap_err();
        assert!(error.to_string().contains("blanks"), "{error}");
    }
}

/// `trec_eval` sorts by score, then by name, both descending; lists have names ascending.
#[test]
fn equal_scores_are_read_as_trec_eval_reads_them() {
    let hit = |(id, score): (&str, f32)| Hit {
        id: id.to_owned(),
        score,
        title: String::new(),
        text: String::new(),
    };
    let scores = [
        ("d3", 2.0),
        ("d1", 1.5),
        ("d10", 1.5),
        ("d2", 1.5),
        ("a", 0.5),
        ("b", 0.5),
    ];
    let list = scores.map(hit);
    let read = super::as_trec_eval(&list).into_iter();
    let ids: Vec<&str> = read.map(|hit| hit.id.as_str()).collect();
    assert_eq!(ids, ["d3", "d2", "d10", "d1", "b", "a"]);
}

#[test]
fn a_written_run_is_read_back_and_what_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ranked.txt");
    let read = |text: &str, depth| {
        std::fs::write(&file, text).unwrap();
        let grades = BTreeMap::from([("d1".to_owned(), 1)]);
        let qrels = BTreeMap::from([("q1".to_owned(), grades)]);
        super::read_run(&file, &qrels, depth)
    };
    let mut written = String::new();
    let ranking = [
        ("d3", 2.0),
        ("d2", 1.5),
        ("d1", 1.5),
        ("q1", 1.0),
        ("d4", 0.1),
    ];
    super::write_run(&mut written, "q1", ranking, "forage").unwrap();
    assert_eq!(read(&written, 4).unwrap()["q1"], ["d3", "d2", "d1", "d4"]);
    // Scores decide, not lines; the list is cut as that of a search, before equal scores are turned round.
    let turned: Vec<&str> = written.lines().rev().collect();
    assert_eq!(read(&turned.join("\n"), 2).unwrap()["q1"], ["d3", "d1"]);
    for (text, part) in [
        (
            "q1 Q0 d1 1 2.5 a\n\nq1 Q0 d2 2 a\n",
            "ranked.txt line 3 has 5 columns",
        ),
        ("q1 Q0 d1 1 high a", "line 1: the score `high` is not"),
        ("q1 Q0 d1 1 NaN a", "line 1: the score `NaN` is not"),
        (
            "q1 Q0 d1 1 2 a\nq1 Q0 d1 2 1 a",
            "line 2 ranks passage `d1` for query `q1` a second time",
        ),
        ("\n", "holds no line of a TREC run"),
        ("q7 Q0 d1 1 2 a", "ranked.txt is judged, `q7` for instance"),
    ] {
        let error = read(text, 10).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let nowhere = super::read_run(&folder.path().join("none"), &BTreeMap::new(), 1);
    let error = nowhere.unwrap_err().to_string();
    assert!(
        error.contains("cannot read") && error.contains("none; check"),
        "{error}"
    );
}

#[test]
fn a_query_does_not_find_itself() {
    let passages = ["a", "b", "c"].map(|id| Passage::new(id, "", "the moon over a river"));
    let index = Bm25Retriever::in_memory(passages.to_vec()).unwrap();
    let queries = ["a", "b", "q"].map(|id| QueryRecord {
        id: id.to_owned(),
        text: "river moon".to_owned(),
    });
    // The second is judged.
    let judged = |query: &str, passage: &str| {
        let grades = BTreeMap::from([(passage.to_owned(), 1)]);
        (query.to_owned(), grades)
    };
    let qrels = BTreeMap::from([judged("a", "b"), judged("b", "b")]);
    let found = super::search(&index, &queries, &qrels, 2).unwrap();
    let ids = found.iter().flatten().map(|hit| hit.id.as_str());
    assert_eq!(ids.collect::<Vec<_>>(), ["b", "c", "a", "b", "a", "b"]);
}
