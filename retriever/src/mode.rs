//! The door for search modes: ways to find passages in an index. One entry per mode, in one list.

mod entry;

use forage_contracts::Registry;

use crate::choice::{Choice, Listed};
use crate::{boolean, dense, hybrid, retriever};

pub use entry::{ModeEntry, Searched};

/// A search mode, chosen by name.
pub type Mode = Choice<ModeEntry>;

static MODES: Registry<ModeEntry> =
    Registry::new(&[retriever::BM25, boolean::MODE, dense::MODE, hybrid::MODE]);

impl Listed for ModeEntry {
    fn registry() -> &'static Registry<Self> {
        &MODES
    }
}

impl Mode {
    /// Bag of words, ranked as Lucene does.
    pub const BM25: Self = Choice(&retriever::BM25);
    /// AND, OR, NOT, phrases and fields, ranked by BM25.
    pub const BOOLEAN: Self = Choice(&boolean::MODE);
    /// Nearest vectors.
    pub const DENSE: Self = Choice(&dense::MODE);
}
