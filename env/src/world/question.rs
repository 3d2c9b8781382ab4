//! Questions: a start entity, a chain of relations, and words for it.

use std::collections::BTreeMap;

use forage_contracts::{OracleHop, Split, Task};
use strum::VariantArray as _;

use super::entity::{Entity, World, stream};
use super::error::WorldError;
use super::facts::{Value, mention};
use super::hash::{Shuffle, happens, hash, pick};
use super::page::fill;
use super::paths::Path;
use super::schema::{Kind, Relation};

/// Questions are dealt in blocks of a thousand, each with exactly the hop mix of the spec.
const BLOCK: u64 = 1000;

/// Most chains tried for one index before one that meets an entity twice is accepted.
const TRIES: u64 = 10_000;

/// A chain through the world: `entities[i]` is the subject of `path[i]`.
struct Chain<'w> {
    entities: Vec<Entity>,
    path: &'w Path,
    answer: Value,
}

impl Chain<'_> {
    /// Returns true when no entity occurs twice, so that every hop is needed and the question does not name its answer.
    fn is_straight(&self) -> bool {
        let answer = match &self.answer {
            Value::Entity(entity) => Some(*entity),
            Value::Text(_) => None,
        };
        let met: Vec<Entity> = self.entities.iter().copied().chain(answer).collect();
        (1..met.len()).all(|i| !met[..i].contains(&met[i]))
    }
}

impl World {
    /// Question number `index` of a split: a pure function of the spec, split and index.
    ///
    /// Any index is allowed and ids never repeat. Once the questions of a hop count are used up their wording starts
    /// over; [`World::questions`] stops before that.
    pub fn question(&self, split: Split, index: u64) -> Task {
        let (hops, rank) = self.hop_and_rank(index);
        let space = self.chain_count(split, hops);
        let mut chain = self.chain(split, hops, rank);
        for next in 1..space.min(TRIES) {
            if chain.is_straight() {
                break;
            }
            chain = self.chain(split, hops, rank + next);
        }
        self.task(split, index, &chain)
    }

    /// `count` questions of a split without a repeated text, at the hop mix of the spec.
    ///
    /// # Errors
    /// [`WorldError::TooManyQuestions`] when fewer exist; it says how many.
    pub fn questions(
        &self,
        split: Split,
        count: u64,
    ) -> Result<impl Iterator<Item = Task>, WorldError> {
        let mut probe = Questions {
            world: self,
            split,
            next: 0,
            left: count,
        };
        for available in 0..count {
            if probe.advance().is_none() {
                return Err(WorldError::TooManyQuestions {
                    split,
                    asked: count,
                    available,
                });
            }
        }
        Ok(Questions {
            world: self,
            split,
            next: 0,
            left: count,
        })
    }

    /// Number of hops of the question at `index`, and which question with that many hops it is.
    fn hop_and_rank(&self, index: u64) -> (usize, u64) {
        let (hops, nth) = self.deal[(index % BLOCK) as usize];
        let share = self.hops_per_thousand[usize::from(hops) - 1];
        (usize::from(hops), index / BLOCK * share + u64::from(nth))
    }

    /// Number of chains of `hops` relations in a split.
    fn chain_count(&self, split: Split, hops: usize) -> u64 {
        Kind::VARIANTS
            .iter()
            .map(|&kind| {
                self.counts[split as usize][kind as usize] * self.paths.of(kind, hops).len() as u64
            })
            .sum()
    }

