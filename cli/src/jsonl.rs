//! Files of one JSON value per line.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A line that is not blank, with its number from 1.
pub(crate) struct Line<T> {
    pub(crate) number: usize,
    pub(crate) value: T,
}

/// Reads every line; `form` says in an error what a line must be.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, form: &str) -> Result<Vec<Line<T>>> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = BufReader::new(file).lines().enumerate();
    let values = lines.filter_map(|(number, line)| {
        let number = number + 1;
        let place = || format!("{}, line {number}", path.display());
        match line {
            Ok(line) if line.trim().is_empty() => None,
            Ok(line) => {
                let value = serde_json::from_str(&line).with_context(|| format!("{}: not {form}", place()));
                Some(value.map(|value| Line { number, value }))
            }
            Err(error) => Some(Err(error).with_context(place)),
        }
    });
    values.collect()
}

/// Writes a file of `rows`, all or nothing.
pub(crate) fn write<T: Serialize>(path: &Path, rows: impl IntoIterator<Item = T>) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let cannot_write = || format!("cannot write {}", path.display());
    let file = tempfile::NamedTempFile::new_in(folder).with_context(cannot_write)?;
    let mut writer = BufWriter::new(file);
    for row in rows {
        serde_json::to_writer(&mut writer, &row).with_context(cannot_write)?;
        writer.write_all(b"\n").with_context(cannot_write)?;
    }
    let file = writer.into_inner().map_err(|error| anyhow!("{}: {}", cannot_write(), error.error()))?;
    file.persist(path).with_context(cannot_write)?;
    Ok(())
}
