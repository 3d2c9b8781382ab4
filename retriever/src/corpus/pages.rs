//! Whole wiki pages in markdown, and passages of about a hundred words cut from them.

use forage_contracts::{CorpusEntry, Page, Passage, Row, RowFault};
use unicode_segmentation::UnicodeSegmentation;

const FIX: &str =
    "page rows are {\"id\", \"title\", \"content\"}; fix the row or name another format";

/// `id`, `title`, `content`, cut into passages named `page#n`; or a folder of markdown files. Passages carry the fields
/// `page`, the page's id, and `section`, the headings above them joined by ` > `.
pub(super) const ENTRY: CorpusEntry = CorpusEntry {
    name: "pages",
    about: "id, title, content in markdown, cut into passages",
    detect: |row| row.has("content") && !row.has("contents"),
    read,
    whole: Some(&WHOLE_PAGES),
};

/// The same pages, each kept whole under its own id: for reading pages rather than passages. Never read off columns.
pub(super) const WHOLE_PAGES: CorpusEntry = CorpusEntry {
    name: "whole-pages",
    about: "the same, one passage each",
    detect: |_| false,
    read: read_whole,
    whole: None,
};

fn read_whole(mut row: Row<'_>) -> Result<Vec<Passage>, RowFault> {
    let id = row.id("id", FIX)?;
    let title = row.optional_text("title", FIX)?.into_owned();
    let text = row.text("content", FIX)?.into_owned();
    Ok(vec![Passage {
        id,
        title,
        text,
        fields: row.into_fields(),
    }])
}

fn read(row: Row<'_>) -> Result<Vec<Passage>, RowFault> {
    let whole = read_whole(row)?.remove(0);
    let (page, title, mut shared) = (whole.id, whole.title, whole.fields);
    shared.insert("page".to_owned(), page.clone());
    shared.remove("section");
    let pieces = cut(&title, &whole.text).into_iter().enumerate();
    let passage = |(number, piece): (usize, Piece)| {
        let mut fields = shared.clone();
        if !piece.section.is_empty() {
            fields.insert("section".to_owned(), piece.section);
        }
        Passage {
            id: format!("{page}#{number}"),
            title: title.clone(),
            text: piece.text,
            fields,
        }
    };
    Ok(pieces.map(passage).collect())
}

/// A passage is closed once it has this many words.
const TARGET_WORDS: usize = 100;
/// A paragraph is kept whole up to this many words; longer ones are cut at sentence ends.
const MAX_WORDS: usize = 150;

/// A piece of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    /// The headings above it, outermost first, joined by ` > `; empty before the first heading.
    pub(super) section: String,
}

/// Cuts `content` into passages at paragraph and section ends.
///
/// No passage reaches across a heading. Headings stay, without their `#`, as the first line of the passage that follows
/// them; only a first-level heading that repeats the page's title goes, because every passage carries the title. A page
/// without text gives one empty passage, so that its title can still be found.
pub(super) fn cut(title: &str, content: &str) -> Vec<Piece> {
    let mut cutter = Cutter::default();
    for block in blocks(content) {
        match block {
            Block::Heading(1, text) if text == title.trim() => cutter.top(),
            Block::Heading(level, text) => cutter.heading(level, text),
            Block::Paragraph(text) => cutter.paragraph(&text),
        }
    }
    cutter.finish()
}

enum Block<'c> {
    /// Level and text.
    Heading(usize, &'c str),
    Paragraph(String),
}

/// Blank lines and headings separate paragraphs; `#` lines inside code fences are not headings.
fn blocks(content: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    for (line, is_code) in Page::lines(content) {
        let heading = if is_code { None } else { heading(line) };
        let ends_paragraph = heading.is_some() || (line.trim().is_empty() && !is_code);
        if !ends_paragraph {
            paragraph.push(line.trim_end());
            continue;
        }
        flush(&mut paragraph, &mut blocks);
        if let Some((level, text)) = heading {
            blocks.push(Block::Heading(level, text));
        }
    }
    flush(&mut paragraph, &mut blocks);
    blocks
}

fn flush(paragraph: &mut Vec<&str>, blocks: &mut Vec<Block<'_>>) {
    if !paragraph.is_empty() {
        blocks.push(Block::Paragraph(paragraph.join("\n")));
        paragraph.clear();
    }
}

/// `## Text` to its level and text.
fn heading(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    let is_heading = (1..=6).contains(&level) && text.starts_with([' ', '\t']);
    is_heading.then(|| (level, text.trim().trim_end_matches('#').trim_end()))
}

#[derive(Default)]
struct Cutter<'c> {
    passages: Vec<Piece>,
    /// Level and text of the headings above the open passage.
    headings: Vec<(usize, &'c str)>,
    /// Paragraphs of the passage being filled; heading lines come first.
    open: String,
    open_words: usize,
    /// Tells whether the open passage holds nothing but headings, which wait for their text.
    only_headings: bool,
}

impl<'c> Cutter<'c> {
    /// Back to the page itself.
    fn top(&mut self) {
        self.close();
        self.headings.clear();
    }

    fn heading(&mut self, level: usize, text: &'c str) {
        if !self.only_headings {
            self.close();
        }
        self.headings.retain(|&(above, _)| above < level);
        if !text.is_empty() {
            self.headings.push((level, text));
        }
        if text.is_empty() {
            return;
        }
        self.append(text, "\n");
        self.only_headings = true;
    }

