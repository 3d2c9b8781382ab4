use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> (BooleanQuery, Vec<ParseIssue>) {
    parse_with(text, &|name| matches!(name, "page" | "year"))
}

fn check(text: &str, canonical: &str) {
    let (query, issues) = parse(text);
    assert_eq!(query.to_string(), canonical, "{text}");
    assert_eq!(issues, [], "{text}");
    assert_eq!(parse(canonical), (query, vec![]), "{text}");
}

/// Every issue is given as the text it is about and a part of its message.
fn check_repair(text: &str, canonical: &str, expected: &[(&str, &str)]) {
    let (query, issues) = parse(text);
    assert_eq!(query.to_string(), canonical, "{text}");
    assert_eq!(issues.len(), expected.len(), "{text}: {issues:?}");
    for (issue, (at, message)) in issues.iter().zip(expected) {
        assert_eq!(&text[issue.at.clone()], *at, "{text}: {issue:?}");
        assert!(issue.message.contains(message), "{text}: {issue:?}");
    }
}

#[test]
fn connectives() {
    check("tides moon", "tides OR moon");
    check("tides OR moon || sun", "tides OR moon OR sun");
    check("tides AND moon && sun", "tides AND moon AND sun");
    check("a1&&b1||c1", "a1 AND b1 OR c1");
    check("x1 OR y1 AND z1", "x1 OR y1 AND z1");
    check("(x1 OR y1) AND z1", "(x1 OR y1) AND z1");
    check("x1 y1 AND z1 w1", "x1 OR y1 AND z1 OR w1");
    check("((x1))", "x1");
    check("x1 OR (y1 OR z1)", "x1 OR (y1 OR z1)");
    check("x1 AND (y1 AND z1)", "x1 AND (y1 AND z1)");
    check("(x1 AND y1) OR z1", "x1 AND y1 OR z1");
    check("tides and moon", "tides OR moon");
}

#[test]
fn negation() {
    check("tides NOT moon", "tides -moon");
    check("tides -moon", "tides -moon");
    check("tides !moon", "tides -moon");
    check("tides AND NOT moon", "tides AND NOT moon");
    check("tides AND -moon", "tides AND NOT moon");
    check("NOT moon AND tides", "NOT moon AND tides");
    check("tides OR NOT moon", "tides OR NOT moon");
    check("NOT moon OR tides", "NOT moon OR tides");
    check("-moon OR tides", "-moon tides");
    check("+tides OR NOT moon", "+tides OR NOT moon");
    check("+x1 OR NOT y1 OR -z1", "+x1 OR NOT y1 OR -z1");
    check("NOT NOT moon", "moon");
    check("+tides moon", "+tides moon");
    check("+tides +moon", "tides AND moon");
    check("tides AND (NOT moon)", "tides AND (NOT moon)");
    check("tides NOT (moon OR sun)", "tides -(moon OR sun)");
    check("NOT x1 AND NOT y1 OR z1", "NOT x1 AND NOT y1 OR z1");
    check("moon - tide", "moon OR tide");
    check("moon -- tide & sun ...", "moon OR tide OR sun");
}

#[test]
fn phrases_fields_prefixes_boosts() {
    check("\"new york\"", "\"new york\"");
    check("\u{201c}new york\u{201d}~3^2", "\"new york\"~3^2");
    check("\"The Tides\"", "Tides");
    check("\"end of the world\"", "\"end of the world\"");
    check("\"say \\\"no way\\\"\"", "\"say \\\"no way\"");
    check("e-mail", "\"e-mail\"");
    check("president's wife", "president's OR wife");
    check("don't 'quote me'", "don't OR quote OR me");
    check(
        "title:tides text:\"spring tide\"",
        "title:tides OR text:\"spring tide\"",
    );
    check("title:(tides AND moon)", "title:tides AND title:moon");
    check(
        "page:p1 year:\"19 99\" id:a#1",
        "page:p1 OR year:\"19 99\" OR id:a#1",
    );
    check("id:a:b", "id:\"a:b\"");
    check("page:\"\"", "page:\"\"");
    check("tid* title:moo*", "tid* OR title:moo*");
    check("tides^2 moon^0.5 sun^1", "tides^2 OR moon^0.5 OR sun");
    check("(tides moon)^3 AND sun", "(tides OR moon)^3 AND sun");
    check("((tides)^2)^3", "tides^6");
    check("10:30", "\"10:30\"");
    check("\"a:b\"", "\"a:b\"");
}

