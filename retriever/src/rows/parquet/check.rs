//! What a parquet file says of itself, checked before the `parquet` crate believes it: the crate takes memory for whatever is
//! announced, follows groups as deep as they go, and unpacks gzip to its end.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};

use flate2::bufread::MultiGzDecoder;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaDataReader, RowGroupMetaData};
use parquet::schema::types::SchemaDescPtr;

use super::MAGIC;
use super::thrift::{Kind, Reader, Writer};

/// Most bytes of the description at the end of a file.
const FOOTER_BYTES: u64 = 16 << 20;
/// Most columns and groups.
const ELEMENTS: u64 = 1 << 16;
/// Most groups within each other.
const DEPTH: usize = 64;
/// Most bytes of the pages that are in memory at a time, unpacked.
const PAGE_BYTES: u64 = 1 << 30;
/// Most values of a column of lists in one row group: all of them may belong to one row.
const LIST_VALUES: u64 = 1 << 26;

type Result<T> = std::result::Result<T, ParquetError>;

pub(super) fn damaged(what: impl Into<String>) -> ParquetError {
    ParquetError::General(what.into())
}

/// The schema of a file. It is written anew from what was read here, so that the crate reads nothing else.
pub(super) fn schema(mut file: &File) -> Result<SchemaDescPtr> {
    let length = file.metadata()?.len();
    let mut tail = [0; 8];
    if length < 12 {
        return Err(damaged("it is too short"));
    }
    file.seek(SeekFrom::End(-8))?;
    file.read_exact(&mut tail)?;
    let [a, b, c, d, magic @ ..] = tail;
    let footer = u64::from(u32::from_le_bytes([a, b, c, d]));
    if magic != MAGIC {
        return Err(damaged("it does not end as one; is it cut off?"));
    }
    if footer > FOOTER_BYTES.min(length - 12) {
        return Err(damaged(format!("its description has {footer} bytes")));
    }
    file.seek(SeekFrom::Start(length - 8 - footer))?;
    let mut bytes = Vec::new();
    file.take(footer).read_to_end(&mut bytes)?;
    file.rewind()?;
    let mut reader = Reader::new(Cursor::new(bytes), footer);
    let mut last = 0;
    loop {
        let Some((id, kind)) = reader.field(last)? else {
            return Err(damaged("it has no schema"));
        };
        if (id, kind) == (2, Kind::List) {
            return ParquetMetaDataReader::decode_schema(&elements(&mut reader)?);
        }
        reader.skip(kind, DEPTH)?;
        last = id;
    }
}

/// A description with nothing but the schema that is read here.
fn elements(reader: &mut Reader<Cursor<Vec<u8>>>) -> Result<Vec<u8>> {
    let (count, kind) = reader.list()?;
    if kind != Kind::Struct || count > ELEMENTS {
        return Err(damaged(format!("its schema has {count} parts")));
    }
    let mut out = Writer::default();
    out.field(0, 1, Kind::I32);
    out.signed(1);
    out.field(1, 2, Kind::List);
    out.list(count, Kind::Struct);
    // Children that are still to come, of each group that is open.
    let mut open: Vec<u64> = Vec::new();
    for _ in 0..count {
        let element = Element::read(reader)?;
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        let children = element.number(5).unwrap_or(0);
        let children = u64::try_from(children).ok().filter(|&it| it <= count);
        let children = children.ok_or_else(|| damaged("a group of its schema is too large"))?;
        if children > 0 {
            open.push(children);
        }
        if open.len() > DEPTH {
            return Err(damaged(format!("over {DEPTH} groups within each other")));
        }
        element.write(&mut out);
    }
    // No rows, no row groups.
    out.field(2, 3, Kind::I64);
    out.signed(0);
    out.field(3, 4, Kind::List);
    out.list(0, Kind::Struct);
    out.stop();
    Ok(out.0)
}

/// A column or group of a schema.
#[derive(Default)]
struct Element {
    /// Everything but the name, by the number of its field.
    numbers: [Option<i64>; 10],
    name: Option<Vec<u8>>,
    /// The logical type, where it has no settings of its own: other types have an older form among the numbers.
    logical: Option<i16>,
}

