//! The base of servers and the client, each against a counterpart that misbehaves.

mod attacks;
mod client;
mod server;
mod support;