#[test]
fn repairs_of_structure() {
    check_repair("\"new york", "\"new york\"", &[("\"", "never closed")]);
    check_repair("(tides moon", "tides OR moon", &[("(", "never closed")]);
    check_repair("tides) moon", "tides OR moon", &[(")", "closes nothing")]);
    check_repair("AND tides", "tides", &[("AND", "nothing before")]);
    check_repair("tides AND", "tides", &[("AND", "nothing after")]);
    check_repair("tides OR", "tides", &[("OR", "nothing after")]);
    check_repair("tides NOT", "tides", &[("NOT", "nothing after")]);
    check_repair("tides AND OR moon", "tides AND moon", &[("OR", "between")]);
    check_repair("tides () moon", "tides OR moon", &[("()", "no word")]);
    check_repair("", "", &[("", "nothing to search")]);
    check_repair("the of", "", &[("the of", "nothing to search")]);
    check_repair("+the tides", "tides", &[("the", "no word")]);
    check_repair(
        "the AND tides",
        "tides",
        &[("the", "no word"), ("AND", "nothing before")],
    );
    // An operator goes with the operand beside it that is left out, and does not join others in its place.
    for (text, canonical) in [
        ("tides OR the AND moon", "tides OR moon"),
        ("tides the AND moon", "tides OR moon"),
        ("tides OR () AND moon", "tides OR moon"),
        ("tides AND the AND moon", "tides AND moon"),
        ("tides AND the OR moon", "tides OR moon"),
        ("tides OR moon AND the AND sun", "tides OR moon AND sun"),
    ] {
        let about = if text.contains("()") { "()" } else { "the" };
        check_repair(text, canonical, &[(about, "no word")]);
    }
    check_repair(
        "tides AND the OR of AND moon",
        "tides OR moon",
        &[("the", "no word"), ("of", "no word")],
    );
    check_repair(
        "NOT tides",
        "NOT tides",
        &[("NOT tides", "only says what to leave out")],
    );
    check_repair(
        "-x1 -y1",
        "NOT x1 AND NOT y1",
        &[("-x1 -y1", "only says what to leave out")],
    );
}

#[test]
fn repairs_of_words() {
    check_repair(
        "foo:bar moon",
        "foo OR bar OR moon",
        &[("foo:bar", "not a field")],
    );
    check_repair(
        "foo:bar AND moon",
        "(foo OR bar) AND moon",
        &[("foo:bar", "not a field")],
    );
    check_repair(
        "-foo:bar moon",
        "-(foo OR bar) moon",
        &[("foo:bar", "not a field")],
    );
    check_repair("C++: history", "C OR history", &[("C++:", "not a field")]);
    check_repair("title: tides", "title OR tides", &[("title:", "no value")]);
    check_repair(
        "see https://en.wikipedia.org/wiki/Tide",
        "see OR https OR en.wikipedia.org OR wiki OR Tide",
        &[("https://en.wikipedia.org/wiki/Tide", "not a field")],
    );
    check_repair("tides^x", "\"tides^x\"", &[("^x", "not a boost")]);
    check_repair("(tides)^x moon", "tides OR moon", &[("^x", "not a boost")]);
    check_repair(
        "tides^1e9 moon^5000",
        "\"tides^1e9\" OR moon^1000",
        &[("^1e9", "not a boost"), ("^5000", "above")],
    );
    check_repair("tides~2", "tides", &[("~2", "after a phrase")]);
    check_repair("\"new york\"~", "\"new york\"", &[("~", "needs a number")]);
    check_repair("* tides", "tides", &[("*", "end of a single word")]);
    check_repair("t*de", "\"t*de\"", &[("t*de", "end of a single word")]);
    check_repair("page:p*", "page:\"p*\"", &[("page:p*", "literally")]);
}

