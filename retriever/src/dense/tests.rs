use std::fs;
use std::sync::Arc;

use proptest::prelude::*;

use crate::cancel;
use rand_like::Numbers;

use super::vectors::VectorWriter;
use super::*;

mod ivf;

/// A small generator, so that tests need no more than a seed.
mod rand_like {
    pub(super) struct Numbers(u64);

    impl Numbers {
        pub(super) fn new(seed: u64) -> Self {
            Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
        }

        /// Uniform in [-1, 1).
        pub(super) fn next(&mut self) -> f32 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
        }
    }
}

/// Vectors around centres, as texts on topics are; of norm 1 with `unit`.
fn clustered(seed: u64, rows: usize, dimension: usize, unit: bool) -> Vec<f32> {
    let mut numbers = Numbers::new(7);
    let centres: Vec<f32> = (0..20 * dimension).map(|_| numbers.next()).collect();
    let mut numbers = Numbers::new(seed);
    let mut values = Vec::with_capacity(rows * dimension);
    for _ in 0..rows {
        let centre = ((numbers.next() + 1.0) * 10.0) as usize % 20;
        let row: Vec<f32> = centres[centre * dimension..][..dimension]
            .iter()
            .map(|value| value + 0.7 * numbers.next())
            .collect();
        let norm = if unit {
            kernel::product(&row, &row).sqrt()
        } else {
            1.0
        };
        values.extend(row.iter().map(|value| value / norm));
    }
    values
}

fn file(values: Vec<f32>, dimension: usize) -> Arc<VectorFile> {
    Arc::new(VectorFile::in_memory(values, dimension).unwrap())
}

