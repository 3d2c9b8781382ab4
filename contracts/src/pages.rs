//! Whole pages: what environments that read them stand on.

use crate::retriever::RetrieverError;

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// Unique within the wiki.
    pub id: &'a str,
    /// May be empty.
    pub title: &'a str,
    /// Markdown.
    pub content: &'a str,
}

impl<'a> Page<'a> {
    /// The lines of a markdown text with their line ends, each with whether a fence of code is open after it.
    pub fn lines(content: &'a str) -> impl Iterator<Item = (&'a str, bool)> {
        let mut fence = None;
        content.split_inclusive('\n').map(move |line| {
            toggle(&mut fence, line);
            (line, fence.is_some())
        })
    }
}

/// Opens a code fence, or closes the one that is open: by the same mark, at least as long. Backticks followed by others in their line
/// are code within text.
fn toggle(fence: &mut Option<(char, usize)>, line: &str) {
    let line = line.trim_start();
    let Some(mark) = line.chars().next().filter(|mark| matches!(mark, '`' | '~')) else {
        return;
    };
    let length = line.chars().take_while(|&letter| letter == mark).count();
    let behind = &line[length..];
    match *fence {
        None if length >= 3 && (mark == '~' || !behind.contains(mark)) => {
            *fence = Some((mark, length));
        }
        Some((open, least)) if open == mark && length >= least && behind.trim().is_empty() => {
            *fence = None;
        }
        _ => {}
    }
}

/// A page that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The page's id.
    pub id: String,
    /// The page's title.
    pub title: String,
    /// The retriever's score.
    pub score: f32,
}

/// The part of pages that a query is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePart {
    /// Titles alone.
    Title,
    /// Whole pages.
    Whole,
}

/// Pages by id, and a search over them.
pub trait Pages: Send + Sync {
    /// The page with this id.
    ///
    /// # Errors
    /// Only faults of the infrastructure.
    fn page(&self, id: &str) -> Result<Option<Page<'_>>, RetrieverError>;

    /// Gets ready to find pages by one of their parts, which may take long the first time.
    ///
    /// # Errors
    /// When the pages cannot be indexed.
    fn prepare(&self, part: PagePart) -> Result<(), RetrieverError>;

    /// The best `count` pages, best first, equal scores by id.
    ///
    /// # Errors
    /// Only faults of the infrastructure; a query without a match finds nothing.
    fn find(&self, part: PagePart, query: &str, count: usize)
    -> Result<Vec<Found>, RetrieverError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_closed_by_its_own_mark_and_code_within_text_opens_none() {
        let code = |content| {
            Page::lines(content)
                .filter(|(_, is_code)| *is_code)
                .map(|(line, _)| line.trim_end())
                .collect::<Vec<&str>>()
        };
        assert_eq!(code("a\n```rust\n# b\n```\n# c"), ["```rust", "# b"]);
        assert_eq!(code("~~~\n```\n# b\n~~~~\n# c\n"), ["~~~", "```", "# b"]);
        assert_eq!(code("````\n```\n````"), ["````", "```"]);
        assert!(code("```a``` is code\n# b\n").is_empty());
    }
}
