//! Plain-text helpers: aligned tables and atomic files.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use crate::stats::Interval;
use crate::summary::number;

/// Columns padded to their widest cell: the first left-aligned, the others right-aligned, a header line above.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let head: Vec<String> = header.iter().map(|&cell| cell.to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate() {
            let wide = widths.get(column).copied().unwrap_or(0);
            let padded = if column == 0 {
                format!("{cell:<wide$}")
            } else {
                format!("  {cell:>wide$}")
            };
            row.push_str(&padded);
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// `0.431 [0.388, 0.475]`.
pub(crate) fn interval(interval: Interval) -> String {
    format!("{} {}", number(interval.estimate), ends(interval))
}

/// `[0.388, 0.475]`.
pub(crate) fn ends(Interval { low, high, .. }: Interval) -> String {
    format!("[{}, {}]", number(low), number(high))
}

/// The beginning of a table's row: a name, the estimate and the ends of its interval.
pub(crate) fn row(name: &str, interval: Interval) -> Vec<String> {
    vec![name.to_owned(), number(interval.estimate), ends(interval)]
}

/// Numbers of this size on have too many digits to be read.
pub(crate) const LARGE: f64 = 1e9;

/// Size below which a difference is what rounding leaves of none.
const ROUNDING: f64 = 1e-6;

/// A difference in a sentence: `+0.21`, `−0.04`, `+0.00`; where two decimals would leave nothing of it, its first two digits: `+0.0042`.
pub(crate) fn signed(value: f64) -> String {
    let size = value.abs();
    if size >= LARGE {
        return format!("{value:+.1e}").replace('-', "−");
    }
    let decimals = if (ROUNDING..0.005).contains(&size) {
        (1.0 - size.log10().floor()) as usize
    } else {
        2
    };
    let text = format!("{value:+.decimals$}");
    if text == "-0.00" {
        "+0.00".to_owned()
    } else {
        text.replace('-', "−")
    }
}

/// The same of a figure that is not a difference: `0.21`.
pub(crate) fn figure(value: f64) -> String {
    signed(value).trim_start_matches('+').to_owned()
}

/// A p-value in a sentence: `= 0.016`, `< 0.001`.
pub(crate) fn p_value(p: f64) -> String {
    let figure = p_figure(p);
    if figure.starts_with('<') {
        figure
    } else {
        format!("= {figure}")
    }
}

/// A p-value in a table: `0.016`, `< 0.001`.
pub(crate) fn p_figure(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

/// The caveat on so many questions without a score; `None` where there is none.
pub(crate) fn lost_questions(count: usize) -> Option<String> {
    let (were, are) = match count {
        0 => return None,
        1 => ("question was", "is"),
        _ => ("questions were", "are"),
    };
    Some(format!(
        "{count} {were} lost to infrastructure faults and {are} left out."
    ))
}

/// Writes a file so that its name never shows a part of it: beside it first, then renamed. A symbolic link stays, and the file that it
/// leads to is replaced; a device or a pipe is written to.
///
/// # Errors
/// When the folder is not there or cannot be written to.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            return OpenOptions::new().write(true).open(path)?.write_all(bytes);
        }
        Ok(_) => path.canonicalize()?,
        Err(_) => path.to_owned(),
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut beside = tempfile::Builder::new();
    #[cfg(unix)]
    beside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut beside = beside.tempfile_in(folder.unwrap_or(Path::new(".")))?;
    beside.write_all(bytes)?;
    beside.as_file().sync_all()?;
    beside.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let rows = vec![
            vec!["em".into(), "0.5".into()],
            vec!["searches".into(), "12.25".into()],
        ];
        assert_eq!(
            table(&["metric", "mean"], rows),
            "metric     mean\nem          0.5\nsearches  12.25\n"
        );
    }

    #[test]
    fn small_figures_show_two_digits() {
        let all = [
            0.213, -0.04, 0.005, 0.0042, -0.001, 0.0003, -1e-17, 0.0, 1.5, -5e29,
        ];
        let shown = [
            "+0.21",
            "−0.04",
            "+0.01",
            "+0.0042",
            "−0.0010",
            "+0.00030",
            "+0.00",
            "+0.00",
            "+1.50",
            "−5.0e29",
        ];
        assert_eq!(all.map(signed), shown);
        assert_eq!([0.0042, 0.5, 0.0].map(figure), ["0.0042", "0.50", "0.00"]);
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

    #[cfg(unix)]
    #[test]
    fn links_stay_and_pipes_are_written_to() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, "one")?;
        std::os::unix::fs::symlink(&file, &link)?;
        write_atomic(&link, b"two")?;
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file)?, b"two");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status()?;
        assert!(made.success());
        let place = pipe.clone();
        let reader = std::thread::spawn(move || fs::read(place));
        write_atomic(&pipe, b"three")?;
        assert!(!pipe.is_file());
        assert_eq!(reader.join().expect("a reader")?, b"three");
        Ok(())
    }
}
