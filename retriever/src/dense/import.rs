//! Vectors made elsewhere: `.npy` arrays and FAISS flat indexes, streamed.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use forage_contracts::retriever::RetrieverError;
use half::f16;

use super::Flaw;

const NPY_MAGIC: [u8; 6] = *b"\x93NUMPY";
/// Longest `.npy` header; `numpy.save` writes less than 200 bytes for a plain array.
const MAX_NPY_HEADER_BYTES: u64 = 1 << 16;
/// `IxF?`, dimension i32, rows i64, two placeholders i64, trained u8, metric i32, floats u64: `write_index` of
/// `faiss/impl/index_write.cpp`. All little-endian.
const FAISS_HEADER_BYTES: usize = 4 + 4 + 8 + 16 + 1 + 4 + 8;

/// The measure that a FAISS index ranks by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VectorMetric {
    /// Largest inner product first.
    InnerProduct,
    /// Smallest Euclidean distance first; the same order as by inner product when all vectors have one length.
    L2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    F16,
    F32,
    F64,
}

impl Number {
    fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// The header of a file.
struct Header {
    number: Number,
    rows: u64,
    dimension: u64,
    metric: Option<VectorMetric>,
    /// The first byte of the numbers.
    offset: u64,
}

/// The rows of a vector file, in order, in as little memory as the caller asks for at once.
///
/// Reads two-dimensional `.npy` arrays in C order of little-endian `f2`, `f4` or `f8`, and FAISS flat indexes (`IndexFlatIP`,
/// `IndexFlatL2`). What the header says is compared with the length of the file before anything is read.
pub struct VectorRows {
    path: PathBuf,
    source: BufReader<File>,
    number: Number,
    dimension: usize,
    rows: u64,
    read: u64,
    metric: Option<VectorMetric>,
}

impl VectorRows {
    /// Opens a file; its first bytes tell which kind it is.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when there is no such file, it is of another kind, or its length is not what its header
    /// says.
    pub fn open(path: &Path) -> Result<Self, RetrieverError> {
        open_rows(path).map_err(|flaw| flaw.of(path))
    }

    /// Numbers per vector.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Vectors in the file.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The measure that a FAISS index ranks by; an array does not say.
    pub(crate) fn metric(&self) -> Option<VectorMetric> {
        self.metric
    }

    /// The next `count` vectors one after another, fewer at the end; `None` once all are read.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when the file cannot be read or a number is not finite as an `f32`.
    pub fn next_rows(&mut self, count: usize) -> Result<Option<Vec<f32>>, RetrieverError> {
        let count = (self.rows - self.read).min(count.max(1) as u64) as usize;
        if count == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; count * self.dimension * self.number.bytes()];
        if let Err(cause) = self.source.read_exact(&mut bytes) {
            return Err(self.fault(format!(
                "cannot read on after row {} ({cause}); check the disk",
                self.read
            )));
        }
        let vectors = decode(&bytes, self.number);
        if let Some(at) = vectors.iter().position(|number| !number.is_finite()) {
            let row = self.read + (at / self.dimension) as u64 + 1;
            return Err(self.fault(format!(
                "row {row} holds a number that is not finite; encode that text again"
            )));
        }
        self.read += count as u64;
        Ok(Some(vectors))
    }

    fn fault(&self, what: String) -> RetrieverError {
        RetrieverError::Vectors {
            path: self.path.clone(),
            what,
        }
    }
}

