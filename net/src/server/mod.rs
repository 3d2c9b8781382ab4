//! The base of every server.

mod base;
mod body;
mod connections;
mod flights;
mod front;
mod local;
mod messages;
mod refusal;
mod room;
mod routes;
mod run;
mod traffic;
mod wire;
mod workers;

pub use base::{Base, BaseConfig, Observed, Ticket};
pub use messages::Messages;
pub use refusal::{Refusal, Refuse, json, refused};
pub use room::Room;
pub use routes::{Service, router};
pub use run::{ServeError, Summary, serve};
pub use traffic::{Reading, Tally};
pub use workers::Workers;
