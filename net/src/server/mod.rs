//! The base of every server.

mod base;
mod body;
mod flights;
mod refusal;
mod routes;
mod run;
mod traffic;
mod workers;

pub use base::{Base, BaseConfig, Observed, Ticket};
pub use body::BodyError;
pub use flights::Flight;
pub use refusal::{Refusal, Refuse, json, refused};
pub use routes::{Service, router};
pub use run::{ServeError, Summary, serve};
pub use traffic::Traffic;
pub use workers::Workers;
