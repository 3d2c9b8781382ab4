//! Files of one JSON value per line.

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, bail};
use forage_eval::write_atomic;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A line that is not blank, with its number from 1.
pub(crate) struct Line<T> {
    pub(crate) number: usize,
    pub(crate) value: T,
}

/// Reads every line; `form` says in an error what a line must be.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, form: &str) -> Result<Vec<Line<T>>> {
    let file =
        std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = BufReader::new(file).lines().enumerate();
    let values = lines.filter_map(|(number, line)| {
        let number = number + 1;
        let place = || format!("{}, line {number}", path.display());
        let line = match line {
            Ok(line) => line,
            Err(error) => return Some(Err(error).with_context(place)),
        };
        let text = if number == 1 {
            without_mark(&line)
        } else {
            line.as_str()
        };
        if text.trim().is_empty() {
            return None;
        }
        let value = serde_json::from_str(text).with_context(|| format!("{}: not {form}", place()));
        Some(value.map(|value| Line { number, value }))
    });
    values.collect()
}

/// A text without the byte-order mark that editors on Windows begin a file with.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// A file that appears when it is complete. That it can be written is known before there is anything to write.
pub(crate) struct Output<'a>(&'a Path);

impl<'a> Output<'a> {
    /// The file at `path`, which is none of the files that its rows are made of.
    pub(crate) fn create(path: &'a Path, inputs: &[impl AsRef<Path>]) -> Result<Self> {
        let own = path.canonicalize().ok().filter(|_| path.is_file());
        let is_own = |input: &Path| own.is_some() && input.canonicalize().ok() == own;
        if inputs.iter().any(|input| is_own(input.as_ref())) {
            bail!(
                "cannot write {}: it is the file that is read; name another one",
                path.display()
            );
        }
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        if path.is_dir() {
            bail!(
                "cannot write {}: it is a folder; name a file",
                path.display()
            );
        }
        // A device or a pipe needs no room in its folder.
        if path.is_file() || !path.exists() {
            tempfile::tempfile_in(folder)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Self(path))
    }

    /// Writes all rows and puts the file in its place.
    pub(crate) fn write<T: Serialize>(self, rows: impl IntoIterator<Item = T>) -> Result<()> {
        let cannot_write = || format!("cannot write {}", self.0.display());
        let mut text = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut text, &row).with_context(cannot_write)?;
            text.push(b'\n');
        }
        write_atomic(self.0, &text).with_context(cannot_write)
    }
}
