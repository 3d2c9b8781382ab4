//! Any text is a boolean query: it is answered, its issues point into it, and it marks a snippet.

#![no_main]

use std::sync::LazyLock;

use forage_retriever::{Bm25Retriever, Passage, Query, Snippet};
use libfuzzer_sys::fuzz_target;

static RETRIEVER: LazyLock<Bm25Retriever> = LazyLock::new(|| {
    let texts = [
        "The moon raises tides",
        "the sun raises fewer tides",
        "a b c, a b",
        "é 東京 moon's e-mail",
        "",
    ];
    let passages = texts.iter().enumerate().map(|(number, text)| {
        Passage::new(format!("d{number}"), ["Tides", "a"][number % 2], *text)
            .with_field("page", format!("p{}", number % 3))
    });
    Bm25Retriever::in_memory(passages.collect()).expect("a small corpus")
});

fuzz_target!(|text: &str| {
    let answer = RETRIEVER
        .search_boolean(&Query::new(text), 3)
        .expect("an answer");
    let all = RETRIEVER
        .search_boolean(&Query::new(text), 10)
        .expect("an answer");
    RETRIEVER.search_one(text, 10).expect("an answer");
    assert_eq!(answer.hits, all.hits[..all.hits.len().min(3)]);
    for issue in &all.issues {
        assert!(text.get(issue.at.clone()).is_some(), "{issue:?}");
    }

    let shown = Snippet::new(text, &text[..text.floor_char_boundary(20)], 40);
    assert!(shown.text.chars().count() <= 40);
    for highlight in &shown.highlights {
        assert!(shown.text.get(highlight.clone()).is_some());
    }
    shown.to_html();
});
