//! The tag protocol: what policy turns mean and what a whole response must look like.

mod blocks;
pub(crate) mod structure;
pub(crate) mod tags;

pub(crate) use blocks::ANSWER_PREFIX;
pub(crate) use blocks::QUERY_CLOSE;
pub(crate) use blocks::QUERY_OPEN;
pub(crate) use blocks::{Block, first_closed, first_opened, last_closed, query_line};
pub use blocks::{CALL, PYTHON, REASONING};
pub(crate) use structure::{Author, Segment, is_valid_sequence};
pub(crate) use tags::{ActionFault, ParsedAction, parse_action};
pub(crate) use tags::{TagEvent, TagParser};
