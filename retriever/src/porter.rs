//! Porter's first English stemmer, exactly as Lucene ships it.

/// One unit of text the stemmer can work on: bytes for ASCII words, UTF-16 units for all others.
///
/// Lucene stems UTF-16 units, so a character outside the basic plane counts as two; working on the same units keeps the
/// rare non-ASCII stems equal too.
pub(crate) trait Unit: Copy + PartialEq + From<u8> {}
impl Unit for u8 {}
impl Unit for u16 {}

/// Stems a lower-case word in place.
///
/// Differs from the paper in the two places Lucene does: `bli` becomes `ble` (step 2, in place of `abli` to `able`) and
/// `logi` becomes `log`. Words of one or two units are left alone.
pub(crate) fn stem<U: Unit>(word: &mut Vec<U>) {
    if word.len() <= 2 {
        return;
    }
    step1_plurals_and_participles(word);
    step1_terminal_y(word);
    step2_double_suffixes(word);
    step3_ic_full_ness(word);
    step4_strip_suffixes(word);
    step5_final_e_and_ll(word);
}

const STEP2: &[(&str, &str)] = &[
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
];

const STEP3: &[(&str, &str)] = &[
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

/// `ion` is listed for its place in the order; it also asks for an `s` or `t` before it. `ement` goes before `ment` and
/// `ent`: the longest match decides even when its condition then fails.
const STEP4: &[&str] = &[
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou",
    "ism", "ate", "iti", "ous", "ive", "ize",
];

fn ends_with<U: Unit>(word: &[U], suffix: &str) -> bool {
    let suffix = suffix.as_bytes();
    word.len() >= suffix.len()
        && word[word.len() - suffix.len()..]
            .iter()
            .zip(suffix)
            .all(|(&unit, &byte)| unit == U::from(byte))
}

fn is<U: Unit>(unit: U, byte: u8) -> bool {
    unit == U::from(byte)
}

fn is_consonant<U: Unit>(word: &[U], at: usize) -> bool {
    let unit = word[at];
    if b"aeiou".iter().any(|&vowel| is(unit, vowel)) {
        return false;
    }
    if is(unit, b'y') {
        at == 0 || !is_consonant(word, at - 1)
    } else {
        true
    }
}

/// Number of vowel-consonant sequences, the paper's *m*.
fn measure<U: Unit>(stem: &[U]) -> usize {
    let mut count = 0;
    let mut after_vowel = false;
    let mut consonant = true;
    for (at, &unit) in stem.iter().enumerate() {
        consonant = if b"aeiou".iter().any(|&vowel| is(unit, vowel)) {
            false
        } else if is(unit, b'y') {
            at == 0 || !consonant
        } else {
            true
        };
        if consonant && after_vowel {
            count += 1;
        }
        after_vowel = !consonant;
    }
    count
}

fn has_vowel<U: Unit>(stem: &[U]) -> bool {
    (0..stem.len()).any(|at| !is_consonant(stem, at))
}

fn ends_in_double_consonant<U: Unit>(word: &[U]) -> bool {
    let len = word.len();
    len >= 2 && word[len - 1] == word[len - 2] && is_consonant(word, len - 1)
}

/// Consonant, vowel, consonant at the end, the last not `w`, `x` or `y`: where a final `e` belongs (`hop(e)`).
fn ends_in_short_syllable<U: Unit>(word: &[U]) -> bool {
    let len = word.len();
    len >= 3
        && is_consonant(word, len - 1)
        && !is_consonant(word, len - 2)
        && is_consonant(word, len - 3)
        && !b"wxy".iter().any(|&byte| is(word[len - 1], byte))
}

fn push_str<U: Unit>(word: &mut Vec<U>, text: &str) {
    word.extend(text.bytes().map(U::from));
}

fn step1_plurals_and_participles<U: Unit>(word: &mut Vec<U>) {
    if ends_with(word, "s") {
        if ends_with(word, "sses") || ends_with(word, "ies") {
            word.truncate(word.len() - 2);
        } else if !ends_with(word, "ss") {
            word.pop();
        }
    }
    if ends_with(word, "eed") {
        if measure(&word[..word.len() - 3]) > 0 {
            word.pop();
        }
        return;
    }
    let participle = if ends_with(word, "ed") {
        2
    } else if ends_with(word, "ing") {
        3
    } else {
        return;
    };
    let stem_len = word.len() - participle;
    if !has_vowel(&word[..stem_len]) {
        return;
    }
    word.truncate(stem_len);
    if ends_with(word, "at") || ends_with(word, "bl") || ends_with(word, "iz") {
        word.push(U::from(b'e'));
    } else if ends_in_double_consonant(word) {
        if !b"lsz".iter().any(|&byte| is(word[word.len() - 1], byte)) {
            word.pop();
        }
    } else if measure(word) == 1 && ends_in_short_syllable(word) {
        word.push(U::from(b'e'));
    }
}

fn step1_terminal_y<U: Unit>(word: &mut [U]) {
    let len = word.len();
    if ends_with(word, "y") && has_vowel(&word[..len - 1]) {
        word[len - 1] = U::from(b'i');
    }
}

fn replace_first_match<U: Unit>(word: &mut Vec<U>, rules: &[(&str, &str)]) {
    for (suffix, replacement) in rules {
        if ends_with(word, suffix) {
            let stem_len = word.len() - suffix.len();
            if measure(&word[..stem_len]) > 0 {
                word.truncate(stem_len);
                push_str(word, replacement);
            }
            return;
        }
    }
}

fn step2_double_suffixes<U: Unit>(word: &mut Vec<U>) {
    replace_first_match(word, STEP2);
}

fn step3_ic_full_ness<U: Unit>(word: &mut Vec<U>) {
    replace_first_match(word, STEP3);
}

fn step4_strip_suffixes<U: Unit>(word: &mut Vec<U>) {
    for suffix in STEP4 {
        if !ends_with(word, suffix) {
            continue;
        }
        let stem_len = word.len() - suffix.len();
        if *suffix == "ion"
            && !(ends_with(&word[..stem_len], "s") || ends_with(&word[..stem_len], "t"))
        {
            return;
        }
        if measure(&word[..stem_len]) > 1 {
            word.truncate(stem_len);
        }
        return;
    }
}

fn step5_final_e_and_ll<U: Unit>(word: &mut Vec<U>) {
    if ends_with(word, "e") {
        let stem = &word[..word.len() - 1];
        let syllables = measure(stem);
        if syllables > 1 || (syllables == 1 && !ends_in_short_syllable(stem)) {
            word.pop();
        }
    }
    if ends_with(word, "ll") && measure(word) > 1 {
        word.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stemmed(word: &str) -> String {
        let mut bytes = word.as_bytes().to_vec();
        stem(&mut bytes);
        let mut units: Vec<u16> = word.encode_utf16().collect();
        stem(&mut units);
        assert_eq!(String::from_utf16(&units).unwrap().as_bytes(), bytes);
        String::from_utf8(bytes).unwrap()
    }

    /// The examples of Porter's paper, carried through all steps, with Lucene's departures.
    #[test]
    fn follows_the_paper() {
        let expected = [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("ties", "ti"),
            ("caress", "caress"),
            ("cats", "cat"),
            ("feed", "feed"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("troubled", "troubl"),
            ("sized", "size"),
            ("hopping", "hop"),
            ("tanned", "tan"),
            ("falling", "fall"),
            ("hissing", "hiss"),
            ("fizzed", "fizz"),
            ("failing", "fail"),
            ("filing", "file"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("conditional", "condit"),
            ("rational", "ration"),
            ("valenci", "valenc"),
            ("hesitanci", "hesit"),
            ("digitizer", "digit"),
            ("conformabli", "conform"),
            ("radicalli", "radic"),
            ("differentli", "differ"),
            ("vileli", "vile"),
            ("analogousli", "analog"),
            ("vietnamization", "vietnam"),
            ("predication", "predic"),
            ("operator", "oper"),
            ("feudalism", "feudal"),
            ("decisiveness", "decis"),
            ("hopefulness", "hope"),
            ("callousness", "callous"),
            ("formaliti", "formal"),
            ("sensitiviti", "sensit"),
            ("sensibiliti", "sensibl"),
            ("triplicate", "triplic"),
            ("formative", "form"),
            ("formalize", "formal"),
            ("electriciti", "electr"),
            ("electrical", "electr"),
            ("hopeful", "hope"),
            ("goodness", "good"),
            ("revival", "reviv"),
            ("allowance", "allow"),
            ("inference", "infer"),
            ("airliner", "airlin"),
            ("gyroscopic", "gyroscop"),
            ("adjustable", "adjust"),
            ("defensible", "defens"),
            ("irritant", "irrit"),
            ("replacement", "replac"),
            ("adjustment", "adjust"),
            ("dependent", "depend"),
            ("adoption", "adopt"),
            ("homologou", "homolog"),
            ("communism", "commun"),
            ("activate", "activ"),
            ("angulariti", "angular"),
            ("homologous", "homolog"),
            ("effective", "effect"),
            ("bowdlerize", "bowdler"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("cease", "ceas"),
            ("controll", "control"),
            ("roll", "roll"),
            ("as", "as"),
        ];
        for (word, stem) in expected {
            assert_eq!(stemmed(word), stem, "{word}");
        }
    }

    #[test]
    fn keeps_lucene_departures() {
        assert_eq!(stemmed("possibly"), "possibl");
        assert_eq!(stemmed("technology"), "technolog");
    }

    #[test]
    fn leaves_foreign_words_in_one_piece() {
        let mut units: Vec<u16> = "naïvetés".encode_utf16().collect();
        stem(&mut units);
        assert_eq!(String::from_utf16(&units).unwrap(), "naïveté");
    }
}
