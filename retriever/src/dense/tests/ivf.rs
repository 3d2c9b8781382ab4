//! The inverted file: against FAISS and NumPy (`tests/fixtures/ivf/make.py`), on any number of threads, and damaged.

use std::path::PathBuf;

use serde::Deserialize;

use super::*;
use crate::dense::ivf::default_lists;

#[derive(Deserialize)]
struct Reference {
    lists: usize,
    probes: Vec<usize>,
    nearest: Vec<Vec<u32>>,
    faiss: Recall,
}

#[derive(Deserialize)]
struct Recall {
    #[serde(rename = "Flat")]
    flat: Vec<f64>,
    #[serde(rename = "SQ8")]
    sq8: Vec<f64>,
}

fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ivf");
    folder.join(name)
}

fn array(name: &str) -> Arc<VectorFile> {
    let mut rows = VectorRows::open(&[fixture(name)]).unwrap();
    let dimension = rows.dimension();
    let mut values = vec![0.0; rows.rows() as usize * dimension];
    for (row, vector) in (0..).zip(values.chunks_mut(dimension)) {
        rows.read(row, vector).unwrap();
    }
    file(values, dimension)
}

fn ask(index: &IvfIndex, queries: &[f32], k: usize) -> Vec<Vec<(u32, f32)>> {
    index
        .search(queries, k, None, &CancelFlag::default())
        .unwrap()
}

#[test]
fn recall_is_that_of_faiss_and_all_lists_give_what_numpy_gives() {
    let reference = fs::read_to_string(fixture("reference.json")).unwrap();
    let reference: Reference = serde_json::from_str(&reference).unwrap();
    let (vectors, queries) = (array("vectors.npy"), array("queries.npy"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lists.bin");
    IvfIndex::save(&path, &vectors, reference.lists).unwrap();
    let load = |nprobe| IvfIndex::load(&path, Arc::clone(&vectors), nprobe).unwrap();
    let peers = reference.faiss.flat.iter().zip(&reference.faiss.sq8);
    for (&nprobe, (flat, sq8)) in reference.probes.iter().zip(peers) {
        let answers = ask(&load(nprobe), queries.values(), 10);
        let found = |(answer, nearest): (&Vec<(u32, f32)>, &Vec<u32>)| {
            answer
                .iter()
                .filter(|(row, _)| nearest.contains(row))
                .count()
        };
        let found: usize = answers.iter().zip(&reference.nearest).map(found).sum();
        let recall = found as f64 / (10 * reference.nearest.len()) as f64;
        // k-means begins elsewhere here: its lists are as good, not the same.
        assert!(
            recall > flat - 0.04,
            "{recall} of {nprobe} lists, IVF-Flat {flat}"
        );
        assert!(
            recall > sq8 - 0.02,
            "{recall} of {nprobe} lists, IVF-SQ8 {sq8}"
        );
    }
    let all = ask(&load(reference.lists), queries.values(), 10);
    let rows = |answer: &Vec<(u32, f32)>| answer.iter().map(|&(row, _)| row).collect::<Vec<_>>();
    assert_eq!(all.iter().map(rows).collect::<Vec<_>>(), reference.nearest);
    let flat = FlatIndex::new(vectors);
    let exact = flat.search(queries.values(), 10, None, &CancelFlag::default());
    assert_eq!(all, exact.unwrap(), "scores to the last bit");
}

#[test]
fn the_number_of_probes_is_the_smallest_that_finds_enough() {
    let vectors = array("vectors.npy");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lists.bin");
    IvfIndex::save(&path, &vectors, 64).unwrap();
    let index = IvfIndex::load(&path, Arc::clone(&vectors), 1).unwrap();
    let chosen = index.measured(None).unwrap();
    assert!(chosen.recall >= 0.99 && chosen.nprobe > 1, "{chosen:?}");
    let one_less = index.measured(Some(chosen.nprobe - 1)).unwrap();
    assert!(one_less.recall < 0.99, "{one_less:?}");
    // The measure itself, from its definition: rows as queries, themselves left out.
    let index = IvfIndex::load(&path, Arc::clone(&vectors), one_less.nprobe).unwrap();
    let queries = vectors.values();
    let (found, exact) = (
        ask(&index, queries, 11),
        FlatIndex::new(Arc::clone(&vectors)),
    );
    let exact = exact
        .search(queries, 11, None, &CancelFlag::default())
        .unwrap();
    let mut hits = 0;
    for ((found, exact), row) in found.iter().zip(&exact).zip(0..) {
        let others = |answer: &[(u32, f32)]| -> Vec<u32> {
            let rows = answer.iter().map(|&(row, _)| row);
            rows.filter(|&other| other != row).take(10).collect()
        };
        let exact = others(exact);
        hits += others(found)
            .iter()
            .filter(|row| exact.contains(row))
            .count();
    }
    let recall = hits as f64 / (10 * vectors.rows()) as f64;
    assert!(
        (recall - one_less.recall).abs() < 0.015,
        "{recall} of all rows, {one_less:?}"
    );
}

#[test]
fn files_are_the_same_on_every_number_of_threads_and_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let vectors = file(clustered(5, 3000, 24, false), 24);
    let files = [1, 2, 5].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let path = folder.path().join(threads.to_string());
        pool.install(|| IvfIndex::save(&path, &vectors, 100).unwrap());
        fs::read(path).unwrap()
    });
    assert!(files[0] == files[1] && files[0] == files[2]);
    let queries = clustered(6, 40, 24, true);
    let built = IvfIndex::build(Arc::clone(&vectors)).unwrap();
    let path = folder.path().join("own");
    IvfIndex::save(&path, &vectors, default_lists(3000)).unwrap();
    let own = IvfIndex::load(&path, Arc::clone(&vectors), 1).unwrap();
    let own = IvfIndex::load(&path, vectors, own.measured(None).unwrap().nprobe).unwrap();
    assert_eq!(built.parameters(), own.parameters());
    assert_eq!(ask(&built, &queries, 10), ask(&own, &queries, 10));
}

