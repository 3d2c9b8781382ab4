//! A query made ready for one index: terms looked up, weights known.

use std::io;

use tantivy::TERMINATED;
use tantivy::postings::TermInfo;

use super::phrase::Phrase;
use super::{BooleanQuery, Kind, Leaf, MAX_BOOST, Node, Occur, Part};
use crate::analyzer::{TermStream, simple_lowercase};
use forage_contracts::retriever::CancelFlag;

use crate::bm25::{DocSet, Scorer};
use crate::cancel::check_io;
use crate::index::Segment;

/// Index terms a prefix may stand for and still take part in the ranking.
const MAX_RANKED_EXPANSION: usize = 1024;
/// Documents between two looks at the flag that ends a search.
const LOOKED_AT: u32 = 4096;

/// Something whose documents the index knows.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    Term {
        part: Part,
        term: String,
    },
    Prefix {
        part: Part,
        beginning: String,
        own: Option<String>,
    },
    Exact {
        field: String,
        value: String,
    },
}

/// The documents of a source in one segment.
pub(super) enum Place {
    Postings(Vec<TermInfo>),
    /// Postings of which only the occurrences in the title, or only those in the text, count.
    InPart(Vec<TermInfo>, Part),
    /// Few documents, ascending.
    List(Vec<u32>),
    Set(DocSet),
}

impl Place {
    fn of_terms(infos: Vec<TermInfo>, part: Part) -> Self {
        match part {
            Part::Anywhere => Self::Postings(infos),
            Part::Title | Part::Text => Self::InPart(infos, part),
        }
    }

    /// The smaller of a list, 32 bits a document, and a set, one bit for each of the `len` documents of the segment: a query
    /// may name hundreds of ids.
    fn of(docs: Vec<u32>, len: usize) -> Self {
        if docs.len() <= len / 32 {
            return Self::List(docs);
        }
        let mut set = DocSet::empty(len);
        set.insert(&docs);
        Self::Set(set)
    }
}

pub(super) enum Step {
    Leaf(LeafStep),
    Group {
        must: Vec<Step>,
        should: Vec<Step>,
        not: Vec<Step>,
    },
}

pub(super) struct LeafStep {
    /// Sources that must all hold a document, by number.
    pub(super) sources: Vec<usize>,
    idf: f32,
    boost: f32,
    /// The order of the sources.
    pub(super) phrase: Option<Phrase>,
    /// True when every match takes an own occurrence of every source.
    pub(super) rigid: bool,
}

impl LeafStep {
    pub(super) fn weight(&self) -> f32 {
        self.boost * self.idf
    }
}

pub(super) struct Plan {
    pub(super) root: Step,
    pub(super) has_phrases: bool,
    /// At least the sum of all scores.
    pub(super) ceiling: f32,
    /// For every source its places, segment by segment.
    pub(super) places: Vec<Vec<Place>>,
    /// Prefixes that stand for too many terms to rank by.
    pub(super) broad: Vec<String>,
}

/// Looks up everything the query names. `None` for an empty query.
pub(super) fn plan(
    query: &BooleanQuery,
    segments: &[Segment],
    scorer: &Scorer,
    cancel: &CancelFlag,
) -> io::Result<Option<Plan>> {
    let Some(root) = &query.root else {
        return Ok(None);
    };
    let mut planner = Planner {
        segments,
        scorer,
        cancel,
        sources: Vec::new(),
        idfs: Vec::new(),
        places: Vec::new(),
        broad: Vec::new(),
    };
    let root = planner.step(root, 1.0)?;
    let Planner { places, broad, .. } = planner;
    let ceiling = (ceiling(&root) * (1.0 + 1e-6)) as f32;
    Ok(Some(Plan {
        has_phrases: has_phrases(&root),
        ceiling: ceiling.next_up(),
        root,
        places,
        broad,
    }))
}

struct Planner<'a> {
    segments: &'a [Segment],
    scorer: &'a Scorer,
    cancel: &'a CancelFlag,
    sources: Vec<Source>,
    idfs: Vec<f32>,
    places: Vec<Vec<Place>>,
    broad: Vec<String>,
}

