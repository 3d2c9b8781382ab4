//! Failures of building, asking or exporting a world.

use std::path::PathBuf;

use forage_contracts::Split;

/// Failures of building, asking or exporting a world.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// The page count is outside what the generator supports.
    #[error("world has pages = {pages}; write a number from {min} to {max}", min = super::WorldSpec::MIN_PAGES, max = super::WorldSpec::MAX_PAGES)]
    Pages {
        /// The number that was asked for.
        pages: u64,
    },
    /// A difficulty setting is not a share in `[0, 1]`.
    #[error("world difficulty `{field}` is {value}; write a share from 0 to 1")]
    Share {
        /// Name of the setting.
        field: &'static str,
        /// The value that was written.
        value: f32,
    },
    /// The shares of 1 to 4 hops do not add up to 1.
    #[error(
        "world difficulty `hops` adds up to {sum}; the four shares (1, 2, 3, 4 hops) must add up to 1"
    )]
    HopSum {
        /// The sum that was found.
        sum: f32,
    },
    /// More distinct questions were asked for than the world holds.
    #[error(
        "world has {available} distinct {split:?} questions at this hop mix, {asked} were asked for; ask for fewer or give the world more pages"
    )]
    TooManyQuestions {
        /// Split the questions were asked of.
        split: Split,
        /// Number asked for.
        asked: u64,
        /// Number that exists at the hop mix of the spec.
        available: u64,
    },
    /// The folder to export to holds something.
    #[error("folder `{}` is not empty; name another with --out, or empty it", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// Another process exports to the same place.
    #[error("another export to `{}` is running; wait for it or name another folder", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A file or folder of the export could not be written.
    #[error("{action} `{}`; check permissions and free space", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}
