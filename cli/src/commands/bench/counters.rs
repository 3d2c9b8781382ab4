//! Counters of the stub driver (`bench/device/stub`), which keeps them in a file while the program runs.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use forage_trainer::Checkpoint;
use serde_json::{Map, Value};

/// What the driver counts, in the order of the file.
const NAMES: [&str; 17] = [
    "launches",
    "modules_loaded",
    "streams_created",
    "events_created",
    "stream_waits",
    "stream_syncs",
    "event_syncs",
    "host_to_device",
    "host_to_device_bytes",
    "device_to_host",
    "device_to_host_bytes",
    "device_to_device",
    "device_to_device_bytes",
    "allocations",
    "live_bytes",
    "peak_bytes",
    "memsets",
];
/// Those that are levels, not counts.
const LEVELS: [&str; 2] = ["live_bytes", "peak_bytes"];

/// Reads how much was counted between two moments.
pub(super) struct Counters {
    file: Option<PathBuf>,
    before: Vec<u64>,
}

impl Counters {
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        Self {
            file,
            before: vec![0; NAMES.len()],
        }
    }

    /// What was counted since the last call, and levels as they are, once the device has done its work; `None` where nothing
    /// is counted.
    pub(super) fn since(&mut self, checkpoint: &Checkpoint) -> Result<Option<Value>> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        checkpoint.decoder.wait()?;
        let bytes = std::fs::read(file)
            .with_context(|| format!("cannot read the counters in {}", file.display()))?;
        let (numbers, rest) = bytes.as_chunks::<8>();
        ensure!(
            rest.is_empty() && numbers.len() >= NAMES.len(),
            "{} does not hold the counters of the stub driver",
            file.display()
        );
        let now: Vec<u64> = numbers
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect();
        let counted =
            NAMES
                .iter()
                .zip(now.iter().zip(&self.before))
                .map(|(&name, (&now, &before))| {
                    let value = if LEVELS.contains(&name) {
                        now
                    } else {
                        now - before
                    };
                    (name.to_owned(), Value::from(value))
                });
        let counted: Map<String, Value> = counted.collect();
        self.before = now;
        Ok(Some(Value::Object(counted)))
    }
}
