//! The sources of the values: each value of a recipe says behind itself where it is from.

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Table, Value};

use super::{RECIPES, Recipe};

/// The source of what no publication says.
const OURS: &str = "ours";
/// Begins the list of sources at the head of a file.
const LIST: &str = "# Sources of the values";
/// Sections of which every value has a source.
const PUBLISHED: [&str; 4] = ["policy", "reward", "grpo", "environment.settings"];
/// Parts of these that are texts, protocols of a profile, or say what a machine can hold.
const OTHERS: [&str; 6] = [
    "environment.settings.prompt",
    "environment.settings.observation",
    "grpo.checkpoint_every",
    "grpo.keep_checkpoints",
    "grpo.evaluate_every",
    "grpo.update.micro_batch_tokens",
];
/// Keys inside of a value whose numbers are ours.
const PLAIN: [&str; 4] = ["weight", "top_share", "least_answers", "max_tokens"];

/// A value with the words behind it.
struct Line {
    key: String,
    value: Value,
    source: String,
    words: String,
}

/// Tells whether a path is one of these, or inside of one.
fn is_in(paths: &[&str], path: &str) -> bool {
    paths.iter().any(|known| {
        path.strip_prefix(known)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// The values of a recipe that have sources.
fn lines(recipe: &Recipe) -> Vec<Line> {
    let (mut section, mut found) = (String::new(), Vec::new());
    for line in recipe.text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            name.trim_end_matches(']').clone_into(&mut section);
        }
        let Some((name, rest)) = line.split_once(" = ") else {
            continue;
        };
        let key = format!("{section}.{name}");
        let is_text = rest.starts_with("'''") || name.contains([' ', '#', '"']);
        if is_text || !is_in(&PUBLISHED, &key) || is_in(&OTHERS, &key) {
            continue;
        }
        let (value, note) = rest.split_once("  # ").unwrap_or((rest, ""));
        let (source, words) = note.split_once(": ").unwrap_or((note, ""));
        let table: Table = toml::from_str(&format!("value = {value}")).unwrap();
        found.push(Line {
            key,
            value: table["value"].clone(),
            source: source.to_owned(),
            words: words.to_owned(),
        });
    }
    found
}

/// The names of the sources that a file lists.
fn listed(recipe: &Recipe) -> BTreeSet<String> {
    let list = recipe
        .text
        .lines()
        .skip_while(|line| !line.starts_with(LIST));
    let names = list
        .skip(1)
        .map_while(|line| Some(line.strip_prefix("# - ")?.split_once(": ")?.0.to_owned()));
    names.collect()
}

#[test]
fn every_value_names_its_source() {
    for recipe in RECIPES {
        let (listed, lines) = (listed(recipe), lines(recipe));
        assert!(!listed.is_empty() && lines.len() > 20, "{}", recipe.name);
        for Line {
            key, source, words, ..
        } in &lines
        {
            assert!(
                !words.is_empty() && (source == OURS || listed.contains(source)),
                "{}: {key} has no source; write `VALUE  # SOURCE: what it says` with one of {listed:?} or {OURS}",
                recipe.name
            );
        }
        let used = lines.into_iter().map(|line| line.source);
        let used: BTreeSet<String> = used.filter(|source| source != OURS).collect();
        assert_eq!(used, listed, "{}", recipe.name);
    }
}

/// The numbers of a value, those that are ours aside.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Integer(number) => vec![*number as f64],
        Value::Float(number) => vec![*number],
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        Value::Table(table) => table
            .iter()
            .filter(|(key, _)| !PLAIN.contains(&key.as_str()))
            .flat_map(|(_, value)| numbers(value))
            .collect(),
        _ => Vec::new(),
    }
}

/// Numbers that occur in a text: `2,890`, `1e-6`, `top-3`.
fn said(words: &str) -> Vec<f64> {
    let words = words.replace(',', "");
    let parts = words.split(|letter: char| !letter.is_ascii_digit() && !"eE.-".contains(letter));
    let numbers = parts.filter_map(|part| part.trim_start_matches('-').parse().ok());
    numbers.collect()
}

#[test]
fn sources_say_the_numbers_that_are_taken_from_them() {
    for recipe in RECIPES {
        for line in lines(recipe) {
            // Weights of the reward are ours.
            if line.source == OURS || is_in(&["reward"], &line.key) {
                continue;
            }
            let said = said(&line.words);
            for number in numbers(&line.value) {
                let near = |other: &f64| (other - number).abs() <= number.abs() * 1e-9;
                assert!(
                    said.iter().any(near),
                    "{}: {} is {number}, and its source says {:?}",
                    recipe.name,
                    line.key,
                    line.words
                );
            }
            if line.key == "policy.checkpoint" {
                let name = line.value.as_str().unwrap();
                let short = name.rsplit('/').next().unwrap();
                assert!(line.words.contains(short), "{}: {name}", recipe.name);
            }
        }
    }
    let said = said("top-3 of 2,890 at lr=1.0e-6 (0.95)");
    assert_eq!(format!("{said:?}"), "[3.0, 2890.0, 1e-6, 0.95]");
}

/// Checks that quoted words occur in the document they are quoted from, where a copy of it is at hand.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn quoted_words_stand_in_their_documents() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/seeds");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: {} is missing", folder.display());
        return;
    };
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        plain(&std::fs::read_to_string(entry.unwrap().path()).unwrap())
    };
    let documents: Vec<String> = entries.map(read).collect();
    let mut seen = 0;
    for recipe in RECIPES {
        for line in lines(recipe) {
            for quote in line.words.split('"').skip(1).step_by(2) {
                let stands = documents.iter().any(|text| text.contains(&plain(quote)));
                assert!(stands, "{}: {}: {quote:?}", recipe.name, line.key);
                seen += 1;
            }
        }
    }
    assert!(seen > 25, "{seen}");
}
