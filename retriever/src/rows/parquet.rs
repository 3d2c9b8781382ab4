//! Rows of a parquet file, one row group's pages at a time.

mod check;
#[cfg(test)]
mod tests;
mod thrift;

use std::borrow::Cow;
use std::fs::File;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::record::{Field, Row as ParquetRow};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};
use serde_json::Number;

use super::MAX_RECORD_BYTES;
use super::reader::{Place, Rows, Stop};
use crate::panics;
use forage_contracts::{Cell, Row, RowFault};

/// First and last bytes of a parquet file.
pub(super) const MAGIC: [u8; 4] = *b"PAR1";
const FIX: &str = "fetch or write the file again";

/// Reads the columns that are asked for, one row group at a time.
pub(super) struct ParquetRows {
    file: SerializedFileReader<File>,
    /// The same file, for what is checked before it is read.
    raw: File,
    scalars: bool,
    columns: SchemaDescPtr,
    /// Row groups opened so far.
    groups: usize,
    rows: Option<ReaderIter>,
    current: Option<ParquetRow>,
    row: u64,
}

impl ParquetRows {
    /// Opens a file; of `scalars`, lists and maps stay on disk.
    pub(super) fn open(file: File, scalars: bool) -> Result<Self, Stop> {
        let opened = guarded(|| {
            let schema = check::schema(&file)?;
            let raw = file.try_clone()?;
            let options = ReadOptionsBuilder::new().with_parquet_schema(Arc::clone(&schema));
            let file = SerializedFileReader::new_with_options(file, options.build())?;
            let columns = if scalars {
                projection(schema.root_schema())?
            } else {
                schema
            };
            Ok((file, raw, columns))
        });
        let (file, raw, columns) = opened.map_err(|cause| {
            RowFault::new(format!("not a readable parquet file ({cause})"), FIX)
        })?;
        Ok(Self {
            file,
            raw,
            scalars,
            columns,
            groups: 0,
            rows: None,
            current: None,
            row: 0,
        })
    }

    fn next_row(&mut self) -> Result<Option<ParquetRow>, ParquetError> {
        loop {
            if let Some(row) = self.rows.as_mut().and_then(Iterator::next) {
                return row.map(Some);
            }
            if self.groups == self.file.num_row_groups() {
                return Ok(None);
            }
            let described = self.file.metadata().row_group(self.groups);
            check::row_group(&self.raw, described, self.scalars)?;
            let group = self.file.get_row_group(self.groups)?;
            self.rows = Some(TreeBuilder::new().as_iter(self.columns.clone(), group.as_ref())?);
            self.groups += 1;
        }
    }
}

impl Rows for ParquetRows {
    fn advance(&mut self) -> Result<bool, Stop> {
        let read = guarded(|| self.next_row());
        self.row += u64::from(!matches!(read, Ok(None)));
        self.current =
            read.map_err(|cause| RowFault::new(format!("cannot be read ({cause})"), FIX))?;
        Ok(self.current.is_some())
    }

    fn row(&self) -> Result<Row<'_>, RowFault> {
        group(self.current.iter().flat_map(ParquetRow::get_column_iter))
    }

    fn place(&self) -> Place {
        Place::Row(self.row)
    }
}

/// Runs code of the `parquet` crate, which indexes and asserts in places while it decodes damaged files; its panics are
/// damage like any other. The reader is not used again after one: the corpus reader ends at the first error.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    panics::caught(read).unwrap_or_else(|panicked| {
        let what = format!("the data contradicts itself: {panicked}");
        Err(ParquetError::General(what))
    })
}

/// The columns that can become text or fields.
fn projection(schema: &Type) -> Result<SchemaDescPtr, ParquetError> {
    let is_list = |column: &Type| {
        let info = column.get_basic_info();
        let is_repeated =
            info.has_repetition() && info.repetition() == parquet::basic::Repetition::REPEATED;
        is_repeated
            || column.is_group() && info.converted_type() != parquet::basic::ConvertedType::NONE
    };
    let kept = schema
        .get_fields()
        .iter()
        .filter(|column| !is_list(column))
        .cloned()
        .collect::<Vec<_>>();
    if kept.is_empty() {
        return Err(ParquetError::General(
            "no column holds single values".to_owned(),
        ));
    }
    let root = Type::group_type_builder(schema.name())
        .with_fields(kept)
        .build()?;
    Ok(Arc::new(SchemaDescriptor::new(Arc::new(root))))
}

fn group<'a>(columns: impl Iterator<Item = (&'a String, &'a Field)>) -> Result<Row<'a>, RowFault> {
    let mut row = Row::default();
    for (name, field) in columns {
        row.push(name.as_str(), cell(name, field)?);
    }
    Ok(row)
}

/// The value of a column called `name`.
fn cell<'a>(name: &str, field: &'a Field) -> Result<Cell<'a>, RowFault> {
    let integer = |number: i64| Cell::Number(number.into());
    Ok(match field {
        Field::Null => Cell::Null,
        Field::Bool(value) => Cell::Bool(*value),
        Field::Byte(value) => integer((*value).into()),
        Field::Short(value) => integer((*value).into()),
        Field::Int(value) => integer((*value).into()),
        Field::Long(value) => integer(*value),
        Field::UByte(value) => integer((*value).into()),
        Field::UShort(value) => integer((*value).into()),
        Field::UInt(value) => integer((*value).into()),
        Field::ULong(value) => Cell::Number(Number::from(*value)),
        Field::Float(value) => Cell::fraction((*value).into()),
        Field::Double(value) => Cell::fraction(*value),
        Field::Str(text) => Cell::Text(short_enough(name, text)?.into()),
        // Some writers leave the text annotation out.
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => Cell::Text(short_enough(name, text)?.into()),
            Err(_) => Cell::Other(String::from_utf8_lossy(bytes.data()).into_owned()),
        },
        Field::Group(row) => Cell::Group(group(row.get_column_iter())?),
        Field::ListInternal(list) => {
            let cells = list.elements().iter().map(|field| cell(name, field));
            Cell::List(cells.collect::<Result<_, _>>()?)
        }
        Field::MapInternal(map) => {
            let mut nested = Row::default();
            for (key, field) in map.entries() {
                let key: Cow<'_, str> = match key {
                    Field::Str(text) => text.as_str().into(),
                    other => other.to_string().into(),
                };
                nested.push(key, cell(name, field)?);
            }
            Cell::Group(nested)
        }
        other => Cell::Other(other.to_string()),
    })
}

fn short_enough<'a>(name: &str, text: &'a str) -> Result<&'a str, RowFault> {
    if text.len() as u64 > MAX_RECORD_BYTES {
        let what = format!("field `{name}` is longer than 64 MiB");
        Err(RowFault::new(what, "cut the text into several rows"))
    } else {
        Ok(text)
    }
}
