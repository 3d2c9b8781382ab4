//! Vector files over arbitrary bytes: headers never decide how much memory is taken.
#![no_main]

use forage_retriever::VectorRows;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary folder");
    let path = folder.path().join("file");
    std::fs::write(&path, data).expect("room for a small file");
    let Ok(mut rows) = VectorRows::open(&[path]) else {
        return;
    };
    let numbers = rows.rows() as usize * rows.dimension();
    assert!(
        numbers * 2 <= data.len(),
        "more numbers than the file has room for"
    );
    let mut vector = vec![0.0; rows.dimension()];
    for row in 0..rows.rows() {
        if rows.read(row, &mut vector).is_ok() {
            assert!(vector.iter().all(|value| value.is_finite()));
        }
    }
    assert!(rows.read(rows.rows(), &mut vector).is_err());
});