#[test]
fn limits() {
    let deep = format!("{}tides{}", "(".repeat(40), ")".repeat(40));
    let (query, issues) = parse(&deep);
    assert_eq!((query.to_string().as_str(), issues.len()), ("tides", 8));

    let many = (0..300)
        .map(|number| format!("w{number}"))
        .collect::<Vec<_>>()
        .join(" ");
    let (query, issues) = parse(&many);
    assert_eq!(query.to_string().matches(" OR ").count(), 255);
    assert_eq!(&many[issues[0].at.clone()], "w256");
    assert_eq!(issues.len(), 1);

    let long = "é ".repeat(40_000);
    let (_, issues) = parse(&long);
    assert!(
        issues
            .iter()
            .any(|issue| issue.at.end == long.len() && issue.message.contains("64 KiB"))
    );

    let prefixes = (0..20)
        .map(|number| format!("w{number}*"))
        .collect::<Vec<_>>()
        .join(" ");
    let (query, issues) = parse(&prefixes);
    assert_eq!(
        (query.to_string().matches('*').count(), issues.len()),
        (16, 4)
    );

    let (_, issues) = parse(&")".repeat(1000));
    assert_eq!(issues.len(), MAX_ISSUES_SHOWN);
}

/// The work grows with the length; it would grow with the square of it if each sign or boost looked at all that follow.
#[test]
fn a_long_query_is_read_in_one_pass() {
    let filled = |before: &str, part: &str, after: &str| {
        let room = Query::MAX_BYTES - before.len() - after.len();
        format!("{before}{}{after}", part.repeat(room / part.len()))
    };
    for text in [
        filled("", "-", "x"),
        filled("", "+!", "\"x\""),
        filled("", "-", "x:y"),
        filled("", "x||", "x"),
        filled("", "&&x", ""),
        filled("(x)", "^1", ""),
        filled("\"x\"", "~1^1", ""),
    ] {
        let begun = std::time::Instant::now();
        parse(&text);
        let took = begun.elapsed();
        assert!(took.as_secs_f64() < 2.0, "{took:?} for {}", &text[..8]);
    }
}

/// Those listed one by one and the line that counts the others.
const MAX_ISSUES_SHOWN: usize = crate::boolean::MAX_ISSUES + 1;

fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "tides",
        "moon",
        "the",
        "e-mail",
        "AND",
        "OR",
        "NOT",
        "&&",
        "||",
        "!",
        "+",
        "-",
        "(",
        ")",
        "\"",
        "\u{201d}",
        "~2",
        "~",
        "^2",
        "^0.5",
        "^x",
        "*",
        "title:",
        "text:",
        "id:",
        "page:",
        "foo:",
        "http://",
        "president's",
        "東京",
        " ",
        " ",
        " ",
        "\\",
        "é",
        "a:b",
        "👩🏽\u{200d}🔬",
        "5000",
        ":",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn check_invariants(text: &str) -> Result<(), TestCaseError> {
    let (query, issues) = parse(text);
    for issue in &issues {
        prop_assert!(text.get(issue.at.clone()).is_some(), "{issue:?}");
        prop_assert!(!issue.message.is_empty());
    }
    let canonical = query.to_string();
    let (again, repairs) = parse(&canonical);
    prop_assert_eq!(&again, &query, "{}", canonical);
    let negative = query.root.as_ref().is_none_or(is_negative);
    prop_assert_eq!(
        repairs.len(),
        usize::from(negative),
        "{} {:?}",
        canonical,
        repairs
    );
    Ok(())
}

/// A term that is two without the characters before it, found by generated text.
#[test]
fn a_term_that_is_several_alone_is_a_phrase() {
    check_invariants("a¡_\u{1a60}𞹉:").unwrap();
}

/// A field of one underscore and a value without a letter, found by fuzzing: printed bare they read as punctuation.
#[test]
fn values_without_a_word_are_printed_in_quotes() {
    for text in ["_:,(h", "_:.", "n:!S:E"] {
        let (query, _) = parse_with(text, &|_| true);
        assert_eq!(
            parse_with(&query.to_string(), &|_| true).0,
            query,
            "{query}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn syntax_round_trips(text in pieces()) {
        check_invariants(&text)?;
    }

    #[test]
    fn any_text_round_trips(text in "\\PC{0,60}") {
        check_invariants(&text)?;
    }

    #[test]
    fn nested_text_round_trips(text in "[()ab\"+ -]{0,200}") {
        check_invariants(&text)?;
    }
}
