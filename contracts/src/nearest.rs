//! What error messages suggest in the place of a name that is not known.

/// Characters of a name that are compared: longer names are rarely typing errors, and the work grows with both lengths.
const COMPARED: usize = 64;

/// Names that a message lists at most.
const LISTED: usize = 30;

/// The end of a message about a name that is not known: "did you mean `x`?" where a candidate may be that name with a typing error, else the
/// candidates.
pub fn suggestion<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = candidates.into_iter().collect();
    if let Some(near) = nearest(name, all.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    let listed = all[..all.len().min(LISTED)].join(", ");
    match all.len().saturating_sub(LISTED) {
        0 if all.is_empty() => "there are none".to_owned(),
        0 => format!("there are {listed}"),
        more => format!("there are {listed} and {more} more"),
    }
}

/// Returns true for names that may be one with a typing error, dashes and underscores being alike: `other` begins with `name`, they differ
/// by one letter, or they begin or end alike and share two thirds of their letters.
fn is_like(name: &str, other: &str) -> bool {
    let (own, mut left): (Vec<char>, Vec<char>) =
        (compared(name).collect(), compared(other).collect());
    let longer = left.len().max(own.len());
    let ends = own.first() == left.first() || own.last() == left.last();
    let mut shared = 0;
    for letter in &own {
        if let Some(place) = left.iter().position(|other| other == letter) {
            left.swap_remove(place);
            shared += 1;
        }
    }
    let is_close = longer > 1 && distance(name, other) < 2;
    is_close || begins(other, name) || longer > 0 && ends && 3 * shared >= 2 * longer
}

/// The candidate that may be `name` with a typing error: the first that begins with it, else the one with the smallest edit distance, by
/// their first 64 characters, in which a dash is an underscore; the first of equals, `None` where none is like it.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = candidates.into_iter().min_by_key(|candidate| {
        let other = !begins(candidate, name);
        (other, if other { distance(name, candidate) } else { 0 })
    });
    nearest.filter(|candidate| is_like(name, candidate))
}

/// The characters that are compared.
fn compared(text: &str) -> impl Iterator<Item = char> {
    let folded = text
        .chars()
        .map(|char| if char == '-' { '_' } else { char });
    folded.take(COMPARED)
}

/// Returns true where a candidate begins with a name of three characters or more.
fn begins(candidate: &str, name: &str) -> bool {
    let mut own = compared(candidate);
    name.chars().nth(2).is_some() && compared(name).all(|char| own.next() == Some(char))
}

/// Levenshtein distance in characters, of the first [`COMPARED`] of each.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = compared(right).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, left_char) in compared(left).enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (column, &right_char) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(left_char != right_char);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshtein() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(nearest("formt", ["em", "format", "f1"]), Some("format"));
    }

    #[test]
    fn names_that_are_like_nothing_get_all_of_them() {
        let known = ["math", "search-r1", "query-writer"];
        for (name, near) in [
            ("serach-r1", "search-r1"),
            ("query", "query-writer"),
            ("query_writer", "query-writer"),
        ] {
            assert_eq!(suggestion(name, known), format!("did you mean `{near}`?"));
        }
        assert_eq!(
            suggestion("nosuch", known),
            "there are math, search-r1, query-writer"
        );
        assert_eq!(
            suggestion("", known),
            "there are math, search-r1, query-writer"
        );
        assert_eq!(suggestion("x", []), "there are none");
        let many: Vec<String> = (0..32).map(|number| format!("a{number}")).collect();
        let told = suggestion("zzz", many.iter().map(String::as_str));
        assert!(told.ends_with("a28, a29 and 2 more"), "{told}");
    }

    #[test]
    fn a_beginning_comes_before_what_is_as_long() {
        let recipes = ["searchlm_v1", "search_r1_v01", "search_r1_v02"];
        for name in ["search_r1", "search-r1"] {
            assert_eq!(nearest(name, recipes), Some("search_r1_v01"));
        }
        assert_eq!(nearest("search_r1_v2", recipes), Some("search_r1_v02"));
    }

    /// Whole, they would take ten billion steps.
    #[test]
    fn a_name_of_megabytes_is_no_work() {
        let begun = std::time::Instant::now();
        let known: Vec<String> = (0..1000)
            .map(|number| format!("task-{number:05}"))
            .collect();
        let known = || known.iter().map(String::as_str);
        assert_eq!(nearest(&"x".repeat(1 << 20), known()), None);
        assert_eq!(nearest("task-00721x", known()), Some("task-00721"));
        assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    }
}
