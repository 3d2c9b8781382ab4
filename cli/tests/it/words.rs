//! The wording of comments, errors and docs, as far as it can be checked by words.

use crate::tidy::{ORDER, root, sources};

/// Places that say `is no number` where plain English says `is not a number`.
fn denied_with_no(text: &str) -> Vec<String> {
    // Degrees and quantities, of which there is none.
    const OF_WHICH_NONE: [&str; 16] = [
        "better", "doubt", "fewer", "further", "larger", "less", "limit", "longer", "more", "need",
        "other", "reason", "sign", "smaller", "such", "worse",
    ];
    let is_mark = |word: &&str| ["//", "///", "//!"].contains(word);
    let words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| !is_mark(word))
        .collect();
    let letters = |word: &str| {
        word.replace(|letter: char| !letter.is_alphabetic(), "")
            .to_lowercase()
    };
    let found = words.windows(4).filter(|found| {
        let [before, after] = [found[0], found[3]].map(letters);
        let denies = ["is", "are"].contains(&found[1]) && found[2] == "no";
        denies && !before.ends_with("here") && !OF_WHICH_NONE.contains(&after.as_str())
    });
    found.map(|found| found.join(" ")).collect()
}

#[test]
fn what_something_is_not_is_said_with_not() {
    let text = "`gpu` is no device; there is no device, \"there are no\n// devices\", and it is no longer one. These are\n/// no numbers.";
    let found = denied_with_no(text);
    assert_eq!(found, ["`gpu` is no device;", "These are no numbers."]);
    let mut files = Vec::new();
    for member in ORDER {
        sources(&root().join(member).join("src"), &mut files);
    }
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    for path in files {
        let found = denied_with_no(&std::fs::read_to_string(&path).unwrap());
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}

/// The first lines of the comments of public items that begin with a clause without a noun, `What is asked.`
fn headless(text: &str) -> Vec<&str> {
    let (mut found, mut first) = (Vec::new(), None);
    let (mut in_comment, mut in_attribute) = (false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("///") {
            if !in_comment {
                first = line.strip_prefix("/// ");
            }
            in_comment = true;
            continue;
        }
        in_comment = false;
        // Attributes stand between an item and its comment.
        let is_attribute = in_attribute || line.starts_with('#');
        in_attribute = is_attribute && !line.ends_with(']');
        if is_attribute {
            continue;
        }
        if let Some(comment) = first.take()
            && line.starts_with("pub ")
        {
            let word = comment.split([' ', ':']).next().unwrap_or_default();
            if ["How", "Of", "What", "Where", "Which", "Who", "Whose"].contains(&word) {
                found.push(comment);
            }
        }
    }
    found
}

#[test]
fn comments_of_public_items_begin_with_a_noun_or_a_verb() {
    let text = "/// What is asked.\n/// It is long.\n#[derive(\n    A,\n)]\npub struct B {\n    /// The text.\n    pub c: u8,\n\
                    /// How it is read.\n    pub(crate) d: u8,\n    /// Where.\n    e: u8,\n}\n";
    assert_eq!(headless(text), ["What is asked."]);
    let mut files = Vec::new();
    for member in ORDER {
        sources(&root().join(member).join("src"), &mut files);
    }
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = headless(&text);
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}
