//! Functions beyond the three published ones: paging through a page, finding in it, ordering pages.

use forage_contracts::Passage;
use forage_contracts::retriever::{Query, Retriever, RetrieverError};
use forage_retriever::Bm25Retriever;
use serde_json::{Map, Value, json};

use super::{Failure, Outcome, PageTools, Returned, raise, text, wrong_type};
use crate::ask::{self, Waiting};
use crate::chat::tools::{Kind, Parameter, Tool};

/// Opens a page, part by part.
pub(super) const OPEN_TOOL: &str = "open_page";
/// Finds a text in a page.
pub(super) const FIND_TOOL: &str = "find_in_page";
/// Orders pages by what they say of a query.
pub(super) const RANK_TOOL: &str = "rank_pages";

/// Characters of a part of a page.
const PART_CHARS: usize = 2_000;
/// Characters shown on either side of what is found in a page.
const CONTEXT_CHARS: usize = 150;
/// Most places shown of what is found in a page.
const MAX_PLACES: usize = 10;
/// Most pages put into order at a time.
const MAX_RANKED: usize = 100;

const OPEN_ABOUT: &str =
    "Returns a part of a page, 2000 characters each, and says how many parts there are.";
const FIND_ABOUT: &str =
    "Lists the places where a text stands in a page, each with what stands around it.";
const RANK_ABOUT: &str = "Orders pages by what their texts say of a query, best first.";

/// The functions as the chat template shows them.
pub(super) fn functions(name: impl Fn(&str) -> String) -> [Tool; 3] {
    let parameter = |name, about, kind, required| Parameter {
        name,
        about,
        kind,
        required,
    };
    let page = || {
        parameter(
            "page_id",
            "The page, as a search names it.",
            Kind::Text,
            true,
        )
    };
    let tool = |tool, about: &str, parameters| Tool {
        name: name(tool),
        about: about.to_owned(),
        parameters,
    };
    let part = parameter("part", "Which part, from 1.", Kind::Integer, false);
    let wanted = parameter("text", "What to find, in any case.", Kind::Text, true);
    let query = parameter("query", "What the pages should speak of.", Kind::Text, true);
    let pages = parameter("page_ids", "The pages.", Kind::Texts, true);
    [
        tool(OPEN_TOOL, OPEN_ABOUT, vec![page(), part]),
        tool(FIND_TOOL, FIND_ABOUT, vec![page(), wanted]),
        tool(RANK_TOOL, RANK_ABOUT, vec![query, pages]),
    ]
}

impl PageTools {
    pub(super) fn open(&self, arguments: &Map<String, Value>) -> Result<Outcome, Failure> {
        let id = text(OPEN_TOOL, arguments, "page_id")?;
        let first = Value::from(1);
        let part = arguments.get("part").unwrap_or(&first);
        if !(part.is_i64() || part.is_u64()) {
            return Err(wrong_type(OPEN_TOOL, "part", "int", part));
        }
        let page = self.page(id)?;
        let parts = parts(page.content);
        let index = part.as_u64().and_then(|part| part.checked_sub(1));
        let Some(found) = index.and_then(|index| parts.get(index as usize)) else {
            return raise(
                "ValueError",
                format!("{id} has parts 1 to {}, and no part {part}", parts.len()),
            );
        };
        let value = format!("[part {part} of {}]\n{found}", parts.len());
        let returned = Some(Returned::Text((*found).to_owned()));
        Ok(Outcome {
            size: found.chars().count(),
            found: vec![id.to_owned()],
            value: Value::String(value),
            returned,
        })
    }

    pub(super) fn find(&self, arguments: &Map<String, Value>) -> Result<Outcome, Failure> {
        let id = text(FIND_TOOL, arguments, "page_id")?;
        let wanted = text(FIND_TOOL, arguments, "text")?;
        if wanted.trim().is_empty() {
            return raise("ValueError", "text is empty");
        }
        let page = self.page(id)?;
        let places = places(page.content, wanted.trim()).map_err(|_| {
            let length = wanted.len();
            Failure::Raise(
                "ValueError",
                format!("text is too long to be looked for, {length} bytes; write less of it"),
            )
        })?;
        let returned = (!places.is_empty()).then(|| Returned::Text(places.join("\n")));
        Ok(Outcome {
            size: places.len(),
            found: vec![id.to_owned()],
            value: json!(places),
            returned,
        })
    }

