//! Episodes on disk: one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use forage_contracts::reward::RewardEntry;
use forage_contracts::{Episode, Provenance};
use serde::{Deserialize, Serialize};

use crate::registry::REWARDS;

/// One line of a record file: derived figures for people and scripts, then the whole episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpisodeRecord {
    /// [`Self::SCHEMA`] of the writer.
    pub schema: u32,
    /// The training reward; null for infrastructure faults.
    pub reward: Option<f32>,
    /// The last answer; null without one.
    pub answer: Option<String>,
    /// Number of turns.
    pub turns: usize,
    /// Number of searches.
    pub searches: usize,
    /// Tokens in all.
    pub tokens: usize,
    /// Tokens of the opening prompt.
    pub prompt_tokens: usize,
    /// Tokens the policy sampled.
    pub policy_tokens: usize,
    /// Tokens the environment wrote.
    pub environment_tokens: usize,
    /// Everything.
    pub episode: Episode,
}

impl EpisodeRecord {
    /// The version of the record format, counted up when a reader of the old one would misread the new one.
    pub const SCHEMA: u32 = 1;
}

impl From<Episode> for EpisodeRecord {
    fn from(episode: Episode) -> Self {
        Self {
            schema: Self::SCHEMA,
            reward: episode.reward(),
            answer: episode.answer().map(str::to_owned),
            turns: episode.turns.len(),
            searches: episode.searches(),
            tokens: episode.tokens.len(),
            prompt_tokens: episode.tokens.count(Provenance::Prompt),
            policy_tokens: episode.tokens.count(Provenance::Policy),
            environment_tokens: episode.tokens.count(Provenance::Environment),
            episode,
        }
    }
}

/// A record file could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The operating system refused.
    #[error("{action} episode records `{}`; check permissions and free space", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// There is no such file.
    #[error("there is no file of episodes at `{}`; check the path", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A line is not a record.
    #[error("`{}` line {line} is not an episode record; remove the line or the file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The last line has no end: its writer was killed, or is still at work.
    #[error("`{}` line {line} is only half written; wait for its writer, or remove the line", path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// A line was written by another version.
    #[error("`{}` line {line} has schema {found}, this program reads {}", path.display(), EpisodeRecord::SCHEMA)]
    Schema {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Its schema.
        found: u32,
    },
    /// A part of a score is one that its reward cannot give.
    #[error(
        "`{}` line {line} scores {found} in `{part}`, which lies between {low} and {high}; remove the line or the file",
        path.display()
    )]
    Score {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The part.
        part: &'static str,
        /// Its value.
        found: f32,
        /// The least that the reward gives.
        low: f32,
        /// The most that it gives.
        high: f32,
    },
}

/// Appends episodes to `PATH.partial` and renames it to `PATH` when finished, so that a whole file is a finished one.
#[derive(Debug)]
pub struct EpisodeWriter {
    file: BufWriter<File>,
    partial: PathBuf,
    path: PathBuf,
}

