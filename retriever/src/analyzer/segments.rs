//! Words of a text: UAX #29 boundaries with the choices of Lucene's `StandardTokenizer`.

use unicode_segmentation::{UWordBoundIndices, UnicodeSegmentation, UnicodeWordIndices};

/// Lucene's `maxTokenLength`, in UTF-16 units.
const MAX_UNITS: usize = 255;

/// Iterator over the words of a text.
pub(crate) struct Segments<'t> {
    text: &'t str,
    source: Source<'t>,
    /// The rest of a word longer than [`MAX_UNITS`], or with letters that Lucene does not know as such.
    rest: &'t str,
}

enum Source<'t> {
    /// Pure ASCII takes the segmentation crate's byte-wise path, several times faster.
    Ascii(UnicodeWordIndices<'t>),
    Unicode(UWordBoundIndices<'t>),
}

impl<'t> Segments<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let source = if text.is_ascii() {
            Source::Ascii(text.unicode_word_indices())
        } else {
            Source::Unicode(text.split_word_bound_indices())
        };
        Self {
            text,
            source,
            rest: "",
        }
    }

    fn next_word(&mut self) -> Option<&'t str> {
        match &mut self.source {
            Source::Ascii(words) => words.next().map(|(_, word)| word),
            Source::Unicode(bounds) => next_unicode_word(self.text, bounds),
        }
    }

    /// Cuts the first piece of a remainder; pieces that are not words are left out, as in Lucene.
    fn cut_rest(&mut self) -> Option<&'t str> {
        while !self.rest.is_empty() {
            let end = prefix_of_units(self.rest, MAX_UNITS);
            let piece = if let Some(at) = self.rest[..end].find(is_later_letter) {
                let break_len = self.rest[at..].chars().next().map_or(0, char::len_utf8);
                let piece = &self.rest[..at];
                self.rest = &self.rest[at + break_len..];
                piece
            } else {
                let (piece, rest) = self.rest.split_at(end);
                self.rest = rest;
                piece
            };
            if is_word(piece) {
                return Some(piece);
            }
        }
        None
    }
}

impl<'t> Iterator for Segments<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        loop {
            if let Some(piece) = self.cut_rest() {
                return Some(piece);
            }
            let word = self.next_word()?;
            if word.len() <= MAX_UNITS && (word.is_ascii() || !word.contains(is_later_letter)) {
                return Some(word);
            }
            self.rest = word;
        }
    }
}

fn next_unicode_word<'t>(text: &'t str, bounds: &mut UWordBoundIndices<'t>) -> Option<&'t str> {
    loop {
        let (start, segment) = bounds.next()?;
        if is_word(segment) && !segment.starts_with(is_south_east_asian) {
            // The selector of text style is not a part of a symbol.
            return Some(segment.trim_end_matches('\u{fe0e}'));
        }
        // Marks of these scripts are words also behind what is none, a space say.
        if let Some(at) = segment.find(is_south_east_asian) {
            let mut end = start + segment.len();
            while let Some((next, following)) = bounds
                .clone()
                .next()
                .filter(|(_, piece)| piece.starts_with(is_south_east_asian))
            {
                end = next + following.len();
                bounds.next();
            }
            return Some(&text[start + at..end]);
        }
    }
}

/// Byte length of the longest prefix of at most `units` UTF-16 units.
fn prefix_of_units(text: &str, units: usize) -> usize {
    let mut used = 0;
    for (at, letter) in text.char_indices() {
        used += letter.len_utf16();
        if used > units {
            return at;
        }
    }
    text.len()
}

/// Tells whether a segment is a word: decided by its first character, connectors aside, since marks only follow.
fn is_word(segment: &str) -> bool {
    let mut letters = segment.chars().skip_while(|&letter| is_connector(letter));
    let Some(first) = letters.next() else {
        return false;
    };
    if first.is_ascii() {
        return first.is_ascii_alphanumeric();
    }
    // A flag is two regional indicators; one alone is nothing.
    let half_a_flag = is_regional(first) && !letters.next().is_some_and(is_regional);
    !half_a_flag && starts_word(first)
}

