//! The nearest known name to one that is not known, for error messages.

/// Characters of a name that are compared: longer names are rarely typing errors, and the work grows with both lengths.
const COMPARED: usize = 64;

/// The first candidate that begins with `name`, else the one with the smallest edit distance to it, by their first 64 characters, in which
/// a dash is an underscore; the first of equals, `""` without candidates.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> &'a str {
    candidates
        .into_iter()
        .min_by_key(|candidate| {
            let other = !begins(candidate, name);
            (other, if other { distance(name, candidate) } else { 0 })
        })
        .unwrap_or("")
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
        assert_eq!(nearest("formt", ["em", "format", "f1"]), "format");
    }

    #[test]
    fn a_beginning_comes_before_what_is_as_long() {
        let recipes = ["searchlm_v1", "search_r1_v01", "search_r1_v02"];
        for name in ["search_r1", "search-r1"] {
            assert_eq!(nearest(name, recipes), "search_r1_v01");
        }
        assert_eq!(nearest("search_r1_v2", recipes), "search_r1_v02");
    }

    /// Whole, they would take ten billion steps.
    #[test]
    fn a_name_of_megabytes_is_no_work() {
        let begun = std::time::Instant::now();
        let known: Vec<String> = (0..1000)
            .map(|number| format!("task-{number:05}"))
            .collect();
        let known = || known.iter().map(String::as_str);
        assert_eq!(nearest(&"x".repeat(1 << 20), known()), "task-00000");
        assert_eq!(nearest("task-00721x", known()), "task-00721");
        assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    }
}
