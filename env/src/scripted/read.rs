//! Reading prompts and observations the way a script needs them.

use crate::protocol::Tag;

/// The question of a prompt: what follows its last `Question:` up to the end of the line; else its last line.
pub(super) fn question(prompt: &str) -> &str {
    let question = match prompt.rsplit_once("Question:") {
        Some((_, after)) => after.trim_start().lines().next().unwrap_or_default(),
        None => prompt.trim_end().lines().next_back().unwrap_or_default(),
    };
    // Chat templates close the message on the same line when the template has no line break at its end.
    question.split("<|").next().unwrap_or_default().trim()
}

/// The content of an information block, if the text holds one.
pub(super) fn information(shown: &str) -> Option<&str> {
    let (_, after) = shown.split_once(Tag::Information.opening())?;
    after.rsplit_once(Tag::Information.closing()).map(|(content, _)| content)
}

/// What a program printed, if the text holds it.
pub(super) fn output(shown: &str) -> Option<&str> {
    let (_, after) = shown.split_once("<python_output>")?;
    after.rsplit_once("</python_output>").map(|(content, _)| content.trim())
}

/// Titles of the passages, in order, in the default passage format.
pub(super) fn titles(text: &str) -> impl Iterator<Item = &str> {
    text.split("(Title: \"").skip(1).filter_map(|after| after.split_once("\")").map(|(title, _)| title))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_titles_are_found() {
        assert_eq!(question("Question: is not it\nQuestion: who?\n"), "who?");
        assert_eq!(question("<|im_start|>user\nQuestion: who?<|im_end|>\n<|im_start|>assistant\n"), "who?");
        assert_eq!(question("Tell me:\nwho?\n"), "who?");
        let shown = "\n\n<information>Doc 1(Title: \"A\") x\nDoc 2(Title: \"B (b)\") y</information>\n\n";
        let found = information(shown).expect("a block");
        assert_eq!(titles(found).collect::<Vec<_>>(), ["A", "B (b)"]);
        assert_eq!(information("none"), None);
        assert_eq!(output("\n<python_output>\nA\n</python_output>\n"), Some("A"));
        assert_eq!(output("none"), None);
    }
}