impl Element {
    fn read(reader: &mut Reader<Cursor<Vec<u8>>>) -> Result<Self> {
        let mut element = Self::default();
        let mut last = 0;
        while let Some((id, kind)) = reader.field(last)? {
            last = id;
            match (id, kind) {
                (4, Kind::Binary) => element.name = Some(reader.binary()?),
                (1..=9, Kind::I32) => element.numbers[id as usize] = Some(reader.signed()?),
                (10, Kind::Struct) => {
                    let mut inner = 0;
                    while let Some((logical, kind)) = reader.field(inner)? {
                        inner = logical;
                        if matches!(logical, 1..=4 | 6 | 11..=15) {
                            element.logical = Some(logical);
                        }
                        reader.skip(kind, DEPTH)?;
                    }
                }
                _ => reader.skip(kind, DEPTH)?,
            }
        }
        Ok(element)
    }

    fn number(&self, field: usize) -> Option<i64> {
        // As the crate reads them.
        self.numbers[field].map(|number| i64::from(number as i32))
    }

    fn write(&self, out: &mut Writer) {
        let mut last = 0;
        for id in 1..=9 {
            match (id, &self.name, self.number(id as usize)) {
                (4, Some(name), _) => {
                    out.field(last, id, Kind::Binary);
                    out.binary(name);
                    last = id;
                }
                (_, _, Some(number)) => {
                    out.field(last, id, Kind::I32);
                    out.signed(number);
                    last = id;
                }
                _ => {}
            }
        }
        if let Some(logical) = self.logical {
            out.field(last, 10, Kind::Struct);
            out.field(0, logical, Kind::Struct);
            out.stop();
            out.stop();
        }
        out.stop();
    }
}

/// Checks the pages of a row group's columns; with `scalars` those of lists and maps aside.
pub(super) fn row_group(file: &File, group: &RowGroupMetaData, scalars: bool) -> Result<()> {
    let mut together = 0_u64;
    for column in group.columns() {
        let repeated = column.column_descr().max_rep_level() > 0;
        if scalars && repeated {
            continue;
        }
        let compression = column.compression();
        if !matches!(
            compression,
            Compression::UNCOMPRESSED
                | Compression::SNAPPY
                | Compression::GZIP(_)
                | Compression::ZSTD(_)
        ) {
            return Err(damaged(format!(
                "a column is compressed with {:?}; snappy, gzip, zstd and none can be read: in pandas, \
                 `to_parquet(path, compression=\"zstd\")`",
                column.compression_codec()
            )));
        }
        let (start, length) = column.byte_range();
        let mut pages = Pages::new(file, start, length)?;
        let gzip = matches!(compression, Compression::GZIP(_));
        while let Some(page) = pages.next(gzip)? {
            page.check(pages.values, repeated)?;
        }
        together = together.saturating_add(pages.dictionary + pages.largest);
        if together > PAGE_BYTES {
            let limit = PAGE_BYTES >> 20;
            return Err(damaged(format!(
                "the pages of its columns have over {limit} MiB unpacked; write smaller ones"
            )));
        }
    }
    Ok(())
}

/// The pages of a column in a row group, of which only the headers are read; gzip is unpacked once and thrown away.
struct Pages<'a> {
    reader: Reader<BufReader<&'a File>>,
    /// Bytes of the largest page of data, of that with the dictionary.
    largest: u64,
    dictionary: u64,
    /// Values so far.
    values: u64,
}

impl<'a> Pages<'a> {
    fn new(file: &'a File, start: u64, length: u64) -> Result<Self> {
        let mut from = BufReader::new(file);
        from.seek(SeekFrom::Start(start))?;
        Ok(Self {
            reader: Reader::new(from, length),
            largest: 0,
            dictionary: 0,
            values: 0,
        })
    }

