//! The nearest known name to one that is not known, for error messages.

/// The candidate with the smallest edit distance to `name`; the first of equals, `""` without candidates.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> &'a str {
    candidates
        .into_iter()
        .min_by_key(|candidate| distance(name, candidate))
        .unwrap_or("")
}

/// Levenshtein distance in characters.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, left_char) in left.chars().enumerate() {
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
}
