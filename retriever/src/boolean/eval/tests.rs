//! The evaluator against one that looks at every passage.

use std::collections::BTreeMap;

use forage_contracts::Passage;
use forage_contracts::retriever::{CancelFlag, Filter, Query, RetrieverError};
use proptest::prelude::*;
use tantivy::fieldnorm::FieldNormReader;

use crate::Bm25Retriever;
use crate::analyzer::TermStream;
use crate::boolean::plan::{Place, plan};
use crate::boolean::{Kind, Leaf, Node, Occur, Part, parse_with};
use crate::cancel;

/// The terms of a text with their positions.
fn located(text: &str) -> Vec<(String, usize)> {
    let mut stream = TermStream::new(text);
    let mut found = Vec::new();
    while let Some(located) = stream.next_located() {
        found.push((located.term.to_owned(), located.position));
    }
    found
}

fn contents(passage: &Passage) -> String {
    format!("{} {}", passage.title, passage.text)
}

struct Trial<'a> {
    passages: &'a [Passage],
}

impl Trial<'_> {
    fn idf(&self, holds: impl Fn(&str) -> bool) -> f32 {
        let lists: Vec<_> = self
            .passages
            .iter()
            .map(|passage| located(&contents(passage)))
            .collect();
        let docs = lists.iter().filter(|list| !list.is_empty()).count() as f64;
        let df = lists
            .iter()
            .filter(|list| list.iter().any(|(term, _)| holds(term)))
            .count() as f64;
        (1.0 + (docs - df + 0.5) / (df + 0.5)).ln() as f32
    }

    fn saturate(&self, weight: f32, passage: &Passage, freq: f32) -> f64 {
        let lengths: Vec<usize> = self
            .passages
            .iter()
            .map(|one| located(&contents(one)).len())
            .collect();
        let docs = lengths.iter().filter(|&&length| length > 0).count().max(1);
        let average = lengths.iter().sum::<usize>() as f32 / docs as f32;
        let own = located(&contents(passage)).len() as u32;
        let length = FieldNormReader::id_to_fieldnorm(FieldNormReader::fieldnorm_to_id(own)) as f32;
        f64::from(weight - weight / (1.0 + freq / (0.9 * (0.6 + 0.4 * length / average))))
    }

    fn leaf(&self, leaf: &Leaf, boost: f32, passage: &Passage) -> Option<f64> {
        let of = |part: &Part| match part {
            Part::Anywhere => located(&contents(passage)),
            Part::Title => located(&passage.title),
            Part::Text => located(&passage.text),
        };
        let (idf, freq) = match leaf {
            Leaf::Exact { field, value } => {
                let found = match field.as_str() {
                    "id" => Some(&passage.id),
                    name => passage.fields.get(name),
                };
                return (found == Some(value)).then_some(0.0);
            }
            Leaf::Prefix { part, text } => {
                let (beginning, own) = (text.to_lowercase(), crate::analyze(text).pop());
                let fits =
                    |term: &str| term.starts_with(&beginning) || Some(term) == own.as_deref();
                (
                    self.idf(fits),
                    of(part).iter().filter(|(term, _)| fits(term)).count() as f32,
                )
            }
            Leaf::Word { part, text } => (
                self.phrase_idf(text),
                phrase_freq(&of(part), &located(text), 0),
            ),
            Leaf::Phrase { part, text, slop } => (
                self.phrase_idf(text),
                phrase_freq(&of(part), &located(text), *slop),
            ),
        };
        (freq > 0.0).then(|| self.saturate(boost * idf, passage, freq))
    }

    fn phrase_idf(&self, text: &str) -> f32 {
        located(text)
            .iter()
            .map(|(wanted, _)| f64::from(self.idf(|term| term == wanted)))
            .sum::<f64>() as f32
    }

    fn node(&self, node: &Node, outer: f32, passage: &Passage) -> Option<f64> {
        let boost = node.boost * outer;
        let clauses = match &node.kind {
            Kind::Leaf(leaf) => return self.leaf(leaf, boost, passage),
            Kind::Group(clauses) => clauses,
        };
        let of = |wanted: Occur| {
            let chosen = clauses.iter().filter(move |clause| clause.occur == wanted);
            chosen
                .map(|clause| self.node(&clause.node, boost, passage))
                .collect::<Vec<_>>()
        };
        let (must, should, not) = (of(Occur::Must), of(Occur::Should), of(Occur::MustNot));
        let enough = !must.is_empty() || should.is_empty() || should.iter().any(Option::is_some);
        let matched = enough && must.iter().all(Option::is_some) && not.iter().all(Option::is_none);
        matched.then(|| must.iter().chain(&should).flatten().sum())
    }
}

