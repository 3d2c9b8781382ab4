//! Any bytes are the state and the digests of a run's checkpoint: it is whole, or refused with the file.

#![no_main]

use forage_trainer::checkpoint::newest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &[u8], &str)| {
    let (name, state, sums) = input;
    let run = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary folder");
    let plain = !name.is_empty()
        && name.len() < 200
        && !name.contains(['/', '\0'])
        && name != "."
        && name != "..";
    let folder = run
        .path()
        .join("checkpoints")
        .join(if plain { name } else { "step-000001" });
    std::fs::create_dir_all(&folder).expect("room for a folder");
    std::fs::write(folder.join("state.json"), state).expect("room for a small file");
    if !sums.is_empty() {
        std::fs::write(folder.join("BLAKE3SUMS"), sums).expect("room for a small file");
    }
    for place in [run.path(), &folder] {
        if let Err(error) = newest(place) {
            assert!(error.to_string().contains("checkpoint"), "{error}");
        }
    }
});
