//! The lists of an inverted file as one table of words of four bytes, little-endian.
//!
//! ```text
//! magic  rows  dimension  lists                 header
//! centroids                                     lists x dimension, f32
//! ends                                          lists + 1, in rows, the first is 0
//! per list: its rows, ascending (u32); their scales (f32); their codes (i8, filled up to whole words)
//! ```
//!
//! A coordinate is its code times the scale of its row.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use forage_contracts::retriever::RetrieverError;
use rayon::prelude::*;

use super::centroids::Centroids;
use crate::dense::table::Table;
use crate::dense::vectors::VectorFile;
use crate::dense::{Flaw, fault};
use crate::error::IndexError;

/// "FIV1" in the file.
const MAGIC: u32 = u32::from_le_bytes(*b"FIV1");
const HEADER_WORDS: usize = 4;
/// Bytes of codes that are made before they are written, list by list.
const WINDOW_BYTES: usize = 256 << 20;
/// The largest code.
pub(super) const LARGEST_CODE: i32 = 127;

/// Centroids and lists. Everything but the rows that lists name has been checked.
pub(super) struct Lists {
    table: Table<u32>,
    layout: Layout,
}

/// The rows of one list with their codes.
pub(super) struct List<'l> {
    /// Ascending where the file is as it was written; each is to be checked before it is used.
    pub(super) rows: &'l [u32],
    pub(super) scales: &'l [f32],
    /// `[rows, Lists::width]`
    pub(super) codes: &'l [i8],
}

/// Sizes of a file, from which places in it follow.
#[derive(Clone, Copy)]
struct Layout {
    rows: usize,
    dimension: usize,
    lists: usize,
}

impl Layout {
    /// Words of the codes of a row.
    fn code_words(self) -> usize {
        self.dimension.div_ceil(size_of::<u32>())
    }

    /// The word where the ends of the lists begin.
    fn ends(self) -> usize {
        HEADER_WORDS + self.lists * self.dimension
    }

    /// The word where the lists begin.
    fn first(self) -> usize {
        self.ends() + self.lists + 1
    }

    /// Words of a list of so many rows, or of many lists of so many in all.
    fn words(self, rows: usize) -> usize {
        rows * (2 + self.code_words())
    }
}

impl Lists {
    /// Assigns every row to the list of its centroid, in memory.
    pub(super) fn new(vectors: &VectorFile, count: usize) -> Result<Self, RetrieverError> {
        let made = collect_lists(vectors, count, WINDOW_BYTES);
        let words = made.map_err(IndexError::io("write", vectors.path()))?;
        Self::check(Table::Owned(words), vectors).map_err(|flaw| flaw.of(vectors.path()))
    }

    /// As [`Self::new`], to a file, of which a window is in memory.
    pub(super) fn save(
        path: &Path,
        vectors: &VectorFile,
        count: usize,
    ) -> Result<(), RetrieverError> {
        let write = || {
            let mut file = File::create(path)?;
            write_lists(vectors, count, WINDOW_BYTES, &mut |at, part| {
                file.seek(SeekFrom::Start((at * size_of::<u32>()) as u64))?;
                file.write_all(bytemuck::cast_slice(part))
            })?;
            file.sync_all()
        };
        Ok(write().map_err(IndexError::io("write", path))?)
    }

    /// Maps a file that was made of `vectors`.
    pub(super) fn open(path: &Path, vectors: &VectorFile) -> Result<Self, RetrieverError> {
        let fix = "embed the index again";
        let table = Table::open(path, size_of::<u32>(), fix)?;
        Self::check(table, vectors).map_err(|flaw| fault(path, format!("{flaw}; {fix}")))
    }

    /// Number of lists.
    pub(super) fn count(&self) -> usize {
        self.layout.lists
    }

    /// Codes of a row: the dimension, filled up with zeros.
    pub(super) fn width(&self) -> usize {
        self.layout.code_words() * size_of::<u32>()
    }

    /// `[lists, dimension]`
    pub(super) fn centroids(&self) -> &[f32] {
        bytemuck::cast_slice(&self.table.values()[HEADER_WORDS..self.layout.ends()])
    }

    /// One list.
    pub(super) fn list(&self, list: u32) -> List<'_> {
        let (words, layout) = (self.table.values(), self.layout);
        let end = |list: usize| words[layout.ends() + list] as usize;
        let (begin, end) = (end(list as usize), end(list as usize + 1));
        let count = end - begin;
        let words = &words[layout.first() + layout.words(begin)..][..layout.words(count)];
        let (rows, words) = words.split_at(count);
        let (scales, codes) = words.split_at(count);
        List {
            rows,
            scales: bytemuck::cast_slice(scales),
            codes: bytemuck::cast_slice(codes),
        }
    }

    fn check(table: Table<u32>, vectors: &VectorFile) -> Result<Self, Flaw> {
        let words = table.values();
        let Some(&[magic, rows, dimension, lists]) = words.first_chunk::<HEADER_WORDS>() else {
            return Err(Flaw::new("the file of lists has no header"));
        };
        let layout = Layout {
            rows: rows as usize,
            dimension: dimension as usize,
            lists: lists as usize,
        };
        let expected = (vectors.rows(), vectors.dimension());
        if magic != MAGIC || (layout.rows, layout.dimension) != expected {
            return Err(Flaw::new(format!(
                "lists of {rows} rows of {dimension} numbers where {} of {} are expected",
                expected.0, expected.1
            )));
        }
        // Rows and dimension are those of vectors that are there; a number of lists beyond them is refused before it counts.
        if layout.lists > layout.rows || (layout.lists == 0 && layout.rows > 0) {
            return Err(Flaw::new(format!("{lists} lists for {rows} rows")));
        }
        let needed = layout.first() + layout.words(layout.rows);
        if words.len() != needed {
            return Err(Flaw::new(format!(
                "{} words of lists where {needed} are expected",
                words.len()
            )));
        }
        let ends = &words[layout.ends()..layout.first()];
        if ends[0] != 0 || ends[layout.lists] != rows || !ends.is_sorted() {
            return Err(Flaw::new("the ends of the lists make no sense"));
        }
        Ok(Self { table, layout })
    }
}

