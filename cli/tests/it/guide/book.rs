//! The guide as an mdBook: it builds without a warning, every chapter is in it, and no link of a document is dead.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use mdbook_driver::MDBook;
use mdbook_driver::book::BookItem;
use pulldown_cmark::{Event, Tag};
use tracing_subscriber::filter::LevelFilter;

use super::blocks::{chapters, documents, events, read, root};

/// Folders of the repository whose files documents name.
const FOLDERS: [&str; 14] = [
    "docs/",
    "bench/",
    "configs/",
    "examples/",
    "clients/",
    "fuzz/",
    "env/",
    "trainer/",
    "retriever/",
    "sandbox/",
    "eval/",
    "lab/src/",
    "lab/examples/",
    "cli/",
];

/// What mdBook logs.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Builds the book into `folder` and returns its chapters by their path from `docs/`; what mdBook warns of is an error.
fn build(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let said = Said::default();
    let writer = said.clone();
    let log = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_ansi(false);
    let log = log.with_writer(move || writer.clone());
    let built = tracing::subscriber::with_default(log.finish(), || {
        let mut book = MDBook::load(root())?;
        folder.clone_into(&mut book.config.build.build_dir);
        book.build()?;
        Ok::<_, mdbook_driver::errors::Error>(book)
    });
    let book = built.map_err(|error| format!("{error:#}"))?;
    let said = String::from_utf8_lossy(&said.0.lock().unwrap()).into_owned();
    if !said.is_empty() {
        return Err(said);
    }
    let paths = book.iter().filter_map(|item| match item {
        BookItem::Chapter(chapter) => chapter.source_path.clone(),
        _ => None,
    });
    Ok(paths.collect())
}

/// The addresses that a document's links name.
fn links(text: &str) -> Vec<String> {
    let addresses = events(text).filter_map(|(event, _)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some(dest_url.into_string())
        }
        _ => None,
    });
    addresses
        .filter(|address| !address.contains("://") && !address.starts_with("mailto:"))
        .collect()
}

/// What a document sets as code within a line.
fn code(text: &str) -> Vec<String> {
    let pieces = events(text).filter_map(|(event, _)| match event {
        Event::Code(code) => Some(code.into_string()),
        _ => None,
    });
    pieces.collect()
}

/// The names of the places in a built page that a link can point to.
fn anchors(page: &str) -> Vec<&str> {
    page.split(" id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

#[test]
fn the_book_builds_with_every_chapter_and_no_dead_link() {
    let folder = tempfile::tempdir().unwrap();
    let book =
        build(folder.path()).unwrap_or_else(|error| panic!("the book does not build: {error}"));
    let pages: BTreeMap<&Path, String> = book
        .iter()
        .map(|path| {
            (
                path.as_path(),
                std::fs::read_to_string(folder.path().join(path.with_extension("html"))).unwrap(),
            )
        })
        .collect();
    for name in chapters() {
        let page = pages
            .get(Path::new(&name))
            .unwrap_or_else(|| panic!("docs/SUMMARY.md lacks {name}"));
        for link in links(&read(&format!("docs/{name}"))) {
            let (file, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            // Pictures are copied beside the chapters.
            if Path::new(file)
                .extension()
                .is_some_and(|end| end == "svg" || end == "webp")
            {
                let there = folder.path().join(file).exists();
                assert!(there, "docs/{name}: `{link}` is not a picture of the book");
                continue;
            }
            let target = if file.is_empty() {
                Some(page)
            } else {
                pages.get(Path::new(file))
            };
            let target = target
                .unwrap_or_else(|| panic!("docs/{name}: `{link}` is not a chapter of the book"));
            let found = anchor.is_empty() || anchors(target).contains(&anchor);
            assert!(found, "docs/{name}: `{link}` names no heading");
        }
    }
}

#[test]
fn files_that_documents_name_are_there() {
    for document in documents() {
        let text = read(&document);
        let folder = root().join(&document).parent().unwrap().to_owned();
        for link in links(&text) {
            let file = link.split('#').next().unwrap();
            assert!(
                file.is_empty() || folder.join(file).exists(),
                "{document}: `{link}` names no file"
            );
        }
        // Files of the repository are named in code, from its root.
        for code in code(&text) {
            let path = code.split([' ', ':']).next().unwrap();
            let ours = FOLDERS.iter().any(|folder| path.starts_with(folder))
                && !path.contains(['*', '{', '=']);
            assert!(
                !ours || root().join(path).exists(),
                "{document}: `{code}` is not a file here"
            );
        }
    }
}