impl Planner<'_> {
    fn step(&mut self, node: &Node, outer: f32) -> io::Result<Step> {
        let boost = (node.boost * outer).min(MAX_BOOST);
        let clauses = match &node.kind {
            Kind::Leaf(leaf) => return Ok(Step::Leaf(self.leaf(leaf, boost)?)),
            Kind::Group(clauses) => clauses,
        };
        let (mut must, mut should, mut not) = (Vec::new(), Vec::new(), Vec::new());
        for clause in clauses {
            let step = self.step(&clause.node, boost)?;
            match clause.occur {
                Occur::Must => must.push(step),
                Occur::Should => add_to_bag(&mut should, step),
                Occur::MustNot => not.push(step),
            }
        }
        for steps in [&mut must, &mut not] {
            // What needs no positions decides first.
            steps.sort_by_key(has_phrases);
        }
        Ok(Step::Group { must, should, not })
    }

    fn leaf(&mut self, leaf: &Leaf, boost: f32) -> io::Result<LeafStep> {
        let (sources, phrase) = match leaf {
            Leaf::Exact { field, value } => (
                vec![Source::Exact {
                    field: field.clone(),
                    value: value.clone(),
                }],
                None,
            ),
            Leaf::Prefix { part, text } => {
                let prefix = Source::Prefix {
                    part: *part,
                    beginning: text.chars().map(simple_lowercase).collect(),
                    own: crate::analyze(text).pop(),
                };
                (vec![prefix], None)
            }
            Leaf::Word { part, text } => self::sequence(*part, text, 0),
            Leaf::Phrase { part, text, slop } => self::sequence(*part, text, *slop),
        };
        let rigid = !matches!(leaf, Leaf::Phrase { slop: 1.., .. });
        let mut numbers = Vec::with_capacity(sources.len());
        // As Lucene's phrase query: the sum over all its terms, repeats included, rounded once.
        let mut idf = 0.0_f64;
        for source in sources {
            let number = self.number(source)?;
            idf += f64::from(self.idfs[number]);
            numbers.push(number);
        }
        Ok(LeafStep {
            sources: numbers,
            idf: idf as f32,
            boost,
            phrase,
            rigid,
        })
    }

    fn number(&mut self, source: Source) -> io::Result<usize> {
        if let Some(number) = self.sources.iter().position(|known| *known == source) {
            return Ok(number);
        }
        let (places, doc_freq) = self.look_up(&source)?;
        self.idfs
            .push(doc_freq.map_or(0.0, |doc_freq| self.scorer.idf(doc_freq)));
        self.sources.push(source);
        self.places.push(places);
        Ok(self.sources.len() - 1)
    }

    /// The places of a source and, if it counts in the ranking, in how many passages it is.
    fn look_up(&mut self, source: &Source) -> io::Result<(Vec<Place>, Option<u64>)> {
        match source {
            Source::Term { part, term } => {
                let (mut places, mut doc_freq) = (Vec::new(), 0);
                check_io(self.cancel)?;
                for segment in self.segments {
                    let found = segment.postings.find(term)?.map(|found| found.info);
                    doc_freq += found.as_ref().map_or(0, |info| u64::from(info.doc_freq));
                    places.push(Place::of_terms(found.into_iter().collect(), *part));
                }
                Ok((places, Some(doc_freq)))
            }
            Source::Exact { field, value } => {
                let mut places = Vec::new();
                for segment in self.segments {
                    let docs = segment.field_docs(field, value, self.cancel)?;
                    places.push(Place::of(docs, segment.len()));
                }
                Ok((places, None))
            }
            Source::Prefix {
                part,
                beginning,
                own,
            } => self.expand(*part, beginning, own.as_deref()),
        }
    }

    fn expand(
        &mut self,
        part: Part,
        beginning: &str,
        own: Option<&str>,
    ) -> io::Result<(Vec<Place>, Option<u64>)> {
        let mut names = std::collections::BTreeSet::new();
        let (mut infos, mut sets, mut doc_freq) = (Vec::new(), Vec::new(), 0);
        for segment in self.segments {
            let (mut of_segment, mut set) = (Vec::new(), DocSet::empty(segment.len()));
            each_term(segment, beginning, own, &mut |term, info| {
                check_io(self.cancel)?;
                if names.len() <= MAX_RANKED_EXPANSION {
                    names.insert(term.to_owned());
                    of_segment.push(info.clone());
                }
                let mut blocks = segment.postings.blocks(info)?;
                while !blocks.docs().is_empty() {
                    set.insert(blocks.docs());
                    blocks.advance();
                }
                Ok(())
            })?;
            doc_freq += set.count() as u64;
            infos.push(of_segment);
            sets.push(set);
        }
        if names.len() > MAX_RANKED_EXPANSION {
            if !self.broad.iter().any(|known| known == beginning) {
                self.broad.push(beginning.to_owned());
            }
            if part != Part::Anywhere {
                for (segment, set) in self.segments.iter().zip(&mut sets) {
                    *set = self.within(segment, part, beginning, own)?;
                }
            }
            return Ok((sets.into_iter().map(Place::Set).collect(), None));
        }
        let places = infos.into_iter().map(|infos| Place::of_terms(infos, part));
        Ok((places.collect(), Some(doc_freq)))
    }

    /// The documents that have a word with this beginning in their title, or in their text.
    fn within(
        &self,
        segment: &Segment,
        part: Part,
        beginning: &str,
        own: Option<&str>,
    ) -> io::Result<DocSet> {
        let (mut set, mut places) = (DocSet::empty(segment.len()), Vec::new());
        each_term(segment, beginning, own, &mut |_, info| {
            check_io(self.cancel)?;
            let mut postings = segment.postings.located(info)?;
            for looked_at in 1_u32.. {
                let doc = postings.doc();
                if doc == TERMINATED {
                    break;
                }
                if looked_at.is_multiple_of(LOOKED_AT) {
                    check_io(self.cancel)?;
                }
                if !set.contains(doc) {
                    postings.positions(&mut places)?;
                    if part.count(&places, segment.postings.text_position(doc)) > 0 {
                        set.insert(&[doc]);
                    }
                }
                postings.advance();
            }
            Ok(())
        })?;
        Ok(set)
    }
}