/// The best `k` by inner products in double precision.
fn reference(
    vectors: &VectorFile,
    query: &[f32],
    k: usize,
    allowed: Option<&[bool]>,
) -> Vec<(u32, f64)> {
    let product = |row: usize| -> f64 {
        query
            .iter()
            .zip(vectors.row(row))
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    let rows = (0..vectors.rows()).filter(|&row| allowed.is_none_or(|allowed| allowed[row]));
    let mut scored: Vec<(u32, f64)> = rows.map(|row| (row as u32, product(row))).collect();
    scored.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    scored.truncate(k);
    scored
}

/// Share of the reference's rows that were found.
fn recall(
    index: &dyn VectorIndex,
    vectors: &VectorFile,
    queries: &[f32],
    k: usize,
    allowed: Option<&[bool]>,
) -> f64 {
    let found = index
        .search(queries, k, allowed, &CancelFlag::default())
        .unwrap();
    let mut hits = 0;
    for (query, found) in queries.chunks(index.vectors().dimension()).zip(&found) {
        let wanted = reference(vectors, query, k, allowed);
        assert_eq!(found.len(), wanted.len());
        assert!(best_first(found));
        for (row, score) in found {
            assert!(allowed.is_none_or(|allowed| allowed[*row as usize]));
            assert_eq!(
                score.to_bits(),
                kernel::product(query, vectors.row(*row as usize)).to_bits(),
                "exact scores"
            );
        }
        hits += found
            .iter()
            .filter(|(row, _)| wanted.iter().any(|(wanted, _)| wanted == row))
            .count();
    }
    hits as f64 / (k.min(vectors.rows()) * found.len()) as f64
}

/// Higher scores first, lower rows first among equal ones.
fn best_first(found: &[(u32, f32)]) -> bool {
    found.is_sorted_by(|one, other| {
        one.1
            .total_cmp(&other.1)
            .reverse()
            .then(one.0.cmp(&other.0))
            .is_lt()
    })
}

fn every_kind(vectors: &Arc<VectorFile>) -> Vec<Box<dyn VectorIndex>> {
    vec![
        Box::new(FlatIndex::new(Arc::clone(vectors))),
        Box::new(QuantisedIndex::build(Arc::clone(vectors)).unwrap()),
        Box::new(IvfIndex::build(Arc::clone(vectors)).unwrap()),
        Box::new(GraphIndex::build(Arc::clone(vectors)).unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn flat_is_what_double_precision_says(
        seed in 0_u64..1000, rows in 1_usize..300, dimension in 1_usize..40, queries in 1_usize..11, k in 0_usize..20,
    ) {
        let vectors = file(clustered(seed, rows, dimension, false), dimension);
        let queries = clustered(seed + 1, queries, dimension, false);
        let allowed: Vec<bool> = (0..rows).map(|row| row % 3 != 1).collect();
        for allowed in [None, Some(&allowed[..])] {
            let found = FlatIndex::new(Arc::clone(&vectors)).search(&queries, k, allowed, &CancelFlag::default()).unwrap();
            for (query, found) in queries.chunks(dimension).zip(found) {
                let wanted = reference(&vectors, query, k, allowed);
                prop_assert_eq!(found.len(), wanted.len());
                for ((row, score), (wanted_row, wanted_score)) in found.iter().zip(&wanted) {
                    prop_assert!((f64::from(*score) - wanted_score).abs() < 1e-4);
                    let gap = (reference(&vectors, query, rows, None).iter().find(|(r, _)| r == row).unwrap().1 - wanted_score).abs();
                    prop_assert!(row == wanted_row || gap < 1e-4, "only rounding may swap rows");
                }
            }
        }
    }
}

#[test]
fn the_best_are_found_with_exact_scores() {
    let vectors = file(clustered(1, 6000, 48, true), 48);
    let queries = clustered(2, 60, 48, true);
    let few: Vec<bool> = (0..6000).map(|row| row % 40 == 3).collect();
    let many: Vec<bool> = (0..6000).map(|row| row % 4 != 3).collect();
    for index in every_kind(&vectors) {
        let least = if index.kind() == VectorIndexKind::Flat {
            1.0
        } else {
            0.95
        };
        for allowed in [None, Some(&few[..]), Some(&many[..])] {
            let recall = recall(index.as_ref(), &vectors, &queries, 10, allowed);
            assert!(
                recall >= least,
                "{:?} found {recall} of the best",
                index.kind()
            );
        }
    }
}

#[test]
fn vectors_of_any_norm_are_ranked_by_inner_product() {
    let mut values = clustered(3, 3000, 20, true);
    for (row, vector) in values.chunks_mut(20).enumerate() {
        for value in vector {
            *value *= 0.2 + (row % 17) as f32;
        }
    }
    let vectors = file(values, 20);
    let queries = clustered(4, 30, 20, true);
    for index in every_kind(&vectors) {
        let recall = recall(index.as_ref(), &vectors, &queries, 5, None);
        assert!(
            recall >= 0.9,
            "{:?} found {recall} of the best",
            index.kind()
        );
    }
}

#[test]
fn answers_depend_neither_on_the_batch_nor_on_threads() {
    let vectors = file(clustered(5, 5000, 24, true), 24);
    let queries = clustered(6, 70, 24, true);
    for index in every_kind(&vectors) {
        let together = index
            .search(&queries, 10, None, &CancelFlag::default())
            .unwrap();
        for (query, answer) in queries.chunks(24).zip(&together) {
            assert_eq!(
                index
                    .search(query, 10, None, &CancelFlag::default())
                    .unwrap()[0],
                *answer,
                "{:?}",
                index.kind()
            );
        }
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            assert_eq!(
                pool.install(|| index
                    .search(&queries, 10, None, &CancelFlag::default())
                    .unwrap()),
                together,
                "{:?}",
                index.kind()
            );
        }
    }
    let (one, other) = (
        GraphIndex::build(Arc::clone(&vectors)).unwrap(),
        GraphIndex::build(vectors).unwrap(),
    );
    let folder = tempfile::tempdir().unwrap();
    let save = |graph: &GraphIndex, name: &str| {
        graph.save(&folder.path().join(name)).unwrap();
        fs::read(folder.path().join(name)).unwrap()
    };
    assert!(
        save(&one, "one") == save(&other, "other"),
        "the same rows give the same graph"
    );
}

#[test]
fn a_large_scan_is_the_same_on_every_number_of_threads() {
    let vectors = file(clustered(5, 9000, 64, true), 64);
    let queries = clustered(6, 120, 64, true);
    let index = FlatIndex::new(vectors);
    let answers = [1, 2, 5].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            index
                .search(&queries, 7, None, &CancelFlag::default())
                .unwrap()
        })
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
}

