use proptest::prelude::*;

use super::*;

fn is_field(name: &str) -> bool {
    matches!(name, "title" | "a")
}

/// The tokens by their definition, whatever time they take: each sign is looked at with all that is left of its run.
fn by_definition(text: &str) -> (Vec<Token>, Vec<ParseIssue>) {
    let mut issues = Issues::default();
    let mut lexer = Lexer {
        text,
        at: 0,
        tokens: Vec::new(),
        is_field: &is_field,
        issues: &mut issues,
    };
    while let Some(letter) = lexer.peek() {
        let rest = lexer.rest();
        if letter == ')' {
            lexer.push(TokenKind::Close, 1);
            suffixes(&mut lexer, false);
        } else if is_quote(letter) {
            lexer.quoted(letter);
            suffixes(&mut lexer, true);
        } else if is_delimiter(letter) || rest.starts_with("&&") || rest.starts_with("||") {
            lexer.step(letter);
        } else {
            run(&mut lexer);
        }
    }
    let tokens = lexer.tokens;
    (tokens, issues.finish(text.len()))
}

fn run_of(text: &str) -> &str {
    let ends = [text.find(is_delimiter), text.find("&&"), text.find("||")];
    let end = ends.into_iter().flatten().min();
    &text[..end.unwrap_or(text.len())]
}

fn run(lexer: &mut Lexer<'_>) {
    let run = run_of(lexer.rest());
    let after = &lexer.rest()[run.len()..];
    let followed = after.starts_with(|next| next == '(' || is_quote(next));
    let first = run.chars().next();
    match (run, first, run.find(':')) {
        ("AND", ..) => lexer.push(TokenKind::And, 3),
        ("OR", ..) => lexer.push(TokenKind::Or, 2),
        ("NOT", ..) => lexer.push(TokenKind::Not, 3),
        _ if !followed && !has_word(run) => {
            lexer.push(TokenKind::Word(run.to_owned()), run.len());
        }
        (_, Some('+'), _) => lexer.push(TokenKind::Plus, 1),
        (_, Some('-'), _) => lexer.push(TokenKind::Minus, 1),
        (_, Some('!'), _) => lexer.push(TokenKind::Not, 1),
        (_, _, Some(colon)) => lexer.colon(run, colon),
        (_, _, None) => lexer.word(run, false),
    }
}

fn suffixes(lexer: &mut Lexer<'_>, after_phrase: bool) {
    loop {
        match lexer.peek() {
            Some('^') => {
                let run = run_of(lexer.rest());
                let is_part = |letter: &char| letter.is_ascii_digit() || *letter == '.';
                let digits: String = run[1..].chars().take_while(is_part).collect();
                if let Some(value) = boost_of(&digits) {
                    lexer.boost(value, digits.len() + 1);
                } else {
                    lexer.no_boost(lexer.at..lexer.at + run.len());
                    lexer.at += run.len();
                }
            }
            Some('~') => lexer.slop(after_phrase),
            Some('*') => {
                let message = "`*` only works at the end of a word; ignored";
                lexer.issues.add(lexer.at..lexer.at + 1, message);
                lexer.at += 1;
            }
            _ => return,
        }
    }
}

fn pieces() -> impl Strategy<Value = String> {
    // With letters that join what is before them, marks and a joiner: what a sign is followed by need not begin a word.
    let piece = prop::sample::select(vec![
        "a",
        "é",
        "東",
        "AND",
        "OR",
        "NOT",
        "&",
        "|",
        "&&",
        "||",
        "+",
        "-",
        "!",
        "--",
        "+!-",
        "(",
        ")",
        "\"",
        "^",
        "^2",
        "^.",
        "~",
        "~3",
        "*",
        ":",
        "a:",
        "title:",
        "http://",
        ".",
        "...",
        "_",
        "'",
        "\\",
        "\u{300}",
        "\u{200d}",
        "\u{1f469}",
        "\u{1f1e6}",
        " ",
        " ",
        "\t",
    ]);
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn one_pass_gives_the_tokens_of_the_definition(text in pieces()) {
        let mut issues = Issues::default();
        let found = tokens(&text, &is_field, &mut issues);
        prop_assert_eq!((found, issues.finish(text.len())), by_definition(&text));
    }
}
