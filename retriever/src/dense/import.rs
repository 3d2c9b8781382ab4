//! Vectors made elsewhere: `.npy` arrays and FAISS indexes, read row by row from where they are.

mod faiss;
mod npy;
mod pieces;

use std::io::Read;
use std::path::{Path, PathBuf};

use forage_contracts::retriever::RetrieverError;
use half::f16;

use super::Flaw;
use pieces::Pieces;

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

/// The first byte of each row.
enum Places {
    /// One row after another from here on.
    From(u64),
    /// By row.
    Each(Vec<u64>),
}

/// What a file says of its rows.
struct Header {
    number: Number,
    rows: u64,
    dimension: u64,
    metric: Option<VectorMetric>,
    places: Places,
}

/// The rows of a vector file, in any order, of which none is held in memory.
///
/// Reads two-dimensional `.npy` arrays in C order of little-endian `f2`, `f4` or `f8`, and FAISS indexes that hold plain vectors
/// (`IndexFlatIP`, `IndexFlatL2`, and `IndexIVFFlat`, whose ids are the numbers of rows). What the header says is compared with
/// the length of the file before anything is read.
pub struct VectorRows {
    path: PathBuf,
    source: Pieces,
    header: Header,
    bytes: Vec<u8>,
}

impl VectorRows {
    /// Opens a file, given in one piece or in several in order; its first bytes tell which kind it is.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when there is no such file, it is of another kind, or its length is not what its header
    /// says.
    pub fn open(pieces: &[PathBuf]) -> Result<Self, RetrieverError> {
        let path = pieces.first().cloned().unwrap_or_default();
        let opened = Pieces::open(pieces)?;
        let (source, header) = read_header(opened).map_err(|flaw| flaw.of(&path))?;
        let bytes = vec![0; header.dimension as usize * header.number.bytes()];
        Ok(Self {
            path,
            source,
            header,
            bytes,
        })
    }

    /// Numbers per vector.
    pub fn dimension(&self) -> usize {
        self.header.dimension as usize
    }

    /// Vectors in the file.
    pub fn rows(&self) -> u64 {
        self.header.rows
    }

    /// The file, the first piece of one in several.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The measure that a FAISS index ranks by; an array does not say.
    pub(crate) fn metric(&self) -> Option<VectorMetric> {
        self.header.metric
    }

    /// Reads one vector into as many numbers as it has.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when there is no such row, the file cannot be read or a number is not finite as an `f32`.
    pub fn read(&mut self, row: u64, vector: &mut [f32]) -> Result<(), RetrieverError> {
        let place = match &self.header.places {
            _ if row >= self.header.rows => None,
            Places::From(first) => Some(first + row * self.bytes.len() as u64),
            Places::Each(places) => places.get(row as usize).copied(),
        };
        let number = row + 1;
        let flaw = match place.map(|place| self.source.read_at(place, &mut self.bytes)) {
            None => format!("has no row {number}"),
            Some(Err(cause)) => format!("cannot read row {number} ({cause}); check the disk"),
            Some(Ok(())) => {
                decode(&self.bytes, self.header.number, vector);
                if vector.iter().all(|value| value.is_finite()) {
                    return Ok(());
                }
                format!("row {number} holds a number that is not finite; encode that text again")
            }
        };
        Err(Flaw::new(flaw).of(&self.path))
    }
}

/// Reads the header and holds it against the length of the file.
fn read_header(mut source: Pieces) -> Result<(Pieces, Header), Flaw> {
    let mut magic = [0; 4];
    fill(&mut source, &mut magic)?;
    let header = match &magic {
        _ if magic == npy::MAGIC[..4] => npy::header(&mut source),
        [b'I', rest @ ..] if rest.iter().all(u8::is_ascii_alphanumeric) => {
            faiss::header(&mut source, magic)
        }
        _ => Err(Flaw::new(
            "is neither a .npy array nor a FAISS index; write it with `numpy.save` or `faiss.write_index`",
        )),
    }?;
    if header.rows == 0 || header.dimension == 0 {
        return Err(Flaw::new(
            "holds no vectors; check that it is the right file",
        ));
    }
    if let Places::From(first) = header.places {
        let bytes = body(header.rows, header.dimension, header.number);
        let expected = bytes.and_then(|bytes| bytes.checked_add(first));
        if expected != Some(source.length()) {
            return Err(Flaw::new(format!(
                "has {} bytes, but its header speaks of {} rows of {} numbers; fetch or write the file again (all pieces \
                 of it, in order)",
                source.length(),
                header.rows,
                header.dimension
            )));
        }
    }
    Ok((source, header))
}

/// Bytes of so many rows.
fn body(rows: u64, dimension: u64, number: Number) -> Option<u64> {
    rows.checked_mul(dimension)?
        .checked_mul(number.bytes() as u64)
}

fn fill(source: &mut impl Read, bytes: &mut [u8]) -> Result<(), Flaw> {
    let broken = "fetch or write the file again";
    source
        .read_exact(bytes)
        .map_err(|cause| Flaw::new(format!("breaks off in its header ({cause}); {broken}")))
}

fn decode(bytes: &[u8], number: Number, vector: &mut [f32]) {
    fn each<const N: usize>(bytes: &[u8], vector: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
        for (value, &raw) in vector.iter_mut().zip(bytes.as_chunks().0) {
            *value = decode(raw);
        }
    }
    match number {
        Number::F16 => each(bytes, vector, |raw| f16::from_le_bytes(raw).to_f32()),
        Number::F32 => each(bytes, vector, f32::from_le_bytes),
        Number::F64 => each(bytes, vector, |raw| f64::from_le_bytes(raw) as f32),
    }
}
