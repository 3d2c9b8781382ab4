//! Rows of a parquet file, one row group's pages at a time.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::record::{Field, Row};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

use serde_json::{Map, Value};

use crate::error::ReadError;
use crate::lines::MAX_RECORD_BYTES;
use crate::record::{Cell, Fault, Record};

/// First and last bytes of a parquet file.
pub(super) const MAGIC: [u8; 4] = *b"PAR1";
const MEND: &str = "fetch or write the file again";

/// Reads the scalar columns and those of structs; lists and maps stay on disk, unless all is asked for.
pub(super) struct ParquetRows {
    path: PathBuf,
    file: SerializedFileReader<File>,
    columns: SchemaDescPtr,
    /// Row groups opened so far.
    groups: usize,
    rows: Option<ReaderIter>,
    current: Option<Row>,
    row: u64,
}

impl ParquetRows {
    pub(super) fn open(path: &Path, file: File) -> Result<Self, ReadError> {
        Self::open_columns(path, file, |file| projection(file.metadata().file_metadata().schema_descr().root_schema()))
    }

    /// With every column, for [`Self::json`].
    pub(super) fn open_whole(path: &Path, file: File) -> Result<Self, ReadError> {
        Self::open_columns(path, file, |file| Ok(file.metadata().file_metadata().schema_descr_ptr()))
    }

    fn open_columns(
        path: &Path,
        file: File,
        columns: impl FnOnce(&SerializedFileReader<File>) -> Result<SchemaDescPtr, ParquetError>,
    ) -> Result<Self, ReadError> {
        let fail = |cause: &ParquetError| ReadError::Unreadable {
            path: path.to_owned(),
            what: format!("not a readable parquet file ({cause})"),
            fix: MEND,
        };
        let opened = guarded(|| {
            let file = SerializedFileReader::new(file)?;
            let columns = columns(&file)?;
            Ok((file, columns))
        });
        let (file, columns) = opened.map_err(|cause| fail(&cause))?;
        Ok(Self { path: path.to_owned(), file, columns, groups: 0, rows: None, current: None, row: 0 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// 1-based number of the row read last.
    pub(super) fn row(&self) -> u64 {
        self.row
    }

    /// Reads the next row; false at the end.
    pub(super) fn advance(&mut self) -> Result<bool, ReadError> {
        let read = guarded(|| self.next_row());
        self.row += 1;
        match read {
            Ok(row) => {
                self.current = row;
                Ok(self.current.is_some())
            }
            Err(cause) => Err(self.fault(Fault { what: format!("cannot be read ({cause})"), fix: MEND })),
        }
    }

    fn next_row(&mut self) -> Result<Option<Row>, ParquetError> {
        loop {
            if let Some(row) = self.rows.as_mut().and_then(Iterator::next) {
                return row.map(Some);
            }
            if self.groups == self.file.num_row_groups() {
                return Ok(None);
            }
            let group = self.file.get_row_group(self.groups)?;
            self.rows = Some(TreeBuilder::new().as_iter(self.columns.clone(), group.as_ref())?);
            self.groups += 1;
        }
    }

    /// The row read last.
    pub(super) fn record(&self) -> Result<Record<'_>, ReadError> {
        let mut record = Record::default();
        for (name, field) in self.current.iter().flat_map(Row::get_column_iter) {
            record.push(name.as_str(), cell(field).map_err(|what| self.fault(misfit(name, what)))?);
        }
        Ok(record)
    }

    /// The row read last, all of it.
    pub(super) fn json(&self) -> Map<String, Value> {
        let columns = self.current.iter().flat_map(Row::get_column_iter);
        columns.map(|(name, field)| (name.clone(), json(field))).collect()
    }

    /// The error for the row read last.
    pub(super) fn fault(&self, fault: Fault) -> ReadError {
        let Fault { what, fix } = fault;
        ReadError::MalformedRow { path: self.path.clone(), row: self.row, what, fix }
    }
}

/// Runs code of the `parquet` crate, which indexes and asserts in places while it decodes damaged files; its panics are
/// damage like any other. The reader is not used again after one: the corpus reader ends at the first error.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ParquetError::General("the data contradicts itself".to_owned())))
}

/// The columns that can become text or fields.
fn projection(schema: &Type) -> Result<SchemaDescPtr, ParquetError> {
    let is_list = |column: &Type| {
        let info = column.get_basic_info();
        let is_repeated = info.has_repetition() && info.repetition() == parquet::basic::Repetition::REPEATED;
        is_repeated || column.is_group() && info.converted_type() != parquet::basic::ConvertedType::NONE
    };
    let kept = schema.get_fields().iter().filter(|column| !is_list(column)).cloned().collect::<Vec<_>>();
    if kept.is_empty() {
        return Err(ParquetError::General("no column holds single values".to_owned()));
    }
    let root = Type::group_type_builder(schema.name()).with_fields(kept).build()?;
    Ok(Arc::new(SchemaDescriptor::new(Arc::new(root))))
}

fn cell(field: &Field) -> Result<Cell<'_>, &'static str> {
    Ok(match field {
        Field::Null => Cell::Null,
        Field::Bool(value) => Cell::Bool(*value),
        Field::Byte(value) => Cell::Integer((*value).into()),
        Field::Short(value) => Cell::Integer((*value).into()),
        Field::Int(value) => Cell::Integer((*value).into()),
        Field::Long(value) => Cell::Integer((*value).into()),
        Field::UByte(value) => Cell::Integer((*value).into()),
        Field::UShort(value) => Cell::Integer((*value).into()),
        Field::UInt(value) => Cell::Integer((*value).into()),
        Field::ULong(value) => Cell::Integer((*value).into()),
        Field::Str(text) => Cell::Text(short_enough(text)?.into()),
        // Some writers leave the text annotation out.
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => Cell::Text(short_enough(text)?.into()),
            Err(_) => Cell::List,
        },
        Field::Group(row) => {
            let mut nested = Record::default();
            for (name, field) in row.get_column_iter() {
                nested.push(name.as_str(), cell(field)?);
            }
            Cell::Group(nested)
        }
        Field::ListInternal(_) | Field::MapInternal(_) => Cell::List,
        // Fractions, dates and times have no one spelling to compare.
        _ => Cell::Float,
    })
}

