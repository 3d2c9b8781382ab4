//! The environment server over real connections.

mod faults;
mod limits;
mod mcp;
mod memory;
mod nemo;
mod play;
mod support;
