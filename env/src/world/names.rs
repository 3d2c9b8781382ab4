//! Invented names: syllables, the name space of each kind, and the split that follows from a name.
//!
//! A word is a row of syllables out of 70. Syllable `s` is `10 * q + r`; the weighted sum of the `r` modulo 10 is the class of
//! the word and decides its split (classes 0 to 6 train, 7 dev, 8 and 9 test). The `q` do not enter the class, so two names
//! that differ in one `q` are near twins within a split. Each syllable is consonant, vowel and at most one closing
//! consonant, so a word spells its syllables in one way only; no word ends in something the Porter stemmer removes.

use forage_contracts::Split;

use super::hash::mix;
use super::schema::Kind;

/// The syllable inventory.
pub(super) const SYLLABLES: [&str; 70] = [
    "ba", "bi", "bo", "bu", "da", "di", "do", "du", "fa", "fi", //
    "fo", "ga", "go", "gu", "ka", "ki", "ko", "ku", "la", "li", //
    "lo", "lu", "ma", "mi", "mo", "mu", "na", "ni", "no", "nu", //
    "pa", "pi", "po", "ra", "ri", "ro", "ru", "sa", "si", "so", //
    "su", "ta", "to", "tu", "va", "vi", "vo", "za", "zi", "zo", //
    "zu", "ban", "bel", "dan", "dor", "fen", "gar", "kel", "kor", "lan", //
    "mar", "mel", "nor", "ran", "ren", "sel", "tam", "var", "vel", "zan",
];

/// Frames around the invented word of works, organisations and events.
const WORK_FRAMES: [(&str, &str); 20] = [
    ("The Lantern of ", ""),
    ("The Garden of ", ""),
    ("The Winter of ", ""),
    ("The Mirror of ", ""),
    ("The Bells of ", ""),
    ("The Orchard of ", ""),
    ("The Letters of ", ""),
    ("The Shadow of ", ""),
    ("The Crown of ", ""),
    ("The Voyage of ", ""),
    ("The Ashes of ", ""),
    ("The Silence of ", ""),
    ("", " Nocturne"),
    ("", " Rhapsody"),
    ("", " Chronicle"),
    ("", " Elegy"),
    ("", " Overture"),
    ("", " Ballads"),
    ("", " Fables"),
    ("", " Sketches"),
];
const ORGANISATION_FRAMES: [(&str, &str); 10] = [
    ("", " Institute"),
    ("", " Society"),
    ("", " Academy"),
    ("", " Guild"),
    ("", " Foundation"),
    ("", " College"),
    ("", " Union"),
    ("", " Bureau"),
    ("", " Archive"),
    ("", " Council"),
];
const EVENT_FRAMES: [(&str, &str); 8] = [
    ("Battle of ", ""),
    ("Siege of ", ""),
    ("", " Regatta"),
    ("", " Tournament"),
    ("", " Marathon"),
    ("", " Derby"),
    ("", " Rally"),
    ("", " Championship"),
];
const BARE_FRAME: [(&str, &str); 1] = [("", "")];

/// Frames of a kind's names.
pub(super) fn frames(kind: Kind) -> &'static [(&'static str, &'static str)] {
    match kind {
        Kind::Person | Kind::Place => &BARE_FRAME,
        Kind::Work => &WORK_FRAMES,
        Kind::Organisation => &ORGANISATION_FRAMES,
        Kind::Event => &EVENT_FRAMES,
    }
}

const RESIDUES: u64 = 10;
const QUOTIENTS: u64 = 7;
/// Twin pairs along one syllable: quotients (0, 1), (2, 3), (4, 5).
const TWIN_PAIRS: u64 = 3;
const WEIGHTS: [u64; 4] = [1, 3, 7, 9];
const INVERSE_WEIGHTS: [u64; 4] = [1, 7, 3, 9];

/// First class and number of classes of a split.
fn classes(split: Split) -> (u64, u64) {
    match split {
        Split::Train => (0, 7),
        Split::Dev => (7, 1),
        Split::Test => (8, 2),
    }
}

#[cfg(test)]
fn split_of_class(class: u64) -> Split {
    match class {
        0..=6 => Split::Train,
        7 => Split::Dev,
        _ => Split::Test,
    }
}

/// Number of twin families of words with `syllables` syllables in a split.
pub(super) fn families(syllables: usize, split: Split) -> u64 {
    let free = (syllables - 1) as u32;
    classes(split).1 * RESIDUES.pow(free) * QUOTIENTS.pow(free) * TWIN_PAIRS
}

