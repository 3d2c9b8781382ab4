//! The record of an episode of each built-in environment: a change of what files hold shows in its snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_contracts::scripted::{Cast, ScriptEntry};
use forage_contracts::{ByteTokenizer, EnvEntry};
use forage_env::registry::make;
use forage_env::reward::RewardSet;
use forage_env::rollout::EpisodeRecord;
use serde_json::{Map, Value};

use super::common::{jobs, resources, rollout, task};
use super::conformance::of_this_process;

/// The record of the oracle's episode.
async fn record(entry: &EnvEntry) -> Value {
    let settings = (entry.for_bytes)(Map::new());
    let factory = make(entry.id, settings.into(), resources()).expect(entry.id);
    let cast = Cast::new(Arc::new(ByteTokenizer), [Arc::new(task())]);
    let mut rollout = rollout(
        entry.script(ScriptEntry::ORACLE, cast).expect("an oracle"),
        factory,
    );
    rollout.rewards = Arc::new(RewardSet::measure(entry.outcome));
    let episode = rollout.run(jobs(task(), 1)).await.remove(0);
    assert!(!episode.ending.is_infra(), "{:?}", episode.ending);
    let record = EpisodeRecord::from(episode);
    let written = serde_json::to_value(&record).expect("JSON");
    let read: EpisodeRecord = serde_json::from_value(written.clone()).expect("a record");
    assert_eq!(read, record);
    written
}

/// The same with long lists, which hold an entry per token, told by their lengths and ends.
fn folded(value: Value) -> Value {
    match value {
        Value::Array(list) if list.len() > 8 => {
            let (first, last) = (&list[0], &list[list.len() - 1]);
            Value::from(format!("{} entries from {first} to {last}", list.len()))
        }
        Value::Array(list) => list.into_iter().map(folded).collect(),
        Value::Object(map) => {
            // In the order of keys, whether or not the features of this build keep that of the record.
            let sorted: BTreeMap<String, Value> = map.into_iter().collect();
            let folded = sorted.into_iter().map(|(key, value)| (key, folded(value)));
            Value::Object(folded.collect())
        }
        other => other,
    }
}

#[tokio::test]
async fn records_are_written_as_they_were_reviewed() {
    for entry in of_this_process() {
        let [_, _, name] = entry.names();
        let record = folded(record(entry).await);
        let text = serde_json::to_string_pretty(&record).expect("JSON");
        insta::assert_snapshot!(name, text);
    }
}
