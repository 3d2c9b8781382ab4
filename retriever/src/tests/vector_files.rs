//! Vector files as `numpy` and `faiss` write them (`fixtures/vectors/make.py`), and damaged ones.

use std::path::{Path, PathBuf};

use forage_retriever::dense::VectorRows;
use forage_retriever::dense::import::VectorMetric;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/vectors")
        .join(name)
}

/// As `make.py` computes them.
fn expected() -> Vec<f32> {
    (0..5_u8)
        .flat_map(|row| {
            (0..4_u8).map(move |column| f32::from(row + 1) * (f32::from(column) - 1.5) / 4.0)
        })
        .collect()
}

fn all(path: &Path, at_once: usize) -> Result<Vec<f32>, String> {
    let mut rows = VectorRows::open(path).map_err(|error| error.to_string())?;
    assert_eq!((rows.rows(), rows.dimension()), (5, 4));
    let mut vectors = Vec::new();
    while let Some(next) = rows.next_rows(at_once).map_err(|error| error.to_string())? {
        assert!(!next.is_empty() && next.len() <= at_once * 4);
        vectors.extend(next);
    }
    Ok(vectors)
}

#[test]
fn every_kind_reads_the_same() {
    for name in [
        "f2.npy", "f4.npy", "f8.npy", "v2.npy", "v3.npy", "ip.faiss", "l2.faiss",
    ] {
        for at_once in [1, 2, 5, 100] {
            assert_eq!(all(&fixture(name), at_once).unwrap(), expected(), "{name}");
        }
    }
    let metric = |name| VectorRows::open(&fixture(name)).unwrap().metric();
    assert_eq!(metric("ip.faiss"), Some(VectorMetric::InnerProduct));
    assert_eq!(metric("l2.faiss"), Some(VectorMetric::L2));
    assert_eq!(metric("f4.npy"), None);
}

#[test]
fn what_cannot_be_read_says_why() {
    let cases = [
        ("f4-big.npy", "big-endian numbers (`>f4`); save"),
        ("i4.npy", "holds `<i4`, not floating-point numbers"),
        ("object.npy", "holds `|O`, not floating-point numbers"),
        (
            "fortran.npy",
            "is in Fortran order; save `numpy.ascontiguousarray",
        ),
        ("one-dimension.npy", "has 1 dimensions where 2 are needed"),
        ("empty.npy", "holds no vectors"),
        ("idmap.faiss", "IndexIDMap); write the flat index inside it"),
        ("hnsw.faiss", "a FAISS index of kind `IHNf`"),
        ("nan.npy", "row 4 holds a number that is not finite"),
        ("make.py", "is neither a .npy array nor a FAISS index"),
        ("none.npy", "cannot be opened"),
    ];
    for (name, expected) in cases {
        let message = all(&fixture(name), 2).unwrap_err();
        assert!(
            message.contains(expected) && message.contains(name),
            "{message}"
        );
    }
}

#[test]
fn no_cut_or_lengthened_file_opens() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["f4.npy", "v2.npy", "ip.faiss"] {
        let whole = std::fs::read(fixture(name)).unwrap();
        let path = folder.path().join(name);
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(
                VectorRows::open(&path).is_err(),
                "{name} cut to {length} bytes"
            );
        }
        std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert!(VectorRows::open(&path).is_err(), "{name} lengthened");
    }
}
