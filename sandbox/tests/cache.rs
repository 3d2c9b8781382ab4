//! The compiled interpreter on disk: kept, checked, made again, done without.

use std::fs;
use std::sync::Arc;

use forage_sandbox::{EngineOptions, Limits, Notice, SandboxEngine};

fn open(options: &EngineOptions) -> (SandboxEngine, Vec<Notice>) {
    let mut notices = Vec::new();
    let engine = SandboxEngine::open_with(options, &mut |notice| notices.push(notice)).unwrap();
    // Whether this machine has much disk is not asked here.
    notices.retain(|notice| !matches!(notice, Notice::LittleDisk { .. }));
    (engine, notices)
}

fn works(engine: &SandboxEngine) {
    let mut session = engine.session(Arc::new(()), 0);
    assert_eq!(session.run_blocking("print(6 * 7)").unwrap().stdout, "42\n");
}

/// One test, because compiling is slow: damage is repaired, and a folder that cannot be written is done without.
#[test]
fn damage_is_repaired_and_a_useless_folder_is_done_without() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("deep/cache");
    let options = EngineOptions {
        limits: Limits::default(),
        cache: Some(cache.clone()),
        memory_bytes: None,
    };
    // What the user's cache already holds is copied, so that only the repair compiles.
    fs::create_dir_all(&cache).unwrap();
    open(&EngineOptions::default());
    let users = EngineOptions::default().cache.expect("a cache folder");
    let kept = fs::read_dir(users).unwrap().map(Result::unwrap);
    // Kernels of GPUs have a folder of their own beside them.
    for entry in kept.filter(|entry| entry.file_type().unwrap().is_file()) {
        fs::copy(entry.path(), cache.join(entry.file_name())).unwrap();
    }
    let (engine, notices) = open(&options);
    works(&engine);
    assert_eq!(notices, []);

    let compiled = |path: &std::path::PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "cwasm")
    };
    let files = || {
        fs::read_dir(&cache)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(compiled)
    };
    for path in files() {
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let (engine, notices) = open(&options);
    works(&engine);
    assert_eq!(notices, [Notice::Compiling]);
    assert_eq!(open(&options).1, [], "the repair was kept");

    // A file where the folder should be: as on a disk without space, what was compiled cannot be kept.
    let file = files().next().unwrap();
    let blocked = EngineOptions {
        cache: Some(file.clone()),
        ..options.clone()
    };
    let (engine, notices) = open(&blocked);
    works(&engine);
    assert!(
        matches!(&notices[..], [Notice::Compiling, Notice::NotKept { folder, .. }] if *folder == file),
        "{notices:?}"
    );
}
