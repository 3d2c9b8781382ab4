//! The HTTP client.

mod calls;
mod connect;
mod credentials;
mod error;
mod options;
mod retry;

pub use calls::{Client, Request};
pub use connect::connector;
pub use credentials::{Auth, KeyHeader};
pub use error::{Fault, NetError, SettingError};
pub use options::HttpOptions;
pub use retry::{Again, Retry};
