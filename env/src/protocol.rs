//! The tag protocol: what policy turns mean and what a whole response must look like.

mod blocks;
pub mod structure;
pub mod tags;

pub(crate) use blocks::ANSWER_PREFIX;
pub use blocks::CALL_CLOSE;
pub use blocks::CALL_OPEN;
pub use blocks::PYTHON_CLOSE;
pub use blocks::PYTHON_OPEN;
pub(crate) use blocks::QUERY_CLOSE;
pub(crate) use blocks::QUERY_OPEN;
pub use blocks::REASONING_CLOSE;
pub use blocks::REASONING_OPEN;
pub(crate) use blocks::{Block, first_closed, first_opened, last_closed, query_line};
pub use structure::{Author, Segment, is_valid_sequence};
pub use tags::{ActionFault, ParsedAction, Tag, TagEvent, TagParser, parse_action};