impl EpisodeWriter {
    /// Starts a file, replacing the partial one of an interrupted run.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let partial = partial_of(path);
        let file = File::create(&partial).map_err(|source| io_error("create", &partial, source))?;
        Ok(Self {
            file: BufWriter::new(file),
            partial,
            path: path.to_owned(),
        })
    }

    /// Continues the partial file of an interrupted run, or starts one where there is none. Returns the first `most` episodes of the file
    /// and cuts off what follows them, as well as an unfinished last line.
    ///
    /// # Errors
    /// When the file cannot be read or written, or a line is not a record.
    pub fn resume(path: &Path, most: usize) -> Result<(Self, Vec<Episode>), RecordError> {
        let partial = partial_of(path);
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true);
        let file = options
            .open(&partial)
            .map_err(|source| io_error("open", &partial, source))?;
        let (mut episodes, mut whole) = (Vec::new(), 0);
        let mut reader = BufReader::new(&file);
        while episodes.len() < most {
            let mut text = Vec::new();
            reader
                .read_until(b'\n', &mut text)
                .map_err(|source| io_error("read", &partial, source))?;
            if !text.ends_with(b"\n") {
                break;
            }
            let line = episodes.len() + 1;
            episodes.push(parse(&text, &partial, line)?.episode);
            whole += text.len() as u64;
        }
        file.set_len(whole)
            .map_err(|source| io_error("write", &partial, source))?;
        let writer = Self {
            file: BufWriter::new(file),
            partial,
            path: path.to_owned(),
        };
        Ok((writer, episodes))
    }

    /// Appends one episode and hands it to the operating system, so that a killed process loses none.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn write(&mut self, episode: Episode) -> Result<(), RecordError> {
        let record = EpisodeRecord::from(episode);
        let written = serde_json::to_writer(&mut self.file, &record).map_err(std::io::Error::from);
        let flushed = written
            .and_then(|()| self.file.write_all(b"\n"))
            .and_then(|()| self.file.flush());
        flushed.map_err(|source| io_error("write", &self.partial, source))
    }

    /// The file until it is finished.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Syncs the file to disk and gives it its name.
    ///
    /// # Errors
    /// When syncing or renaming fails.
    pub fn finish(self) -> Result<(), RecordError> {
        self.file
            .get_ref()
            .sync_all()
            .map_err(|source| io_error("sync", &self.partial, source))?;
        std::fs::rename(&self.partial, &self.path)
            .map_err(|source| io_error("rename", &self.path, source))
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// When removing fails.
    pub fn discard(self) -> Result<(), RecordError> {
        std::fs::remove_file(&self.partial)
            .map_err(|source| io_error("remove", &self.partial, source))
    }
}

impl EpisodeRecord {
    /// Reads the records of a file one by one, finished or partial.
    ///
    /// # Errors
    /// When the file cannot be opened; each item is an error when its line cannot be read, [`RecordError::Unfinished`] for a last
    /// line without its end.
    pub fn read_all(
        path: &Path,
    ) -> Result<impl Iterator<Item = Result<Self, RecordError>>, RecordError> {
        let file = File::open(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => RecordError::Missing {
                path: path.to_owned(),
            },
            _ => io_error("open", path, source),
        })?;
        let mut reader = BufReader::new(file);
        let path = path.to_owned();
        let mut line = 0;
        Ok(std::iter::from_fn(move || {
            line += 1;
            // Bytes: a line that is being written may end within a character.
            let mut text = Vec::new();
            match reader.read_until(b'\n', &mut text) {
                Ok(0) => None,
                Ok(_) => Some(parse(&text, &path, line)),
                Err(source) => Some(Err(io_error("read", &path, source))),
            }
        }))
    }
}

/// The name of a file until it is finished.
fn partial_of(path: &Path) -> PathBuf {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    PathBuf::from(partial)
}

fn parse(text: &[u8], path: &Path, line: usize) -> Result<EpisodeRecord, RecordError> {
    let record: EpisodeRecord = serde_json::from_slice(text).map_err(|source| {
        let path = path.to_owned();
        // Files that other hands wrote may lack the last line's end.
        if text.ends_with(b"\n") {
            RecordError::Malformed { path, line, source }
        } else {
            RecordError::Unfinished { path, line }
        }
    })?;
    if record.schema != EpisodeRecord::SCHEMA {
        return Err(RecordError::Schema {
            path: path.to_owned(),
            line,
            found: record.schema,
        });
    }
    if let Some((reward, found)) = impossible(&record.episode) {
        let [low, high] = reward.range;
        return Err(RecordError::Score {
            path: path.to_owned(),
            line,
            part: reward.name,
            found,
            low,
            high,
        });
    }
    Ok(record)
}

/// A part of the score that its reward cannot give, among those that are always computed: these take no settings, so their range holds.
fn impossible(episode: &Episode) -> Option<(&'static RewardEntry, f32)> {
    let parts = &episode.score.as_ref()?.parts;
    let measured = REWARDS.iter().filter(|reward| reward.always);
    let mut found = measured.filter_map(|reward| Some((reward, *parts.get(reward.name)?)));
    found.find(|(reward, value)| {
        let [low, high] = reward.range;
        !(low..=high).contains(value)
    })
}

fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> RecordError {
    RecordError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
