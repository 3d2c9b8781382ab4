//! Segments and filters: an index in several segments answers as one built at once.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forage_contracts::Passage;
use forage_contracts::retriever::{Filter, Hit, Query, RetrieverError};
use proptest::prelude::*;

use crate::cancel;

use super::{AddRequest, BuildRequest, Index};
use crate::statistics::Statistics;
use crate::{Bm25Params, Bm25Retriever, CancelFlag, CorpusFormat, IndexError};

/// Writes passages as a BEIR corpus.
fn corpus_file(folder: &Path, name: &str, passages: &[Passage]) -> PathBuf {
    let row = |passage: &Passage| {
        let Passage {
            id, title, text, ..
        } = passage;
        serde_json::json!({"_id": id, "title": title, "text": text}).to_string() + "\n"
    };
    let path = folder.join(name);
    std::fs::write(&path, passages.iter().map(row).collect::<String>()).unwrap();
    path
}

/// Builds an index of the first run of passages and adds the others, one segment each.
fn segmented(folder: &Path, runs: &[&[Passage]]) -> PathBuf {
    let out = folder.join("index");
    for (number, run) in runs.iter().enumerate() {
        let file = corpus_file(folder, &format!("run{number}.jsonl"), run);
        if number == 0 {
            let request = BuildRequest {
                threads: 1,
                ..BuildRequest::new(file, CorpusFormat::BEIR, &out)
            };
            Index::build(&request, &mut |_, _| {}).unwrap();
        } else {
            let request = AddRequest {
                threads: 2,
                ..AddRequest::new(file, CorpusFormat::BEIR, &out)
            };
            let summary = Index::add(&request, &mut |_, _| {}).unwrap();
            assert_eq!(
                (summary.segments, summary.generation),
                (number + 1, number as u64 + 1)
            );
        }
    }
    out
}

fn runs<'a>(passages: &'a [Passage], cuts: &BTreeSet<usize>) -> Vec<&'a [Passage]> {
    let mut runs = Vec::new();
    let mut from = 0;
    for &cut in cuts.iter().filter(|&&cut| cut > 0 && cut < passages.len()) {
        runs.push(&passages[from..cut]);
        from = cut;
    }
    runs.push(&passages[from..]);
    runs
}

fn text(longest: usize) -> impl Strategy<Value = String> {
    // A skewed vocabulary and many repeated texts, so that ties across segments are common.
    let word = (0.0_f64..1.0).prop_map(|x| format!("w{}", (x * x * x * 20.0) as u32));
    prop::collection::vec(word, 0..longest).prop_map(|words| words.join(" "))
}

fn corpus() -> impl Strategy<Value = Vec<Passage>> {
    prop::collection::vec((0_u32..10_000, text(3), text(12)), 2..120).prop_map(|rows| {
        let mut used = BTreeSet::new();
        let fresh = rows.into_iter().filter(|row| used.insert(row.0));
        fresh
            .map(|(id, title, text)| Passage::new(id.to_string(), title, text))
            .collect()
    })
}

