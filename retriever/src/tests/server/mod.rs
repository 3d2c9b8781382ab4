//! The server over a socket: what clients send and what they get, in good times and bad.

mod deadline;
mod drain;
mod errors;
mod load;
mod memory;
mod operations;
mod page;
mod shapes;
mod support;