    fn paragraph(&mut self, text: &str) {
        let words = count_words(text);
        if words > MAX_WORDS {
            for piece in cut_sentences(text) {
                self.add(&piece, count_words(&piece));
            }
        } else {
            self.add(text, words);
        }
    }

    fn add(&mut self, text: &str, words: usize) {
        if self.open_words > 0 && self.open_words + words > MAX_WORDS {
            self.close();
        }
        let separator = if self.only_headings { "\n" } else { "\n\n" };
        self.append(text, separator);
        self.only_headings = false;
        self.open_words += words;
        if self.open_words >= TARGET_WORDS {
            self.close();
        }
    }

    fn append(&mut self, text: &str, separator: &str) {
        if !self.open.is_empty() {
            self.open.push_str(separator);
        }
        self.open.push_str(text);
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let section = self
                .headings
                .iter()
                .map(|&(_, text)| text)
                .collect::<Vec<_>>()
                .join(" > ");
            self.passages.push(Piece {
                text: std::mem::take(&mut self.open),
                section,
            });
        }
        self.open_words = 0;
        self.only_headings = false;
    }

    fn finish(mut self) -> Vec<Piece> {
        self.close();
        if self.passages.is_empty() {
            self.passages.push(Piece {
                text: String::new(),
                section: String::new(),
            });
        }
        self.passages
    }
}

fn count_words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Pieces of about [`TARGET_WORDS`], closed at sentence ends; a sentence of more than [`MAX_WORDS`] is cut between words.
fn cut_sentences(paragraph: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut open = String::new();
    let mut open_words = 0;
    for sentence in paragraph.split_sentence_bounds().flat_map(cut_words) {
        let words = count_words(sentence);
        if open_words > 0 && open_words + words > TARGET_WORDS {
            pieces.push(open.trim_end().to_owned());
            open.clear();
            open_words = 0;
        }
        open.push_str(sentence);
        open_words += words;
    }
    if !open.trim().is_empty() {
        pieces.push(open.trim_end().to_owned());
    }
    pieces
}

/// The sentence itself, or runs of [`TARGET_WORDS`] words of an overlong one.
fn cut_words(sentence: &str) -> Vec<&str> {
    if count_words(sentence) <= MAX_WORDS {
        return vec![sentence];
    }
    let mut runs = Vec::new();
    let mut start = 0;
    let mut words = 0;
    let mut in_word = false;
    for (at, letter) in sentence.char_indices() {
        let begins_word = !letter.is_whitespace() && !in_word;
        in_word = !letter.is_whitespace();
        if !begins_word {
            continue;
        }
        if words == TARGET_WORDS {
            runs.push(&sentence[start..at]);
            start = at;
            words = 0;
        }
        words += 1;
    }
    runs.push(&sentence[start..]);
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(title: &str, content: &str) -> Vec<String> {
        cut(title, content)
            .into_iter()
            .map(|piece| piece.text)
            .collect()
    }

    #[test]
    fn sections_are_heading_paths() {
        let content = "# Page\n\nIntro.\n\n## History\n\nOld.\n\n### Early years\n\nEarly.\n\n#### Deep\n\nx\n\n\
                       ## Law ##\n\n### Bills\n\n### Acts\n\nActs.\n\n# Page\n\nAgain.\n\n# Other\n\n## Part\n\nPart.";
        let sections = cut("Page", content)
            .into_iter()
            .map(|piece| piece.section)
            .collect::<Vec<_>>();
        let expected = [
            "",
            "History",
            "History > Early years",
            "History > Early years > Deep",
            "Law > Acts",
            "",
            "Other > Part",
        ];
        assert_eq!(sections, expected);
    }

    fn words(count: usize) -> String {
        (0..count)
            .map(|number| format!("w{number}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn sections_do_not_mix_and_headings_stay() {
        let passages = texts(
            "Page",
            "# Page\n\nIntro one.\n\nIntro two.\n\n## History\n\n### Early\n\nText.\n\n## Empty\n",
        );
        assert_eq!(
            passages,
            ["Intro one.\n\nIntro two.", "History\nEarly\nText.", "Empty"]
        );
    }

    #[test]
    fn long_paragraphs_are_cut_at_sentence_ends() {
        let sentence = format!("The {}. ", words(39));
        let passages = texts("T", &sentence.repeat(5));
        assert_eq!(
            passages
                .iter()
                .map(|text| count_words(text))
                .collect::<Vec<_>>(),
            [80, 120]
        );
        assert!(passages.iter().all(|text| text.ends_with('.')));
    }

    #[test]
    fn one_endless_sentence_is_cut_between_words_and_nothing_is_lost() {
        let text = words(420);
        let passages = texts("T", &text);
        assert_eq!(
            passages
                .iter()
                .map(|text| count_words(text))
                .collect::<Vec<_>>(),
            [100, 100, 100, 100, 20]
        );
        assert_eq!(passages.join(" "), text);
    }

    #[test]
    fn a_page_without_text_is_one_passage() {
        assert_eq!(texts("T", "# T\n"), [""]);
        assert_eq!(
            texts("T", "#hashtag is text\n```\n# comment\n\nx\n```"),
            ["#hashtag is text\n```\n# comment\n\nx\n```"]
        );
    }

    #[test]
    fn code_within_a_line_ends_no_section_and_tildes_fence_code() {
        let content = "# T\n\n```x``` is code.\n\n## A\n\n~~~\n# comment\n~~~\n\n## B\n\nb\n";
        let sections = cut("T", content)
            .into_iter()
            .map(|piece| piece.section)
            .collect::<Vec<_>>();
        assert_eq!(sections, ["", "A", "B"]);
    }
}
