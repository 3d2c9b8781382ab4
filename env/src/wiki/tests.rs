use std::sync::Arc;

use forage_contracts::Passage;
use forage_contracts::retriever::Retriever;
use forage_retriever::{Bm25Retriever, CorpusFormat};
use futures::FutureExt;

use super::find::Finder;
use super::*;
use crate::wiki::find::SearchMode;
use crate::world::WorldSpec;

fn passages() -> Arc<dyn Retriever> {
    let pieces = [
        ("orlen#0", "Orlen", "Orlen is a town."),
        (
            "orlen#1",
            "Orlen",
            "The mayor of Orlen is Ada Brandt, mayor since 1990.",
        ),
        ("ada_brandt#0", "Ada Brandt", "Ada Brandt was a mayor."),
        (
            "elsewhere#0",
            "Elsewhere",
            "The mayor of a page that is not in the wiki.",
        ),
    ];
    let pieces = pieces.map(|(id, title, text)| Passage::new(id, title, text));
    Arc::new(Bm25Retriever::in_memory(pieces.to_vec()).expect("indexed"))
}

fn pages() -> Vec<Passage> {
    vec![
        Passage::new(
            "orlen",
            "Orlen",
            "# Orlen\n\nOrlen is a town. Its mayor is Ada Brandt.\n",
        ),
        Passage::new(
            "ada_brandt",
            "Ada Brandt",
            "# Ada Brandt\n\nAda Brandt was born in Velm.\n",
        ),
        Passage::new("velm", "Velm", "Velm is a village."),
    ]
}

fn found(mode: SearchMode, query: &str, count: usize) -> Vec<String> {
    let wiki = Arc::new(Wiki::in_memory(&pages()).expect("a wiki"));
    let finder = Finder::new(wiki, mode, passages()).expect("indexed");
    let found = finder
        .find(query, count)
        .now_or_never()
        .expect("at once")
        .expect("found");
    found.into_iter().map(|found| found.id).collect()
}

#[test]
fn pages_are_read_by_id() {
    let wiki = Wiki::in_memory(&pages()).expect("a wiki");
    let page = wiki.page("velm").expect("readable").expect("there");
    assert_eq!((page.title, page.content), ("Velm", "Velm is a village."));
    assert_eq!(wiki.page("Velm").expect("readable"), None);
    assert_eq!(wiki.len(), 3);
}

#[test]
fn each_mode_looks_at_what_it_says() {
    assert_eq!(
        found(SearchMode::Titles, "who is Ada Brandt, mayor of Velm", 10),
        ["ada_brandt", "velm"]
    );
    assert!(found(SearchMode::Titles, "mayor", 10).is_empty());
    assert_eq!(found(SearchMode::Pages, "mayor", 10), ["orlen"]);
    assert_eq!(
        found(SearchMode::Passages, "mayor Orlen", 10),
        ["orlen", "ada_brandt"]
    );
    assert_eq!(found(SearchMode::Passages, "mayor Orlen", 1), ["orlen"]);
    for mode in [SearchMode::Titles, SearchMode::Pages, SearchMode::Passages] {
        assert!(found(mode, "", 10).is_empty());
    }
}

#[test]
fn no_pages_and_two_of_one_id_are_refused() {
    let message = |pages: &[Passage]| {
        let error = Wiki::in_memory(pages).expect_err("refused");
        std::error::Error::source(&error)
            .expect("a cause")
            .to_string()
    };
    assert!(
        message(&[]).contains("holds no passages"),
        "{}",
        message(&[])
    );
    let twice = [pages().remove(0), pages().remove(0)];
    assert!(message(&twice).contains("`orlen`"), "{}", message(&twice));
}

#[test]
fn corpora_are_read_with_whole_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pages.jsonl");
    std::fs::write(
        &path,
        "{\"id\":\"a\",\"title\":\"A\",\"content\":\"# A\\n\\nx\\n\\n## B\\n\\ny\"}\n",
    )
    .expect("written");
    let wiki = Wiki::read(&path, CorpusFormat::PAGES).expect("a wiki");
    assert_eq!(
        wiki.page("a").expect("readable").expect("there").content,
        "# A\n\nx\n\n## B\n\ny"
    );
    let beir = folder.path().join("beir.jsonl");
    std::fs::write(
        &beir,
        "{\"_id\":\"d1\",\"title\":\"T\",\"text\":\"no heading\"}\n",
    )
    .expect("written");
    let wiki = Wiki::read(&beir, CorpusFormat::BEIR).expect("a wiki");
    let page = wiki.page("d1").expect("readable").expect("there");
    assert_eq!(
        section::list(&page, SectionMode::WikiSearch)[0].id,
        "d1:full"
    );
    std::fs::write(&beir, "").expect("written");
    assert!(matches!(
        Wiki::read(&beir, CorpusFormat::BEIR),
        Err(WikiError::Read(_))
    ));
}

#[test]
fn a_world_is_a_wiki() {
    let world = World::new(WorldSpec::new(200, 3)).expect("a world");
    let wiki = Arc::new(Wiki::of_world(&world).expect("a wiki"));
    let page = world.page(7);
    assert_eq!(
        wiki.page(&page.id)
            .expect("readable")
            .expect("there")
            .content,
        page.content()
    );
    for mode in [SearchMode::Titles, SearchMode::Pages] {
        let finder = Finder::new(wiki.clone(), mode, passages()).expect("indexed");
        let found = finder
            .find(&page.title, 3)
            .now_or_never()
            .expect("at once")
            .expect("found");
        assert_eq!(found[0].id, page.id, "{mode:?}");
    }
}
