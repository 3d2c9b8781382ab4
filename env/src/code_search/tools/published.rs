//! The three published functions: finding pages, listing the sections of one, reading a section.

use forage_sandbox::ToolSpec;
use serde_json::{Map, Value, json};

use super::super::settings::{Flavour, FunctionSettings};
use super::{Failure, Outcome, PageTools, Returned, raise, text, wrong_type};
use crate::chat::tools::{Kind, Parameter, Tool};
use crate::wiki::section;

/// Finds pages: its calls are an episode's searches.
pub(crate) const SEARCH_TOOL: &str = "search_pages";
/// Lists the sections of a page.
pub(crate) const VIEW_TOOL: &str = "view_sections";
/// Reads a section.
pub(crate) const READ_TOOL: &str = "read_section";

/// Most pages one search gives.
const MAX_PAGES: u64 = 100;

/// The functions as the chat template shows them.
pub(super) fn functions(name: impl Fn(&str) -> String, settings: &FunctionSettings) -> [Tool; 3] {
    let found = "Finds pages and returns their page_id and title, best first.";
    let mut search = Tool::of_one(name(SEARCH_TOOL), found, ("query", "What to search for."));
    if settings.takes_n {
        let about = "How many pages.";
        search.parameters.push(Parameter {
            name: "n",
            about,
            kind: Kind::Integer,
            required: false,
        });
    }
    let listed = "Lists the sections of a page with their section_id and section_name.";
    let text = "Returns the text of a section.";
    [
        search,
        Tool::of_one(
            name(VIEW_TOOL),
            listed,
            ("page_id", "The page, as a search names it."),
        ),
        Tool::of_one(
            name(READ_TOOL),
            text,
            ("section_id", "The section; PAGE_ID:full is the whole page."),
        ),
    ]
}

/// The functions as programs call them.
pub(super) fn specs(name: impl Fn(&str) -> String, settings: &FunctionSettings) -> [ToolSpec; 3] {
    let hits = if settings.similarity {
        ", \"similarity\": ..."
    } else {
        ""
    };
    let search_doc = format!(
        "Finds pages, best first. Returns a list of {{\"page_id\": ..., \"title\": ...{hits}}}, at most {MAX_PAGES}."
    );
    let mut search = ToolSpec::new(&name(SEARCH_TOOL), &["query"], &search_doc);
    if settings.takes_n {
        search = search.with_default("n", settings.top_k.into());
    }
    let view = "Lists the sections of a page. Returns a list of {\"section_id\": ..., \"section_name\": ...}.";
    let read = "Returns the text of a section. \"PAGE_ID:full\" is the whole page.";
    [
        search,
        ToolSpec::new(&name(VIEW_TOOL), &["page_id"], view),
        ToolSpec::new(&name(READ_TOOL), &["section_id"], read),
    ]
}

impl PageTools {
    pub(super) async fn search(&self, arguments: &Map<String, Value>) -> Result<Outcome, Failure> {
        let query = text(SEARCH_TOOL, arguments, "query")?;
        let count = match arguments.get("n") {
            None => self.settings.top_k as u64,
            Some(n) => match n.as_u64() {
                Some(0) => return raise("ValueError", "n must be at least 1"),
                Some(count) => count.min(MAX_PAGES),
                None if n.is_i64() => return raise("ValueError", "n must be at least 1"),
                None => return Err(wrong_type(SEARCH_TOOL, "n", "int", n)),
            },
        };
        let found = self.finder.find(query, count as usize).await?;
        let mut value = Vec::with_capacity(found.len());
        let (mut ids, mut titles) = (
            Vec::with_capacity(found.len()),
            Vec::with_capacity(found.len()),
        );
        for page in found {
            let mut hit = json!({"page_id": page.id, "title": page.title});
            if self.settings.similarity {
                hit["similarity"] = json!(similarity(page.score));
            }
            value.push(hit);
            ids.push(page.id);
            titles.push(page.title);
        }
        let returned = (!titles.is_empty()).then_some(Returned::Titles(titles));
        Ok(Outcome {
            size: ids.len(),
            found: ids,
            value: Value::Array(value),
            returned,
        })
    }

    pub(super) fn view(&self, arguments: &Map<String, Value>) -> Result<Outcome, Failure> {
        let id = text(VIEW_TOOL, arguments, "page_id")?;
        let page = self.page(id)?;
        let listed: Vec<Value> = section::list(&page, self.settings.section_mode)
            .into_iter()
            .map(|section| json!({"section_id": section.id, "section_name": section.name}))
            .collect();
        let returned = Some(Returned::Names(id.to_owned()));
        Ok(Outcome {
            size: listed.len(),
            found: vec![id.to_owned()],
            value: Value::Array(listed),
            returned,
        })
    }

    pub(super) fn read(&self, arguments: &Map<String, Value>) -> Result<Outcome, Failure> {
        let section_id = text(READ_TOOL, arguments, "section_id")?;
        let format = "Invalid section_id format. Expected: page_id:section_name";
        let Some((shortest, _)) = section_id.split_once(':') else {
            return raise("ValueError", format);
        };
        let (wiki, mode) = (self.finder.wiki(), self.settings.section_mode);
        let meant = section::meant(wiki.as_ref(), section_id, mode)?;
        let text = meant.and_then(|(page, key)| section::read(&page, key, mode));
        // The id of a page alone, which may have colons.
        if text.is_none() && wiki.page(section_id)?.is_some() {
            return raise("ValueError", format);
        }
        let (page, key) = meant.ok_or_else(|| self.no_page(shortest))?;
        let Some(text) = text else {
            let message = format!("Section not found: {section_id}");
            return match self.settings.flavour {
                Flavour::V0 => raise("ValueError", message),
                // A text of no section: nothing came back.
                Flavour::V1 => Ok(Outcome {
                    value: Value::String(message),
                    found: Vec::new(),
                    size: 0,
                    returned: None,
                }),
            };
        };
        let returned = Some(Returned::Section(page.id.to_owned(), key.to_owned()));
        let found = vec![section_id.to_owned()];
        Ok(Outcome {
            size: text.chars().count(),
            found,
            value: Value::String(text.to_owned()),
            returned,
        })
    }
}

/// A score of any scale as a number in `[0, 1)`, with four decimals.
fn similarity(score: f32) -> f64 {
    let score = f64::from(score.max(0.0));
    (score / (1.0 + score) * 10_000.0).round() / 10_000.0
}
