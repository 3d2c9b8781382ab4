//! The generated world: a fictional encyclopedia with questions, evidence and gold answers.
//!
//! A [`World`] holds no pages. Every page, fact and question is computed from the [`WorldSpec`] and an index, so a world of
//! millions of pages costs no memory and any part of it can be read at once. Names are invented, so nothing in it can have
//! been memorised, and the split of an entity (train 70 %, dev 10 %, test 20 %) follows from its name alone: a training name
//! of one world is never a test name of another. Relations stay inside a split, so all entities of a question share one.
//!
//! Reading order: [`WorldSpec`], names, kinds and relations, facts, pages, questions, [`World::export`].

mod error;
mod spec;

mod hash;
mod lists;
mod names;
mod schema;
mod wording;

mod entity;
mod facts;
mod page;
mod paths;
mod question;

mod export;
mod text;

pub use entity::World;
pub use error::WorldError;
pub use export::QuestionCounts;
pub(crate) use page::Page;

pub use spec::{Difficulty, WorldSpec};

#[cfg(test)]
mod tests;
