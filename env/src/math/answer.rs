//! Answers: the form under which two of them are one text where they are one answer.
//!
//! Equality follows the graders that Spurious Rewards takes over, MATH's and PRM800K's, as far as they compare texts and numbers:
//! LaTeX's ways to write a number, signs of currency and percent, units, commas of thousands and spaces mean nothing; decimals equal the
//! fractions they are; a fraction that is not reduced is not the reduced one; elements of tuples are compared one by one, and a comma in
//! brackets stands between two of them. They ask a computer algebra system besides, which is not done here: `1+x` and `x+1` are two
//! answers.

use crate::reward::controls::braced;
use crate::reward::grading::exact_match;

/// Longest answer that is read as mathematics, bytes.
const LONGEST: usize = 512;

/// Stands in a recorded answer before the gold that it is not.
const BESIDE: &str = " ≢ ";

/// Offset from an ASCII mark to its full-width form.
const WIDER: u32 = 0xFEE0;

/// Spellings of one thing, and the one that stays. In order: the first is replaced first.
const SPELLINGS: [(&str, &str); 52] = [
    ("\n", " "),
    ("\\\\", ";"),
    ("\\! ", ""),
    ("\\!", ""),
    ("\\,", ""),
    ("\\;", ""),
    ("\\:", ""),
    ("\\ ", " "),
    ("~", " "),
    ("{,}", ","),
    ("\\(", ""),
    ("\\)", ""),
    ("\\{\\}", "\\emptyset"),
    ("\\{", "{"),
    ("\\}", "}"),
    ("\\$", ""),
    ("$", ""),
    ("\\%", ""),
    ("%", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\degree", ""),
    ("°", ""),
    ("\\left", ""),
    ("\\right", ""),
    ("\\displaystyle", ""),
    ("\\dfrac", "\\frac"),
    ("\\tfrac", "\\frac"),
    ("\\cfrac", "\\frac"),
    ("\\dbinom", "\\binom"),
    ("\\tbinom", "\\binom"),
    ("\\cdot", "*"),
    ("\\times", "*"),
    ("·", "*"),
    ("×", "*"),
    ("−", "-"),
    ("±", "\\pm"),
    ("π", "\\pi"),
    ("√", "\\sqrt"),
    ("∞", "\\infty"),
    ("∪", "\\cup"),
    ("\\varnothing", "\\emptyset"),
    ("\\leqslant", "\\le"),
    ("\\leq", "\\le"),
    ("≤", "\\le"),
    ("\\geqslant", "\\ge"),
    ("\\geq", "\\ge"),
    ("≥", "\\ge"),
    ("\\neq", "\\ne"),
    ("≠", "\\ne"),
    (" or ", ", "),
    (" and ", ", "),
];

/// Commands whose argument is text, or letters of another shape.
const SHAPES: [&str; 8] = [
    "\\textbf{",
    "\\textit{",
    "\\textrm{",
    "\\text{",
    "\\mathrm{",
    "\\mathbf{",
    "\\mbox{",
    "\\operatorname{",
];

/// Words behind a number that do not change it, `cm` of `5 cm^2` for instance.
const UNITS: [&str; 16] = [
    "degree",
    "centimeter",
    "meter",
    "cm",
    "mile",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "year",
    "foot",
    "feet",
    "inch",
    "yard",
];

/// The answer as it is recorded beside these golds: the gold that it is equal to, else its form in marks that comparisons of texts keep,
/// and behind it the gold that they would take it for all the same. [`form`] reads it back, so that it may be a label.
pub(super) fn recorded(answer: &str, golds: &[String]) -> String {
    let own = form(answer);
    if let Some(gold) = golds.iter().find(|gold| form(gold) == own) {
        return gold.clone();
    }
    let shown = widened(&own);
    let taken = golds
        .iter()
        .find(|gold| exact_match(&shown, std::slice::from_ref(*gold)));
    match taken {
        None => shown,
        Some(gold) => [shown.as_str(), BESIDE, gold].concat(),
    }
}

/// The marks of ASCII in their wide forms (`－3`, `1／2`), which no normalisation of texts removes; so is the variable `a`, which it takes
/// for an article.
fn widened(form: &str) -> String {
    let mut before = ' ';
    let mut letters = form.chars().peekable();
    let mut shown = String::with_capacity(form.len());
    while let Some(letter) = letters.next() {
        let ends = letters.peek().is_none_or(|after| !after.is_alphanumeric());
        let is_alone = ends && !before.is_alphanumeric();
        let wide = char::from_u32(u32::from(letter) + WIDER);
        let wide = wide.filter(|_| letter.is_ascii_punctuation() || (letter == 'a' && is_alone));
        shown.push(wide.unwrap_or(letter));
        before = letter;
    }
    shown
}

/// Wide letters and marks in their plain forms. A wide comma stands between elements, never within a number.
fn narrowed(text: &str) -> String {
    let narrow = |letter: char| match letter {
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(u32::from(letter) - WIDER).unwrap_or(letter),
        _ => letter,
    };
    text.replace('，', ", ").chars().map(narrow).collect()
}

/// The form in which two answers are the same text where they are the same answer; empty for an answer of nothing.
pub(super) fn form(answer: &str) -> String {
    let answer = answer.split(BESIDE).next().unwrap_or_default();
    let answer = narrowed(answer.trim());
    if answer.len() > LONGEST {
        return answer;
    }
    let text = plain(&answer);
    let text = without_unit(text.trim().trim_end_matches('.'));
    let text = match text.strip_prefix('{').and_then(braced) {
        Some((inside, "")) => inside.trim(),
        _ => text,
    };
    let element = |text: &str| number(text).unwrap_or_else(|| symbols(text));
    let elements = |inside: &str| inside.split(',').map(element).collect::<Vec<_>>().join(",");
    let ends = |text: &str| text.starts_with(['(', '[']) && text.ends_with([')', ']']);
    let no_bracket = |text: &str| !text.contains(['(', ')', '[', ']']);
    match text.get(1..text.len().saturating_sub(1)) {
        Some(inside) if ends(text) && no_bracket(inside) => {
            let (open, close) = (&text[..1], &text[text.len() - 1..]);
            if open == "(" && close == ")" && !inside.contains(',') {
                element(inside)
            } else {
                [open, &elements(inside), close].concat()
            }
        }
        _ if no_bracket(text) => elements(text),
        _ => symbols(text),
    }
}

/// The answer in one spelling, lower case, without shapes, commas of thousands and a name before `=`.
fn plain(answer: &str) -> String {
    let mut text = answer.to_owned();
    for word in ["\\text{ or }", "\\text{ and }"] {
        text = text.replace(word, ", ");
    }
    // MATH writes units as text that begins with a space.
    for unit in ["\\text{ ", "\\mbox{ "] {
        let before = text.find(unit).filter(|at| !text[..*at].trim().is_empty());
        text.truncate(before.unwrap_or(text.len()));
    }
    for command in SHAPES {
        while let Some((before, rest)) = text.split_once(command) {
            let (inside, after) = rest.split_once('}').unwrap_or((rest, ""));
            text = [before, inside, after].concat();
        }
    }
    let is_set = text.contains("\\{");
    for (written, stays) in SPELLINGS {
        if text.contains(written) {
            text = text.replace(written, stays);
        }
    }
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is_between = |at: usize| {
        at > 0 && is_digit(at - 1) && (1..=3).all(|ahead| is_digit(at + ahead)) && !is_digit(at + 4)
    };
    // In brackets a comma stands between elements, with a space behind it or not.
    let mut depth = i32::from(is_set);
    let kept = text.char_indices().filter(|&(at, letter)| {
        depth += match letter {
            '(' | '[' => 1,
            ')' | ']' => -1,
            _ => 0,
        };
        letter != ',' || depth > 0 || !is_between(at)
    });
    let text = kept
        .map(|(_, letter)| letter)
        .collect::<String>()
        .to_lowercase();
    match text.split_once('=') {
        Some((name, value)) if name.trim().chars().count() <= 2 && !value.contains('=') => {
            value.to_owned()
        }
        _ => text,
    }
}

/// A number without the unit behind it; other texts as they are.
fn without_unit(text: &str) -> &str {
    let powers = ["^{2}", "^{3}", "^2", "^3"];
    let bare = powers.iter().find_map(|power| text.strip_suffix(*power));
    let bare = bare.unwrap_or(text).trim_end();
    let amount = |unit: &&str| {
        let endings = ["", "s", "es"];
        let mut without = endings
            .iter()
            .filter_map(|ending| bare.strip_suffix(*ending)?.strip_suffix(*unit));
        let amount = without.next()?.trim_end();
        let is_number = amount.ends_with(|last: char| last.is_ascii_digit() || last == '}');
        (is_number || amount.ends_with("\\pi")).then_some(amount)
    };
    UNITS.iter().find_map(amount).unwrap_or(text)
}

/// A number in its one form: a whole number, or a fraction `a/b`. Decimals and mixed numbers are reduced, fractions stay as they are.
fn number(text: &str) -> Option<String> {
    let text = text.trim();
    let (sign, size) = match text.strip_prefix('-') {
        Some(size) => (-1, size.trim_start()),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if let Some((top, bottom)) = decimal(size).or_else(|| mixed(size)) {
        let shared = gcd(top, bottom);
        let (top, bottom) = (sign * top / shared, bottom / shared);
        return Some(if bottom == 1 {
            top.to_string()
        } else {
            format!("{top}/{bottom}")
        });
    }
    let (top, bottom) = fraction(size)?;
    Some(format!("{}/{bottom}", sign * top))
}

/// The greatest common divisor; at least 1.
pub(super) fn gcd(left: i128, right: i128) -> i128 {
    let (mut left, mut right) = (left.abs(), right.abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left.max(1)
}

/// Digits alone, few enough to calculate with.
fn whole(text: &str) -> Option<i128> {
    let digits = !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit());
    (digits && text.len() <= 18)
        .then(|| text.parse().ok())
        .flatten()
}

fn decimal(text: &str) -> Option<(i128, i128)> {
    let (units, parts) = text.split_once('.').unwrap_or((text, ""));
    let top = whole(&[units, parts].concat())?;
    let bottom = 10_i128.checked_pow(u32::try_from(parts.len()).ok()?)?;
    Some((top, bottom))
}

/// `\frac{a}{b}` or `a/b` of whole numbers, `a` with its sign.
fn fraction(text: &str) -> Option<(i128, i128)> {
    let (top, bottom) = match text.strip_prefix("\\frac") {
        Some(rest) => {
            let (top, rest) = argument(rest)?;
            let (bottom, rest) = argument(rest)?;
            (top, rest.trim().is_empty().then_some(bottom)?)
        }
        None => text.split_once('/')?,
    };
    let (sign, top) = match top.trim().strip_prefix('-') {
        Some(top) => (-1, top),
        None => (1, top),
    };
    let bottom = whole(bottom.trim()).filter(|bottom| *bottom > 0)?;
    Some((sign * whole(top.trim())?, bottom))
}

/// A whole number and a fraction: `3\frac{1}{2}` or `3 1/2`.
fn mixed(text: &str) -> Option<(i128, i128)> {
    let at = text.find("\\frac").or_else(|| text.find(' '))?;
    let units = whole(text[..at].trim())?;
    let (top, bottom) = fraction(text[at..].trim()).filter(|(top, _)| *top >= 0)?;
    Some((units.checked_mul(bottom)?.checked_add(top)?, bottom))
}

/// The argument that a command of LaTeX takes next, in braces, a command or a single letter, and the rest.
fn argument(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    if let Some(inside) = text.strip_prefix('{') {
        return braced(inside);
    }
    if let Some(name) = text.strip_prefix('\\') {
        let behind = name.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
        return Some(text.split_at(text.len() - behind.len()));
    }
    let first = text.chars().next()?;
    Some(text.split_at(first.len_utf8()))
}

/// Another text: fractions as `a/b`, roots as `sqrt(a)` and `sqrt[n](a)`, powers as `a^b`, without other braces, spaces and signs of
/// products that need none. Parts of a fraction, powers, indices and arguments are put in parentheses where they would be misread without.
fn symbols(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    loop {
        let command = |name: &'static str| Some((rest.find(name)?, name));
        let next = ["\\frac", "\\sqrt", "\\binom", "\\overline", "^{", "_{"].into_iter();
        let Some((at, name)) = next.filter_map(command).min() else {
            break;
        };
        // The brace behind a power or an index is that of its argument.
        let mark = name.trim_end_matches('{');
        let behind = &rest[at + mark.len()..];
        let degree = match name {
            "\\sqrt" => degree(behind.trim_start()),
            _ => None,
        };
        let behind = degree.map_or(behind, |(_, root)| root);
        let Some((first, after)) = argument(behind) else {
            break;
        };
        shown.push_str(&rest[..at]);
        rest = after;
        let mut first = symbols(first);
        match name {
            "\\sqrt" => {
                let degree = degree.map(|(degree, _)| ["[", &symbols(degree), "]"].concat());
                let degree = degree.unwrap_or_default();
                shown.push_str(&["sqrt", &degree, "(", &first, ")"].concat());
            }
            "\\binom" | "\\overline" => {
                let is_one = first.chars().count() == 1;
                shown.push_str(&[name, &grouped(first, is_one)].concat());
                let second = (name == "\\binom").then(|| argument(after)).flatten();
                if let Some((second, after)) = second {
                    let second = symbols(second);
                    let is_one = second.chars().count() == 1;
                    shown.push_str(&grouped(second, is_one));
                    rest = after;
                }
            }
            "^{" | "_{" => {
                let size = first.strip_prefix('-').unwrap_or(&first);
                let is_one = is_factor(size);
                shown.push_str(&[mark, &grouped(first, is_one)].concat());
            }
            _ => {
                // A fraction may be a power without braces of its own.
                let is_power = shown.trim_end().ends_with('^');
                if is_power {
                    shown.push('(');
                }
                let size = first.strip_prefix('-');
                let is_term = size.is_some_and(|size| !size.contains(['+', '-']));
                if is_term && begins(&shown) {
                    shown.push('-');
                    first.remove(0);
                }
                let is_one = !first.contains(['+', '-', '*', '/']) || is_factor(&first);
                shown.push_str(&grouped(first, is_one));
                if let Some((second, after)) = argument(after) {
                    let second = symbols(second);
                    let is_one = is_factor(&second);
                    shown.push_str(&["/", &grouped(second, is_one)].concat());
                    rest = after;
                }
                if is_power {
                    shown.push(')');
                }
            }
        }
    }
    shown.push_str(rest);
    let is_kept = |letter: &char| !letter.is_whitespace() && !"{}".contains(*letter);
    let letters: Vec<char> = shown.chars().filter(is_kept).collect();
    let needs = |at: usize| letters.get(at + 1).is_some_and(char::is_ascii_digit);
    let kept = letters.iter().enumerate();
    kept.filter(|(at, letter)| **letter != '*' || needs(*at))
        .map(|(_, letter)| letter)
        .collect()
}

/// The degree of a root, in brackets before what is under it, and the rest.
fn degree(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('[')?.split_once(']')
}

/// Tells whether what follows a text begins an expression, so that a sign of it is a sign of the whole.
fn begins(before: &str) -> bool {
    let before = before.trim_end();
    let opens = before.ends_with(['(', '[', ',', ';', '&', '=']);
    before.is_empty() || opens || before.ends_with("matrix}")
}

/// Tells whether a text is one factor: a number, a letter, a command, a root, an expression in parentheses or bars, or a power of one.
fn is_factor(text: &str) -> bool {
    let root = text.strip_prefix("sqrt");
    let root = root.map(|root| degree(root).map_or(root, |(_, root)| root));
    let bare = root.unwrap_or(text);
    let mut pairs = [['(', ')'], ['|', '|']].into_iter();
    let inside = |[open, close]: [char; 2]| {
        let (inside, rest) = bare.strip_prefix(open)?.split_once(close)?;
        (!inside.contains(open)).then_some(rest)
    };
    let is_digit = |letter: char| letter.is_ascii_digit() || letter == '.';
    let rest = if let Some(rest) = pairs.find_map(inside) {
        rest
    } else if let Some(name) = text.strip_prefix('\\') {
        name.trim_start_matches(|letter: char| letter.is_ascii_alphabetic())
    } else if text.starts_with(is_digit) {
        text.trim_start_matches(is_digit)
    } else {
        let mut letters = text.chars();
        letters.next();
        letters.as_str()
    };
    let rest = rest.trim_start_matches(['!', '\'']);
    match rest.strip_prefix(['^', '_']) {
        Some(power) => is_factor(power.strip_prefix('-').unwrap_or(power)),
        None => rest.is_empty(),
    }
}

/// A part of a fraction or a power, in parentheses unless it is one.
fn grouped(part: String, is_one: bool) -> String {
    if is_one { part } else { format!("({part})") }
}
