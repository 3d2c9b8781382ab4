//! Policies without a model: the oracle, controls, a person.
//!
//! All of them are a [`Script`] behind [`Scripted`], which speaks tokens towards the driver like any engine: it decodes only
//! what is new in a request and encodes what the script writes. Their log-probabilities are 0.

mod engine;

mod code;
mod demonstrate;
mod human;
mod oracle;
mod own;
mod program;
mod query;
mod read;
mod simple;

pub use code::{BrokenCode, BrokenCodeScript, OneCall, OneCallScript};
pub use demonstrate::demonstrate;
pub use engine::{Script, Scripted, View, Written};
pub use human::{Human, HumanScript};
pub use oracle::{Haste, Means, Oracle, OracleScript, OracleStyle};
pub use own::{OwnOracle, OwnScript};
pub use query::{BrokenQuery, BrokenQueryScript, KeywordWriter, KeywordWriterScript};
pub use simple::{Constant, ConstantScript, RandomPolicy, RandomScript, SearchThenTitle, SearchThenTitleScript};