/// Syllables of one word of a split: member `twin` of family `family` (below [`families`]).
pub(super) fn word(syllables: usize, split: Split, family: u64, twin: bool) -> Vec<&'static str> {
    let (first, count) = classes(split);
    let mut rest = family;
    let mut take = |base: u64| {
        let digit = rest % base;
        rest /= base;
        digit
    };
    let class = first + take(count);
    let last = syllables - 1;
    let mut residues = [0_u64; 4];
    let mut sum = 0;
    for (position, residue) in residues.iter_mut().enumerate().take(last) {
        *residue = take(RESIDUES);
        sum += WEIGHTS[position] * *residue;
    }
    residues[last] = INVERSE_WEIGHTS[last] * (class + 10 * 30 - sum) % RESIDUES;
    let turned = turned_position(&residues[..syllables]);
    let mut spelled = Vec::with_capacity(syllables);
    for (position, residue) in residues.iter().enumerate().take(syllables) {
        let quotient = if position == turned {
            2 * take(TWIN_PAIRS) + u64::from(twin)
        } else {
            take(QUOTIENTS)
        };
        spelled.push(SYLLABLES[(RESIDUES * quotient + residue) as usize]);
    }
    spelled
}

/// The syllable in which twins differ. It depends on the residues only, so families never overlap.
fn turned_position(residues: &[u64]) -> usize {
    let code = residues
        .iter()
        .fold(residues.len() as u64, |code, residue| {
            code * RESIDUES + residue
        });
    (mix(code) % residues.len() as u64) as usize
}

/// Joins syllables into a capitalised word.
pub(super) fn spell(syllables: &[&str]) -> String {
    let mut out = String::with_capacity(12);
    for syllable in syllables {
        out.push_str(syllable);
    }
    out[..1].make_ascii_uppercase();
    out
}

/// The split a generated name belongs to in every world, or `None` for a text without an invented word.
#[cfg(test)]
pub(super) fn split_of(name: &str) -> Option<Split> {
    let mut syllables = Vec::new();
    for part in name.split_whitespace() {
        if let Some(mut found) = parse(&part.to_lowercase()) {
            syllables.append(&mut found);
        }
    }
    if !(2..=4).contains(&syllables.len()) {
        return None;
    }
    let class = syllables
        .iter()
        .enumerate()
        .map(|(position, s)| WEIGHTS[position] * (*s as u64 % RESIDUES))
        .sum::<u64>();
    Some(split_of_class(class % RESIDUES))
}

/// Indices of the syllables a lower-case word of at least two syllables is spelled with.
#[cfg(test)]
pub(super) fn parse(word: &str) -> Option<Vec<usize>> {
    let letters = word.as_bytes();
    let vowel = |at: usize| letters.get(at).is_some_and(|c| b"aeiou".contains(c));
    let mut found = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let closed = at + 2 < letters.len() && !vowel(at + 2) && !vowel(at + 3);
        let end = at + if closed { 3 } else { 2 };
        let syllable = word.get(at..end)?;
        found.push(SYLLABLES.iter().position(|known| *known == syllable)?);
        at = end;
    }
    (found.len() >= 2).then_some(found)
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_word_of_two_syllables_is_distinct_and_in_its_split() {
        let mut seen = HashSet::new();
        for split in [Split::Train, Split::Dev, Split::Test] {
            for family in 0..families(2, split) {
                let base = spell(&word(2, split, family, false));
                let twin = spell(&word(2, split, family, true));
                assert_eq!(split_of(&base), Some(split), "{base}");
                assert_eq!(split_of(&twin), Some(split), "{twin}");
                assert!(seen.insert(base) && seen.insert(twin));
            }
        }
        assert_eq!(seen.len(), 4200);
    }

    #[test]
    fn longer_words_parse_back_and_twins_differ_in_one_syllable() {
        for length in [3, 4] {
            for split in [Split::Train, Split::Dev, Split::Test] {
                let all = families(length, split);
                for step in 0..2000 {
                    let family = mix(step) % all;
                    let (base, twin) = (
                        word(length, split, family, false),
                        word(length, split, family, true),
                    );
                    assert_eq!(base.iter().zip(&twin).filter(|(a, b)| a != b).count(), 1);
                    assert_eq!(split_of(&spell(&base)), Some(split));
                    assert_eq!(split_of(&spell(&twin)), Some(split));
                }
            }
        }
    }

    #[test]
    fn frames_hold_no_word_that_reads_as_a_name() {
        for &kind in Kind::VARIANTS {
            for (before, after) in frames(kind) {
                for part in before.split_whitespace().chain(after.split_whitespace()) {
                    assert_eq!(parse(&part.to_lowercase()), None, "{part}");
                }
            }
        }
    }
}
