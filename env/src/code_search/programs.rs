//! Programs as scripted policies write them.

/// How a short program goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Prints the sentences of the page that hold the keyword.
    Careful,
    /// Prints the first sentence of the page, whatever it says.
    Skimming,
    /// Finds the sentences and forgets to print them.
    Silent,
    /// Calls a function that does not exist.
    Undefined,
    /// Leaves out a colon.
    Malformed,
}

/// Takes the first page found for `name`: one statement or one loop, few tokens.
pub(super) fn short(name: &str, keyword: &str, manner: Manner) -> String {
    let (name, keyword) = (literal(name), literal(keyword));
    let search = if manner == Manner::Undefined {
        "search"
    } else {
        "search_pages"
    };
    let sentences =
        format!("read_section({search}({name})[0][\"page_id\"] + \":full\").split(\".\")");
    let colon = if manner == Manner::Malformed { "" } else { ":" };
    match manner {
        Manner::Skimming => format!("print({sentences}[0])"),
        Manner::Silent => format!("for s in {sentences}:\n if {keyword} in s: s"),
        Manner::Careful | Manner::Undefined | Manner::Malformed => {
            format!("for s in {sentences}{colon}\n if {keyword} in s: print(s)")
        }
    }
}

/// Goes through the pages found, takes the one with the title `name`, and prints the sentences of its sections that hold the
/// keyword.
pub(super) fn thorough(name: &str, keyword: &str) -> String {
    let (name, keyword) = (literal(name), literal(keyword));
    format!(
        "for page in search_pages({name}):
    if page[\"title\"] == {name}:
        for section in view_sections(page[\"page_id\"]):
            for sentence in read_section(section[\"section_id\"]).split(\".\"):
                if {keyword} in sentence:
                    print(sentence.strip())"
    )
}

/// Prints the lines of the pages found for a question that hold one of its names.
pub(super) fn by_question(question: &str) -> String {
    let question = literal(question);
    format!(
        "names = [word.strip(\"?,.\") for word in {question}.split()[1:] if word[0].isupper()]
for page in search_pages({question}):
    for line in read_section(page[\"page_id\"] + \":full\").split(\"\\n\"):
        if any(name in line for name in names):
            print(line)"
    )
}

/// Prints the titles of the pages found for a question.
pub(super) fn titles(question: &str) -> String {
    format!(
        "for page in search_pages({}):\n    print(page[\"title\"])",
        literal(question)
    )
}

/// Programs that do not do what their author wanted: none shows anything of a page.
pub(super) fn broken(question: &str) -> [String; 5] {
    let question = literal(question);
    [
        format!("for page in search_pages({question})\n    print(page[\"title\"])"),
        format!("print(search({question}))"),
        format!("print(search_pages({question})[0][\"text\"])"),
        format!("print(search_pages({question}"),
        format!(
            "def search_pages(query):\n    return wiki.search(query)\nprint(search_pages({question}))"
        ),
    ]
}

/// A Python string literal.
fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_as_python_reads_it() {
        assert_eq!(literal("a \"b\" \\ c\n"), r#""a \"b\" \\ c\n""#);
    }
}
