//! The error of entries from outside.

/// Entries that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// Two entries answer to one name.
    #[error("{kind} `{name}` is registered twice; give one of them another name")]
    Taken {
        /// `loss`, `advantage` or `model family`.
        kind: &'static str,
        /// The name.
        name: &'static str,
    },
    /// An entry reads more than a table of a configuration holds.
    #[error("{kind} `{name}` has more than {most} settings")]
    Settings {
        /// `loss` or `advantage`.
        kind: &'static str,
        /// The name.
        name: &'static str,
        /// Most settings of an entry.
        most: usize,
    },
    /// The lists were set before.
    #[error("plug-ins are installed already; install all of them at once, when the program starts")]
    Again,
}
