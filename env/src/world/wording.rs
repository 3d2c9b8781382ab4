//! Wording: the sentences that state facts and the questions that ask for them.
//!
//! `{e}` is the entity, `{v}` the value, `{x}` the entity a question is about, by name or as a phrase. Every fact sentence holds
//! the keyword of its relation, and no other sentence of the same kind does: keyword queries find the right section.

/// The sentences and questions of one relation.
pub(super) struct Wording {
    /// Words that make the canonical query after the entity's name.
    pub(super) keyword: &'static str,
    /// Sentences that tell the fact.
    pub(super) facts: &'static [&'static str],
    /// Questions that hold the keyword.
    pub(super) ask: &'static [&'static str],
    /// Questions that do not.
    pub(super) ask_other: &'static [&'static str],
    /// Phrase for the value inside a longer question, with the keyword; empty when the value is not an entity.
    pub(super) phrase: &'static str,
    /// The phrase in other words, without the keyword.
    pub(super) phrase_other: &'static str,
}

/// One row per relation, in the order of their numbers.
pub(super) const WORDINGS: [Wording; 20] = [
    // Spouse
    Wording {
        keyword: "spouse",
        facts: &[
            "The spouse of {e} is {v}.",
            "{e} has a spouse called {v}.",
            "{e} took {v} as spouse in a quiet ceremony.",
            "At home, the spouse of {e} is {v}.",
        ],
        ask: &[
            "Who is the spouse of {x}?",
            "What is the name of the spouse of {x}?",
        ],
        ask_other: &[
            "To whom is {x} married?",
            "Who is the husband or wife of {x}?",
            "Whom did {x} marry?",
        ],
        phrase: "the spouse of {x}",
        phrase_other: "the person married to {x}",
    },
    // Birthplace
    Wording {
        keyword: "birthplace",
        facts: &[
            "The birthplace of {e} is {v}.",
            "{e} names {v} as a birthplace.",
            "{e} has {v} as birthplace.",
            "Old records give {v} as the birthplace of {e}.",
        ],
        ask: &[
            "What is the birthplace of {x}?",
            "Which town is the birthplace of {x}?",
        ],
        ask_other: &[
            "Where was {x} born?",
            "In which town was {x} born?",
            "Which town does {x} come from?",
        ],
        phrase: "the birthplace of {x}",
        phrase_other: "the town where {x} was born",
    },
    // BirthYear
    Wording {
        keyword: "birth year",
        facts: &[
            "The birth year of {e} is {v}.",
            "{e} has the birth year {v}.",
            "Old records give {v} as the birth year of {e}.",
            "{e} writes {v} as the birth year on letters.",
        ],
        ask: &[
            "What is the birth year of {x}?",
            "Which birth year is recorded for {x}?",
        ],
        ask_other: &[
            "When was {x} born?",
            "In what year was {x} born?",
            "In which year did {x} come into the world?",
        ],
        phrase: "",
        phrase_other: "",
    },
    // Occupation
    Wording {
        keyword: "occupation",
        facts: &[
            "The occupation of {e} is {v}.",
            "{e} has the occupation of {v}.",
            "By occupation, {e} is known as {v}.",
            "{e} follows the occupation of {v}.",
        ],
        ask: &[
            "What is the occupation of {x}?",
            "Which occupation does {x} have?",
        ],
        ask_other: &[
            "What does {x} do for a living?",
            "What is the job of {x}?",
            "How does {x} earn a living?",
        ],
        phrase: "",
        phrase_other: "",
    },
    // Employer
    Wording {
        keyword: "employer",
        facts: &[
            "The employer of {e} is {v}.",
            "{e} has {v} as employer.",
            "{e} serves one employer, {v}.",
            "For many seasons the employer of {e} was {v}.",
        ],
        ask: &[
            "Who is the employer of {x}?",
            "What is the name of the employer of {x}?",
        ],
        ask_other: &[
            "For whom does {x} work?",
            "Which organisation pays {x}?",
            "Where does {x} have a job?",
        ],
        phrase: "the employer of {x}",
        phrase_other: "the organisation that {x} works for",
    },
    // Mentor
    Wording {
        keyword: "mentor",
        facts: &[
            "The mentor of {e} is {v}.",
            "{e} had a mentor called {v}.",
            "{e} learned the craft from a mentor, {v}.",
            "In youth the mentor of {e} was {v}.",
        ],
        ask: &[
            "Who is the mentor of {x}?",
            "What is the name of the mentor of {x}?",
        ],
        ask_other: &[
            "Who taught {x}?",
            "By whom was {x} taught?",
            "Who was the teacher of {x}?",
        ],
        phrase: "the mentor of {x}",
        phrase_other: "the person who taught {x}",
    },
    // Region
    Wording {
        keyword: "region",
        facts: &[
            "{e} is a town in the {v} region.",
            "The town of {e} belongs to the {v} region.",
            "Maps show {e} inside the {v} region.",
            "{e} lies in the old {v} region.",
        ],
        ask: &["What is the region of {x}?", "In which region is {x}?"],
        ask_other: &[
            "Which part of the country does {x} belong to?",
            "What area is {x} part of?",
        ],
        phrase: "",
        phrase_other: "",
    },
    // River
    Wording {
        keyword: "river",
        facts: &[
            "The river that crosses {e} is the {v}.",
            "{e} stands on the river {v}.",
            "{e} draws its water from the {v} river.",
            "Boats reach {e} by the river {v}.",
        ],
        ask: &["What is the river of {x}?", "Which river crosses {x}?"],
        ask_other: &[
            "Which water flows through {x}?",
            "On what stream does {x} stand?",
        ],
        phrase: "",
        phrase_other: "",
    },
    // Founder
    Wording {
        keyword: "founder",
        facts: &[
            "The founder of {e} is {v}.",
            "{e} honours {v} as founder.",
            "A statue in {e} shows the founder, {v}.",
            "{e} had one founder, {v}.",
        ],
        ask: &[
            "Who is the founder of {x}?",
            "What is the name of the founder of {x}?",
        ],
        ask_other: &[
            "Who established {x}?",
            "By whom was {x} established?",
            "Who built the first houses of {x}?",
        ],
        phrase: "the founder of {x}",
        phrase_other: "the person who established {x}",
    },
    // FoundingYear
    Wording {
        keyword: "founding year",
        facts: &[
            "The founding year of {e} is {v}.",
            "{e} gives {v} as founding year.",
            "{e} has the founding year {v}.",
            "A stone names {v} as the founding year of {e}.",
        ],
        ask: &[
            "What is the founding year of {x}?",
            "Which founding year does {x} have?",
        ],
        ask_other: &[
            "When was {x} established?",
            "How far back does {x} go, to what year?",
            "In what year were the first houses of {x} built?",
        ],
        phrase: "",
        phrase_other: "",
    },
    // Author
    Wording {
        keyword: "author",
        facts: &[
            "The author of {e} is {v}.",
            "{e} has {v} as author.",
            "{e} made its author, {v}, famous.",
            "Scholars agree that the author of {e} is {v}.",
        ],
        ask: &[
            "Who is the author of {x}?",
            "What is the name of the author of {x}?",
        ],
        ask_other: &[
            "Who wrote {x}?",
            "By whom was {x} written?",
            "Whose pen produced {x}?",
        ],
        phrase: "the author of {x}",
        phrase_other: "the person who wrote {x}",
    },
    // PublicationYear
    Wording {
        keyword: "publication year",
        facts: &[
            "The publication year of {e} is {v}.",
            "{e} has the publication year {v}.",
            "{e} bears {v} as publication year.",
            "Libraries list {v} as the publication year of {e}.",
        ],
        ask: &[
            "What is the publication year of {x}?",
            "Which publication year does {x} have?",
        ],
        ask_other: &[
            "When did {x} appear?",
            "In what year was {x} first printed?",
            "When was {x} released?",
        ],
        phrase: "",
        phrase_other: "",
    },
    // Genre
    Wording {
        keyword: "genre",
        facts: &[
            "The genre of {e} is {v}.",
            "{e} belongs to the {v} genre.",
            "Critics place {e} in the {v} genre.",
            "{e} is a model of the {v} genre.",
        ],
        ask: &[
            "What is the genre of {x}?",
            "Which genre does {x} belong to?",
        ],
        ask_other: &["What kind of work is {x}?", "What type of piece is {x}?"],
        phrase: "",
        phrase_other: "",
    },
    // Setting
    Wording {
        keyword: "setting",
        facts: &[
            "The setting of {e} is {v}.",
            "{e} has {v} as its setting.",
            "{e} keeps one setting throughout, {v}.",
            "For most of its length the setting of {e} is {v}.",
        ],
        ask: &[
            "What is the setting of {x}?",
            "Which town is the setting of {x}?",
        ],
        ask_other: &[
            "Where does {x} take place?",
            "In which town does the story of {x} unfold?",
        ],
        phrase: "the setting of {x}",
        phrase_other: "the town in which the story of {x} unfolds",
    },
    // Headquarters
    Wording {
        keyword: "headquarters",
        facts: &[
            "The headquarters of {e} are in {v}.",
            "{e} keeps its headquarters in {v}.",
            "{e} moved its headquarters to {v}.",
            "Visitors find the headquarters of {e} in {v}.",
        ],
        ask: &[
            "Where are the headquarters of {x}?",
            "Which town holds the headquarters of {x}?",
        ],
        ask_other: &[
            "In which town is {x} based?",
            "Where does {x} have its main office?",
        ],
        phrase: "the town with the headquarters of {x}",
        phrase_other: "the town where {x} is based",
    },
    // Director
    Wording {
        keyword: "director",
        facts: &[
            "The director of {e} is {v}.",
            "{e} has {v} as director.",
            "{e} elected a new director, {v}.",
            "Letters are signed by the director of {e}, {v}.",
        ],
        ask: &[
            "Who is the director of {x}?",
            "What is the name of the director of {x}?",
        ],
        ask_other: &[
            "Who leads {x}?",
            "Who is in charge of {x}?",
            "By whom is {x} led?",
        ],
        phrase: "the director of {x}",
        phrase_other: "the person who leads {x}",
    },
    // Field
    Wording {
        keyword: "field",
        facts: &[
            "The field of {e} is {v}.",
            "{e} works in the field of {v}.",
            "{e} chose {v} as its field.",
            "Members of {e} share the field of {v}.",
        ],
        ask: &["What is the field of {x}?", "In which field does {x} work?"],
        ask_other: &["What does {x} study?", "Which subject is {x} devoted to?"],
        phrase: "",
        phrase_other: "",
    },
    // Location
    Wording {
        keyword: "location",
        facts: &[
            "The location of {e} is {v}.",
            "{e} had {v} as its location.",
            "{e} is tied to one location, {v}.",
            "Every account gives {v} as the location of {e}.",
        ],
        ask: &[
            "What is the location of {x}?",
            "Which town was the location of {x}?",
        ],
        ask_other: &["Where was {x} held?", "In which town did {x} take place?"],
        phrase: "the location of {x}",
        phrase_other: "the town that saw {x}",
    },
    // Date
    Wording {
        keyword: "date",
        facts: &[
            "The date of {e} is the year {v}.",
            "{e} has the recorded date {v}.",
            "{e} carries the date {v} in chronicles.",
            "Every account gives {v} as the date of {e}.",
        ],
        ask: &[
            "What is the date of {x}?",
            "Which date is recorded for {x}?",
        ],
        ask_other: &[
            "When was {x} held?",
            "In what year did {x} take place?",
            "Which year saw {x}?",
        ],
        phrase: "",
        phrase_other: "",
    },
    // Winner
    Wording {
        keyword: "winner",
        facts: &[
            "The winner of {e} is {v}.",
            "{e} had a clear winner, {v}.",
            "{e} made {v} its winner.",
            "Crowds cheered the winner of {e}, {v}.",
        ],
        ask: &[
            "Who is the winner of {x}?",
            "What is the name of the winner of {x}?",
        ],
        ask_other: &[
            "Who won {x}?",
            "By whom was {x} won?",
            "Who came out on top in {x}?",
        ],
        phrase: "the winner of {x}",
        phrase_other: "the person who won {x}",
    },
];

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::super::lists::{FIELDS, FILLERS, GENRES, OCCUPATIONS};
    use super::super::names::{frames, parse};
    use super::super::schema::{Kind, Relation};

    fn words(text: &str) -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric() && c != '{' && c != '}')
            .filter(|w| !w.is_empty() && !w.starts_with('{'))
            .map(str::to_lowercase)
            .collect()
    }

    #[test]
    fn fact_sentences_hold_their_own_keyword_and_no_other_of_their_kind() {
        for &relation in Relation::VARIANTS {
            for other in relation.subject().relations() {
                for fact in relation.wording().facts {
                    assert!(fact.contains("{e}") && fact.contains("{v}"));
                    for keyword in other.keyword().split(' ') {
                        let shared = relation.keyword().split(' ').any(|own| own == keyword);
                        assert_eq!(
                            words(fact).iter().any(|w| w == keyword),
                            shared,
                            "{keyword}: {fact}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn fillers_hold_no_keyword() {
        for &kind in Kind::VARIANTS {
            for filler in FILLERS[kind as usize] {
                for keyword in Relation::VARIANTS
                    .iter()
                    .flat_map(|r| r.keyword().split(' '))
                {
                    assert!(
                        !words(filler).iter().any(|w| w == keyword),
                        "{keyword}: {filler}"
                    );
                }
            }
        }
    }

    #[test]
    fn paraphrases_avoid_the_keyword_and_no_wording_serves_two_relations() {
        let mut seen = std::collections::HashSet::new();
        for &relation in Relation::VARIANTS {
            let wording = relation.wording();
            for text in wording.ask.iter().chain([&wording.phrase]) {
                assert!(
                    text.is_empty() || text.contains(relation.keyword()),
                    "{text}"
                );
            }
            for text in wording.ask_other.iter().chain([&wording.phrase_other]) {
                assert!(!text.contains(relation.keyword()), "{text}");
            }
            for text in wording.ask.iter().chain(wording.ask_other) {
                assert!(text.contains("{x}") && seen.insert(*text), "{text}");
            }
            assert_eq!(
                relation.target().is_some(),
                wording.phrase.contains("{x}") && wording.phrase_other.contains("{x}")
            );
        }
    }

    #[test]
    fn no_word_of_the_encyclopedia_reads_as_an_invented_name() {
        let mut texts: Vec<&str> = FILLERS.iter().flat_map(|f| f.iter().copied()).collect();
        for relation in Relation::VARIANTS {
            let wording = relation.wording();
            texts.extend(
                wording
                    .facts
                    .iter()
                    .chain(wording.ask)
                    .chain(wording.ask_other)
                    .chain(relation.aliases()),
            );
            texts.extend([wording.phrase, wording.phrase_other]);
        }
        texts.extend(OCCUPATIONS.iter().chain(&GENRES).chain(&FIELDS));
        texts.extend(
            Kind::VARIANTS
                .iter()
                .flat_map(|k| frames(*k))
                .flat_map(|(before, after)| [*before, *after]),
        );
        for word in texts.iter().flat_map(|text| words(text)) {
            assert_eq!(parse(&word), None, "{word}");
        }
    }
}
