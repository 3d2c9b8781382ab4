//! Remote retrievers against a server on a real socket that replays exchanges and makes faults.

mod elastic;
mod faults;
mod own_server;
mod search_r1;
mod server;
mod spec;
mod vectors;
