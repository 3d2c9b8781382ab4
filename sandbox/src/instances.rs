//! Instances of the interpreter that are used again.
//!
//! A new instance asks the system for each page when it first writes to it, and the some hundred pages of a first turn take longer
//! than running it. So the instance of a turn that ended is kept. The session that it was of finds it as it left it; another one takes
//! back first what was written to it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wasmtime::Result;

use crate::budget::{Budget, Share};
use crate::checkpoint::{Checkpoint, Pages, Places};
use crate::live::Live;
use crate::pages::PAGE;

/// Most of them.
const KEPT: usize = 64;
/// The most written memory of one.
const BYTES: usize = 8 << 20;

/// The instances that wait, the one that waits longest first.
#[derive(Default)]
pub(crate) struct Instances {
    waiting: Mutex<VecDeque<Waiting>>,
}

struct Waiting {
    live: Live,
    /// Where its memory differs from the snapshot.
    places: Arc<Places>,
    /// The state that its memory is in.
    state: Weak<Pages>,
    /// The memory of its pages.
    _share: Share,
}

impl Instances {
    /// An instance whose memory is in a state, if there is one that can be brought there.
    pub(crate) fn take(&self, state: &Checkpoint, snapshot: &[u8]) -> Result<Option<Live>> {
        // Memory grows and never shrinks.
        let most = state.size.max(snapshot.len());
        let own = |kept: &Waiting| std::ptr::eq(kept.state.as_ptr(), Arc::as_ptr(&state.pages));
        let fits = |kept: &Waiting| kept.live.bytes().len() <= most;
        let mut waiting = self.waiting();
        if let Some(at) = waiting.iter().rposition(own) {
            return Ok(waiting.remove(at).map(|kept| kept.live));
        }
        let found = waiting.iter().position(fits);
        let Some(kept) = found.and_then(|at| waiting.remove(at)) else {
            return Ok(None);
        };
        drop(waiting);
        let mut live = kept.live;
        live.reset(&kept.places, snapshot);
        live.restore(state)?;
        Ok(Some(live))
    }

    /// Keeps the instance of a session that rests in a state, if there is room for it and the pages that were written to it.
    pub(crate) fn keep(&self, live: Live, written: usize, state: &Checkpoint, budget: &Budget) {
        let bytes = written * PAGE;
        if bytes > BYTES {
            return;
        }
        let Some(share) = budget.keep_instance(bytes) else {
            return;
        };
        let mut waiting = self.waiting();
        let over = (waiting.len() >= KEPT).then(|| waiting.pop_front());
        waiting.push_back(Waiting {
            live,
            places: Arc::clone(&state.pages.places),
            state: Arc::downgrade(&state.pages),
            _share: share,
        });
        drop(waiting);
        // Given back to the system when others may take theirs.
        drop(over);
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{EngineOptions, SandboxEngine, Session};

    /// A turn, and what is kept after it.
    fn run(engine: &SandboxEngine, session: &mut Session, code: &str) -> (String, usize) {
        let stdout = session.run_blocking(code).unwrap().stdout;
        // The instance is put away when the state of now is known.
        session.checkpoint().unwrap();
        (stdout, engine.instances().unwrap().waiting().len())
    }

    #[test]
    fn nothing_of_a_session_is_left_in_the_instance_that_another_one_is_given() {
        const DIRTY: &str = "import builtins, math, sys\nbuiltins.len = math.pi = sys.x = kept = [bytes([n]) * 999 for n in range(99)]";
        const LOOK: &str = "import os, random\nprint(len('abc'), math.pi if 'math' in globals() else None, hasattr(__import__('sys'), 'x'))\n\
             print(id(object()), [id(n) for n in ([], {}, 'x' * 9)], os.urandom(9), random.random(), __import__('math').pi, dir())";
        const ENDLESS: &str = "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()";
        let open = || SandboxEngine::open(&EngineOptions::default()).unwrap();
        let (engine, other) = (open(), open());
        let session = |engine: &SandboxEngine, seed| engine.session(Arc::new(()), seed);
        let look = |engine| run(engine, &mut session(engine, 7), LOOK);
        let (expected, _) = look(&other);
        let (_, kept) = run(&engine, &mut session(&engine, 1), DIRTY);
        assert_eq!(kept, 1);
        assert_eq!(look(&engine), (expected.clone(), 1), "it is used again");
        // One that is stopped in the middle of a turn is not.
        let (_, kept) = run(&engine, &mut session(&engine, 1), ENDLESS);
        assert_eq!(kept, 0);
        assert_eq!(look(&engine), (expected, 1));
    }

    #[test]
    fn sessions_by_turns_find_what_they_left() {
        let engine = SandboxEngine::open(&EngineOptions::default()).unwrap();
        let mut sessions: Vec<Session> = (0..3)
            .map(|seed| engine.session(Arc::new(()), seed))
            .collect();
        for turn in 0..4 {
            for (number, session) in sessions.iter_mut().enumerate() {
                let code = format!("x = globals().get('x', []) + [({turn}, {number})]\nprint(x)");
                let (stdout, kept) = run(&engine, session, &code);
                let expected: Vec<_> = (0..=turn).map(|turn| (turn, number)).collect();
                assert_eq!(stdout.trim(), format!("{expected:?}"));
                assert_eq!(kept, 1);
            }
        }
    }
}
