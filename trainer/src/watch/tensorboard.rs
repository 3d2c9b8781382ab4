//! TensorBoard event files: records framed as in TFRecord, each one protocol-buffer message `Event` with the scalars of a
//! row. Formats: tensorflow's `core/util/event.proto`, `core/framework/summary.proto`, `core/lib/io/record_writer`.
//!
//! The few fields in use are encoded here: a code generator for them would outweigh the format.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::aliases::{Aliases, rename};
use crate::file_error::FileError;
use crate::metrics::Row;

/// Writes the scalars of rows into one event file, each row as it comes.
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    file: File,
    names: Aliases,
}

impl EventWriter {
    /// Starts a new file in `folder` for a run that begins or continues at `step`. Points from that step on in older files
    /// of the folder are orphans of the resumed run: the file opens with the session start that makes TensorBoard drop them.
    ///
    /// # Errors
    /// [`FileError`] when the folder cannot be made, read or written.
    pub fn create(
        folder: &Path,
        step: u64,
        names: Aliases,
        now: SystemTime,
    ) -> Result<Self, FileError> {
        let fail = |error: std::io::Error| FileError {
            path: folder.to_owned(),
            message: format!(
                "event files cannot be kept: {error}; check the folder and the free space of its disk"
            ),
        };
        std::fs::create_dir_all(folder).map_err(fail)?;
        let number = next_number(folder, now).map_err(fail)?;
        let path = folder.join(format!("{PREFIX}{number:010}.forage"));
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(&path)
            .map_err(fail)?;
        let mut writer = Self { path, file, names };
        writer.record(&Message::event(now, 0).bytes(FILE_VERSION, b"brain.Event:2"))?;
        writer.record(
            &Message::event(now, step)
                .bytes(SESSION_LOG, &Message::default().integer(STATUS, START).0),
        )?;
        Ok(writer)
    }

    /// Appends the numbers of one row. What is not finite is written as NaN, which TensorBoard marks in the chart.
    ///
    /// # Errors
    /// [`FileError`] when the disk refuses it.
    pub fn write(&mut self, row: &Row, now: SystemTime) -> Result<(), FileError> {
        let mut summary = Message::default();
        for (name, value) in row.0.iter().filter(|(name, _)| *name != "step") {
            let number = match value {
                Value::Number(number) => number.as_f64().unwrap_or(f64::NAN),
                Value::Null => f64::NAN,
                _ => continue,
            };
            let point = Message::default()
                .bytes(TAG, rename(self.names, name).as_bytes())
                .float(SIMPLE_VALUE, number as f32);
            summary = summary.bytes(VALUE, &point.0);
        }
        self.record(&Message::event(now, row.step()).bytes(SUMMARY, &summary.0))
    }

    /// The file written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn record(&mut self, message: &Message) -> Result<(), FileError> {
        let length = (message.0.len() as u64).to_le_bytes();
        let mut record = length.to_vec();
        record.extend(masked_crc(&length).to_le_bytes());
        record.extend(&message.0);
        record.extend(masked_crc(&message.0).to_le_bytes());
        self.file.write_all(&record).map_err(|error| FileError {
            path: self.path.clone(),
            message: format!("cannot be written: {error}; check the free space of the disk"),
        })
    }
}

const PREFIX: &str = "events.out.tfevents.";

/// Files are read in the order of their names, so the number, by habit the second of the start, must grow with each start
/// even when two fall into one second or the clock was set back.
fn next_number(folder: &Path, now: SystemTime) -> std::io::Result<u64> {
    let mut number = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| {
            name.strip_prefix(PREFIX)?
                .split('.')
                .next()?
                .parse::<u64>()
                .ok()
        });
        number = number.max(digits.map_or(0, |before| before + 1));
    }
    Ok(number)
}

/// The checksum of TFRecord: CRC-32C, rotated and shifted so that checksums of checksums stay strong.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

// Field numbers of `Event`, `SessionLog`, `Summary` and `Summary.Value`.
const WALL_TIME: u64 = 1;
const STEP: u64 = 2;
const FILE_VERSION: u64 = 3;
const SUMMARY: u64 = 5;
const SESSION_LOG: u64 = 7;
const STATUS: u64 = 1;
const VALUE: u64 = 1;
const TAG: u64 = 1;
const SIMPLE_VALUE: u64 = 2;
/// `SessionLog.SessionStatus.START`.
const START: u64 = 1;

/// A protocol-buffer message under construction. Fields are appended in the order of their numbers, numbers that are 0 left
/// out, as the reference encoder does.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn event(now: SystemTime, step: u64) -> Self {
        let seconds = now
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64());
        let mut message = Self::default();
        message.varint(WALL_TIME << 3 | 1);
        message.0.extend(seconds.to_le_bytes());
        message.integer(STEP, step)
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn integer(mut self, field: u64, value: u64) -> Self {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
        self
    }

    fn float(mut self, field: u64, value: f32) -> Self {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }
}
