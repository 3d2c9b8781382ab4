//! Ending a search that nobody waits for any more.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::RetrieverError;

/// Ends searches: by a call of [`Self::cancel`], or at a deadline.
///
/// It travels in [`crate::Query::cancel`]. Clones are one flag. Everything that can take long looks at it once per block
/// (some thousand passages of postings or vectors, one passage that is read), so a search ends within a block. The
/// default is never set and costs nothing. Flags are all equal and hash alike: they are no part of what is asked.
#[derive(Clone, Default)]
pub struct CancelFlag(Option<Arc<Inner>>);

struct Inner {
    set: AtomicBool,
    deadline: Option<Instant>,
    /// Flags that end the search once all of them are set.
    waiting: Vec<CancelFlag>,
    /// Looks left before it counts as set.
    #[cfg(test)]
    looks: Option<std::sync::atomic::AtomicUsize>,
}

impl CancelFlag {
    /// A flag that [`Self::cancel`] sets.
    pub fn new() -> Self {
        Self::of(None, Vec::new())
    }

    /// A flag that sets itself at this time, if [`Self::cancel`] does not set it before.
    pub fn at(deadline: Instant) -> Self {
        Self::of(Some(deadline), Vec::new())
    }

    /// A flag for work that several callers wait for: set when the flags of all of them are.
    pub(crate) fn all<'a>(flags: impl IntoIterator<Item = &'a Self>) -> Self {
        let waiting: Vec<Self> = flags.into_iter().cloned().collect();
        if waiting.iter().any(|flag| flag.0.is_none()) {
            return Self::default();
        }
        Self::of(None, waiting)
    }

    fn of(deadline: Option<Instant>, waiting: Vec<Self>) -> Self {
        Self(Some(Arc::new(Inner {
            set: AtomicBool::new(false),
            deadline,
            waiting,
            #[cfg(test)]
            looks: None,
        })))
    }

    /// A flag that is set from look number `looks` on, counted from 0.
    #[cfg(test)]
    pub(crate) fn after(looks: usize) -> Self {
        Self(Some(Arc::new(Inner {
            set: AtomicBool::new(false),
            deadline: None,
            waiting: Vec::new(),
            looks: Some(looks.into()),
        })))
    }

    /// Ends the searches that carry this flag. No effect on the default flag, which nothing can set.
    pub fn cancel(&self) {
        if let Some(inner) = &self.0 {
            inner.set.store(true, Ordering::Relaxed);
        }
    }

    /// Tells whether the search should end.
    pub fn is_cancelled(&self) -> bool {
        let Some(inner) = &self.0 else {
            return false;
        };
        #[cfg(test)]
        if let Some(looks) = &inner.looks {
            let one_less = |left: usize| left.checked_sub(1);
            return looks
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                .is_err();
        }
        inner.set.load(Ordering::Relaxed)
            || inner
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
            || (!inner.waiting.is_empty() && inner.waiting.iter().all(Self::is_cancelled))
    }

    /// Fails when the search should end.
    ///
    /// # Errors
    /// [`RetrieverError::Cancelled`].
    pub fn check(&self) -> Result<(), RetrieverError> {
        if self.is_cancelled() {
            Err(RetrieverError::Cancelled)
        } else {
            Ok(())
        }
    }
}

impl CancelFlag {
    /// As [`Self::check`], among failures of reading postings; see `Index::unreadable`.
    pub(crate) fn check_io(&self) -> io::Result<()> {
        self.check().map_err(io::Error::other)
    }
}

impl PartialEq for CancelFlag {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for CancelFlag {}

impl Hash for CancelFlag {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl fmt::Debug for CancelFlag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CancelFlag({})", self.is_cancelled())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flag_is_set_by_a_call_a_deadline_or_all_that_wait() {
        let (one, other, never) = (CancelFlag::new(), CancelFlag::new(), CancelFlag::default());
        let (both, open) = (
            CancelFlag::all([&one, &other]),
            CancelFlag::all([&one, &never]),
        );
        one.clone().cancel();
        never.cancel();
        assert!(one.is_cancelled() && !other.is_cancelled() && !both.is_cancelled());
        other.cancel();
        assert!(both.is_cancelled() && !open.is_cancelled() && !never.is_cancelled());
        let now = Instant::now();
        assert!(CancelFlag::at(now).check().is_err());
        assert!(
            CancelFlag::at(now + Duration::from_hours(1))
                .check()
                .is_ok()
        );
    }
}
