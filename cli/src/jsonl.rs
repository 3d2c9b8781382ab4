//! Files of one JSON value per line.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;

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
        match line {
            Ok(line) if line.trim().is_empty() => None,
            Ok(line) => {
                let value =
                    serde_json::from_str(&line).with_context(|| format!("{}: not {form}", place()));
                Some(value.map(|value| Line { number, value }))
            }
            Err(error) => Some(Err(error).with_context(place)),
        }
    });
    values.collect()
}

/// A file that appears when it is complete. That it can be written is known before there is anything to write.
pub(crate) struct Output<'a> {
    path: &'a Path,
    file: NamedTempFile,
}

impl<'a> Output<'a> {
    pub(crate) fn create(path: &'a Path) -> Result<Self> {
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
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As other new files have: what the umask leaves of this.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let file = builder
            .tempfile_in(folder)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Writes all rows and puts the file in its place.
    pub(crate) fn write<T: Serialize>(self, rows: impl IntoIterator<Item = T>) -> Result<()> {
        let cannot_write = || format!("cannot write {}", self.path.display());
        let mut writer = BufWriter::new(self.file);
        for row in rows {
            serde_json::to_writer(&mut writer, &row).with_context(cannot_write)?;
            writer.write_all(b"\n").with_context(cannot_write)?;
        }
        let file = writer
            .into_inner()
            .map_err(|error| anyhow!("{}: {}", cannot_write(), error.error()))?;
        file.as_file().sync_all().with_context(cannot_write)?;
        file.persist(self.path).with_context(cannot_write)?;
        Ok(())
    }
}
