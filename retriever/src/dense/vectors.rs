//! Rows of numbers: in a memory-mapped file, or in memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use forage_contracts::retriever::RetrieverError;

use super::table::Table;
use super::{LARGEST, fault, first_unusable, kernel};
use crate::error::IndexError;

/// The distance from 1 that the norm of a unit vector may have: half precision leaves about this much.
const UNIT_TOLERANCE: f32 = 2e-3;
const MEMORY: &str = "memory";

/// Vectors of one dimension, read-only: raw little-endian f32, row after row, no header.
pub struct VectorFile {
    path: PathBuf,
    dimension: usize,
    rows: usize,
    data: Table<f32>,
}

impl VectorFile {
    /// Maps a file of rows. The values are not read: they were checked when the file was written.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when the file is missing or does not hold whole rows.
    pub fn open(path: &Path, dimension: usize) -> Result<Self, RetrieverError> {
        // A dimension that no memory holds fits no file.
        let unit = dimension.saturating_mul(size_of::<f32>());
        let data = Table::open(path, unit, "make the vectors again")?;
        Ok(Self {
            path: path.to_owned(),
            dimension,
            rows: data.values().len() / dimension,
            data,
        })
    }

    /// Takes rows that are already in memory, after the checks a file gets when it is written.
    ///
    /// # Errors
    /// As `VectorWriter::append`.
    pub fn in_memory(values: Vec<f32>, dimension: usize) -> Result<Self, RetrieverError> {
        let path = PathBuf::from(MEMORY);
        check_rows(&path, &values, dimension, 0)?;
        Ok(Self {
            path,
            dimension,
            rows: values.len() / dimension,
            data: Table::Owned(values),
        })
    }

    /// The file of the rows; `memory` for those without one.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers per row.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// All rows, one after another.
    pub fn values(&self) -> &[f32] {
        self.data.values()
    }

    /// One row.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values()[row * self.dimension..(row + 1) * self.dimension]
    }
}

impl std::fmt::Debug for VectorFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            path,
            dimension,
            rows,
            ..
        } = self;
        formatter
            .debug_struct("VectorFile")
            .field("path", path)
            .field("dimension", dimension)
            .field("rows", rows)
            .finish()
    }
}

/// The size and digest of a finished file of vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VectorRecord {
    /// Number of rows.
    pub rows: usize,
    /// BLAKE3 of the file, 64 hex digits.
    pub digest: String,
    /// True when every row has norm 1.
    pub unit: bool,
}

/// Writes a file of vectors, checking every row.
pub(crate) struct VectorWriter {
    path: PathBuf,
    file: BufWriter<File>,
    dimension: usize,
    unit: bool,
    rows: usize,
    hasher: blake3::Hasher,
}

impl VectorWriter {
    /// Creates the file.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub(crate) fn create(path: &Path, dimension: usize) -> Result<Self, RetrieverError> {
        let file = File::create(path).map_err(IndexError::io("create", path))?;
        let (path, file) = (path.to_owned(), BufWriter::with_capacity(1 << 20, file));
        Ok(Self {
            path,
            file,
            dimension,
            unit: true,
            rows: 0,
            hasher: blake3::Hasher::new(),
        })
    }

    /// Adds rows, given one after another.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`], naming the row, for numbers that are not finite or beyond any use, or a part of a row;
    /// and failures of the disk.
    pub(crate) fn append(&mut self, values: &[f32]) -> Result<(), RetrieverError> {
        self.unit &= check_rows(&self.path, values, self.dimension, self.rows)?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.hasher.update(bytes);
        self.file
            .write_all(bytes)
            .map_err(IndexError::io("write", &self.path))?;
        self.rows += values.len() / self.dimension;
        Ok(())
    }

    /// Puts the file on disk for good.
    ///
    /// # Errors
    /// Failures of the disk.
    pub(crate) fn finish(self) -> Result<VectorRecord, RetrieverError> {
        let Self {
            path,
            file,
            rows,
            unit,
            hasher,
            ..
        } = self;
        let file = file
            .into_inner()
            .map_err(|cause| IndexError::io("write", &path)(cause.into_error()))?;
        file.sync_all().map_err(IndexError::io("write", &path))?;
        Ok(VectorRecord {
            rows,
            digest: hasher.finalize().to_hex().to_string(),
            unit,
        })
    }
}

/// Checks whole rows, `first` being the number of the first; tells whether all have norm 1.
fn check_rows(
    path: &Path,
    values: &[f32],
    dimension: usize,
    first: usize,
) -> Result<bool, RetrieverError> {
    if dimension == 0 || !values.len().is_multiple_of(dimension) {
        let what = format!(
            "{} numbers are not whole rows of {dimension}; check the dimension",
            values.len()
        );
        return Err(fault(path, what));
    }
    if let Some((row, column, value)) = first_unusable(values, dimension) {
        let row = first + row;
        let what = format!(
            "row {row} has {value} in column {column}; only finite numbers below {LARGEST:e} can be searched"
        );
        return Err(fault(path, what));
    }
    let norm = |vector: &[f32]| kernel::product(vector, vector).sqrt();
    let is_unit = |vector| (norm(vector) - 1.0).abs() <= UNIT_TOLERANCE;
    Ok(values.chunks_exact(dimension).all(is_unit))
}
