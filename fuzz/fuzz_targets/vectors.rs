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
    let Ok(mut rows) = VectorRows::open(&path) else {
        return;
    };
    let numbers = rows.rows() as usize * rows.dimension();
    assert!(
        numbers * 2 <= data.len(),
        "more numbers than the file has room for"
    );
    let mut read = 0;
    loop {
        match rows.next_rows(3) {
            Ok(Some(next)) => read += next.len(),
            Ok(None) => break assert_eq!(read, numbers),
            Err(_) => break,
        }
    }
});