#[test]
fn few_equal_zero_and_missing_rows_are_answered() {
    let dimension = 12;
    let same = clustered(7, 1, dimension, true).repeat(300);
    let zeros = vec![0.0; 50 * dimension];
    let mixed = [
        same.clone(),
        clustered(8, 200, dimension, true),
        same.clone(),
    ]
    .concat();
    let query = &same[..dimension];
    for values in [
        Vec::new(),
        same[..dimension].to_vec(),
        same.clone(),
        zeros,
        mixed,
    ] {
        let vectors = file(values, dimension);
        let rows = vectors.rows();
        for index in every_kind(&vectors) {
            assert_eq!(index.vectors().rows(), rows);
            for k in [0, 1, 5, rows, rows + 10] {
                let found = index
                    .search(query, k, None, &CancelFlag::default())
                    .unwrap()
                    .remove(0);
                assert_eq!(found.len(), k.min(rows), "{:?} of {rows}", index.kind());
                let mut unique: Vec<u32> = found.iter().map(|(row, _)| *row).collect();
                unique.sort_unstable();
                unique.dedup();
                assert_eq!(unique.len(), found.len());
                assert!(best_first(&found));
            }
            let nothing = vec![false; rows];
            assert!(
                index
                    .search(query, 5, Some(&nothing), &CancelFlag::default())
                    .unwrap()[0]
                    .is_empty()
            );
            assert!(
                index
                    .search(&[], 5, None, &CancelFlag::default())
                    .unwrap()
                    .is_empty()
            );
        }
    }
}

#[test]
fn faults_of_queries_are_errors() {
    let vectors = file(clustered(9, 100, 8, true), 8);
    for index in every_kind(&vectors) {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e20] {
            let mut query = vec![0.5; 16];
            query[11] = bad;
            let failure = index
                .search(&query, 3, None, &CancelFlag::default())
                .unwrap_err()
                .to_string();
            assert!(
                failure.contains("query vector 1") && failure.contains("column 3"),
                "{failure}"
            );
        }
        assert!(
            index
                .search(&[0.5; 7], 3, None, &CancelFlag::default())
                .unwrap_err()
                .to_string()
                .contains("dimension 8")
        );
        assert!(
            index
                .search(&[0.5; 8], 3, Some(&[true; 99]), &CancelFlag::default())
                .is_err()
        );
    }
}

#[test]
fn vectors_are_checked_when_written_and_when_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vectors.f32");
    let values = clustered(10, 70, 6, true);
    let mut writer = VectorWriter::create(&path, 6).unwrap();
    writer.append(&values[..60]).unwrap();
    writer.append(&values[60..]).unwrap();
    let record = writer.finish().unwrap();
    assert!(record.rows == 70 && record.unit);
    assert_eq!(
        record.digest,
        blake3::hash(&fs::read(&path).unwrap()).to_hex().to_string()
    );
    let read = VectorFile::open(&path, 6).unwrap();
    assert_eq!(
        (read.rows(), read.dimension(), read.values()),
        (70, 6, &values[..])
    );
    assert_eq!(read.row(69), &values[69 * 6..]);

    let fails = |change: &dyn Fn(&mut Vec<f32>), needle: &str| {
        let mut changed = values.clone();
        change(&mut changed);
        let mut writer = VectorWriter::create(&folder.path().join("other.f32"), 6).unwrap();
        writer.append(&values[..12]).unwrap();
        let failure = writer.append(&changed).unwrap_err().to_string();
        assert!(failure.contains(needle), "{failure}");
    };
    fails(&|values| values[19] = f32::NAN, "row 5 has NaN in column 1");
    fails(&|values| values[0] = f32::INFINITY, "row 2 has inf");
    for change in [(6..12, 0.0), (0..1, 3.0)] {
        let mut changed = values.clone();
        changed[change.0].fill(change.1);
        let mut writer = VectorWriter::create(&folder.path().join("other.f32"), 6).unwrap();
        writer.append(&changed).unwrap();
        assert!(!writer.finish().unwrap().unit);
    }
    fails(&|values| values.truncate(13), "not whole rows");
    assert!(VectorFile::in_memory(vec![f32::NAN], 1).is_err());

    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    assert!(
        VectorFile::open(&path, 6)
            .unwrap_err()
            .to_string()
            .contains("not whole rows")
    );
    assert!(VectorFile::open(&folder.path().join("nowhere"), 6).is_err());
    assert!(VectorFile::open(&path, 0).is_err());
    fs::write(&path, []).unwrap();
    assert_eq!(VectorFile::open(&path, 6).unwrap().rows(), 0);
}

