//! Episode records over arbitrary bytes: what is read reads back the same when written.

#![no_main]

use forage_env::{EpisodeRecord, EpisodeWriter};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary folder");
    let path = folder.path().join("file");
    std::fs::write(&path, data).expect("room for a small file");
    let read = EpisodeRecord::read_all(&path).expect("the file is there");
    let Ok(episodes) = read
        .map(|record| Ok(record?.episode))
        .collect::<Result<Vec<_>, forage_env::RecordError>>()
    else {
        return;
    };
    let mut writer = EpisodeWriter::create(&path).expect("room for a small file");
    for episode in &episodes {
        writer
            .write(episode.clone())
            .expect("room for a small file");
    }
    writer.finish().expect("room for a small file");
    assert_eq!(
        EpisodeRecord::read_all(&path)
            .expect("the file is there")
            .count(),
        episodes.len()
    );
});
