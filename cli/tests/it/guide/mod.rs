//! The guide holds: its commands do what they are shown for, and it is a book without a dead link.

pub(crate) mod blocks;
mod book;
mod commands;
mod published;
