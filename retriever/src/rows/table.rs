//! Tables of text: fields between tabs (`.tsv`) or commas (`.csv`), the first line naming them.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use forage_contracts::{Cell, Row, RowFault};

use super::lines::LineReader;
use super::reader::{Place, Rows, Stop};

/// What stands between the fields of a file of this name; none where the name is not a table's.
pub(super) fn separator(path: &Path) -> Option<char> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".gz").unwrap_or(name);
    match name.rsplit_once('.')?.1 {
        "tsv" => Some('\t'),
        "csv" => Some(','),
        _ => None,
    }
}

/// Advice on what stands between the fields of a table.
const SEPARATE: &str = "separate fields by commas in a .csv, by tabs in a .tsv";

/// Reads the lines of a table; blank ones are passed over. A field in quotes may hold separators, and a quote as two; it ends on
/// its line.
pub(super) struct Table {
    lines: LineReader,
    separator: char,
    names: Vec<String>,
}

impl Table {
    pub(super) fn open(file: File, separator: char) -> Result<Self, Stop> {
        let mut lines = LineReader::new(file)?;
        let mut names = Vec::new();
        if lines.advance()? {
            let line = lines.line()?;
            if line.starts_with("sep=") && line.chars().count() == "sep=;".len() {
                let what = format!(
                    "the first line is `{line}`, as spreadsheets write it, and names no fields"
                );
                let fix = format!("remove the line `{line}`, and {SEPARATE}");
                return Err(RowFault::new(what, fix).into());
            }
            let fields = fields(line, separator)?;
            names.extend(fields.into_iter().map(Cow::into_owned));
        }
        if let [only] = names.as_slice()
            && let Some(other) = [';', ',', '\t']
                .into_iter()
                .find(|&mark| mark != separator && only.contains(mark))
        {
            let what =
                format!("the first line has {other:?} between its fields, and no {separator:?}");
            return Err(RowFault::new(what, SEPARATE).into());
        }
        Ok(Self {
            lines,
            separator,
            names,
        })
    }
}

impl Rows for Table {
    fn advance(&mut self) -> Result<bool, Stop> {
        self.lines.advance()
    }

    fn row(&self) -> Result<Row<'_>, RowFault> {
        let fields = fields(self.lines.line()?, self.separator)?;
        let (found, named) = (fields.len(), self.names.len());
        if found != named {
            let what = format!("{found} fields where the first line names {named}");
            return Err(RowFault::new(what, "write a field for each name"));
        }
        let mut row = Row::default();
        for (name, field) in self.names.iter().zip(fields) {
            row.push(name.as_str(), Cell::Text(field));
        }
        Ok(row)
    }

    fn place(&self) -> Place {
        self.lines.place()
    }
}

/// The fields of a line.
fn fields(line: &str, separator: char) -> Result<Vec<Cow<'_, str>>, RowFault> {
    let mut found = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = if let Some(inside) = rest.strip_prefix('"') {
            quoted(inside)?
        } else {
            let end = rest.find(separator).unwrap_or(rest.len());
            (Cow::Borrowed(&rest[..end]), &rest[end..])
        };
        found.push(field);
        match after.strip_prefix(separator) {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(found),
            None => {
                let what = format!("field {} goes on after its closing quote", found.len());
                return Err(RowFault::new(what, "write a quote inside quotes as two"));
            }
        }
    }
}

/// A field after its opening quote, and what follows the closing one.
fn quoted(inside: &str) -> Result<(Cow<'_, str>, &str), RowFault> {
    let mut end = 0;
    while let Some(quote) = inside[end..].find('"') {
        end += quote;
        if !inside[end + 1..].starts_with('"') {
            let text = &inside[..end];
            let field = if text.contains('"') {
                Cow::Owned(text.replace("\"\"", "\""))
            } else {
                Cow::Borrowed(text)
            };
            return Ok((field, &inside[end + 1..]));
        }
        end += 2;
    }
    Err(RowFault::new(
        "a field in quotes has no end on its line",
        "write each row on one line, and a quote inside quotes as two",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_apart_by_separators_outside_of_quotes() {
        let read = |line, separator| fields(line, separator).map_err(|fault| fault.what);
        assert_eq!(read("a\t\"b\"\"c\"\t", '\t').unwrap(), ["a", "b\"c", ""]);
        assert_eq!(
            read("a,\"b,c\",5 \" d", ',').unwrap(),
            ["a", "b,c", "5 \" d"]
        );
        assert_eq!(read("\"\",\"\"\"\"", ',').unwrap(), ["", "\""]);
        assert!(read("\"a", ',').unwrap_err().contains("no end on its line"));
        assert!(read("\"a\"b", ',').unwrap_err().contains("field 1 goes on"));
    }

    #[test]
    fn another_separator_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let opened = Table::open(File::open(&path).unwrap(), separator(&path).unwrap());
            opened.map(|table| table.names).map_err(|stop| match stop {
                Stop::Fault(fault) => fault.what,
                Stop::Io(error) => error.to_string(),
            })
        };
        for (name, text, found) in [
            ("a.csv", "question;answer\nWho, then?;Ada\n", "';'"),
            ("a.csv", "question\tanswer\n", "'\\t'"),
            ("a.tsv", "question,answer\n", "','"),
        ] {
            let told = open(name, text).unwrap_err();
            assert!(
                told.contains(&format!("has {found} between its fields")),
                "{told}"
            );
        }
        for line in ["sep=;", "sep=,"] {
            let told = open("a.csv", &format!("{line}\r\nquestion,answer\n")).unwrap_err();
            let expected = format!("the first line is `{line}`, as spreadsheets write it");
            assert!(told.starts_with(&expected), "{told}");
        }
        assert_eq!(open("a.csv", "question\nWho?\n").unwrap(), ["question"]);
        assert_eq!(open("a.csv", "a;b,c\n").unwrap(), ["a;b", "c"]);
        assert!(open("a.csv", "").unwrap().is_empty());
    }

    #[test]
    fn names_tell_tables() {
        for (name, expected) in [
            ("test.tsv", Some('\t')),
            ("a/psgs_w100.tsv.gz", Some('\t')),
            ("b.csv", Some(',')),
            ("c.jsonl", None),
            ("tsv", None),
        ] {
            assert_eq!(separator(Path::new(name)), expected, "{name}");
        }
    }
}
