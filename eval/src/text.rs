//! Plain-text helpers: aligned tables and atomic files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Columns padded to their widest cell: the first left-aligned, the others right-aligned, a header line above.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let head: Vec<String> = header.iter().map(|&cell| cell.to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate() {
            let wide = widths.get(column).copied().unwrap_or(0);
            let padded = if column == 0 { format!("{cell:<wide$}") } else { format!("  {cell:>wide$}") };
            row.push_str(&padded);
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// Writes a file so that its name never shows a part of it: beside it first, then renamed.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "path has no file name"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(hidden);
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let result = written.and_then(|()| fs::rename(&beside, path));
    if result.is_err() {
        // The first error is the one to report; a leftover temporary file harms nobody.
        let _ = fs::remove_file(&beside);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let rows = vec![vec!["em".into(), "0.5".into()], vec!["searches".into(), "12.25".into()]];
        assert_eq!(table(&["metric", "mean"], rows), "metric     mean\nem          0.5\nsearches  12.25\n");
    }

    #[test]
    fn files_are_replaced_whole() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("verdict.json");
        write_atomic(&path, b"one")?;
        write_atomic(&path, b"two")?;
        assert_eq!(fs::read(&path)?, b"two");
        assert_eq!(fs::read_dir(folder.path())?.count(), 1);
        assert!(write_atomic(&folder.path().join("none/x.json"), b"").is_err());
        Ok(())
    }
}
