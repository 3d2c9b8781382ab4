//! Pages: an entity's facts in sections.

use forage_contracts::{Passage, Split};

use super::entity::{Entity, World, stream};
use super::facts::{Value, mention};
use super::hash::{happens, hash, pick};
use super::lists::FILLERS;
use super::schema::{Kind, Layout, Relation};

/// Headings of the facts that are told again: none twice on a page, where a reader of sections would find the first alone.
const AGAIN: [&str; 4] = [
    "In other words",
    "Told again",
    "As others put it",
    "Also recorded",
];

/// One section of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// Heading, without marks.
    pub heading: &'static str,
    /// Two or three sentences, 12 to 30 words.
    pub text: String,
}

/// One page of the encyclopedia.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Unique in the world: the title in lower case with underscores.
    pub id: String,
    /// Name of the entity the page is about.
    pub title: String,
    /// The kind of the entity.
    pub(crate) kind: Kind,
    /// Split of the entity.
    pub split: Split,
    /// Two to four sections, and one for each fact that is told again.
    pub sections: Vec<Section>,
}

impl Page {
    /// The page as markdown: `# Title`, then each section under `## Heading`.
    pub(crate) fn content(&self) -> String {
        let mut out = format!("# {}\n", self.title);
        for section in &self.sections {
            out.push_str("\n## ");
            out.push_str(section.heading);
            out.push_str("\n\n");
            out.push_str(&section.text);
            out.push('\n');
        }
        out
    }

    /// The sections as passages: id `page#n` counted from 0, the page's title, the section's text.
    pub(crate) fn passages(self) -> impl Iterator<Item = Passage> {
        let Self {
            id,
            title,
            sections,
            ..
        } = self;
        sections
            .into_iter()
            .enumerate()
            .map(move |(number, section)| {
                Passage::new(format!("{id}#{number}"), title.clone(), section.text)
            })
    }
}

impl World {
    /// The page with this index.
    ///
    /// # Panics
    /// When `index` is not below the number of pages, like indexing a slice.
    pub(crate) fn page(&self, index: u64) -> Page {
        assert!(
            index < self.pages_count(),
            "page {index} of a world of {} pages",
            self.pages_count()
        );
        self.page_of(self.entity(index))
    }