/// Every way to place the first term, and for each the least number of extra words over all ways to place the others.
fn phrase_freq(text: &[(String, usize)], phrase: &[(String, usize)], slop: u32) -> f32 {
    fn least(text: &[(String, usize)], phrase: &[(String, usize)], at: usize) -> Option<usize> {
        let Some((next, place)) = phrase.get(1) else {
            return Some(0);
        };
        let gap = place - phrase[0].1;
        let later = text
            .iter()
            .filter(|(term, position)| term == next && *position >= at + gap);
        later
            .filter_map(|(_, position)| {
                Some(position - at - gap + least(text, &phrase[1..], *position)?)
            })
            .min()
    }
    let starts = text.iter().filter(|(term, _)| *term == phrase[0].0);
    let extras = starts
        .filter_map(|(_, at)| least(text, phrase, *at))
        .filter(|&extra| extra <= slop as usize);
    extras.map(|extra| 1.0 / (1.0 + extra as f32)).sum()
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "tide", "tides", "moon", "the", "of", "sun", "Moons", "éa", "é", "tidal", "monthly",
    ])
    .prop_map(str::to_owned)
}

fn words(longest: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(word(), 0..longest).prop_map(|words| words.join(" "))
}

fn passages() -> impl Strategy<Value = Vec<Passage>> {
    let passage = (words(4), words(12), prop::option::of(0..3));
    prop::collection::vec(passage, 1..30).prop_map(|rows| {
        let numbered = rows.into_iter().enumerate();
        let build = numbered.map(|(number, (title, text, page))| {
            let passage = Passage::new(format!("d{}", number * 7 % 31), title, text);
            match page {
                Some(page) => passage.with_field("page", format!("p{page}")),
                None => passage,
            }
        });
        build.collect()
    })
}

fn query() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => word(),
        2 => (words(4), 0..4).prop_map(|(text, slop)| format!("\"moon {text}\"~{slop}")),
        1 => (words(3)).prop_map(|text| format!("\"tide {text}\"")),
        1 => word().prop_map(|word| format!("title:{word}")),
        1 => words(3).prop_map(|text| format!("text:\"sun {text}\"")),
        1 => prop::sample::select(vec!["mo*", "tid*", "title:t*", "tides*", "é*"]).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["page:p1", "page:p2", "id:d0", "id:d7", "foo:bar"]).prop_map(str::to_owned),
    ];
    let signed = |inner: BoxedStrategy<String>| {
        (
            prop::sample::select(vec!["", "", "", "+", "-", "NOT "]),
            inner,
            prop::sample::select(vec!["", "", "^2.5"]),
        )
            .prop_map(|(sign, inner, boost)| format!("{sign}{inner}{boost}"))
    };
    leaf.boxed().prop_recursive(3, 20, 4, move |inner| {
        let join = prop::sample::select(vec![" ", " AND ", " OR ", " AND NOT "]);
        prop::collection::vec((signed(inner), join), 1..5).prop_map(|parts| {
            let mut text = String::from("(");
            for (number, (part, join)) in parts.iter().enumerate() {
                text.push_str(if number > 0 { join } else { "" });
                text.push_str(part);
            }
            text + ")"
        })
    })
}

fn ids_and_bits(retriever: &Bm25Retriever, query: &Query, k: usize) -> Vec<(String, u32)> {
    let hits = retriever.search_boolean(query, k).unwrap().hits;
    hits.into_iter()
        .map(|hit| (hit.id, hit.score.to_bits()))
        .collect()
}