    fn next(&mut self, gzip: bool) -> Result<Option<Page>> {
        if self.reader.left() == 0 {
            return Ok(None);
        }
        let page = Page::read(&mut self.reader)?;
        let unpacked = size(page.unpacked)?;
        if page.is_dictionary {
            self.dictionary = self.dictionary.max(unpacked);
        } else {
            self.largest = self.largest.max(unpacked);
            self.values = self.values.saturating_add(size(page.values)?);
        }
        let packed = size(page.packed)?;
        let levels = size(page.levels)?;
        if packed > self.reader.left() || levels > unpacked.min(packed) {
            return Err(damaged("a page is larger than its column"));
        }
        // As the crate, which does not unpack what is empty.
        if gzip && !page.is_plain && unpacked > levels {
            self.reader.pass(levels)?;
            self.reader.within(packed - levels, |part| {
                let most = unpacked - levels;
                let mut data = MultiGzDecoder::new(part).take(most + 1);
                if io::copy(&mut data, &mut io::sink())? > most {
                    return Err(damaged("a page is larger than it says"));
                }
                Ok(())
            })?;
        } else {
            self.reader.pass(packed)?;
        }
        Ok(Some(page))
    }
}

fn size(number: i32) -> Result<u64> {
    u64::try_from(number).map_err(|_| damaged("a page has a negative size"))
}

/// A page, as its header says.
#[derive(Default)]
struct Page {
    is_dictionary: bool,
    unpacked: i32,
    packed: i32,
    values: i32,
    /// Encodings that say within the data how much memory they take.
    is_delta: bool,
    /// Bytes before those that are packed.
    levels: i32,
    /// Nothing is packed, whatever the column says.
    is_plain: bool,
}

impl Page {
    /// A header. Every field has the type that the crate takes it for.
    fn read<R: Read + Seek>(reader: &mut Reader<R>) -> Result<Self> {
        let mut page = Self::default();
        let mut last = 0;
        while let Some((id, kind)) = reader.field(last)? {
            last = id;
            match (id, kind) {
                (1, Kind::I32) => page.is_dictionary = reader.number()? == 2,
                (2, Kind::I32) => page.unpacked = reader.number()?,
                (3, Kind::I32) => page.packed = reader.number()?,
                (4, Kind::I32) => drop(reader.number()?),
                (5 | 7 | 8, Kind::Struct) => page.read_kind(reader, id)?,
                (1..=5 | 7..=8, _) => return Err(damaged("a page has a damaged header")),
                _ => reader.skip(kind, DEPTH)?,
            }
        }
        Ok(page)
    }

    /// What the header says of a page of its kind: data, a dictionary, or data in the second form.
    fn read_kind<R: Read + Seek>(&mut self, reader: &mut Reader<R>, kind: i16) -> Result<()> {
        let second = kind == 8;
        // Where it comes twice, the crate believes the last.
        if second {
            self.is_plain = false;
        }
        let mut levels = [0_i32; 2];
        let mut last = 0;
        while let Some((id, found)) = reader.field(last)? {
            last = id;
            match (id, found, second) {
                (1, Kind::I32, _) => self.values = self.values.max(reader.number()?),
                (2, Kind::I32, false) | (4, Kind::I32, true) => {
                    self.is_delta |= matches!(reader.number()?, 6 | 7);
                }
                (2..=3, Kind::I32, true) | (3..=4, Kind::I32, false) => drop(reader.number()?),
                (5..=6, Kind::I32, true) => levels[id as usize - 5] = reader.number()?,
                (7, Kind::True, true) => self.is_plain = false,
                (7, Kind::False, true) => self.is_plain = true,
                (3, Kind::True | Kind::False, false) if kind == 7 => {}
                (1..=4, _, _) | (5..=7, _, true) => {
                    return Err(damaged("a page has a damaged header"));
                }
                _ => reader.skip(found, DEPTH)?,
            }
        }
        if second {
            self.levels = levels[0].saturating_add(levels[1]);
        }
        Ok(())
    }

    fn check(&self, values: u64, repeated: bool) -> Result<()> {
        // Each takes a byte at least.
        if self.is_dictionary && self.values > self.unpacked {
            return Err(damaged("a dictionary has more values than bytes"));
        }
        if repeated && values > LIST_VALUES {
            return Err(damaged(format!(
                "a column of lists has over {LIST_VALUES} values in a row group; write smaller ones"
            )));
        }
        if self.is_delta {
            return Err(damaged(
                "a column is in DELTA_LENGTH_BYTE_ARRAY or DELTA_BYTE_ARRAY; write it with another encoding",
            ));
        }
        Ok(())
    }
}
