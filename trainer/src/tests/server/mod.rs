//! The policy server over a socket: what clients send and what they get, in good times and bad.

mod chat;
mod completions;
mod errors;
mod load;
mod support;