/// Hands the terms that begin so and `own`, which may begin in another way, to `visit`.
fn each_term(
    segment: &Segment,
    beginning: &str,
    own: Option<&str>,
    visit: &mut dyn FnMut(&str, &TermInfo) -> io::Result<()>,
) -> io::Result<()> {
    segment.postings.expand(beginning, &mut *visit)?;
    if let Some(own) = own.filter(|own| !own.starts_with(beginning))
        && let Some(found) = segment.postings.find(own)?
    {
        visit(own, &found.info)?;
    }
    Ok(())
}

/// The terms of a word or phrase, and their order.
fn sequence(part: Part, text: &str, slop: u32) -> (Vec<Source>, Option<Phrase>) {
    let (mut terms, mut offsets) = (Vec::new(), Vec::new());
    let mut stream = TermStream::new(text);
    while let Some(located) = stream.next_located() {
        terms.push(located.term.to_owned());
        offsets.push(located.position);
    }
    let is_phrase = terms.len() > 1;
    // The phrase itself looks at its part.
    let part_of_terms = if is_phrase { Part::Anywhere } else { part };
    let source = |term| Source::Term {
        part: part_of_terms,
        term,
    };
    (
        terms.into_iter().map(source).collect(),
        is_phrase.then_some(Phrase {
            part,
            offsets,
            slop,
        }),
    )
}

/// A repeated word counts as often as it occurs, computed as a bag of words would.
fn add_to_bag(steps: &mut Vec<Step>, step: Step) {
    if let Step::Leaf(new) = &step {
        for known in steps.iter_mut() {
            if let Step::Leaf(known) = known
                && known.sources == new.sources
                && known.phrase == new.phrase
            {
                known.boost += new.boost;
                return;
            }
        }
    }
    steps.push(step);
}

fn has_phrases(step: &Step) -> bool {
    match step {
        Step::Leaf(leaf) => leaf.phrase.is_some(),
        Step::Group { must, should, not } => {
            [must, should, not].into_iter().flatten().any(has_phrases)
        }
    }
}

fn ceiling(step: &Step) -> f64 {
    match step {
        Step::Leaf(leaf) => f64::from(leaf.weight()),
        Step::Group { must, should, .. } => must.iter().chain(should).map(ceiling).sum(),
    }
}
