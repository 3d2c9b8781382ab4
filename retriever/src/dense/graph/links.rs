//! The links of a graph as one table of little-endian u32.
//!
//! ```text
//! magic  rows  entry row  layers                      header
//! nodes  edges                                        per layer
//! per layer: nodes + 1 offsets into the edges, the edges; above layer 0 the rows of the nodes, ascending, come first
//! ```

use std::ops::Range;
use std::path::Path;

use forage_contracts::retriever::RetrieverError;

use crate::dense::table::Table;
use crate::dense::{Flaw, fault};
use crate::error::IndexError;

/// "FGR1" in the file.
const MAGIC: u32 = u32::from_le_bytes(*b"FGR1");
const HEADER_WORDS: usize = 4;
/// More than any graph has: layers hold a sixteenth of the rows of the layer below.
const MOST_LAYERS: usize = 32;

/// Neighbours of every row in every layer. Everything in it has been checked: no lookup can fail.
pub(super) struct Links {
    table: Table<u32>,
    entry: u32,
    layers: Vec<Layer>,
}

/// The offsets of a layer's parts, in words of four bytes.
struct Layer {
    /// Rows of the nodes; empty in layer 0, where node and row are one.
    rows: Range<usize>,
    offsets: Range<usize>,
    edges: Range<usize>,
}

/// A layer before it is written: nodes with their neighbours, rows ascending.
pub(super) type Nodes = Vec<(u32, Vec<u32>)>;

impl Links {
    /// Lays out the layers, the lowest first; layer 0 has every row.
    pub(super) fn new(entry: u32, layers: &[Nodes], path: &Path) -> Result<Self, RetrieverError> {
        let rows = layers.first().map_or(0, Vec::len);
        let mut words = vec![MAGIC, rows as u32, entry, layers.len() as u32];
        for nodes in layers {
            let edges: usize = nodes.iter().map(|(_, neighbours)| neighbours.len()).sum();
            let edges = u32::try_from(edges)
                .map_err(|_| fault(path, "too many rows for a graph; use a quantised index"))?;
            words.extend([nodes.len() as u32, edges]);
        }
        for (layer, nodes) in layers.iter().enumerate() {
            if layer > 0 {
                words.extend(nodes.iter().map(|(row, _)| row));
            }
            let mut end = 0;
            words.push(end);
            words.extend(nodes.iter().map(|(_, neighbours)| {
                end += neighbours.len() as u32;
                end
            }));
            words.extend(nodes.iter().flat_map(|(_, neighbours)| neighbours));
        }
        Self::check(Table::Owned(words), rows).map_err(|flaw| flaw.of(path))
    }

    /// Maps a file and checks it.
    pub(super) fn open(path: &Path, rows: usize) -> Result<Self, RetrieverError> {
        let table = Table::open(path, size_of::<u32>(), "embed the index again")?;
        Self::check(table, rows)
            .map_err(|flaw| fault(path, format!("{flaw}; embed the index again")))
    }

    pub(super) fn save(&self, path: &Path) -> Result<(), RetrieverError> {
        let write = || {
            let mut file = std::fs::File::create(path)?;
            std::io::Write::write_all(&mut file, bytemuck::cast_slice(self.table.values()))?;
            file.sync_all()
        };
        Ok(write().map_err(IndexError::io("write", path))?)
    }

    /// The row where walks begin.
    pub(super) fn entry(&self) -> u32 {
        self.entry
    }

    pub(super) fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The neighbours of a row; none where it is not in the layer.
    pub(super) fn of(&self, layer: usize, row: u32) -> &[u32] {
        let words = self.table.values();
        let parts = &self.layers[layer];
        let node = if layer == 0 {
            row as usize
        } else {
            match words[parts.rows.clone()].binary_search(&row) {
                Ok(node) => node,
                Err(_) => return &[],
            }
        };
        let (begin, end) = (
            words[parts.offsets.start + node],
            words[parts.offsets.start + node + 1],
        );
        &words[parts.edges.start + begin as usize..parts.edges.start + end as usize]
    }

    /// Checks that every number in the table points into it.
    fn check(table: Table<u32>, rows: usize) -> Result<Self, Flaw> {
        let words = table.values();
        let Some(&[magic, found, entry, count]) = words.first_chunk::<HEADER_WORDS>() else {
            return Err(Flaw::new("the file of links has no header"));
        };
        if magic != MAGIC || found as usize != rows || (entry as usize >= rows && rows > 0) {
            return Err(Flaw::new(format!(
                "links of {found} rows, entry {entry}, where {rows} rows are expected"
            )));
        }
        let count = count as usize;
        let sizes = words
            .get(HEADER_WORDS..HEADER_WORDS + 2 * count.min(MOST_LAYERS))
            .unwrap_or_default();
        if count > MOST_LAYERS || sizes.len() != 2 * count || count == 0 {
            return Err(Flaw::new(format!("a graph cannot have {count} layers")));
        }
        let mut position = HEADER_WORDS + 2 * count;
        let mut layers = Vec::with_capacity(count);
        for (layer, size) in sizes.chunks_exact(2).enumerate() {
            let (nodes, edges) = (size[0] as usize, size[1] as usize);
            let mut part = |length: usize| {
                position += length;
                position - length..position
            };
            let parts = Layer {
                rows: part(if layer == 0 { 0 } else { nodes }),
                offsets: part(nodes + 1),
                edges: part(edges),
            };
            if !parts.holds(words, nodes, rows, layer) {
                return Err(Flaw::new(format!(
                    "layer {layer} of the links makes no sense"
                )));
            }
            layers.push(parts);
        }
        if position != words.len() {
            return Err(Flaw::new(format!(
                "{} words of links where {position} are expected",
                words.len()
            )));
        }
        Ok(Self {
            table,
            entry,
            layers,
        })
    }
}

impl Layer {
    fn holds(&self, words: &[u32], nodes: usize, rows: usize, layer: usize) -> bool {
        let parts = (
            words.get(self.rows.clone()),
            words.get(self.offsets.clone()),
            words.get(self.edges.clone()),
        );
        let (Some(ids), Some(offsets), Some(edges)) = parts else {
            return false;
        };
        (layer > 0 || nodes == rows)
            && ids.is_sorted_by(|one, other| one < other)
            && ids.iter().chain(edges).all(|&row| (row as usize) < rows)
            && offsets.is_sorted()
            && offsets.first() == Some(&0)
            && offsets
                .last()
                .is_some_and(|&end| end as usize == edges.len())
    }
}