    pub(super) async fn rank(&self, arguments: &Map<String, Value>) -> Result<Outcome, Failure> {
        let query = text(RANK_TOOL, arguments, "query")?;
        ask::check(query)?;
        let given = arguments.get("page_ids").unwrap_or(&Value::Null);
        let wrong = || wrong_type(RANK_TOOL, "page_ids", "list of str", given);
        let ids = given.as_array().ok_or_else(wrong)?.iter().enumerate();
        // What a search found is a list of dictionaries.
        let ids = ids.map(|(place, id)| {
            let wrong = || wrong_type(RANK_TOOL, &format!("page_ids[{place}]"), "str", id);
            id.as_str().ok_or_else(wrong)
        });
        let ids: Vec<&str> = ids.collect::<Result<_, Failure>>()?;
        if ids.len() > MAX_RANKED {
            return raise(
                "ValueError",
                format!(
                    "{} pages; at most {MAX_RANKED} are put into order",
                    ids.len()
                ),
            );
        }
        let mut pages: Vec<Passage> = Vec::with_capacity(ids.len());
        for id in ids {
            let page = self.page(id)?;
            if pages.iter().all(|known| known.id != id) {
                pages.push(Passage::new(id, page.title, page.content));
            }
        }
        let order: Vec<String> = pages.iter().map(|page| page.id.clone()).collect();
        let mut ranked: Vec<String> = Vec::with_capacity(order.len());
        if !pages.is_empty() {
            let index = Bm25Retriever::in_memory(pages).map_err(RetrieverError::from)?;
            let waiting = Waiting::begin();
            let query = waiting.asks(Query::new(query));
            let hits = index.search(&[query], order.len()).await?;
            ranked.extend(hits.into_iter().flatten().map(|hit| hit.id));
        }
        // Those that share no word with the query keep their order at the end.
        let rest: Vec<String> = order
            .into_iter()
            .filter(|id| !ranked.contains(id))
            .collect();
        ranked.extend(rest);
        Ok(Outcome {
            size: ranked.len(),
            found: ranked.clone(),
            value: json!(ranked),
            returned: None,
        })
    }
}

/// A page in parts of about [`PART_CHARS`] characters that end between words where there is a space.
fn parts(content: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = content;
    while let Some((limit, _)) = rest.char_indices().nth(PART_CHARS) {
        let end = rest[..limit]
            .rfind(char::is_whitespace)
            .filter(|&end| end > 0)
            .unwrap_or(limit);
        let (part, after) = rest.split_at(end);
        parts.push(part);
        rest = after.trim_start();
    }
    if !rest.is_empty() || parts.is_empty() {
        parts.push(rest);
    }
    parts
}

/// What stands around each place of `wanted`, in any case; places that overlap are one, of at most [`PART_CHARS`] characters.
fn places(content: &str, wanted: &str) -> Result<Vec<String>, regex::Error> {
    let pattern = regex::RegexBuilder::new(&regex::escape(wanted))
        .case_insensitive(true)
        .build()?;
    let before = |at: usize| {
        content[..at]
            .char_indices()
            .rev()
            .take(CONTEXT_CHARS)
            .last()
            .map_or(at, |(place, _)| place)
    };
    let after = |at: usize| {
        content[at..]
            .char_indices()
            .nth(CONTEXT_CHARS)
            .map_or(content.len(), |(place, _)| at + place)
    };
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for found in pattern.find_iter(content) {
        let (start, end) = (before(found.start()), after(found.end()));
        let last = spans
            .last_mut()
            .filter(|last| start <= last.1 && content[last.0..end].chars().count() <= PART_CHARS);
        if let Some(last) = last {
            last.1 = end;
        } else if spans.len() == MAX_PLACES {
            break;
        } else {
            spans.push((start, end));
        }
    }
    let texts = spans.into_iter().map(|(start, end)| &content[start..end]);
    Ok(texts.map(|text| text.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_the_whole_page_and_end_between_words() {
        let page = "word ".repeat(1_500);
        let found = parts(&page);
        assert!(found.len() > 3 && found.iter().all(|part| part.chars().count() <= PART_CHARS));
        assert_eq!(
            found
                .iter()
                .map(|part| part.split_whitespace().count())
                .sum::<usize>(),
            1_500
        );
        assert_eq!(parts(""), [""]);
        let solid = "é".repeat(PART_CHARS + 1);
        assert_eq!(
            parts(&solid)
                .iter()
                .map(|part| part.chars().count())
                .collect::<Vec<_>>(),
            [PART_CHARS, 1]
        );
    }

    #[test]
    fn places_are_found_in_any_case_with_what_stands_around_them() {
        let page = format!(
            "{}Ärger in VELM today{}velm.{}",
            "x ".repeat(200),
            " y".repeat(300),
            " z".repeat(10)
        );
        let found = places(&page, "velm").unwrap();
        assert_eq!(found.len(), 2);
        assert!(
            found[0].contains("Ärger in VELM today")
                && found[1].starts_with('y')
                && found[1].contains("velm.")
        );
        assert!(places(&page, "(velm").unwrap().is_empty());
        assert_eq!(
            places("velm velm velm", "velm").unwrap(),
            ["velm velm velm"]
        );
    }

    #[test]
    fn a_text_that_stands_everywhere_does_not_show_the_page() {
        let page = "é".repeat(100_000);
        let found = places(&page, "é").unwrap();
        assert_eq!(found.len(), MAX_PLACES);
        assert!(
            found
                .iter()
                .all(|place| place.chars().count() <= PART_CHARS)
        );
        let long = page.repeat(6);
        assert!(places(&long, &long).is_err(), "it stands there");
    }
}