    /// The `rank`-th chain of a split in shuffled order.
    fn chain(&self, split: Split, hops: usize, rank: u64) -> Chain<'_> {
        let key = hash(
            hash(self.key, stream::QUESTION, split as u64),
            0,
            hops as u64,
        );
        let mut code = Shuffle::new(self.chain_count(split, hops), key).at(rank);
        let mut kind = Kind::Person;
        for &candidate in Kind::VARIANTS {
            let size = self.counts[split as usize][candidate as usize]
                * self.paths.of(candidate, hops).len() as u64;
            kind = candidate;
            if code < size {
                break;
            }
            code -= size;
        }
        let paths = self.paths.of(kind, hops);
        let path = &paths[(code % paths.len() as u64) as usize];
        self.follow(
            Entity {
                split,
                kind,
                local: code / paths.len() as u64,
            },
            path,
        )
    }

    fn follow<'w>(&'w self, start: Entity, path: &'w Path) -> Chain<'w> {
        let mut entities = vec![start];
        let mut at = start;
        for &relation in &path[..path.len() - 1] {
            if let Some(next) = self.target(at, relation) {
                entities.push(next);
                at = next;
            }
        }
        let answer = self.value(at, path[path.len() - 1]);
        Chain {
            entities,
            path,
            answer,
        }
    }

    fn task(&self, split: Split, index: u64, chain: &Chain<'_>) -> Task {
        let mut evidence = Vec::with_capacity(chain.path.len());
        let mut oracle: Vec<OracleHop> = Vec::with_capacity(chain.path.len());
        let mut retold = Vec::new();
        for (hop, (&entity, &relation)) in chain.entities.iter().zip(chain.path).enumerate() {
            let name = self.name(entity);
            let finding = match chain.entities.get(hop + 1) {
                Some(next) => self.name(*next),
                None => self.value_text(&chain.answer),
            };
            evidence.push(self.passage_id(entity, &name, relation));
            retold.extend(self.retold_id(entity, &name, relation));
            oracle.push(OracleHop {
                query: format!("{name} {}", relation.keyword()),
                finding,
            });
        }
        let golds = golds(
            chain.path[chain.path.len() - 1],
            &self.value_text(&chain.answer),
        );
        let tag = ["train", "dev", "test"][split as usize];
        // Without judgments of its own a task is judged by its evidence.
        let qrels = if retold.is_empty() {
            BTreeMap::new()
        } else {
            let relevant = evidence.iter().cloned().chain(retold);
            relevant.map(|id| (id, 1)).collect()
        };
        Task {
            golds,
            evidence,
            qrels,
            hops: chain.path.len() as u8,
            oracle,
            data_source: "forage-world".to_owned(),
            split,
            ..Task::new(format!("fw-{tag}-{index}"), self.wording(chain))
        }
    }

    /// Words for a chain, decided by its start and relations alone: other chains never share them.
    fn wording(&self, chain: &Chain<'_>) -> String {
        let start = chain.entities[0];
        let draw = chain.path.iter().fold(
            hash(self.key, stream::WORDS, start.number()),
            |draw, &relation| hash(draw, stream::WORDS, relation as u64),
        );
        let paraphrased = happens(draw, self.spec().difficulty.paraphrase);
        let mut subject = mention(start.kind, &self.name(start));
        for &relation in &chain.path[..chain.path.len() - 1] {
            let wording = relation.wording();
            let phrase = if paraphrased {
                wording.phrase_other
            } else {
                wording.phrase
            };
            let mut longer = String::with_capacity(subject.len() + phrase.len());
            fill(&mut longer, phrase, &subject, "");
            subject = longer;
        }
        let last = chain.path[chain.path.len() - 1].wording();
        let templates = if paraphrased {
            last.ask_other
        } else {
            last.ask
        };
        let template =
            templates[pick(hash(draw, stream::WORDS, 0xA5), templates.len() as u64) as usize];
        let mut question = String::with_capacity(subject.len() + template.len());
        fill(&mut question, template, &subject, "");
        question
    }
}

/// The value as the page states it, then its other accepted forms.
fn golds(relation: Relation, value: &str) -> Vec<String> {
    let aliases = relation.aliases().iter().map(|alias| {
        let mut text = String::new();
        fill(&mut text, alias, "", value);
        text
    });
    std::iter::once(value.to_owned()).chain(aliases).collect()
}

/// Distinct questions of a split; made by [`World::questions`].
#[derive(Clone, Debug)]
pub(crate) struct Questions<'w> {
    world: &'w World,
    split: Split,
    next: u64,
    left: u64,
}

impl Questions<'_> {
    /// Index of the next question whose chain is straight and not yet used; `None` when a hop count is used up.
    fn advance(&mut self) -> Option<u64> {
        loop {
            let index = self.next;
            let (hops, rank) = self.world.hop_and_rank(index);
            if rank >= self.world.chain_count(self.split, hops) {
                return None;
            }
            self.next += 1;
            if self.world.chain(self.split, hops, rank).is_straight() {
                return Some(index);
            }
        }
    }
}

impl Iterator for Questions<'_> {
    type Item = Task;

    fn next(&mut self) -> Option<Task> {
        if self.left == 0 {
            return None;
        }
        let index = self.advance()?;
        self.left -= 1;
        Some(self.world.question(self.split, index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Questions<'_> {}
