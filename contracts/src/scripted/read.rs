//! Reading prompts and observations the way a script needs them.

use crate::task::OracleHop;

/// The question of a prompt: what follows its last `Question:` up to the end of the line; else its last line.
pub(super) fn question(prompt: &str) -> &str {
    let question = match prompt.rsplit_once("Question:") {
        Some((_, after)) => after.trim_start().lines().next().unwrap_or_default(),
        None => prompt.trim_end().lines().next_back().unwrap_or_default(),
    };
    // Chat templates close the message on the same line when the template has no line break at its end.
    question.split("<|").next().unwrap_or_default().trim()
}

/// Titles of the passages, in order, in the default passage format.
pub(super) fn titles(text: &str) -> impl Iterator<Item = &str> {
    text.split("(Title: \"")
        .skip(1)
        .filter_map(|after| after.split_once("\")").map(|(title, _)| title))
}

impl OracleHop {
    /// Splits the query of a known solution into the name it begins with and the keyword after it.
    pub fn name_and_keyword(query: &str) -> (&str, &str) {
        let capital = |word: &str| {
            word.chars()
                .next()
                .is_some_and(|first| !first.is_lowercase())
        };
        let mut end = query.len();
        while let Some((before, word)) = query[..end].rsplit_once(' ') {
            if capital(word) {
                break;
            }
            end = before.len();
        }
        (&query[..end], query[end..].trim_start())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::Tag;

    #[test]
    fn questions_and_titles_are_found() {
        assert_eq!(question("Question: is not it\nQuestion: who?\n"), "who?");
        assert_eq!(
            question("<|im_start|>user\nQuestion: who?<|im_end|>\n<|im_start|>assistant\n"),
            "who?"
        );
        assert_eq!(question("Tell me:\nwho?\n"), "who?");
        let shown =
            "\n\n<information>Doc 1(Title: \"A\") x\nDoc 2(Title: \"B (b)\") y</information>\n\n";
        let found = Tag::Information.inside(shown).expect("a block");
        assert_eq!(titles(found).collect::<Vec<_>>(), ["A", "B (b)"]);
        assert_eq!(Tag::Information.inside("none"), None);
    }

    #[test]
    fn queries_are_taken_apart() {
        assert_eq!(
            OracleHop::name_and_keyword("The Lantern of Banoru publication year"),
            ("The Lantern of Banoru", "publication year")
        );
        assert_eq!(
            OracleHop::name_and_keyword("Kelbi river"),
            ("Kelbi", "river")
        );
        assert_eq!(
            OracleHop::name_and_keyword("Battle of Kelbi"),
            ("Battle of Kelbi", "")
        );
        assert_eq!(OracleHop::name_and_keyword("river"), ("river", ""));
    }
}
