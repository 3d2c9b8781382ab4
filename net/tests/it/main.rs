//! The base of servers and the client, each against a counterpart that misbehaves.

mod client;
mod server;
