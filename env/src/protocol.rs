//! The tag protocol: what policy turns mean and what a whole response must look like.

pub mod structure;
pub mod tags;

pub use structure::{Author, Segment, is_valid_sequence};
pub use tags::{ActionFault, ParsedAction, Tag, TagEvent, TagParser, parse_action};
