//! A query made ready for one index: terms looked up, weights known.

use std::io;

use tantivy::postings::TermInfo;

use super::verify::{Check, Wanted};
use super::{BooleanQuery, Kind, Leaf, MAX_BOOST, Node, Occur, Part};
use crate::analyzer::{TermStream, simple_lowercase};
use forage_contracts::retriever::CancelFlag;

use crate::bm25::{DocSet, Scorer};
use crate::cancel::check_io;
use crate::index::Segment;

/// Index terms a prefix may stand for and still take part in the ranking.
const MAX_RANKED_EXPANSION: usize = 1024;

/// Something whose documents the index knows.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    Term(String),
    Prefix {
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
    /// Few documents, ascending.
    List(Vec<u32>),
    Set(DocSet),
}

impl Place {
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
    /// The check that is left to do in the passage itself.
    pub(super) check: Option<Check>,
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
    pub(super) verifies: bool,
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
        verifies: verifies(&root),
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
            // What needs no look into passages decides first.
            steps.sort_by_key(verifies);
        }
        Ok(Step::Group { must, should, not })
    }

    fn leaf(&mut self, leaf: &Leaf, boost: f32) -> io::Result<LeafStep> {
        let (sources, check) = match leaf {
            Leaf::Exact { field, value } => (
                vec![Source::Exact {
                    field: field.clone(),
                    value: value.clone(),
                }],
                None,
            ),
            Leaf::Prefix { part, text } => {
                let beginning: String = text.chars().map(simple_lowercase).collect();
                let own = crate::analyze(text).pop();
                let wanted = Wanted::Prefix {
                    beginning: beginning.clone(),
                    own: own.clone(),
                };
                let check = (*part != Part::Anywhere).then_some(Check {
                    part: *part,
                    wanted,
                });
                (vec![Source::Prefix { beginning, own }], check)
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
            check,
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
            Source::Term(term) => {
                let (mut places, mut doc_freq) = (Vec::new(), 0);
                check_io(self.cancel)?;
                for segment in self.segments {
                    let found = segment.postings.find(term)?.map(|found| found.info);
                    doc_freq += found.as_ref().map_or(0, |info| u64::from(info.doc_freq));
                    places.push(Place::Postings(found.into_iter().collect()));
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
            Source::Prefix { beginning, own } => self.expand(beginning, own.as_deref()),
        }
    }

    fn expand(
        &mut self,
        beginning: &str,
        own: Option<&str>,
    ) -> io::Result<(Vec<Place>, Option<u64>)> {
        let mut names = std::collections::BTreeSet::new();
        let (mut infos, mut sets, mut doc_freq) = (Vec::new(), Vec::new(), 0);
        for segment in self.segments {
            let (mut of_segment, mut set) = (Vec::new(), DocSet::empty(segment.len()));
            let mut add = |term: &str, info: &TermInfo| {
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
            };
            segment.postings.expand(beginning, &mut add)?;
            if let Some(own) = own.filter(|own| !own.starts_with(beginning))
                && let Some(found) = segment.postings.find(own)?
            {
                add(own, &found.info)?;
            }
            doc_freq += set.count() as u64;
            infos.push(of_segment);
            sets.push(set);
        }
        if names.len() > MAX_RANKED_EXPANSION {
            self.broad.push(beginning.to_owned());
            return Ok((sets.into_iter().map(Place::Set).collect(), None));
        }
        Ok((
            infos.into_iter().map(Place::Postings).collect(),
            Some(doc_freq),
        ))
    }
}

/// The terms of a word or phrase and what to verify of them.
fn sequence(part: Part, text: &str, slop: u32) -> (Vec<Source>, Option<Check>) {
    let mut terms = Vec::new();
    let mut stream = TermStream::new(text);
    while let Some(located) = stream.next_located() {
        terms.push((located.term.to_owned(), located.position));
    }
    let sources = terms
        .iter()
        .map(|(term, _)| Source::Term(term.clone()))
        .collect();
    let verified = terms.len() > 1 || part != Part::Anywhere;
    (
        sources,
        verified.then_some(Check {
            part,
            wanted: Wanted::Sequence { terms, slop },
        }),
    )
}

/// A repeated word counts as often as it occurs, computed as a bag of words would.
fn add_to_bag(steps: &mut Vec<Step>, step: Step) {
    if let Step::Leaf(new) = &step {
        for known in steps.iter_mut() {
            if let Step::Leaf(known) = known
                && known.sources == new.sources
                && known.check == new.check
            {
                known.boost += new.boost;
                return;
            }
        }
    }
    steps.push(step);
}

pub(super) fn verifies(step: &Step) -> bool {
    match step {
        Step::Leaf(leaf) => leaf.check.is_some(),
        Step::Group { must, should, not } => {
            [must, should, not].into_iter().flatten().any(verifies)
        }
    }
}

fn ceiling(step: &Step) -> f64 {
    match step {
        Step::Leaf(leaf) => f64::from(leaf.weight()),
        Step::Group { must, should, .. } => must.iter().chain(should).map(ceiling).sum(),
    }
}
