//! Sessions that keep more between their turns than there is room for: 22 MiB of memory, and 616 MiB of
//! a file, or less where its disk has little free.

use std::sync::Arc;

use forage_sandbox::{EngineOptions, Limits, SandboxEngine, Session, Status};

#[test]
fn a_session_whose_memory_finds_no_room_is_told_so_and_begins_anew() {
    let engine = SandboxEngine::open(&EngineOptions {
        limits: Limits {
            memory_bytes: 64 << 20,
            ..Limits::default()
        },
        memory_bytes: Some(88 << 20),
        ..EngineOptions::default()
    })
    .unwrap();
    let mut sessions: Vec<Session> = (0..40)
        .map(|seed| engine.session(Arc::new(()), seed))
        .collect();
    // Random bytes, which do not compress.
    let make = "import os\nx = [os.urandom(2 * 2**20) for _ in range(12)]";
    for session in &mut sessions {
        assert_eq!(session.run_blocking(make).unwrap().status, Status::Ok);
    }
    let mut lost = 0;
    for session in &mut sessions {
        let output = session.run_blocking("print(len(x))").unwrap();
        if output.status == Status::Ok {
            assert_eq!(output.stdout, "12\n");
            continue;
        }
        assert_eq!(output.status, Status::Lost, "{output:?}");
        assert_eq!(output.error.unwrap().kind, "MemoryError");
        lost += 1;
        let anew = session.run_blocking("print('x' in globals())").unwrap();
        assert_eq!(anew.stdout, "False\n");
    }
    assert!((1..40).contains(&lost), "{lost} of 40");
}