fn open_rows(path: &Path) -> Result<VectorRows, Flaw> {
    let file = File::open(path)
        .map_err(|cause| Flaw::new(format!("cannot be opened ({cause}); check the path")))?;
    let length = file
        .metadata()
        .map_err(|cause| Flaw::new(format!("cannot be opened ({cause}); check the path")))?
        .len();
    let mut source = BufReader::with_capacity(1 << 18, file);
    let header = read_header(&mut source)?;
    if header.rows == 0 || header.dimension == 0 {
        return Err(Flaw::new(
            "holds no vectors; check that it is the right file",
        ));
    }
    let numbers = header.rows.checked_mul(header.dimension);
    let bytes = numbers.and_then(|numbers| numbers.checked_mul(header.number.bytes() as u64));
    let expected = bytes.and_then(|bytes| bytes.checked_add(header.offset));
    if expected != Some(length) {
        return Err(Flaw::new(format!(
            "has {length} bytes, but its header speaks of {} rows of {} numbers; fetch or write the file again",
            header.rows, header.dimension
        )));
    }
    Ok(VectorRows {
        path: path.to_owned(),
        source,
        number: header.number,
        dimension: header.dimension as usize,
        rows: header.rows,
        read: 0,
        metric: header.metric,
    })
}

fn read_header(source: &mut impl Read) -> Result<Header, Flaw> {
    let mut magic = [0; 4];
    fill(source, &mut magic)?;
    if magic == NPY_MAGIC[..4] {
        return npy_header(source);
    }
    match &magic {
        b"IxFI" => faiss_header(source, VectorMetric::InnerProduct),
        b"IxF2" => faiss_header(source, VectorMetric::L2),
        b"IxMp" | b"IxM2" => Err(Flaw::new(
            "is a FAISS index with ids of its own (IndexIDMap); write the flat index inside it, \
                                  `faiss.write_index(faiss.downcast_index(index.index), path)`, with rows in the order \
                                  of the corpus",
        )),
        [b'I', rest @ ..] if rest.iter().all(u8::is_ascii_alphanumeric) => Err(Flaw::new(format!(
            "is a FAISS index of kind `{}`, which does not hold plain vectors; write an IndexFlatIP",
            String::from_utf8_lossy(&magic)
        ))),
        _ => Err(Flaw::new(
            "is neither a .npy array nor a FAISS index; write it with `numpy.save` or `faiss.write_index`",
        )),
    }
}

fn fill(source: &mut impl Read, bytes: &mut [u8]) -> Result<(), Flaw> {
    let broken = "fetch or write the file again";
    source
        .read_exact(bytes)
        .map_err(|cause| Flaw::new(format!("breaks off in its header ({cause}); {broken}")))
}

/// `numpy/lib/format.py`: magic, version, length of the header (u16, from version 2 u32), a Python dictionary.
fn npy_header(source: &mut impl Read) -> Result<Header, Flaw> {
    let mut start = [0; 4];
    fill(source, &mut start)?;
    let [_, _, version, _] = start;
    if start[..2] != NPY_MAGIC[4..] {
        return Err(Flaw::new("is not a .npy array; write it with `numpy.save`"));
    }
    let (length, length_bytes) = match version {
        1 => {
            let mut bytes = [0; 2];
            fill(source, &mut bytes)?;
            (u64::from(u16::from_le_bytes(bytes)), 2)
        }
        2 | 3 => {
            let mut bytes = [0; 4];
            fill(source, &mut bytes)?;
            (u64::from(u32::from_le_bytes(bytes)), 4)
        }
        other => {
            return Err(Flaw::new(format!(
                ".npy version {other} is unknown; write the array with `numpy.save`"
            )));
        }
    };
    if length > MAX_NPY_HEADER_BYTES {
        return Err(Flaw::new(format!(
            "has a header of {length} bytes; write a plain array with `numpy.save`"
        )));
    }
    let mut text = vec![0; length as usize];
    fill(source, &mut text)?;
    let text = std::str::from_utf8(&text)
        .map_err(|_| Flaw::new("has a header that is not text; write it again"))?;
    let number = npy_number(text)?;
    if entry(text, "fortran_order")?.starts_with("True") {
        return Err(Flaw::new(
            "is in Fortran order; save `numpy.ascontiguousarray(array)`",
        ));
    }
    let (rows, dimension) = npy_shape(text)?;
    Ok(Header {
        number,
        rows,
        dimension,
        metric: None,
        offset: 8 + length_bytes + length,
    })
}

