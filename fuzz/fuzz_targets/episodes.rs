//! Episode records over arbitrary bytes: what is read reads back the same when written, and rollouts of the same file can be learned from.

#![no_main]

use std::path::Path;

use forage_contracts::{ByteTokenizer, Episode};
use forage_env::{EpisodeRecord, EpisodeWriter, RecordError};
use forage_trainer::Sample;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fn records(path: &Path) -> Vec<Result<EpisodeRecord, RecordError>> {
    let read = EpisodeRecord::read_all(path).expect("the file is there");
    read.collect()
}

/// Compares two records. Fractions in a tool's arguments may differ in their last digit, since reading and writing rounds them.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let near = |one: f64, other: f64| (one - other).abs() <= 1e-12 * one.abs();
            let numbers = one.as_f64().zip(other.as_f64());
            one == other || numbers.is_some_and(|(one, other)| near(one, other))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(key, value): (&String, &Value)| {
                other.get(key).is_some_and(|other| alike(value, other))
            };
            one.len() == other.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary folder");
    let path = folder.path().join("file");
    std::fs::write(&path, data).expect("room for a small file");
    let _ = Sample::read_groups(&path, 1 << 16, 1 << 12, Some(&ByteTokenizer));
    let episodes: Vec<Episode> = records(&path)
        .into_iter()
        .filter_map(|record| Some(record.ok()?.episode))
        .collect();
    let mut writer = EpisodeWriter::create(&path).expect("room for a small file");
    for episode in &episodes {
        writer
            .write(episode.clone())
            .expect("room for a small file");
    }
    writer.finish().expect("room for a small file");
    let again = records(&path);
    assert_eq!(again.len(), episodes.len());
    for (episode, record) in episodes.iter().zip(again) {
        match record {
            Ok(record) => assert!(
                alike(&json!(episode), &json!(record.episode)),
                "{episode:?}"
            ),
            // JSON has no word for what is too large for an f32, and turns of older records are written with more levels.
            Err(error) => assert!(
                format!("{episode:?}").contains("inf")
                    || format!("{error:?}").contains("recursion"),
                "{error:?}"
            ),
        }
    }
});
