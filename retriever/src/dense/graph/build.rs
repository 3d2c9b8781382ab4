//! Building the graph with `hnsw_rs` and taking its links out.

use forage_contracts::retriever::RetrieverError;
use hnsw_rs::prelude::{Distance, Hnsw};

use super::links::{Links, Nodes};
use crate::dense::lift::Lift;
use crate::dense::vectors::VectorFile;
use crate::dense::{fault, kernel};

/// Links per row above the lowest layer, twice as many in it: the `M` of the paper.
const NEIGHBOURS: usize = 16;
/// Rows kept while looking for the neighbours of a new one: `efConstruction`.
const KEPT_WHILE_BUILDING: usize = 128;
const MOST_LAYERS: usize = 16;

/// Named in fingerprints.
pub(super) const PARAMETERS: &str = "hnsw M=16 efConstruction=128";

/// `1 - <a, b>` of unit vectors, half their squared distance. The kernel is the one searches use.
struct HalfSquare;

impl Distance<f32> for HalfSquare {
    fn eval(&self, one: &[f32], other: &[f32]) -> f32 {
        // Rounding may leave a product just above 1; the builder takes no negative distance.
        (1.0 - kernel::product(one, other)).max(0.0)
    }
}

/// Links all rows.
pub(super) fn link(vectors: &VectorFile) -> Result<Links, RetrieverError> {
    let rows = vectors.rows();
    if u32::try_from(rows.saturating_mul(3 * NEIGHBOURS)).is_err() {
        let what = format!("{rows} rows are too many for a graph; use a quantised index");
        return Err(fault(vectors.path(), what));
    }
    if rows == 0 {
        return Links::new(0, &[Nodes::new()], vectors.path());
    }
    let lift = Lift::of(vectors);
    let graph = Hnsw::<f32, HalfSquare>::new(
        NEIGHBOURS,
        rows,
        MOST_LAYERS,
        KEPT_WHILE_BUILDING,
        HalfSquare,
    );
    let mut lifted = Vec::new();
    for row in 0..rows {
        lifted.clear();
        lift.append(vectors.row(row), &mut lifted);
        graph.insert_slice((&lifted, row));
    }
    let (entry, mut layers) = take_links(&graph, rows);
    connect(entry, &mut layers[0]);
    Links::new(entry, &layers, vectors.path())
}

/// The entry row, and for every layer its nodes with their neighbours, nearest first.
fn take_links(graph: &Hnsw<'_, f32, HalfSquare>, rows: usize) -> (u32, Vec<Nodes>) {
    let points = graph.get_point_indexation();
    let mut levels = vec![0_u8; rows];
    for point in points {
        levels[point.get_origin_id()] = point.get_point_id().0;
    }
    let highest = levels.iter().copied().max().unwrap_or(0);
    // The first row that reached the highest layer: where the builder's own searches begin.
    let entry = levels
        .iter()
        .position(|&level| level == highest)
        .unwrap_or(0) as u32;
    let mut layers: Vec<Nodes> = vec![Nodes::new(); usize::from(highest) + 1];
    for point in points {
        let (row, level) = (point.get_origin_id(), point.get_point_id().0);
        let neighbourhood = point.get_neighborhood_id();
        for (layer, found) in (0..=level).zip(neighbourhood) {
            let mut ids: Vec<u32> = Vec::with_capacity(found.len());
            for neighbour in found {
                let id = neighbour.get_origin_id();
                // A row may have been handed down from the layer above; only those of this layer lead on in it.
                if id != row && levels[id] >= layer && !ids.contains(&(id as u32)) {
                    ids.push(id as u32);
                }
            }
            layers[usize::from(layer)].push((row as u32, ids));
        }
    }
    for nodes in &mut layers {
        nodes.sort_unstable_by_key(|(row, _)| *row);
    }
    (entry, layers)
}

/// Gives every row that cannot be reached a link from a row that can: pruning may cut rows off, equal ones above all.
fn connect(entry: u32, nodes: &mut Nodes) {
    let mut reached = vec![false; nodes.len()];
    reach(entry, nodes, &mut reached);
    for row in 0..nodes.len() {
        if !reached[row] {
            let from = nodes[row]
                .1
                .iter()
                .copied()
                .find(|&near| reached[near as usize])
                .unwrap_or(entry);
            nodes[from as usize].1.push(row as u32);
            reach(row as u32, nodes, &mut reached);
        }
    }
}

fn reach(from: u32, nodes: &Nodes, reached: &mut [bool]) {
    reached[from as usize] = true;
    let mut open = vec![from];
    while let Some(row) = open.pop() {
        for &next in &nodes[row as usize].1 {
            if !std::mem::replace(&mut reached[next as usize], true) {
                open.push(next);
            }
        }
    }
}
