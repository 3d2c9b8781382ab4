//! Flags that end searches, where several callers wait and where postings are read.

use std::io;

use forage_contracts::retriever::CancelFlag;

/// A flag for work that several callers wait for: set when the flags of all of them are.
pub(crate) fn all<'a>(flags: impl IntoIterator<Item = &'a CancelFlag>) -> CancelFlag {
    let waiting: Vec<CancelFlag> = flags.into_iter().cloned().collect();
    CancelFlag::when(move || waiting.iter().all(CancelFlag::is_cancelled))
}

/// As [`CancelFlag::check`], among failures of reading postings; see `Index::unreadable`.
pub(crate) fn check_io(flag: &CancelFlag) -> io::Result<()> {
    flag.check().map_err(io::Error::other)
}

/// A flag that is set from look number `looks` on, counted from 0.
#[cfg(test)]
pub(crate) fn after(looks: usize) -> CancelFlag {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let left = AtomicUsize::new(looks);
    let one_less = |left: usize| left.checked_sub(1);
    CancelFlag::when(move || {
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_err()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_on_while_one_caller_waits() {
        let (one, other, never) = (CancelFlag::new(), CancelFlag::new(), CancelFlag::default());
        let (both, open) = (all([&one, &other]), all([&one, &never]));
        one.cancel();
        assert!(!both.is_cancelled());
        other.cancel();
        assert!(both.is_cancelled() && !open.is_cancelled());
    }
}
