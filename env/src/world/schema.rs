//! Kinds of entities, the relations between them, and how a page lays its facts out in sections.

use strum::VariantArray;

use super::wording::{self, Wording};

/// The kind of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, VariantArray)]
pub(crate) enum Kind {
    /// A person, "Given Surname".
    Person,
    /// A town, one word.
    Place,
    /// A book or composition.
    Work,
    /// An institute, society or the like.
    Organisation,
    /// A battle or contest.
    Event,
}

impl Kind {
    /// Relations that entities of this kind have.
    pub(super) fn relations(self) -> impl Iterator<Item = Relation> {
        Relation::VARIANTS
            .iter()
            .copied()
            .filter(move |relation| relation.subject() == self)
    }

    /// Layouts a page of this kind may have: headings with the facts below each.
    pub(super) fn layouts(self) -> &'static [Layout] {
        match self {
            Self::Person => PERSON,
            Self::Place => PLACE,
            Self::Work => WORK,
            Self::Organisation => ORGANISATION,
            Self::Event => EVENT,
        }
    }
}

/// A fact an entity has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, VariantArray)]
pub(crate) enum Relation {
    /// Person to person, symmetric.
    Spouse,
    /// Person to place.
    Birthplace,
    /// Person to year.
    BirthYear,
    /// Person to occupation.
    Occupation,
    /// Person to organisation.
    Employer,
    /// Person to person.
    Mentor,
    /// Place to an invented region name.
    Region,
    /// Place to an invented river name.
    River,
    /// Place to person.
    Founder,
    /// Place to year.
    FoundingYear,
    /// Work to person.
    Author,
    /// Work to year.
    PublicationYear,
    /// Work to genre.
    Genre,
    /// Work to place.
    Setting,
    /// Organisation to place.
    Headquarters,
    /// Organisation to person.
    Director,
    /// Organisation to field of study.
    Field,
    /// Event to place.
    Location,
    /// Event to year.
    Date,
    /// Event to person.
    Winner,
}

impl Relation {
    /// Kind of entity that has this fact.
    pub(super) fn subject(self) -> Kind {
        match self as u8 {
            0..=5 => Kind::Person,
            6..=9 => Kind::Place,
            10..=13 => Kind::Work,
            14..=16 => Kind::Organisation,
            _ => Kind::Event,
        }
    }

    /// Kind of entity the fact names, or `None` when its value is a plain text.
    pub(super) fn target(self) -> Option<Kind> {
        match self {
            Self::Spouse
            | Self::Mentor
            | Self::Founder
            | Self::Author
            | Self::Director
            | Self::Winner => Some(Kind::Person),
            Self::Birthplace | Self::Setting | Self::Headquarters | Self::Location => {
                Some(Kind::Place)
            }
            Self::Employer => Some(Kind::Organisation),
            _ => None,
        }
    }

    /// Other accepted forms of the value, which is `{v}`.
    pub(super) fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::BirthYear | Self::FoundingYear | Self::PublicationYear | Self::Date => {
                &["the year {v}"]
            }
            Self::Region => &["{v} region"],
            Self::River => &["{v} river", "river {v}"],
            Self::Genre => &["{v} genre"],
            _ if self.target() == Some(Kind::Place) => &["the town of {v}"],
            _ => &[],
        }
    }

    /// The words which, after an entity's name, make the canonical query for this fact.
    pub(super) fn keyword(self) -> &'static str {
        self.wording().keyword
    }

    pub(super) fn wording(self) -> &'static Wording {
        &wording::WORDINGS[self as usize]
    }
}

/// Sections of a page: heading and the facts stated below it, one to three each.
pub(super) type Layout = &'static [(&'static str, &'static [Relation])];

const PERSON: &[Layout] = &[
    &[
        ("Early life", &[Relation::Birthplace, Relation::BirthYear]),
        ("Career", &[Relation::Occupation, Relation::Employer]),
        ("Personal life", &[Relation::Spouse, Relation::Mentor]),
    ],
    &[
        ("Origins", &[Relation::BirthYear, Relation::Birthplace]),
        ("Training", &[Relation::Mentor]),
        ("Working life", &[Relation::Employer, Relation::Occupation]),
        ("Family", &[Relation::Spouse]),
    ],
    &[
        (
            "Biography",
            &[Relation::Birthplace, Relation::BirthYear, Relation::Spouse],
        ),
        (
            "Profession",
            &[Relation::Occupation, Relation::Mentor, Relation::Employer],
        ),
    ],
];
const PLACE: &[Layout] = &[
    &[
        ("Geography", &[Relation::Region, Relation::River]),
        ("History", &[Relation::Founder, Relation::FoundingYear]),
    ],
    &[
        ("Landscape", &[Relation::Region]),
        ("Waters", &[Relation::River]),
        ("Beginnings", &[Relation::FoundingYear, Relation::Founder]),
    ],
];
const WORK: &[Layout] = &[
    &[
        ("Origin", &[Relation::Author, Relation::PublicationYear]),
        ("Content", &[Relation::Genre, Relation::Setting]),
    ],
    &[
        ("Writing", &[Relation::Author]),
        ("Plot", &[Relation::Setting, Relation::Genre]),
        ("Release", &[Relation::PublicationYear]),
    ],
];
const ORGANISATION: &[Layout] = &[
    &[
        ("Structure", &[Relation::Headquarters, Relation::Director]),
        ("Activity", &[Relation::Field]),
    ],
    &[
        ("Seat", &[Relation::Headquarters]),
        ("Leadership", &[Relation::Director]),
        ("Activity", &[Relation::Field]),
    ],
];
const EVENT: &[Layout] = &[
    &[
        ("Course", &[Relation::Location, Relation::Date]),
        ("Outcome", &[Relation::Winner]),
    ],
    &[
        ("Scene", &[Relation::Location]),
        ("Result", &[Relation::Winner, Relation::Date]),
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_tells_every_fact_of_its_kind_once() {
        for &kind in Kind::VARIANTS {
            let mut wanted: Vec<Relation> = kind.relations().collect();
            wanted.sort_unstable();
            for layout in kind.layouts() {
                assert!((2..=4).contains(&layout.len()));
                let mut told: Vec<Relation> = layout
                    .iter()
                    .flat_map(|(_, facts)| facts.iter().copied())
                    .collect();
                told.sort_unstable();
                assert_eq!(told, wanted, "{kind:?}");
            }
        }
    }
}
