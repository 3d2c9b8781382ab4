//! HTTP as the program serves and speaks it: one base for servers and one client.
//!
//! - A server implements [`Service`]; [`router`] puts its routes behind a token, with health, readiness and metrics beside
//!   them, and [`serve`] runs it until it is told to stop and has drained.
//! - [`Client`] calls one server: credentials from a file, bounded answers, time limits, retries with [`Retry`].
//! - [`FileBounds`] reads a file of a stranger within bounds, as a server reads a body.
//!
//! It knows nothing of retrieval, learning or environments.

mod client;
mod files;
mod server;
mod values;

pub use client::{
    Again, Auth, Client, Fault, HttpOptions, KeyHeader, NetError, Request, Retry, SettingError,
    connector,
};
pub use files::FileBounds;
pub use reqwest::Url;
pub use server::{
    Base, BaseConfig, Messages, Observed, Reading, Refusal, Refuse, Room, ServeError, Service,
    Summary, Tally, Ticket, Workers, json, refused, router, serve,
};
pub use values::count_values;