/// Queries that tantivy's parser reads as this one does: no stop words, every mix of operators in parentheses. No exclusions:
/// a part that matches nothing can make tantivy 0.27 forget the others (`moon (monthly AND monthly) "monthly tide"` finds
/// nothing in a corpus of one passage, `moon`), so it may miss passages, and with an exclusion find too many.
fn shared_query() -> impl Strategy<Value = String> {
    let word = || prop::sample::select(vec!["tide", "tides", "moon", "sun", "tidal", "monthly"]);
    let leaf = prop_oneof![
        4 => word().prop_map(str::to_owned),
        1 => prop::collection::vec(word(), 2..4).prop_map(|words| format!("\"{}\"", words.join(" "))),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join(" AND "))),
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join(" OR "))),
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join(" "))),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a} OR {b} AND {c})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("(+{a} {b} +{c})")),
        ]
    })
}

/// Numbers of the passages that tantivy matches, with positions indexed.
fn tantivy_matches(texts: &[String], queries: &[String]) -> Vec<std::collections::BTreeSet<u32>> {
    use tantivy::schema::{IndexRecordOption, Schema, TextFieldIndexing, TextOptions};

    let indexing = TextFieldIndexing::default()
        .set_tokenizer("english")
        .set_index_option(IndexRecordOption::WithFreqsAndPositions);
    let mut schema = Schema::builder();
    let field = schema.add_text_field(
        "contents",
        TextOptions::default().set_indexing_options(indexing),
    );
    let index = tantivy::Index::create_in_ram(schema.build());
    index
        .tokenizers()
        .register("english", crate::analyzer::EnglishTokenizer);
    let mut writer: tantivy::IndexWriter = index.writer_with_num_threads(1, 15 << 20).unwrap();
    for text in texts {
        writer
            .add_document(tantivy::doc!(field => text.as_str()))
            .unwrap();
    }
    writer.commit().unwrap();
    let searcher = index.reader().unwrap().searcher();
    assert!(
        searcher.segment_readers().len() <= 1,
        "document numbers are those of the passages"
    );
    let parser = tantivy::query::QueryParser::for_index(&index, vec![field]);
    let matches = |query: &String| {
        let parsed = parser.parse_query(query).unwrap();
        let found = searcher
            .search(&parsed, &tantivy::collector::DocSetCollector)
            .unwrap();
        found.into_iter().map(|address| address.doc_id).collect()
    };
    queries.iter().map(matches).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn finds_what_tantivy_finds(
        texts in prop::collection::vec(
            prop::collection::vec(prop::sample::select(vec!["tide", "tides", "moon", "sun", "tidal", "rock"]), 1..10), 1..40),
        queries in prop::collection::vec(shared_query(), 20),
    ) {
        let texts: Vec<String> = texts.into_iter().map(|words| words.join(" ")).collect();
        let numbered = texts.iter().enumerate();
        let retriever = Bm25Retriever::in_memory(numbered.map(|(id, text)| Passage::new(id.to_string(), "", text)).collect()).unwrap();
        for (query, expected) in queries.iter().zip(tantivy_matches(&texts, &queries)) {
            let answer = retriever.search_boolean(&Query::new(query), 1000).unwrap();
            prop_assert_eq!(&answer.issues, &[], "{}", query);
            let found: std::collections::BTreeSet<u32> = answer.hits.iter().map(|hit| hit.id.parse().unwrap()).collect();
            prop_assert!(expected.is_subset(&found), "{}: tantivy {:?}, we {:?}", query, expected, found);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn equals_a_look_at_every_passage(passages in passages(), text in query(), k in 1_usize..12, page in prop::option::of(0..3)) {
        let retriever = Bm25Retriever::in_memory(passages.clone()).unwrap();
        let has_page = passages.iter().any(|passage| !passage.fields.is_empty());
        let parsed = parse_with(&text, &|name| name == "page" && has_page).0;
        let trial = Trial { passages: &passages };
        let value = page.map(|page| format!("p{page}"));
        let kept = |passage: &&Passage| value.is_none() || passage.fields.get("page") == value.as_ref();
        let expected: BTreeMap<&str, f64> = (passages.iter().filter(kept))
            .filter_map(|passage| Some((passage.id.as_str(), trial.node(parsed.root.as_ref()?, 1.0, passage)?)))
            .collect();
        let mut query = Query::new(text.clone());
        if let Some(value) = &value {
            query = query.filtered(Filter(BTreeMap::from([("page".to_owned(), vec![value.clone()])])));
        }
        let all = ids_and_bits(&retriever, &query, 100);
        prop_assert_eq!(all.len(), expected.len(), "{} {:?} {:?}", text, all, expected);
        for (id, bits) in &all {
            let (score, wanted) = (f64::from(f32::from_bits(*bits)), expected[id.as_str()]);
            prop_assert!((score - wanted).abs() <= 1e-5 * wanted.max(1.0), "{} {} {} {}", text, id, score, wanted);
        }
        let ordered = |pair: &[(String, u32)]| {
            let scores = [f32::from_bits(pair[0].1), f32::from_bits(pair[1].1)];
            scores[0] > scores[1] || scores[0].to_bits() == scores[1].to_bits() && pair[0].0 < pair[1].0
        };
        prop_assert!(all.windows(2).all(ordered), "{:?}", all);
        prop_assert_eq!(&ids_and_bits(&retriever, &query, k)[..], &all[..k.min(all.len())], "{}", text);
    }

    /// Words without operators rank exactly as the bag of words does.
    #[test]
    fn plain_words_are_a_bag_of_words(passages in passages(), text in words(8), k in 1_usize..12) {
        let retriever = Bm25Retriever::in_memory(passages).unwrap();
        let bag = retriever.search_one(&text, k).unwrap();
        prop_assert_eq!(retriever.search_boolean(&Query::new(text), k).unwrap().hits, bag);
    }
}

/// Passages of few words, so that every phrase may be in every passage.
fn pages(count: usize, words: usize) -> Vec<Passage> {
    let vocabulary = [
        "river", "stone", "light", "north", "glass", "paper", "cloud",
    ];
    let page = |number: usize| {
        let text: Vec<&str> = (0..words)
            .map(|place| vocabulary[(number * 31 + place * place + place / 7) % vocabulary.len()])
            .collect();
        let title = if number.is_multiple_of(3) {
            "River stone"
        } else {
            "The stone"
        };
        Passage::new(format!("{number:05}"), title, text.join(" "))
    };
    (0..count).map(page).collect()
}

/// Several windows of passages, thousands of positions of every term, and passages without a word between those with it.
#[test]
fn phrases_are_found_where_they_stand_in_thousands_of_passages() {
    let mut passages = pages(9000, 40);
    for passage in passages.iter_mut().skip(1).step_by(5) {
        "moon".clone_into(&mut passage.text);
    }
    let retriever = Bm25Retriever::in_memory(passages.clone()).unwrap();
    let cases = [
        ("\"stone light\"", Part::Anywhere, "stone light", 0),
        ("\"glass paper\"~2", Part::Anywhere, "glass paper", 2),
        (
            "\"light the north river\"~3",
            Part::Anywhere,
            "light the north river",
            3,
        ),
        ("title:\"river stone\"", Part::Title, "river stone", 0),
        ("text:\"river stone\"", Part::Text, "river stone", 0),
        // From the title into the text, which is one text where no part is named.
        ("\"stone moon\"", Part::Anywhere, "stone moon", 0),
        ("title:\"stone moon\"", Part::Title, "stone moon", 0),
        ("title:river", Part::Title, "river", 0),
        ("text:stone", Part::Text, "stone", 0),
    ];
    for (query, part, text, slop) in cases {
        let mut expected = BTreeMap::new();
        for passage in &passages {
            let of = match part {
                Part::Anywhere => contents(passage),
                Part::Title => passage.title.clone(),
                Part::Text => passage.text.clone(),
            };
            let freq = phrase_freq(&located(&of), &located(text), slop);
            if freq > 0.0 {
                expected.insert(passage.id.clone(), freq.to_bits());
            }
        }
        let found = ids_and_bits(&retriever, &Query::new(query), 9000);
        let ids: std::collections::BTreeSet<_> = found.iter().map(|(id, _)| id).collect();
        assert_eq!(ids, expected.keys().collect(), "{query}");
        // The score depends on the frequency and on the length, which has to do with the number alone.
        let mut scores = BTreeMap::new();
        for (id, score) in &found {
            let number: usize = id.parse().unwrap();
            let same = scores
                .entry((expected[id], number % 5 == 1, number.is_multiple_of(3)))
                .or_insert(*score);
            assert_eq!(same, score, "{query}: {id}");
        }
    }
}

#[test]
fn a_cancelled_search_ends_within_64_passages() {
    let retriever = Bm25Retriever::in_memory(pages(200, 50)).unwrap();
    let query = Query::new("\"river cloud\"");
    let within = |looks| Query {
        cancel: cancel::after(looks),
        ..query.clone()
    };
    // Both words and the window take a look each, and so does every 64th passage whose positions are read.
    for looks in 0..6 {
        let failure = retriever.search_boolean(&within(looks), 200).unwrap_err();
        assert!(matches!(failure, RetrieverError::Cancelled), "{failure}");
    }
    assert!(retriever.search_boolean(&within(1000), 200).is_ok());
}

/// More terms than are ranked by.
#[test]
fn a_broad_prefix_in_one_part_matches_where_it_stands_there() {
    let passage = |number: usize| {
        let (title, text) = if number.is_multiple_of(4) {
            (format!("wave{number}"), "sun".to_owned())
        } else {
            ("sun".to_owned(), format!("wave{number} wave{number}"))
        };
        Passage::new(format!("{number:04}"), title, text)
    };
    let retriever = Bm25Retriever::in_memory((0..1200).map(passage).collect()).unwrap();
    let matches = |query: &str| {
        let answer = retriever.search_boolean(&Query::new(query), 1200).unwrap();
        assert_eq!(answer.issues.len(), 1, "{query}: {:?}", answer.issues);
        answer
            .hits
            .iter()
            .map(|hit| hit.id.parse().unwrap())
            .collect()
    };
    let numbers = |in_title: fn(usize) -> bool| (0..1200).filter(move |number| in_title(*number));
    let all: Vec<usize> = matches("wave*");
    assert_eq!(all, numbers(|_| true).collect::<Vec<_>>());
    let titles: Vec<usize> = matches("title:wave*");
    assert_eq!(
        titles,
        numbers(|number| number.is_multiple_of(4)).collect::<Vec<_>>()
    );
    let texts: Vec<usize> = matches("text:wave* NOT id:0001");
    assert_eq!(
        texts,
        numbers(|number| !number.is_multiple_of(4) && number != 1).collect::<Vec<_>>()
    );
}

/// Two windows of passages: a page has few of them, a half has many.
#[test]
fn rare_values_take_no_set_of_the_segment_and_match_as_common_ones_do() {
    type Matches = fn(usize) -> bool;
    let numbers = 0..5000_usize;
    let passage = |number: usize| {
        Passage::new(format!("d{number:04}"), "Page", "word")
            .with_field("page", (number % 50).to_string())
            .with_field("half", (number % 2).to_string())
    };
    let retriever = Bm25Retriever::in_memory(numbers.clone().map(passage).collect()).unwrap();
    let queries: [(&str, Matches); 5] = [
        ("page:7", |number| number % 50 == 7),
        ("page:7 AND half:1 NOT id:d0057", |number| {
            number % 50 == 7 && number != 57
        }),
        ("half:0 AND (page:8 OR page:9)", |number| number % 50 == 8),
        ("id:d4999 OR id:d0000 OR id:d4096", |number| {
            [0, 4096, 4999].contains(&number)
        }),
        ("word NOT half:0 NOT page:7", |number| {
            number % 2 == 1 && number % 50 != 7
        }),
    ];
    for (text, matches) in queries {
        let found = ids_and_bits(&retriever, &Query::new(text), 5000);
        let found: Vec<String> = found.into_iter().map(|(id, _)| id).collect();
        let wanted = numbers.clone().filter(|&number| matches(number));
        let wanted: Vec<String> = wanted.map(|number| format!("d{number:04}")).collect();
        assert_eq!(found, wanted, "{text}");
    }

    let (parsed, _) = parse_with("id:d0001 OR page:7 OR half:1", &|_| true);
    let (segments, scorer) = (retriever.index().segments(), retriever.ranking().scorer());
    let planned = plan(&parsed, segments, scorer, &CancelFlag::default()).unwrap();
    let is_set = |place: &&Place| matches!(place, Place::Set(_));
    let places = planned.unwrap().places;
    assert_eq!(places.iter().flatten().filter(is_set).count(), 1);
}
