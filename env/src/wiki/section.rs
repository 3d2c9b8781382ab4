//! Sections of a page.
//!
//! As the wiki search environments publish them: every line that begins with `#` is a heading, a section's id is the page's
//! id, a colon and the heading in lower case with underscores for spaces, and a section ends at the next heading of any level.
//! So the text of a section with subsections is its introduction, and of two headings with one name only the first can be
//! read. `SectionMode::Subtree` fixes both.

use std::collections::HashMap;
use std::ops::Range;

use forage_contracts::retriever::RetrieverError;
use serde::{Deserialize, Serialize};

use super::{Page, Pages};

/// The section that is the whole page.
pub(crate) const FULL: &str = "full";
/// Its name.
pub(crate) const FULL_NAME: &str = "Full Page";

/// The definition of a section.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SectionMode {
    /// A heading up to the next heading of any level; `#` lines inside code fences are headings too.
    #[default]
    WikiSearch,
    /// A heading up to the next one of its level or above, so that subsections belong to it. Headings after the first of one
    /// name are told apart by `_2`, `_3`, ...; `#` lines inside code fences are text.
    Subtree,
}

/// A section as listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Section {
    /// The argument of `read_section`.
    #[serde(rename = "section_id")]
    pub id: String,
    /// The heading.
    #[serde(rename = "section_name")]
    pub name: String,
}

/// A section and where it stands in the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The part of a section id after the colon.
    pub key: String,
    /// The heading.
    pub name: String,
    /// Bytes of the content, from the heading's line on.
    pub range: Range<usize>,
}

/// A heading's line.
struct Heading<'a> {
    level: usize,
    name: &'a str,
    start: usize,
}

/// The sections of `content` in order; none when it has no heading.
pub(crate) fn spans(content: &str, mode: SectionMode) -> Vec<Span> {
    let headings = headings(content, mode);
    let mut used = HashMap::new();
    let mut spans = Vec::with_capacity(headings.len());
    for (number, heading) in headings.iter().enumerate() {
        let later = &headings[number + 1..];
        let next = match mode {
            SectionMode::WikiSearch => later.first(),
            SectionMode::Subtree => later.iter().find(|later| later.level <= heading.level),
        };
        let end = next.map_or(content.len(), |next| next.start);
        let key = match mode {
            SectionMode::WikiSearch => key(heading.name),
            SectionMode::Subtree => distinct(&key(heading.name), &mut used),
        };
        spans.push(Span {
            key,
            name: heading.name.to_owned(),
            range: heading.start..end,
        });
    }
    spans
}

/// The list `view_sections` gives.
pub(crate) fn list(page: &Page<'_>, mode: SectionMode) -> Vec<Section> {
    let id = |key: &str| format!("{}:{key}", page.id);
    let spans = spans(page.content, mode);
    if spans.is_empty() {
        return vec![Section {
            id: id(FULL),
            name: FULL_NAME.to_owned(),
        }];
    }
    spans
        .into_iter()
        .map(|span| Section {
            id: id(&span.key),
            name: span.name,
        })
        .collect()
}

/// The page and the key that the id of a section means. Ids of pages and names of sections may have colons too: the longest id of a
/// page with the section is meant, and of any page where none has it.
///
/// # Errors
/// When the index of pages is damaged.
pub(crate) fn meant<'a, 'b>(
    pages: &'a dyn Pages,
    id: &'b str,
    mode: SectionMode,
) -> Result<Option<(Page<'a>, &'b str)>, RetrieverError> {
    let mut longest = None;
    for (colon, _) in id.rmatch_indices(':') {
        let Some(page) = pages.page(&id[..colon])? else {
            continue;
        };
        let key = &id[colon + 1..];
        if read(&page, key, mode).is_some() {
            return Ok(Some((page, key)));
        }
        longest = longest.or(Some((page, key)));
    }
    Ok(longest)
}

/// The text of the section `key`, its heading's line first; the first when several have that key.
///
/// As published, all that goes is the line end before the next heading; a subtree is without blank lines at its end.
pub(crate) fn read<'a>(page: &Page<'a>, key: &str, mode: SectionMode) -> Option<&'a str> {
    if key == FULL {
        return Some(page.content);
    }
    let span = spans(page.content, mode)
        .into_iter()
        .find(|span| span.key == key)?;
    let is_last = span.range.end == page.content.len();
    let text = &page.content[span.range];
    Some(match mode {
        SectionMode::WikiSearch if is_last => text,
        SectionMode::WikiSearch => text.strip_suffix('\n').unwrap_or(text),
        SectionMode::Subtree => text.trim_end_matches(['\n', '\r']),
    })
}