/// The text behind a key of the header's dictionary.
fn entry<'t>(header: &'t str, key: &str) -> Result<&'t str, Flaw> {
    let behind = [format!("'{key}'"), format!("\"{key}\"")]
        .iter()
        .find_map(|quoted| header.split_once(quoted.as_str()))
        .and_then(|(_, rest)| rest.trim_start().strip_prefix(':'));
    behind.map(str::trim_start).ok_or_else(|| {
        Flaw::new(format!(
            "has a .npy header without `{key}`; write it with `numpy.save`"
        ))
    })
}

fn npy_number(header: &str) -> Result<Number, Flaw> {
    let value = entry(header, "descr")?;
    let name = value
        .strip_prefix(['\'', '"'])
        .and_then(|rest| rest.split(['\'', '"']).next())
        .unwrap_or("structured");
    match name {
        "<f2" => Ok(Number::F16),
        "<f4" => Ok(Number::F32),
        "<f8" => Ok(Number::F64),
        _ if name.starts_with(">f") => Err(Flaw::new(format!(
            "holds big-endian numbers (`{name}`); save `array.astype('<f4')`"
        ))),
        _ => Err(Flaw::new(format!(
            "holds `{name}`, not floating-point numbers; save `array.astype('<f4')`"
        ))),
    }
}

fn npy_shape(header: &str) -> Result<(u64, u64), Flaw> {
    let value = entry(header, "shape")?;
    let inside = value
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
        .map(|(inside, _)| inside);
    let shapeless = "has a .npy header without a shape; write it with `numpy.save`";
    let inside = inside.ok_or_else(|| Flaw::new(shapeless))?;
    let sizes = inside
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(str::parse::<u64>);
    let sizes = sizes.collect::<Result<Vec<_>, _>>();
    match sizes.as_deref() {
        Ok(&[rows, dimension]) => Ok((rows, dimension)),
        Ok(other) => Err(Flaw::new(format!(
            "has {} dimensions where 2 are needed; save one row per passage",
            other.len()
        ))),
        Err(_) => Err(Flaw::new(format!(
            "has the shape ({inside}); write it with `numpy.save`"
        ))),
    }
}

fn faiss_header(source: &mut impl Read, metric: VectorMetric) -> Result<Header, Flaw> {
    let mut bytes = [0; FAISS_HEADER_BYTES - 4];
    fill(source, &mut bytes)?;
    let (dimension, rest) = split_array(&bytes);
    let (rows, rest) = split_array(rest);
    let (count, _) = split_array(&rest[16 + 1 + 4..]);
    let dimension = i32::from_le_bytes(dimension);
    let rows = i64::from_le_bytes(rows);
    let count = u64::from_le_bytes(count);
    let (Ok(dimension), Ok(rows)) = (u64::try_from(dimension), u64::try_from(rows)) else {
        return Err(Flaw::new(format!(
            "has a FAISS header of {rows} rows of {dimension} numbers; write the index again"
        )));
    };
    if rows.checked_mul(dimension) != Some(count) {
        return Err(Flaw::new(format!(
            "has a FAISS header of {rows} rows of {dimension} numbers, but {count} numbers; write the index again"
        )));
    }
    Ok(Header {
        number: Number::F32,
        rows,
        dimension,
        metric: Some(metric),
        offset: FAISS_HEADER_BYTES as u64,
    })
}

/// The first `N` bytes and the rest; the caller's array is long enough.
fn split_array<const N: usize>(bytes: &[u8]) -> ([u8; N], &[u8]) {
    let (head, rest) = bytes.split_at(N);
    let mut array = [0; N];
    array.copy_from_slice(head);
    (array, rest)
}

fn decode(bytes: &[u8], number: Number) -> Vec<f32> {
    match number {
        Number::F16 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&raw| f16::from_le_bytes(raw).to_f32())
            .collect(),
        Number::F32 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&raw| f32::from_le_bytes(raw))
            .collect(),
        Number::F64 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&raw| f64::from_le_bytes(raw) as f32)
            .collect(),
    }
}