/// Takes the words of a part of the file and the place of the first.
type Put<'p> = dyn FnMut(usize, &[u32]) -> io::Result<()> + 'p;

/// The words of a whole file.
fn collect_lists(vectors: &VectorFile, count: usize, window_bytes: usize) -> io::Result<Vec<u32>> {
    let mut words = Vec::new();
    write_lists(vectors, count, window_bytes, &mut |at, part| {
        words.resize(words.len().max(at + part.len()), 0);
        words[at..at + part.len()].copy_from_slice(part);
        Ok(())
    })?;
    Ok(words)
}

fn write_lists(
    vectors: &VectorFile,
    count: usize,
    window_bytes: usize,
    put: &mut Put<'_>,
) -> io::Result<()> {
    tracing::info!(rows = vectors.rows(), lists = count, "placing centroids");
    let centroids = Centroids::train(vectors, count);
    let layout = Layout {
        rows: vectors.rows(),
        dimension: vectors.dimension(),
        lists: centroids.count(),
    };
    tracing::info!(rows = layout.rows, "finding the list of each vector");
    let list_of = centroids.assign(vectors);
    let mut ends = vec![0_u32; layout.lists + 1];
    for &list in &list_of {
        ends[list as usize + 1] += 1;
    }
    for list in 0..layout.lists {
        ends[list + 1] += ends[list];
    }
    let mut head = vec![
        MAGIC,
        layout.rows as u32,
        layout.dimension as u32,
        layout.lists as u32,
    ];
    head.extend(centroids.values().flatten().map(|value| value.to_bits()));
    head.extend(&ends);
    put(0, &head)?;
    tracing::info!(lists = layout.lists, "writing lists");
    // Rows already written, by list.
    let mut written = vec![0_usize; layout.lists];
    let code_words = layout.code_words();
    let window = (window_bytes / (size_of::<u32>() * code_words)).max(1);
    let mut codes = vec![0_u32; window.min(layout.rows) * code_words];
    for begin in (0..layout.rows).step_by(window) {
        let rows = begin..layout.rows.min(begin + window);
        let of_window = &mut codes[..rows.len() * code_words];
        let scales: Vec<u32> = of_window
            .par_chunks_exact_mut(code_words)
            .enumerate()
            .map(|(at, words)| {
                let codes = bytemuck::cast_slice_mut(words);
                encode(vectors.row(begin + at), codes).to_bits()
            })
            .collect();
        let mut order: Vec<u32> = rows.map(|row| row as u32).collect();
        order.sort_by_key(|&row| list_of[row as usize]);
        for run in order.chunk_by(|&one, &other| list_of[one as usize] == list_of[other as usize]) {
            let list = list_of[run[0] as usize] as usize;
            let (first, size) = (ends[list] as usize, (ends[list + 1] - ends[list]) as usize);
            let start = layout.first() + layout.words(first);
            let inside = |row: &u32| *row as usize - begin;
            put(start + written[list], run)?;
            let of_run: Vec<u32> = run.iter().map(|row| scales[inside(row)]).collect();
            put(start + size + written[list], &of_run)?;
            let of_run: Vec<u32> = run
                .iter()
                .flat_map(|row| &of_window[inside(row) * code_words..][..code_words])
                .copied()
                .collect();
            put(start + 2 * size + written[list] * code_words, &of_run)?;
            written[list] += run.len();
        }
    }
    Ok(())
}

/// Writes the codes of a row, rounded to the nearest, and gives their scale.
fn encode(row: &[f32], codes: &mut [i8]) -> f32 {
    let largest = row
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    let scale = largest / LARGEST_CODE as f32;
    codes.fill(0);
    for (code, value) in codes.iter_mut().zip(row) {
        // Not a number for a row of zeros, which becomes the code 0.
        *code = (value / scale).round() as i8;
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_does_not_depend_on_the_window() {
        let values = (0..700 * 9).map(|at| ((at * at + 3 * at) % 101) as f32 - 50.0);
        let vectors = VectorFile::in_memory(values.collect(), 9).unwrap();
        let whole = collect_lists(&vectors, 30, WINDOW_BYTES).unwrap();
        for rows in [1, 7, 100, 699] {
            assert!(
                collect_lists(&vectors, 30, rows * 12).unwrap() == whole,
                "{rows} rows at once"
            );
        }
        let lists = Lists::check(Table::Owned(whole), &vectors).unwrap();
        let mut seen = vec![false; vectors.rows()];
        for list in 0..lists.count() as u32 {
            let List {
                rows,
                scales,
                codes,
            } = lists.list(list);
            assert!(rows.is_sorted());
            for ((&row, scale), codes) in rows.iter().zip(scales).zip(codes.chunks_exact(12)) {
                assert!(!std::mem::replace(&mut seen[row as usize], true));
                let vector = vectors.row(row as usize);
                let largest = vector
                    .iter()
                    .fold(0.0_f32, |most, value| most.max(value.abs()));
                for (code, value) in codes.iter().zip(vector) {
                    let coded = f32::from(*code) * scale;
                    assert!(
                        (coded - value).abs() <= largest / 127.0 * 0.501,
                        "{coded} for {value}"
                    );
                }
                assert_eq!(codes[9..], [0; 3]);
            }
        }
        assert!(seen.iter().all(|&seen| seen), "every row is in one list");
    }
}
