//! Facts: the value of each relation of each entity.

use super::entity::{Entity, World, stream};
use super::hash::{hash, pick};
use super::lists::{FIELDS, GENRES, OCCUPATIONS};
use super::schema::{Kind, Relation};

/// The value of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Entity(Entity),
    Text(String),
}

impl World {
    /// The value of `relation` for an entity of its subject kind.
    pub(super) fn value(&self, entity: Entity, relation: Relation) -> Value {
        if let Some(target) = self.target(entity, relation) {
            return Value::Entity(target);
        }
        let draw = self.draw(entity, relation);
        let from = |list: &[&str]| list[pick(draw, list.len() as u64) as usize].to_owned();
        Value::Text(match relation {
            Relation::Occupation => from(&OCCUPATIONS),
            Relation::Genre => from(&GENRES),
            Relation::Field => from(&FIELDS),
            Relation::Region | Relation::River => Self::free_word(entity.split, draw),
            _ => (1500 + pick(draw, 500)).to_string(),
        })
    }

    /// The entity a relation leads to, always of the same split and never the entity itself.
    pub(super) fn target(&self, entity: Entity, relation: Relation) -> Option<Entity> {
        let kind = relation.target()?;
        let count = self.counts[entity.split as usize][kind as usize];
        let draw = self.draw(entity, relation);
        let local = match relation {
            Relation::Spouse => entity.local ^ 1,
            Relation::Mentor => {
                let couples = count / 2;
                let couple = (entity.local / 2 + 1 + pick(draw, couples - 1)) % couples;
                2 * couple + (draw & 1)
            }
            _ => pick(draw, count),
        };
        Some(Entity {
            kind,
            local,
            ..entity
        })
    }

    /// The words that state a fact: a name or a plain text.
    pub(super) fn value_text(&self, value: &Value) -> String {
        match value {
            Value::Entity(entity) => self.name(*entity),
            Value::Text(text) => text.clone(),
        }
    }

    fn draw(&self, entity: Entity, relation: Relation) -> u64 {
        hash(
            hash(self.key, stream::FACT, relation as u64),
            entity.kind as u64,
            entity.number(),
        )
    }
}

/// A name as it reads inside a sentence: organisations and events take the article.
pub(super) fn mention(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Organisation | Kind::Event => format!("the {name}"),
        _ => name.to_owned(),
    }
}
