//! What a rule found.

use forage_env::Severity;

/// A sign of trouble in one step.
pub(in crate::watch) struct Finding {
    pub(in crate::watch) severity: Severity,
    /// The number that was judged and the bound that it passed.
    pub(in crate::watch) judged: Option<[f64; 2]>,
    pub(in crate::watch) message: String,
    /// Needs no further steps: it cannot be chance, or has counted its steps itself.
    pub(in crate::watch) at_once: bool,
}

impl Finding {
    /// A sign that must persist for some steps.
    pub(super) fn new(severity: Severity, judged: [f64; 2], message: String) -> Self {
        Self {
            severity,
            judged: Some(judged),
            message,
            at_once: false,
        }
    }

    pub(super) fn at_once(self) -> Self {
        Self {
            at_once: true,
            ..self
        }
    }

    /// A warning for a value above the first bound, a stop from the second on.
    pub(super) fn above(
        value: f64,
        [warn, stop]: [f64; 2],
        message: impl FnOnce() -> String,
    ) -> Option<Self> {
        let (severity, bound) = if value >= stop {
            (Severity::Stop, stop)
        } else {
            (Severity::Warn, warn)
        };
        (value > warn).then(|| Self::new(severity, [value, bound], message()))
    }

    /// A warning for a value below the first bound, a stop from the second on.
    pub(super) fn below(
        value: f64,
        bounds: [f64; 2],
        message: impl FnOnce() -> String,
    ) -> Option<Self> {
        let found = Self::above(-value, bounds.map(|bound| -bound), message)?;
        Some(Self {
            judged: found.judged.map(|judged| judged.map(|number| -number)),
            ..found
        })
    }
}
