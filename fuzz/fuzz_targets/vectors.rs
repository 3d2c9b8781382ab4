//! Vector files over arbitrary bytes: headers never decide how much memory is taken, and a file in pieces reads as the whole.
#![no_main]

use forage_retriever::VectorRows;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("room for a small file");
        path
    };
    let (first, second) = data.split_at(data.len() / 3);
    let pieces = VectorRows::open(&[write("first", first), write("second", second)]);
    let Ok(mut rows) = VectorRows::open(&[write("file", data)]) else {
        assert!(pieces.is_err(), "pieces of a file that is refused");
        return;
    };
    let mut pieces = pieces.expect("pieces of a file that is read");
    assert_eq!(
        (pieces.rows(), pieces.dimension()),
        (rows.rows(), rows.dimension())
    );
    let numbers = rows.rows() as usize * rows.dimension();
    assert!(
        numbers * 2 <= data.len(),
        "more numbers than the file has room for"
    );
    let mut vector = vec![0.0; rows.dimension()];
    let mut again = vector.clone();
    for row in 0..rows.rows() {
        let read = rows.read(row, &mut vector).is_ok();
        assert_eq!(pieces.read(row, &mut again).is_ok(), read);
        if read {
            assert!(vector.iter().all(|value| value.is_finite()));
            assert_eq!(vector, again);
        }
    }
    assert!(rows.read(rows.rows(), &mut vector).is_err());
});