    /// All pages in order of their index.
    pub(crate) fn pages(&self) -> impl Iterator<Item = Page> + '_ {
        (0..self.pages_count()).map(|index| self.page(index))
    }

    /// All passages, page after page: the corpus to search.
    pub fn passages(&self) -> impl Iterator<Item = Passage> + '_ {
        self.pages().flat_map(Page::passages)
    }

    /// The page of an entity.
    pub(super) fn page_of(&self, entity: Entity) -> Page {
        let title = self.name(entity);
        let told = self.layout(entity).iter().map(|(heading, facts)| Section {
            heading,
            text: self.section_text(entity, &title, facts),
        });
        let retold = AGAIN.into_iter().zip(self.retold(entity));
        let again = retold.map(|(heading, relation)| Section {
            heading,
            text: self.retold_text(entity, &title, relation),
        });
        let sections = told.chain(again).collect();
        Page {
            id: page_id(&title),
            title,
            kind: entity.kind,
            split: entity.split,
            sections,
        }
    }

    /// Id of the passage that tells `relation` of an entity with this name.
    pub(super) fn passage_id(&self, entity: Entity, name: &str, relation: Relation) -> String {
        let number = self
            .layout(entity)
            .iter()
            .position(|(_, facts)| facts.contains(&relation))
            .unwrap_or(0);
        format!("{}#{number}", page_id(name))
    }

    /// Id of the passage that tells it again, where there is one.
    pub(super) fn retold_id(
        &self,
        entity: Entity,
        name: &str,
        relation: Relation,
    ) -> Option<String> {
        let place = self.retold(entity).position(|told| told == relation)?;
        let number = self.layout(entity).len() + place;
        Some(format!("{}#{number}", page_id(name)))
    }

    /// The facts of an entity that are told again.
    fn retold(&self, entity: Entity) -> impl Iterator<Item = Relation> {
        let draw = hash(self.key, stream::RETOLD, entity.number());
        let again = happens(draw, self.spec().difficulty.retold);
        let facts = entity.kind.relations();
        facts.filter(move |relation| again && !relation.wording().phrase_other.is_empty())
    }

    fn layout(&self, entity: Entity) -> Layout {
        let layouts = entity.kind.layouts();
        layouts[pick(
            hash(self.key, stream::LAYOUT, entity.number()),
            layouts.len() as u64,
        ) as usize]
    }

    /// Every section names its entity exactly twice, so that keyword search decides by the keyword.
    fn section_text(&self, entity: Entity, name: &str, facts: &[Relation]) -> String {
        let subject = mention(entity.kind, name);
        let mut text = String::with_capacity(192);
        for (place, &relation) in facts.iter().enumerate() {
            let draw = hash(
                hash(self.key, stream::SENTENCE, relation as u64),
                0,
                entity.number(),
            );
            let told = self.told(entity, relation);
            if place == 1 && facts.len() == 3 {
                let pronoun = self.pronoun(entity);
                push_sentence(&mut text, opening_template(relation, draw), pronoun, &told);
            } else {
                let templates = relation.wording().facts;
                let template = templates[pick(draw, templates.len() as u64) as usize];
                push_sentence(&mut text, template, &subject, &told);
            }
        }
        if facts.len() == 1 {
            self.push_filler(&mut text, entity, &subject, (stream::SENTENCE, facts[0]));
        }
        text
    }

    /// A fact without its keyword; the entity is named twice here too.
    fn retold_text(&self, entity: Entity, name: &str, relation: Relation) -> String {
        let subject = mention(entity.kind, name);
        let mut phrase = String::new();
        fill(&mut phrase, relation.wording().phrase_other, &subject, "");
        let mut text = String::with_capacity(128);
        let told = self.told(entity, relation);
        push_sentence(&mut text, "{e} is {v}.", &phrase, &told);
        self.push_filler(&mut text, entity, &subject, (stream::RETOLD, relation));
        text
    }

    /// The value of a fact as a sentence has it.
    fn told(&self, entity: Entity, relation: Relation) -> String {
        match self.value(entity, relation) {
            Value::Entity(other) => mention(other.kind, &self.name(other)),
            Value::Text(told) => told,
        }
    }

    /// Appends a sentence without a fact to the only one that tells some.
    fn push_filler(
        &self,
        text: &mut String,
        entity: Entity,
        subject: &str,
        (stream, fact): (u64, Relation),
    ) {
        let fillers = FILLERS[entity.kind as usize];
        let draw = hash(self.key, stream, entity.number() ^ (fact as u64) << 56);
        let filler = fillers[pick(draw, fillers.len() as u64) as usize];
        push_sentence(text, filler, subject, "");
    }

    fn pronoun(&self, entity: Entity) -> &'static str {
        match (
            entity.kind,
            hash(self.key, stream::PRONOUN, entity.number()) & 1,
        ) {
            (Kind::Person, 0) => "she",
            (Kind::Person, _) => "he",
            _ => "it",
        }
    }
}

/// A sentence of the relation that opens with its entity, so that a pronoun can stand there.
fn opening_template(relation: Relation, draw: u64) -> &'static str {
    let opens = |template: &&&'static str| template.starts_with("{e} ");
    let facts = relation.wording().facts;
    let count = facts.iter().filter(opens).count() as u64;
    facts
        .iter()
        .filter(opens)
        .nth(pick(draw, count) as usize)
        .copied()
        .unwrap_or(facts[0])
}

/// Appends a sentence with its places filled and its first letter a capital.
fn push_sentence(out: &mut String, template: &str, entity: &str, value: &str) {
    if !out.is_empty() {
        out.push(' ');
    }
    let start = out.len();
    fill(out, template, entity, value);
    out[start..=start].make_ascii_uppercase();
}

/// Appends `template` with `{e}` and `{x}` replaced by `entity` and `{v}` by `value`.
pub(super) fn fill(out: &mut String, template: &str, entity: &str, value: &str) {
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        out.push_str(if rest[at..].starts_with("{v}") {
            value
        } else {
            entity
        });
        rest = &rest[at + 3..];
    }
    out.push_str(rest);
}

/// Lower case, underscores for spaces: titles are letters and single spaces, so ids are as unique as titles.
fn page_id(title: &str) -> String {
    title
        .chars()
        .map(|c| {
            if c == ' ' {
                '_'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}