/// A regional indicator.
fn is_regional(letter: char) -> bool {
    matches!(letter, '\u{1f1e6}'..='\u{1f1ff}')
}

/// Word-break class `ExtendNumLet`.
fn is_connector(letter: char) -> bool {
    matches!(
        letter,
        '_' | '\u{202f}'
            | '\u{203f}'
            | '\u{2040}'
            | '\u{2054}'
            | '\u{fe33}'
            | '\u{fe34}'
            | '\u{fe4d}'..='\u{fe4f}' | '\u{ff3f}'
    )
}

fn starts_word(letter: char) -> bool {
    match letter {
        // Letters whose neighbourhood holds no marks, the common ones.
        '\u{c0}'..='\u{2c1}'
        | '\u{370}'..='\u{52f}'
        | '\u{3041}'..='\u{3096}'
        | '\u{30a1}'..='\u{30fa}'
        | '\u{3400}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}'
            if letter.is_alphabetic() =>
        {
            true
        }
        // Radicals and squared kana: ideographs and Katakana to Lucene, symbols by category.
        '\u{2e80}'..='\u{2fd5}'
        | '\u{309b}'
        | '\u{309c}'
        | '\u{30a0}'
        | '\u{32d0}'..='\u{32fe}'
        | '\u{3300}'..='\u{3357}' => true,
        _ if is_pictographic(letter) => true,
        _ => {
            let joins = (letter.is_numeric() && joins('1', letter)) || joins('a', letter);
            (joins || letter.is_alphabetic()) && !joins_anything(letter)
        }
    }
}

/// Marks and format characters stay with whatever is before them.
fn joins_anything(letter: char) -> bool {
    joins(' ', letter)
}

/// Tells whether `letter` stays in one piece with `before`; asks the segmentation crate for its word-break class.
fn joins(before: char, letter: char) -> bool {
    let mut bytes = [0_u8; 8];
    let start = before.encode_utf8(&mut bytes).len();
    let end = start + letter.encode_utf8(&mut bytes[start..]).len();
    std::str::from_utf8(&bytes[..end]).is_ok_and(|pair| pair.split_word_bounds().nth(1).is_none())
}

/// Characters that became letters after the Unicode version of Lucene's tables and occur in Latin text: the cedilla
/// left alone by text extraction, tone marks, Armenian punctuation. To Lucene they separate words.
fn is_later_letter(letter: char) -> bool {
    matches!(letter, '\u{b8}' | '\u{2e5}'..='\u{2eb}' | '\u{55a}' | '\u{55f}' | '\u{58a}'
        | '\u{a708}'..='\u{a716}')
}

/// Line-break class SA (complex context), whose runs Lucene keeps together.
fn is_south_east_asian(letter: char) -> bool {
    matches!(u32::from(letter),
        0x0E01..=0x0E3A | 0x0E40..=0x0E4E | 0x0E81..=0x0EBD | 0x0EC0..=0x0ECE | 0x0EDC..=0x0EDF
        | 0x1000..=0x103F | 0x1050..=0x108F | 0x109A..=0x109F | 0x1780..=0x17D3 | 0x17D7 | 0x17DC..=0x17DD
        | 0x1950..=0x1974 | 0x1980..=0x19C9 | 0x19DE..=0x19DF | 0x1A20..=0x1A7C | 0x1AA0..=0x1AAD
        | 0xA9E0..=0xA9EF | 0xA9FA..=0xA9FE | 0xAA60..=0xAAC2 | 0xAADB..=0xAADF | 0x11700..=0x1172B)
}

