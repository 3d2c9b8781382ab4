//! Replies that were verdicts, by the digest of what was asked. One JSON object a line, appended; a line is written at
//! once, and what a killed process left of one is cut off.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use super::error::JudgeError;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// BLAKE3 of the request's body: model, prompt and sampling.
    key: String,
    /// The judge's words.
    reply: String,
}

/// Most slots of a cache without a file.
const MOST: usize = 1 << 14;

/// A reply that is known or being asked for.
#[derive(Debug, Default)]
pub(super) struct Slot {
    reply: OnceCell<String>,
    /// Times that it was asked for in vain.
    failures: AtomicU64,
}

impl Slot {
    /// The reply, by `ask` where it is not known; `keep` is for the reply that all take. All who want it at the same time wait for one
    /// answer. Where that fails, each asks for itself, all at the same time: in turns, the last would wait for a judge that hangs as many
    /// times as there are askers.
    pub(super) async fn reply(
        &self,
        ask: impl Future<Output = Result<String, JudgeError>>,
        keep: impl Fn(&str) -> Result<(), JudgeError>,
    ) -> Result<String, JudgeError> {
        let mut ask = pin!(ask);
        let before = self.failures.load(Ordering::Relaxed);
        let first = async {
            if self.failures.load(Ordering::Relaxed) > before {
                return Err(None);
            }
            let answer = ask.as_mut().await;
            let answer = answer.and_then(|reply| keep(&reply).map(|()| reply));
            if answer.is_err() {
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
            answer.map_err(Some)
        };
        match self.reply.get_or_try_init(|| first).await {
            Ok(reply) => return Ok(reply.clone()),
            Err(Some(error)) => return Err(error),
            Err(None) => {}
        }
        let reply = ask.await?;
        // Another may have been quicker; all take the same one, and that one alone is kept.
        if self.reply.set(reply.clone()).is_ok() {
            keep(&reply)?;
        }
        Ok(self.reply.get().cloned().unwrap_or(reply))
    }
}

/// Replies of this process and of the file.
#[derive(Debug, Default)]
pub(super) struct Cache {
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    file: Option<(PathBuf, Mutex<File>)>,
}

impl Cache {
    /// Reads a file of earlier replies, or starts one, in a folder that is made where it is not there.
    pub(super) fn open(path: &Path) -> Result<Self, JudgeError> {
        let wrong = |what: String| JudgeError::Cache {
            path: path.to_owned(),
            what,
        };
        let failed =
            |cause: std::io::Error| wrong(format!("{cause}; check its folder and permissions"));
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)
            .map_err(failed)?;
        // Another use of the judge, in this process or another, may be writing.
        file.lock().map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let whole = bytes
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(failed)?;
        }
        file.unlock().map_err(failed)?;
        let mut slots = HashMap::new();
        for (number, line) in (1..)
            .zip(bytes[..whole].split(|&byte| byte == b'\n'))
            .filter(|(_, line)| !line.is_empty())
        {
            let line: Line = serde_json::from_slice(line).map_err(|cause| {
                wrong(format!(
                    "line {number} is not a cached reply ({cause}); remove the line"
                ))
            })?;
            let known = Slot {
                reply: OnceCell::new_with(Some(line.reply)),
                failures: AtomicU64::new(0),
            };
            slots.insert(line.key, Arc::new(known));
        }
        Ok(Self {
            slots: Mutex::new(slots),
            file: Some((path.to_owned(), Mutex::new(file))),
        })
    }

    /// The place of a request's reply.
    pub(super) fn slot(&self, key: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a file nobody asked for replies to be kept: those in use are enough to ask equal questions once.
        if self.file.is_none() && slots.len() >= MOST && !slots.contains_key(key) {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        Arc::clone(slots.entry(key.to_owned()).or_default())
    }

    /// Appends a reply to the file.
    pub(super) fn keep(&self, key: &str, reply: &str) -> Result<(), JudgeError> {
        let Some((path, file)) = &self.file else {
            return Ok(());
        };
        let wrong = |what: String| JudgeError::Cache {
            path: path.clone(),
            what,
        };
        let line = serde_json::to_string(&Line {
            key: key.to_owned(),
            reply: reply.to_owned(),
        });
        let line = line.map_err(|cause| wrong(cause.to_string()))? + "\n";
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.lock().and_then(|()| {
            let whole = file.metadata().map(|found| found.len());
            let written = file.write_all(line.as_bytes());
            if let (Err(_), Ok(whole)) = (&written, whole) {
                // Half a line would become the beginning of the next.
                let _ = file.set_len(whole);
            }
            // Others wait for it, whether this line found room or not.
            file.unlock().and(written)
        });
        written.map_err(|cause| wrong(format!("{cause}; check free space")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_written_keeps_nobody_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("verdicts.jsonl");
        std::fs::write(&path, "").unwrap();
        let only_read = File::open(&path).unwrap();
        let cache = Cache {
            slots: Mutex::default(),
            file: Some((path.clone(), Mutex::new(only_read))),
        };
        let error = cache.keep("key", "reply").unwrap_err().to_string();
        assert!(error.contains("verdicts.jsonl"), "{error}");
        File::open(&path)
            .unwrap()
            .try_lock()
            .expect("nobody holds it");
        Cache::open(&path).unwrap().keep("key", "reply").unwrap();
        let reopened = Cache::open(&path).unwrap();
        assert_eq!(
            reopened.slot("key").reply.get().map(String::as_str),
            Some("reply")
        );
    }

    #[test]
    fn without_a_file_only_replies_in_use_are_certain_to_stay() {
        let cache = Cache::default();
        let held = cache.slot("held");
        for number in 0..MOST + 10 {
            cache.slot(&number.to_string());
        }
        assert!(Arc::ptr_eq(&held, &cache.slot("held")));
        assert!(cache.slots.lock().unwrap().len() <= MOST);
    }
}
