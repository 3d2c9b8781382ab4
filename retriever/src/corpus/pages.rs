//! Cuts markdown pages into passages of about a hundred words.

use unicode_segmentation::UnicodeSegmentation;

/// A passage is closed once it has this many words.
const TARGET_WORDS: usize = 100;
/// A paragraph is kept whole up to this many words; longer ones are cut at sentence ends.
const MAX_WORDS: usize = 150;

/// Cuts `content` into passages at paragraph and section ends.
///
/// No passage reaches across a heading. Headings stay, without their `#`, as the first line of the passage that follows
/// them; only a first-level heading that repeats the page's title goes, because every passage carries the title. A page
/// without text gives one empty passage, so that its title can still be found.
pub(super) fn cut(title: &str, content: &str) -> Vec<String> {
    let mut cutter = Cutter::default();
    for block in blocks(content) {
        match block {
            Block::Heading(1, text) if text == title.trim() => cutter.close(),
            Block::Heading(_, text) => cutter.heading(text),
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

/// Blank lines and headings separate paragraphs; `#` lines inside code fences are no headings.
fn blocks(content: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    let mut in_fence = false;
    for line in content.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        let heading = if in_fence { None } else { heading(line) };
        let ends_paragraph = heading.is_some() || (line.trim().is_empty() && !in_fence);
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
struct Cutter {
    passages: Vec<String>,
    /// Paragraphs of the passage being filled; heading lines come first.
    open: String,
    open_words: usize,
    /// Whether the open passage holds nothing but headings, which wait for their text.
    only_headings: bool,
}

impl Cutter {
    fn heading(&mut self, text: &str) {
        if !self.only_headings {
            self.close();
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
            self.passages.push(std::mem::take(&mut self.open));
        }
        self.open_words = 0;
        self.only_headings = false;
    }

    fn finish(mut self) -> Vec<String> {
        self.close();
        if self.passages.is_empty() {
            self.passages.push(String::new());
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

    fn words(count: usize) -> String {
        (0..count).map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sections_do_not_mix_and_headings_stay() {
        let passages =
            cut("Page", "# Page\n\nIntro one.\n\nIntro two.\n\n## History\n\n### Early\n\nText.\n\n## Empty\n");
        assert_eq!(passages, ["Intro one.\n\nIntro two.", "History\nEarly\nText.", "Empty"]);
    }

    #[test]
    fn long_paragraphs_are_cut_at_sentence_ends() {
        let sentence = format!("The {}. ", words(39));
        let passages = cut("T", &sentence.repeat(5));
        assert_eq!(passages.iter().map(|text| count_words(text)).collect::<Vec<_>>(), [80, 120]);
        assert!(passages.iter().all(|text| text.ends_with('.')));
    }

    #[test]
    fn one_endless_sentence_is_cut_between_words_and_nothing_is_lost() {
        let text = words(420);
        let passages = cut("T", &text);
        assert_eq!(passages.iter().map(|text| count_words(text)).collect::<Vec<_>>(), [100, 100, 100, 100, 20]);
        assert_eq!(passages.join(" "), text);
    }

    #[test]
    fn a_page_without_text_is_one_passage() {
        assert_eq!(cut("T", "# T\n"), [""]);
        assert_eq!(
            cut("T", "#hashtag is text\n```\n# comment\n\nx\n```"),
            ["#hashtag is text\n```\n# comment\n\nx\n```"]
        );
    }
}