fn bits(hits: &[Hit]) -> Vec<(String, u32)> {
    hits.iter()
        .map(|hit| (hit.id.clone(), hit.score.to_bits()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Any cut into segments, merged or not, and shards with shared statistics: the same ids and scores, bit for bit.
    #[test]
    fn segments_change_nothing(
        passages in corpus(),
        cuts in prop::collection::btree_set(1_usize..100, 1..4),
        queries in prop::collection::vec(text(8), 1..5),
        k in 1_usize..20,
        k1 in 0.0_f32..3.0,
        b in 0.0_f32..=1.0,
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let runs = runs(&passages, &cuts);
        let folder = segmented(scratch.path(), &runs);
        let whole = Arc::new(Index::in_memory(&passages, Bm25Params::default()).unwrap());
        let cut = Arc::new(Index::open(&folder).unwrap());
        prop_assert_eq!(cut.manifest().counts, whole.manifest().counts);
        prop_assert_eq!(&cut.manifest().corpus_digest, &whole.manifest().corpus_digest);
        prop_assert_eq!(&cut.manifest().fingerprint, &whole.manifest().fingerprint);
        cut.verify_contents().unwrap();
        for (ordinal, passage) in passages.iter().enumerate() {
            prop_assert_eq!(&cut.document(ordinal as u32).unwrap().to_passage(), passage);
            prop_assert_eq!(cut.ordinal_of(&passage.id).unwrap(), Some(ordinal as u32));
        }
        let other = Bm25Params { k1, b };
        let retrievers = |index: &Arc<Index>| {
            [Bm25Retriever::new(index.clone()), Bm25Retriever::with_params(index.clone(), other).unwrap()]
        };
        Index::merge(&folder, &mut |_, _| {}).unwrap();
        let merged = Arc::new(Index::open(&folder).unwrap());
        prop_assert_eq!(merged.segments().len(), 1);
        let expected = retrievers(&whole);
        for index in [&cut, &merged] {
            for (found, expected) in retrievers(index).iter().zip(&expected) {
                for query in &queries {
                    let found = found.search_one(query, k).unwrap();
                    prop_assert_eq!(bits(&found), bits(&expected.search_one(query, k).unwrap()));
                }
            }
        }
        let shards: Vec<Bm25Retriever> =
            runs.iter().map(|run| Bm25Retriever::in_memory(run.to_vec()).unwrap()).collect();
        let texts: Vec<&str> = queries.iter().map(String::as_str).collect();
        let mut statistics = Statistics::default();
        for shard in &shards {
            statistics.add(&shard.index().statistics(&texts).unwrap());
        }
        prop_assert_eq!(&statistics, &whole.statistics(&texts).unwrap());
        for query in &queries {
            let ask = Query::new(query);
            let mut hits: Vec<Hit> =
                shards.iter().flat_map(|shard| shard.search_with(&ask, k, &statistics).unwrap()).collect();
            hits.sort_by(|one, other| other.score.total_cmp(&one.score).then_with(|| one.id.cmp(&other.id)));
            hits.truncate(k);
            prop_assert_eq!(bits(&hits), bits(&expected[0].search_one(query, k).unwrap()));
        }
    }

    /// A filtered search is the whole ranking without the passages that do not pass.
    #[test]
    fn filters_leave_passages_out_and_scores_alone(
        mut passages in corpus(),
        query in text(8),
        k in 1_usize..20,
        years in prop::collection::btree_set(0_usize..4, 0..3),
        pages in prop::collection::btree_set(0_usize..6, 0..4),
    ) {
        let page = |number: usize| if number < 2 { "long ".repeat(200 + number) } else { format!("p{number}") };
        for (number, passage) in passages.iter_mut().enumerate() {
            passage.fields.insert("year".to_owned(), (number % 4).to_string());
            if number % 3 > 0 {
                passage.fields.insert("page".to_owned(), page(number % 6));
            }
        }
        let retriever = Bm25Retriever::in_memory(passages.clone()).unwrap();
        let values = |numbers: &BTreeSet<usize>, of: &dyn Fn(usize) -> String| numbers.iter().map(|&number| of(number)).collect();
        let filter = Filter(BTreeMap::from([
            ("year".to_owned(), values(&years, &|year| year.to_string())),
            ("page".to_owned(), values(&pages, &page)),
        ]));
        let passes = |id: &str| {
            let passage = passages.iter().find(|passage| passage.id == id).unwrap();
            filter.0.iter().all(|(name, values)| passage.fields.get(name).is_some_and(|value| values.contains(value)))
        };
        let everything = retriever.search_one(&query, passages.len()).unwrap();
        let mut expected: Vec<Hit> = everything.into_iter().filter(|hit| passes(&hit.id)).collect();
        expected.truncate(k);
        prop_assert_eq!(retriever.search_query(&Query::new(&query).filtered(filter), k).unwrap(), expected);
    }
}

#[test]
fn ids_and_titles_are_fields() {
    let passages = vec![
        Passage::new("a", "Tides", "water rises"),
        Passage::new("b", "Tides", "water falls").with_field("title", "Wind"),
        Passage::new("c", "", "water stands"),
    ];
    let retriever = Bm25Retriever::in_memory(passages).unwrap();
    let found = |name: &str, values: &[&str]| {
        let filter = Filter(BTreeMap::from([(
            name.to_owned(),
            values.iter().map(|&value| value.to_owned()).collect(),
        )]));
        let mut ids: Vec<String> = retriever
            .search_query(&Query::new("water").filtered(filter), 9)
            .unwrap()
            .into_iter()
            .map(|hit| hit.id)
            .collect();
        ids.sort();
        ids.concat()
    };
    assert_eq!(found("id", &["c", "a", "zz"]), "ac");
    assert_eq!(found("title", &["Tides"]), "ab");
    assert_eq!(found("title", &["", "tides", "Wind"]), "c");
    assert_eq!(found("year", &["1999"]), "");
    assert_eq!(found("id", &[]), "");
}

#[test]
fn a_title_is_there_whatever_its_words() {
    let passages = vec![
        Passage::new("a", "It", "water rises"),
        Passage::new("b", "Tides", "it falls").with_field("title", "Wind"),
    ];
    let retriever = Bm25Retriever::in_memory(passages).unwrap();
    let long = "long".repeat(200);
    for (title, is_there) in [
        ("It", true),
        ("it", false),
        ("Tides", true),
        ("Wind", false),
        (long.as_str(), false),
    ] {
        let found = retriever.index().has_title(title).unwrap();
        assert_eq!(found, is_there, "{title}");
    }
}

#[test]
fn numbered_parts_of_a_page_are_no_pages() {
    let found = |rows: [(&str, &str); 2]| {
        let passages = rows.map(|(id, title)| Passage::new(id, title, "water"));
        let index = Index::in_memory(&passages, Bm25Params::default()).unwrap();
        index
            .verify_whole_pages()
            .map_err(|error| error.to_string())
    };
    let refused = found([("tides#0", "Tides"), ("tides#1", "Tides")]).unwrap_err();
    assert!(refused.contains("`tides#1` for instance"), "{refused}");
    // Numbers of issues, say, have titles of their own.
    found([("forage#12", "Tides"), ("forage#13", "Wind")]).unwrap();
    found([("tides", "Tides"), ("tides#1", "Tides")]).unwrap();
    found([("c#", "Sharp"), ("c#x", "Sharp")]).unwrap();
}

#[test]
fn fields_are_listed_once_however_many_values_they_have() {
    let mut passages: Vec<Passage> = ["a", "b", "c"]
        .map(|id| Passage::new(id, id, "water").with_field("page", id))
        .into();
    passages[1].fields.insert("pages".to_owned(), String::new());
    passages[2]
        .fields
        .insert("\u{e9}".to_owned(), "1".to_owned());
    let index = Index::in_memory(&passages, Bm25Params::default()).unwrap();
    let fields: Vec<String> = index.fields().unwrap().into_iter().collect();
    assert_eq!(fields, ["id", "page", "pages", "title", "\u{e9}"]);
}

#[test]
fn fields_are_stored_and_part_of_the_digest() {
    let plain = vec![Passage::new("a", "T", "x"), Passage::new("b", "T", "y")];
    let mut with = plain.clone();
    with[1] = with[1]
        .clone()
        .with_field("year", "1999")
        .with_field("a\0b", "\u{1F600}\"\n");
    let (one, other) = (
        Index::in_memory(&plain, Bm25Params::default()),
        Index::in_memory(&with, Bm25Params::default()),
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_ne!(one.manifest().corpus_digest, other.manifest().corpus_digest);
    let document = other.document(1).unwrap();
    assert_eq!(document.fields(), with[1].fields);
    assert_eq!(document.field("year").as_deref(), Some("1999"));
    assert_eq!(document.field("title").as_deref(), Some("T"));
    assert_eq!(other.document(0).unwrap().field("year"), None);
    assert_eq!(
        other.segments()[0]
            .field_docs("a\0b", "\u{1F600}\"\n", &CancelFlag::default())
            .unwrap(),
        [1]
    );
}

#[test]
fn statistics_that_cannot_be_are_refused() {
    let retriever = Bm25Retriever::in_memory(vec![
        Passage::new("a", "", "one two"),
        Passage::new("b", "", "two"),
    ])
    .unwrap();
    let own = retriever
        .index()
        .statistics(&["Two twos?", "three"])
        .unwrap();
    assert_eq!((own.passages, own.tokens), (2, 3));
    assert_eq!(
        own.frequencies,
        BTreeMap::from([("three".to_owned(), 0), ("two".to_owned(), 2)])
    );
    let query = Query::new("two");
    assert_eq!(
        retriever.search_with(&query, 5, &own).unwrap(),
        retriever.search_query(&query, 5).unwrap()
    );
    let mut wrong = [own.clone(), own.clone(), own];
    wrong[0].passages = 1;
    wrong[1].tokens = 2;
    wrong[2].frequencies.insert("two".to_owned(), 3);
    for statistics in &wrong {
        let error = retriever.search_with(&query, 5, statistics).unwrap_err();
        assert!(
            matches!(error, RetrieverError::Statistics { .. }),
            "{error}"
        );
    }
}

/// As an engineer of vectors would: files per segment and a description, in one atomic change.
#[test]
fn a_changed_manifest_takes_stock_of_new_files() {
    let scratch = tempfile::tempdir().unwrap();
    let passages = [Passage::new("a", "", "x"), Passage::new("b", "", "y")];
    let folder = segmented(scratch.path(), &[&passages[..1], &passages[1..]]);
    let write = |folder: &Path, place: &str, content: &str| {
        for segment in ["seg-000001", "seg-000002"] {
            std::fs::create_dir_all(folder.join(segment).join(place)).unwrap();
            std::fs::write(
                folder.join(segment).join(place).join("vectors.f16"),
                content,
            )
            .unwrap();
        }
        Ok::<(), IndexError>(())
    };
    for (place, superseded) in [("dense-3", vec![]), ("dense-4", vec!["dense-3".to_owned()])] {
        let manifest = Index::rewrite_manifest(&folder, &superseded, |manifest| {
            manifest.dense = Some(serde_json::json!({"folder": place}));
            write(&folder, place, place)
        });
        assert_eq!(Index::open(&folder).unwrap().manifest(), &manifest.unwrap());
    }
    let index = Index::verify(&folder).unwrap();
    let manifest = index.manifest();
    assert_eq!(
        (manifest.generation, manifest.dense.clone()),
        (4, Some(serde_json::json!({"folder": "dense-4"})))
    );
    assert!(
        manifest
            .segments
            .iter()
            .all(|segment| segment.files["dense-4/vectors.f16"].bytes == 7)
    );
    assert!(!folder.join("seg-000001/dense-3/vectors.f16").exists());
    assert!(matches!(
        Index::merge(&folder, &mut |_, _| {}),
        Err(IndexError::Vectors { .. })
    ));
    // A change that fails leaves everything as it was.
    Index::rewrite_manifest(&folder, &[], |_| {
        write(&folder, "dense-5", "half")?;
        Err(IndexError::Busy {
            path: folder.clone(),
        })
    })
    .unwrap_err();
    assert_eq!(Index::open(&folder).unwrap().manifest().generation, 4);
    Index::rewrite_manifest::<IndexError>(&folder, &[], |_| Ok(())).unwrap();
    assert!(!folder.join("seg-000002/dense-5/vectors.f16").exists());
    Index::verify(&folder).unwrap();
}

/// As a merge does that ends while the files of the generation before are read.
#[test]
fn an_index_that_changes_while_it_is_verified_is_not_damaged() {
    let scratch = tempfile::tempdir().unwrap();
    let passages = [Passage::new("a", "", "x"), Passage::new("b", "", "y")];
    let folder = segmented(scratch.path(), &[&passages[..1], &passages[1..]]);
    let merged = Cell::new(false);
    let verified = Index::settled(&folder, |folder, manifest| {
        if !merged.replace(true) {
            Index::merge(folder, &mut |_, _| {}).unwrap();
        }
        Index::verify_generation(folder, manifest)
    });
    assert_eq!(verified.unwrap().manifest().generation, 3);
    std::fs::write(folder.join("seg-000003/docs.bin"), "short").unwrap();
    assert!(matches!(
        Index::verify(&folder),
        Err(IndexError::Damaged { .. })
    ));
}

/// A search over some windows of documents looks at the flag in each of them, whatever finds the documents.
#[test]
fn a_search_ends_within_a_window_of_its_deadline() {
    let passages: Vec<Passage> = (0..9000)
        .map(|number| Passage::new(format!("{number:05}"), "", "common"))
        .collect();
    let retriever = Bm25Retriever::in_memory(passages).unwrap();
    let flagged = |cancel| Query {
        cancel,
        ..Query::new("common")
    };
    let query = |looks| flagged(cancel::after(looks));
    for looks in 0..3 {
        let failures = [
            retriever.search_query(&query(looks), 9000).unwrap_err(),
            retriever.search_boolean(&query(looks), 9000).unwrap_err(),
            retriever.search_many(&[query(looks)], 9000).unwrap_err(),
        ];
        for failure in failures {
            assert!(matches!(failure, RetrieverError::Cancelled), "{failure}");
        }
    }
    // Buffers are clean after a search that broke off.
    assert_eq!(
        retriever.search_query(&query(99), 9000).unwrap().len(),
        9000
    );
    let late = flagged(CancelFlag::at(std::time::Instant::now()));
    assert!(retriever.search_query(&late, 1).is_err());
}