/// `Extended_Pictographic` of Emoji 11, regional indicators and skin tones: what Lucene types as emoji.
fn is_pictographic(letter: char) -> bool {
    let code = u32::from(letter);
    let slot = PICTOGRAPHIC.partition_point(|&(_, last)| last < code);
    PICTOGRAPHIC
        .get(slot)
        .is_some_and(|&(first, _)| first <= code)
}

const PICTOGRAPHIC: &[(u32, u32)] = &[
    (0x00A9, 0x00A9),
    (0x00AE, 0x00AE),
    (0x203C, 0x203C),
    (0x2049, 0x2049),
    (0x2122, 0x2122),
    (0x2139, 0x2139),
    (0x2194, 0x2199),
    (0x21A9, 0x21AA),
    (0x231A, 0x231B),
    (0x2328, 0x2328),
    (0x2388, 0x2388),
    (0x23CF, 0x23CF),
    (0x23E9, 0x23F3),
    (0x23F8, 0x23FA),
    (0x24C2, 0x24C2),
    (0x25AA, 0x25AB),
    (0x25B6, 0x25B6),
    (0x25C0, 0x25C0),
    (0x25FB, 0x25FE),
    (0x2600, 0x2605),
    (0x2607, 0x2612),
    (0x2614, 0x2685),
    (0x2690, 0x2705),
    (0x2708, 0x2712),
    (0x2714, 0x2714),
    (0x2716, 0x2716),
    (0x271D, 0x271D),
    (0x2721, 0x2721),
    (0x2728, 0x2728),
    (0x2733, 0x2734),
    (0x2744, 0x2744),
    (0x2747, 0x2747),
    (0x274C, 0x274C),
    (0x274E, 0x274E),
    (0x2753, 0x2755),
    (0x2757, 0x2757),
    (0x2763, 0x2767),
    (0x2795, 0x2797),
    (0x27A1, 0x27A1),
    (0x27B0, 0x27B0),
    (0x27BF, 0x27BF),
    (0x2934, 0x2935),
    (0x2B05, 0x2B07),
    (0x2B1B, 0x2B1C),
    (0x2B50, 0x2B50),
    (0x2B55, 0x2B55),
    (0x3030, 0x3030),
    (0x303D, 0x303D),
    (0x3297, 0x3297),
    (0x3299, 0x3299),
    (0x1F000, 0x1F0FF),
    (0x1F10D, 0x1F10F),
    (0x1F12F, 0x1F12F),
    (0x1F16C, 0x1F171),
    (0x1F17E, 0x1F17F),
    (0x1F18E, 0x1F18E),
    (0x1F191, 0x1F19A),
    (0x1F1AD, 0x1F1FF),
    (0x1F201, 0x1F20F),
    (0x1F21A, 0x1F21A),
    (0x1F22F, 0x1F22F),
    (0x1F232, 0x1F23A),
    (0x1F23C, 0x1F23F),
    (0x1F249, 0x1F53D),
    (0x1F546, 0x1F64F),
    (0x1F680, 0x1F6FF),
    (0x1F774, 0x1F77F),
    (0x1F7D5, 0x1F7FF),
    (0x1F80C, 0x1F80F),
    (0x1F848, 0x1F84F),
    (0x1F85A, 0x1F85F),
    (0x1F888, 0x1F88F),
    (0x1F8AE, 0x1F93A),
    (0x1F93C, 0x1F945),
    (0x1F947, 0x1FAFF),
    (0x1FC00, 0x1FFFD),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The byte-wise path and the table-driven path agree on ASCII.
        #[test]
        fn ascii_path_equals_unicode_path(text in "[ -~\t\n]{0,60}") {
            let fast: Vec<&str> = Segments::new(&text).collect();
            let bounds = text.split_word_bounds().filter(|segment| is_word(segment));
            prop_assert_eq!(fast, bounds.collect::<Vec<_>>());
        }
    }

    #[test]
    fn pictographic_table_is_sorted() {
        assert!(PICTOGRAPHIC.iter().all(|(first, last)| first <= last));
        assert!(PICTOGRAPHIC.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}
