//! How many lists a query reads: measured against the exhaustive scan, with rows of the index as queries.

use std::collections::BTreeMap;

use forage_contracts::retriever::{CancelFlag, RetrieverError};
use forage_contracts::seed::Seed;
use rayon::prelude::*;

use super::centroids::spread;
use super::{IvfIndex, Probing};
use crate::dense::flat;

/// Rows that serve as queries.
const QUERIES: usize = 256;
/// Nearest rows of each, itself left out.
const NEAREST: usize = 10;
/// The share of the nearest that must be found.
const RECALL: f64 = 0.99;

impl IvfIndex {
    /// The recall of reading `nprobe` lists; without it, of the smallest number that finds 99 % of the ten nearest.
    ///
    /// # Errors
    /// As [`crate::VectorIndex::search`].
    pub(crate) fn measured(&self, nprobe: Option<usize>) -> Result<Probing, RetrieverError> {
        let lists = self.lists.count();
        tracing::info!(lists, "measuring recall against an exhaustive scan");
        let probes = Probes::of(self)?;
        let mut known = BTreeMap::new();
        let mut recall = |nprobe: usize| -> Result<f64, RetrieverError> {
            if let Some(&recall) = known.get(&nprobe) {
                return Ok(recall);
            }
            let recall = probes.recall(nprobe)?;
            known.insert(nprobe, recall);
            Ok(recall)
        };
        let most = lists.max(1);
        let nprobe = if let Some(nprobe) = nprobe {
            nprobe.clamp(1, most)
        } else {
            // Doubled until it is enough, then halved in on: few lists are read on the way.
            let (mut few, mut enough) = (0, 1);
            while enough < most && recall(enough)? < RECALL {
                (few, enough) = (enough, (2 * enough).min(most));
            }
            while enough - few > 1 {
                let middle = few + (enough - few) / 2;
                if recall(middle)? < RECALL {
                    few = middle;
                } else {
                    enough = middle;
                }
            }
            enough
        };
        Ok(Probing {
            lists,
            nprobe,
            recall: recall(nprobe)?,
        })
    }
}

/// Rows as queries, and the score of the last of their nearest.
struct Probes<'i> {
    index: &'i IvfIndex,
    rows: Vec<u32>,
    /// The number of the nearest of each row, and the score of the last: rows of equal score are as good.
    nearest: Vec<(usize, f32)>,
}

impl<'i> Probes<'i> {
    fn of(index: &'i IvfIndex) -> Result<Self, RetrieverError> {
        let vectors = &index.vectors;
        let count = vectors.rows();
        let seed = Seed::root(0).child("ivf probes", &[count as u64]);
        let rows = spread(count, QUERIES.min(count), seed);
        let queries: Vec<f32> = rows
            .iter()
            .flat_map(|&row| vectors.row(row))
            .copied()
            .collect();
        let rows: Vec<u32> = rows.into_iter().map(|row| row as u32).collect();
        let k = (NEAREST + 1).min(count);
        let exact = flat::scan(vectors, &queries, k, None, &CancelFlag::default())?;
        let nearest = rows.iter().zip(exact).map(|(&row, exact)| {
            let others = others(row, exact);
            (others.len(), others.last().map_or(0.0, |&score| score))
        });
        let nearest = nearest.collect();
        Ok(Self {
            index,
            rows,
            nearest,
        })
    }

    fn recall(&self, nprobe: usize) -> Result<f64, RetrieverError> {
        let found = self
            .rows
            .par_iter()
            .zip(&self.nearest)
            .map(|(&row, &(wanted, last))| {
                let query = self.index.vectors.row(row as usize);
                let flag = CancelFlag::default();
                let found = self
                    .index
                    .nearest(query, NEAREST + 1, nprobe, None, &flag)?;
                let found = others(row, found)
                    .into_iter()
                    .filter(|&score| score >= last);
                Ok(found.count().min(wanted))
            });
        let found: usize = found.sum::<Result<usize, RetrieverError>>()?;
        let wanted: usize = self.nearest.iter().map(|(wanted, _)| wanted).sum();
        Ok(if wanted == 0 {
            1.0
        } else {
            found as f64 / wanted as f64
        })
    }
}

/// The scores of the rows found besides the row itself.
fn others(row: u32, found: Vec<(u32, f32)>) -> Vec<f32> {
    let others = found.into_iter().filter(|&(found, _)| found != row);
    others.map(|(_, score)| score).take(NEAREST).collect()
}
