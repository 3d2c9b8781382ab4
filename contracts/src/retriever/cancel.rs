//! Ending a search that nobody waits for any more.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::RetrieverError;

/// Ends searches: by a call of [`Self::cancel`], at a deadline, or once a condition holds.
///
/// It travels in [`super::Query::cancel`]. Clones are one flag. Everything that can take long looks at it once per block
/// (some thousand passages of postings or vectors, one passage that is read), so a search ends within a block. The
/// default is never set and costs nothing. Flags are all equal and hash alike: they are not part of what is asked.
#[derive(Clone, Default)]
pub struct CancelFlag(Option<Arc<Inner>>);

struct Inner {
    set: AtomicBool,
    condition: Box<dyn Fn() -> bool + Send + Sync>,
}

impl CancelFlag {
    /// A flag that [`Self::cancel`] sets.
    pub fn new() -> Self {
        Self::when(|| false)
    }

    /// A flag that sets itself at this time, if [`Self::cancel`] does not set it before.
    pub fn at(deadline: Instant) -> Self {
        Self::when(move || Instant::now() >= deadline)
    }

    /// A flag that counts as set while a condition holds, which is asked at every look.
    pub fn when(condition: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Inner {
            set: AtomicBool::new(false),
            condition: Box::new(condition),
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
        inner.set.load(Ordering::Relaxed) || (inner.condition)()
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
        formatter.write_str("CancelFlag")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flag_is_set_by_a_call_a_deadline_or_a_condition() {
        let (one, never) = (CancelFlag::new(), CancelFlag::default());
        let watched = one.clone();
        let both = CancelFlag::when(move || watched.is_cancelled());
        assert!(!one.is_cancelled() && !both.is_cancelled());
        one.clone().cancel();
        never.cancel();
        assert!(one.is_cancelled() && both.is_cancelled() && !never.is_cancelled());
        let now = Instant::now();
        assert!(CancelFlag::at(now).check().is_err());
        assert!(
            CancelFlag::at(now + Duration::from_hours(1))
                .check()
                .is_ok()
        );
    }
}