/// A heading as part of a section id.
fn key(name: &str) -> String {
    name.to_lowercase().replace(' ', "_")
}

/// `key` itself, or with the first number that makes it new.
fn distinct(key: &str, used: &mut HashMap<String, usize>) -> String {
    let mut candidate = key.to_owned();
    while used.contains_key(&candidate) || candidate == FULL {
        let count = used.entry(key.to_owned()).or_insert(1);
        *count += 1;
        candidate = format!("{key}_{count}");
    }
    used.insert(candidate.clone(), 1);
    candidate
}

fn headings(content: &str, mode: SectionMode) -> Vec<Heading<'_>> {
    let mut found = Vec::new();
    let mut start = 0;
    for (line, is_code) in Page::lines(content) {
        let text = line.trim_end_matches(['\n', '\r']);
        let counts = mode == SectionMode::WikiSearch || !is_code;
        if text.starts_with('#') && counts {
            let name = text.trim_start_matches('#');
            found.push(Heading {
                level: text.len() - name.len(),
                name: name.trim(),
                start,
            });
        }
        start += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Velm\n\nA village.\n\n## History\n\nOld.\n\n### Early Years\n\nEarly.\n\n## Notes\n\n\
                        ```\n# not a heading\n```\n\n## History\n\nAgain.\n";

    fn page(content: &'static str) -> Page<'static> {
        Page {
            id: "velm",
            title: "Velm",
            content,
        }
    }

    fn ids(content: &'static str, mode: SectionMode) -> Vec<String> {
        list(&page(content), mode)
            .into_iter()
            .map(|section| section.id)
            .collect()
    }

    #[test]
    fn sections_end_at_any_heading_as_published() {
        let mode = SectionMode::WikiSearch;
        let expected = [
            "velm",
            "history",
            "early_years",
            "notes",
            "not_a_heading",
            "history",
        ];
        assert_eq!(ids(PAGE, mode), expected.map(|key| format!("velm:{key}")));
        assert_eq!(list(&page(PAGE), mode)[2].name, "Early Years");
        assert_eq!(
            read(&page(PAGE), "history", mode),
            Some("## History\n\nOld.\n")
        );
        assert_eq!(read(&page(PAGE), "notes", mode), Some("## Notes\n\n```"));
        assert_eq!(
            read(&page(PAGE), "velm", mode),
            Some("# Velm\n\nA village.\n")
        );
        assert_eq!(
            read(&page(PAGE), "not_a_heading", mode),
            Some("# not a heading\n```\n")
        );
        assert_eq!(read(&page("# A\nx\n"), "a", mode), Some("# A\nx\n"));
        assert_eq!(read(&page(PAGE), "early years", mode), None);
    }

    #[test]
    fn a_subtree_has_its_subsections_and_duplicates_have_numbers() {
        let mode = SectionMode::Subtree;
        let expected = ["velm", "history", "early_years", "notes", "history_2"];
        assert_eq!(ids(PAGE, mode), expected.map(|key| format!("velm:{key}")));
        assert_eq!(read(&page(PAGE), "velm", mode), Some(PAGE.trim_end()));
        assert_eq!(
            read(&page(PAGE), "history", mode),
            Some("## History\n\nOld.\n\n### Early Years\n\nEarly.")
        );
        assert_eq!(
            read(&page(PAGE), "history_2", mode),
            Some("## History\n\nAgain.")
        );
        assert_eq!(
            read(&page(PAGE), "notes", mode),
            Some("## Notes\n\n```\n# not a heading\n```")
        );
        let clash = "# A 2\nx\n# A\ny\n# A\nz\n# A\nw\n# Full\nv";
        assert_eq!(
            ids(clash, mode),
            ["velm:a_2", "velm:a", "velm:a_3", "velm:a_4", "velm:full_2"]
        );
    }

    #[test]
    fn a_page_without_headings_is_one_section() {
        for mode in [SectionMode::WikiSearch, SectionMode::Subtree] {
            let listed = list(&page("No heading.\n"), mode);
            assert_eq!(
                listed,
                [Section {
                    id: "velm:full".to_owned(),
                    name: "Full Page".to_owned()
                }]
            );
            assert_eq!(
                read(&page("No heading.\n"), "full", mode),
                Some("No heading.\n")
            );
            assert_eq!(read(&page("No heading.\n"), "other", mode), None);
            assert_eq!(ids("", mode), ["velm:full"]);
        }
    }
}