/// A value as JSON: numbers and booleans keep their kinds, dates and times become text.
fn json(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => (*value).into(),
        Field::Byte(value) => (*value).into(),
        Field::Short(value) => (*value).into(),
        Field::Int(value) => (*value).into(),
        Field::Long(value) => (*value).into(),
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => (*value).into(),
        Field::Float(value) => f64::from(*value).into(),
        Field::Double(value) => (*value).into(),
        Field::Str(text) => text.as_str().into(),
        Field::Bytes(bytes) => String::from_utf8_lossy(bytes.data()).into(),
        Field::Group(row) => {
            Value::Object(row.get_column_iter().map(|(name, field)| (name.clone(), json(field))).collect())
        }
        Field::ListInternal(list) => list.elements().iter().map(json).collect(),
        Field::MapInternal(map) => {
            let key = |field: &Field| match field {
                Field::Str(text) => text.clone(),
                other => other.to_string(),
            };
            Value::Object(map.entries().iter().map(|(name, field)| (key(name), json(field))).collect())
        }
        other => other.to_string().into(),
    }
}

fn short_enough(text: &str) -> Result<&str, &'static str> {
    if text.len() as u64 > MAX_RECORD_BYTES { Err("longer than 64 MiB") } else { Ok(text) }
}

fn misfit(name: &str, what: &str) -> Fault {
    Fault { what: format!("field `{name}` is {what}"), fix: "cut the text into several rows" }
}
