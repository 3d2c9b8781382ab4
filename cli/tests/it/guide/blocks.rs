//! The guide as the tests read it: its documents and the fenced blocks in them. The chapter `docs/introduction.md` tells
//! readers what the tags of a block mean.
#![allow(
    dead_code,
    reason = "each of the tests that include this file uses a part of it"
)]

use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A fenced block: ```` ```sh,server ```` is of the language `sh` and has the tag `server`.
pub(crate) struct Block {
    /// Line of the document on which it opens, from 1.
    pub(crate) line: usize,
    pub(crate) language: String,
    pub(crate) tags: Vec<String>,
    pub(crate) text: String,
}

impl Block {
    pub(crate) fn has(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }

    /// Whether it is for a shell.
    pub(crate) fn is_shell(&self) -> bool {
        self.language == "sh"
    }

    /// The lines of a shell block, those that end in a backslash joined with the next.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.text
            .replace("\\\n", " ")
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn is_markdown(name: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "md")
}

/// The file names of the chapters in `docs/`, the summary left out.
pub(crate) fn chapters() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("docs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut chapters: Vec<String> = names
        .filter(|name| is_markdown(name) && name != "SUMMARY.md")
        .collect();
    chapters.sort();
    chapters
}

/// Every document with commands for readers, by its path from the root.
pub(crate) fn documents() -> Vec<String> {
    let readmes = [
        "README.md",
        "CONTRIBUTING.md",
        "configs/README.md",
        "clients/python/README.md",
    ]
    .map(str::to_owned);
    let built_in = ["quickstart", "quickstart-code", "query-writer"]
        .map(|name| format!("configs/{name}/README.md"));
    let chapters = chapters().into_iter().map(|name| format!("docs/{name}"));
    readmes
        .into_iter()
        .chain(built_in)
        .chain(chapters)
        .collect()
}

/// The text of a document.
pub(crate) fn read(document: &str) -> String {
    std::fs::read_to_string(root().join(document)).unwrap()
}

/// The parts of a text in Markdown, with their places.
pub(crate) fn events(text: &str) -> impl Iterator<Item = (Event<'_>, std::ops::Range<usize>)> {
    Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter()
}

/// The fenced blocks of a text, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (event, place) in events(text) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                let mut words = info.split(',').map(|word| word.trim().to_owned());
                let language = words.next().unwrap_or_default();
                let line = text[..place.start].lines().count() + 1;
                blocks.push(Block {
                    line,
                    language,
                    tags: words.collect(),
                    text: String::new(),
                });
                inside = true;
            }
            Event::End(TagEnd::CodeBlock) => inside = false,
            Event::Text(piece) if inside => blocks.last_mut().unwrap().text.push_str(&piece),
            _ => {}
        }
    }
    blocks
}
