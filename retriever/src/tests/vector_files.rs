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

fn open(path: &Path) -> Result<VectorRows, String> {
    VectorRows::open(&[path.to_owned()]).map_err(|error| error.to_string())
}

/// All rows, read in the order given.
fn all(pieces: &[PathBuf], order: [u64; 5]) -> Result<Vec<f32>, String> {
    let mut rows = VectorRows::open(pieces).map_err(|error| error.to_string())?;
    assert_eq!((rows.rows(), rows.dimension()), (5, 4));
    let mut vectors = vec![0.0; 20];
    for row in order {
        let read = rows.read(row, &mut vectors[row as usize * 4..][..4]);
        read.map_err(|error| error.to_string())?;
    }
    assert!(rows.read(5, &mut [0.0; 4]).is_err(), "there is no sixth");
    Ok(vectors)
}

/// What can be read.
const WHOLE: [&str; 11] = [
    "f2.npy",
    "f4.npy",
    "f8.npy",
    "v2.npy",
    "v3.npy",
    "ip.faiss",
    "l2.faiss",
    "ivf.faiss",
    "ivf-l2.faiss",
    "ivf-hash.faiss",
    "ivf-sparse.faiss",
];

#[test]
fn every_kind_reads_the_same() {
    for name in WHOLE {
        for order in [[0, 1, 2, 3, 4], [3, 0, 4, 2, 1]] {
            assert_eq!(all(&[fixture(name)], order).unwrap(), expected(), "{name}");
        }
    }
    let metric = |name| open(&fixture(name)).unwrap().metric();
    assert_eq!(metric("ip.faiss"), Some(VectorMetric::InnerProduct));
    assert_eq!(metric("l2.faiss"), Some(VectorMetric::L2));
    assert_eq!(metric("ivf.faiss"), Some(VectorMetric::InnerProduct));
    assert_eq!(metric("ivf-l2.faiss"), Some(VectorMetric::L2));
    assert_eq!(metric("f4.npy"), None);
}

#[test]
fn a_file_in_pieces_is_read_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let pieces = ["aa", "ab", "ac"].map(|name| folder.path().join(name));
    for name in ["f4.npy", "ip.faiss", "ivf.faiss"] {
        let whole = std::fs::read(fixture(name)).unwrap();
        for cut in 0..whole.len() {
            let (first, rest) = whole.split_at(cut);
            let (second, third) = rest.split_at(rest.len() / 2);
            for (piece, bytes) in pieces.iter().zip([first, second, third]) {
                std::fs::write(piece, bytes).unwrap();
            }
            let order = [4, 3, 2, 1, 0];
            assert_eq!(all(&pieces, order).unwrap(), expected(), "{name} at {cut}");
        }
        std::fs::write(&pieces[0], &whole[..whole.len() - 1]).unwrap();
        let cut = VectorRows::open(&pieces[..1]).err().unwrap().to_string();
        assert!(
            cut.contains("pieces") || cut.contains("breaks off"),
            "{cut}"
        );
    }
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
        (
            "ivf-ids.faiss",
            "has a row with id 7; ids must be the numbers",
        ),
        ("idmap.faiss", "IndexIDMap); write the flat index inside it"),
        ("hnsw.faiss", "a FAISS index of kind `IHNf`"),
        ("nan.npy", "row 4 holds a number that is not finite"),
        ("make.py", "is neither a .npy array nor a FAISS index"),
        ("none.npy", "cannot be opened"),
    ];
    for (name, expected) in cases {
        let message = all(&[fixture(name)], [0, 1, 2, 3, 4]).unwrap_err();
        assert!(
            message.contains(expected) && message.contains(name),
            "{message}"
        );
    }
}

#[test]
fn no_cut_or_lengthened_file_opens() {
    let folder = tempfile::tempdir().unwrap();
    for name in WHOLE {
        let whole = std::fs::read(fixture(name)).unwrap();
        let path = folder.path().join(name);
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(open(&path).is_err(), "{name} cut to {length} bytes");
        }
        std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert!(open(&path).is_err(), "{name} lengthened");
    }
}

#[test]
fn no_flipped_byte_is_more_than_another_vector() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flipped");
    for name in WHOLE {
        let whole = std::fs::read(fixture(name)).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0xA5;
            std::fs::write(&path, flipped).unwrap();
            let Ok(mut rows) = open(&path) else { continue };
            assert!(rows.rows() as usize * rows.dimension() <= whole.len());
            for row in 0..rows.rows() {
                let mut vector = vec![0.0; rows.dimension()];
                let read = rows.read(row, &mut vector);
                assert!(read.is_err() || vector.iter().all(|value| value.is_finite()));
            }
        }
    }
}