#[test]
fn saved_indexes_answer_as_before_and_damage_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let vectors = file(clustered(11, 3000, 16, true), 16);
    let fewer = file(vectors.values()[16..].to_vec(), 16);
    let queries = clustered(12, 20, 16, true);
    let (codes, links) = (
        folder.path().join("codes.tv"),
        folder.path().join("links.bin"),
    );
    let quantised = QuantisedIndex::build(Arc::clone(&vectors)).unwrap();
    let graph = GraphIndex::build(Arc::clone(&vectors)).unwrap();
    quantised.save(&codes).unwrap();
    graph.save(&links).unwrap();
    let load_codes = |vectors: &Arc<VectorFile>| QuantisedIndex::load(&codes, Arc::clone(vectors));
    let load_links = |vectors: &Arc<VectorFile>| GraphIndex::load(&links, Arc::clone(vectors));
    let ask = |index: &dyn VectorIndex| {
        index
            .search(&queries, 10, None, &CancelFlag::default())
            .unwrap()
    };
    assert_eq!(ask(&load_codes(&vectors).unwrap()), ask(&quantised));
    assert_eq!(ask(&load_links(&vectors).unwrap()), ask(&graph));

    assert!(load_codes(&fewer).is_err());
    assert!(load_links(&fewer).is_err());
    for path in [&codes, &links] {
        let bytes = fs::read(path).unwrap();
        for length in [
            0,
            3,
            4,
            16,
            40,
            bytes.len() / 2,
            bytes.len() - 4,
            bytes.len() - 1,
        ] {
            fs::write(path, &bytes[..length]).unwrap();
            let failed = if path == &codes {
                load_codes(&vectors).is_err()
            } else {
                load_links(&vectors).is_err()
            };
            assert!(failed, "{} cut to {length} bytes", path.display());
        }
        fs::remove_file(path).unwrap();
        let failed = if path == &codes {
            load_codes(&vectors).is_err()
        } else {
            load_links(&vectors).is_err()
        };
        assert!(failed);
        fs::write(path, &bytes).unwrap();
    }
    // Any flipped word of the links is refused or harmless: never a panic.
    let bytes = fs::read(&links).unwrap();
    for at in (0..bytes.len()).step_by(bytes.len() / 300) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0xA5;
        fs::write(&links, &flipped).unwrap();
        if let Ok(graph) = load_links(&vectors) {
            assert!(ask(&graph).iter().all(|answer| answer.len() <= 10));
        }
    }
}

#[test]
fn a_scan_ends_within_a_block_once_nobody_waits() {
    let (rows, dimension) = (3000, 64);
    let mut numbers = Numbers::new(11);
    let values: Vec<f32> = (0..rows * dimension).map(|_| numbers.next()).collect();
    let vectors = Arc::new(VectorFile::in_memory(values, dimension).unwrap());
    let indexes: [Box<dyn VectorIndex>; 2] = [
        Box::new(FlatIndex::new(Arc::clone(&vectors))),
        Box::new(QuantisedIndex::build(Arc::clone(&vectors)).unwrap()),
    ];
    let query = vectors.row(0);
    // 256 KiB are 1024 rows of 64 numbers: three blocks.
    for (index, blocks) in indexes.iter().zip([3, 1]) {
        for looks in 0..=blocks {
            let found = index.search(query, 5, None, &cancel::after(looks));
            assert_eq!(found.is_ok(), looks == blocks, "{} {looks}", index.kind());
        }
    }
}