#[test]
fn a_rare_filter_or_a_long_list_reads_on() {
    let vectors = file(clustered(13, 4000, 32, true), 32);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lists.bin");
    IvfIndex::save(&path, &vectors, 200).unwrap();
    let index = IvfIndex::load(&path, Arc::clone(&vectors), 1).unwrap();
    let queries = clustered(14, 30, 32, true);
    // One row of a hundred: less than a list's worth of them, so that all are read and the answer is exact.
    let rare: Vec<bool> = (0..4000).map(|row| row % 100 == 7).collect();
    assert!((recall(&index, &vectors, &queries, 10, Some(&rare)) - 1.0).abs() < f64::EPSILON);
    let deep = ask(&index, &queries, 500);
    assert!(
        deep.iter()
            .all(|answer| answer.len() == 500 && best_first(answer))
    );
    let all = recall(&index, &vectors, &queries, 4000, None);
    assert!((all - 1.0).abs() < f64::EPSILON);
}

#[test]
fn damage_of_lists_is_an_error_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lists.bin");
    let vectors = file(clustered(11, 900, 15, true), 15);
    let queries = clustered(12, 10, 15, true);
    IvfIndex::save(&path, &vectors, 40).unwrap();
    let load = || IvfIndex::load(&path, Arc::clone(&vectors), 40);
    let whole = ask(&load().unwrap(), &queries, 10);
    for other in [
        file(vectors.values()[15..].to_vec(), 15),
        file(vectors.values().to_vec(), 25),
    ] {
        assert!(IvfIndex::load(&path, other, 3).is_err());
    }
    let bytes = fs::read(&path).unwrap();
    for length in [
        0,
        3,
        4,
        16,
        20,
        bytes.len() / 2,
        bytes.len() - 4,
        bytes.len() - 1,
    ] {
        fs::write(&path, &bytes[..length]).unwrap();
        assert!(load().is_err(), "cut to {length} bytes");
    }
    fs::write(&path, [&bytes[..], &[0; 4]].concat()).unwrap();
    assert!(load().is_err(), "lengthened");
    let mut refused = 0;
    for at in (0..bytes.len()).step_by(bytes.len() / 400) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0xA5;
        fs::write(&path, &flipped).unwrap();
        let answers =
            load().and_then(|index| index.search(&queries, 10, None, &CancelFlag::default()));
        match answers {
            Ok(answers) => {
                for mut answer in answers {
                    answer.sort_by_key(|(row, _)| *row);
                    answer.dedup_by_key(|(row, _)| *row);
                    assert_eq!(answer.len(), 10, "distinct rows");
                }
            }
            Err(failure) => {
                assert!(
                    matches!(failure, RetrieverError::Vectors { .. }),
                    "{failure}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(ask(&load().unwrap(), &queries, 10), whole);
    fs::remove_file(&path).unwrap();
    assert!(load().is_err());
}

#[test]
fn a_query_ends_within_a_list_once_nobody_waits() {
    let vectors = file(clustered(15, 2000, 16, true), 16);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lists.bin");
    IvfIndex::save(&path, &vectors, 50).unwrap();
    let index = IvfIndex::load(&path, Arc::clone(&vectors), 50).unwrap();
    for looks in [0, 1, 49, 50] {
        let found = index.search(vectors.row(0), 5, None, &cancel::after(looks));
        assert_eq!(found.is_ok(), looks == 50, "{looks}");
    }
}

#[test]
fn a_row_that_lies_in_two_lists_is_damage_and_no_answer() {
    let (lists, dimension) = (40, 15);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lists.bin");
    let vectors = file(clustered(11, 900, dimension, true), dimension);
    IvfIndex::save(&path, &vectors, lists).unwrap();
    let bytes = fs::read(&path).unwrap();
    let words = bytes.as_chunks::<4>().0.iter().copied();
    let mut words: Vec<u32> = words.map(u32::from_le_bytes).collect();
    let ends = 4 + lists * dimension;
    let first = ends + lists + 1;
    for list in 0..lists {
        let [begin, end] = [list, list + 1].map(|at| words[ends + at] as usize);
        // A row takes six words: its number, its scale, and its codes in four.
        words[first + 6 * begin..][..end - begin].fill(7);
    }
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    fs::write(&path, bytes).unwrap();
    let index = IvfIndex::load(&path, Arc::clone(&vectors), 5).unwrap();
    let found = index.search(vectors.row(0), 3, None, &CancelFlag::default());
    let failure = found.unwrap_err().to_string();
    assert!(failure.contains("row 7 lies in two lists"), "{failure}");
}

/// Passages that are all alike lie in one list.
#[test]
fn a_query_ends_inside_of_a_long_list() {
    let vectors = file(vec![0.5; 2 * 20_000], 2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lists.bin");
    IvfIndex::save(&path, &vectors, 1).unwrap();
    let index = IvfIndex::load(&path, Arc::clone(&vectors), 1).unwrap();
    for looks in 0..4 {
        let found = index.search(vectors.row(0), 5, None, &cancel::after(looks));
        assert_eq!(found.is_ok(), looks == 3, "{looks}");
    }
}
