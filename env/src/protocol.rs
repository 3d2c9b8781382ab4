//! The tag protocol: blocks of policy turns, and what a whole response must look like.

mod blocks;
pub(crate) mod structure;
pub(crate) mod tags;

pub(crate) use blocks::{
    ANSWER_PREFIX, Block, PYTHON, QUERY, QUERY_CLOSE, QUERY_OPEN, REASONING, RESULT, first_closed,
    first_opened, last_closed,
};
pub(crate) use structure::{Author, Segment, is_valid_sequence, is_valid_text};
pub(crate) use tags::{TagEvent, events};
