//! The tag protocol: what policy turns mean and what a whole response must look like.

mod blocks;
pub mod structure;
pub mod tags;

pub use blocks::{
    ANSWER_PREFIX, CALL_CLOSE, CALL_OPEN, PYTHON_CLOSE, PYTHON_OPEN, QUERY_CLOSE, QUERY_OPEN,
    REASONING_CLOSE, REASONING_OPEN,
};
pub(crate) use blocks::{Block, first_closed, first_opened, last_closed, query_line};
pub use structure::{Author, Segment, is_valid_sequence};
pub use tags::{ActionFault, ParsedAction, Tag, TagEvent, TagParser, parse_action};
