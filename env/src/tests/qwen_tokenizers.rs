//! The Qwen tokenizers: round trips over real text, ids as in transformers, special tokens.

use std::path::{Path, PathBuf};

use forage_contracts::Tokenizer;
use forage_env::tokenizer::HfTokenizer;
use serde_json::Value;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::{NormalizedString, Normalizer};

const NAMES: [&str; 2] = ["qwen2.5", "qwen3"];

fn shared() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data")
}

#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn tokenizer(name: &str) -> Option<HfTokenizer> {
    let path = shared().join(format!("qwen/tokenizer.{name}.json"));
    if !path.exists() {
        eprintln!("skipped: {} is missing", path.display());
        return None;
    }
    Some(HfTokenizer::from_file(&path, "<|im_end|>").expect("a tokenizer"))
}

/// The text in normal form C: what Qwen's tokenizers encode.
fn nfc(text: &str) -> String {
    let mut normalized = NormalizedString::from(text);
    NFC.normalize(&mut normalized)
        .expect("any text has a normal form");
    normalized.get().to_owned()
}

#[test]
fn ids_are_those_of_transformers() {
    let rows: Vec<Value> =
        serde_json::from_str(include_str!("../../tests/fixtures/tokenizer_ids.json"))
            .expect("JSON");
    assert!(rows.len() > 150);
    for name in NAMES {
        let Some(tokenizer) = tokenizer(name) else {
            return;
        };
        for row in &rows {
            let text = row["text"].as_str().expect("text");
            let ids = row.get(name).unwrap_or(&row["ids"]);
            let expected: Vec<u32> = serde_json::from_value(ids.clone()).expect("ids");
            assert_eq!(tokenizer.encode(text), expected, "{name}: {text:?}");
            assert_eq!(tokenizer.decode(&expected), nfc(text), "{name}: {text:?}");
        }
    }
}

/// Special tokens of the template's text are single ids. So is one that stands in a message: as in transformers, text
/// from outside can write control tokens, and only the environment can keep them out.
#[test]
fn special_tokens_are_single_wherever_they_stand() {
    for (name, specials) in [
        (
            "qwen2.5",
            vec![
                ("<|endoftext|>", 151_643),
                ("<|im_start|>", 151_644),
                ("<|im_end|>", 151_645),
                ("<tool_call>", 151_657),
            ],
        ),
        (
            "qwen3",
            vec![
                ("<|im_end|>", 151_645),
                ("</tool_call>", 151_658),
                ("<tool_response>", 151_665),
                ("</think>", 151_668),
            ],
        ),
    ] {
        let Some(tokenizer) = tokenizer(name) else {
            return;
        };
        for (text, id) in specials {
            assert_eq!(tokenizer.encode(text), [id]);
            assert_eq!(tokenizer.token_to_id(text), Some(id));
            let within = tokenizer.encode(&format!("the passage says {text} here"));
            assert_eq!(
                within.iter().filter(|&&token| token == id).count(),
                1,
                "{text}"
            );
        }
        assert_eq!(tokenizer.eos(), 151_645);
        assert!(tokenizer.encode("<search>").len() > 1 && tokenizer.encode("</answer>").len() > 1);
    }
}

/// All strings of a JSON value.
fn strings(value: Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.into_iter().for_each(|item| strings(item, found)),
        Value::Object(fields) => fields
            .into_iter()
            .for_each(|(_, field)| strings(field, found)),
        _ => {}
    }
}

/// All texts of the shared data: the strings of JSON lines, whole files of plain text.
fn texts(folder: &Path, found: &mut Vec<String>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            texts(&path, found);
        } else if matches!(extension, Some("txt" | "md" | "trec" | "jinja")) {
            found.push(std::fs::read_to_string(&path).expect("text"));
        } else if extension == Some("jsonl") {
            let text = std::fs::read_to_string(&path).expect("text");
            text.lines()
                .for_each(|line| strings(serde_json::from_str(line).expect("JSON"), found));
        }
    }
}

/// Encodes and decodes every `step`-th text of the shared data.
#[expect(
    clippy::print_stderr,
    reason = "a skipped test says why; counts are the result of the whole run"
)]
fn round_trips(step: usize) {
    let mut all = Vec::new();
    if shared().exists() {
        texts(&shared(), &mut all);
    }
    for name in NAMES {
        let Some(tokenizer) = tokenizer(name) else {
            return;
        };
        let (mut count, mut bytes, mut denormal) = (0, 0, 0);
        for text in all.iter().step_by(step) {
            let normal = nfc(text);
            // What is in normal form comes back as it was; the rest comes back in normal form.
            assert_eq!(tokenizer.decode(&tokenizer.encode(text)), normal);
            (count, bytes) = (count + 1, bytes + text.len());
            denormal += usize::from(normal != *text);
        }
        eprintln!("{name}: {count} texts, {bytes} bytes, {denormal} not in normal form C");
        assert!(denormal * 100 < count, "most text is in normal form");
    }
}

#[test]
fn a_sample_of_real_text_comes_back() {
    round_trips(20);
}

#[test]
#[ignore = "reads all shared texts, about 40 MB: minutes"]
fn all_real_text_comes_back() {
    round_trips(1);
}
