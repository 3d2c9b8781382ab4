//! The paged key-value cache: blocks of positions that sequences refer to, so that memory follows what is used and equal
//! prefixes are kept once.

mod host;
mod pass;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use pass::{Chunk, Pass};
#[cfg(feature = "gpu")]
pub(super) use store::Traffic;
pub(crate) use store::{BLOCK_POSITIONS, KvCache};
