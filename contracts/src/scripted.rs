//! Policies without a model: oracles, controls, a person.
//!
//! All of them are a [`Script`] behind [`Scripted`], which speaks tokens towards the driver like any engine: it decodes only
//! what is new in a request and encodes what the script writes. Their log-probabilities are 0. The scripts that know an
//! environment's turns live with it and are listed in its registry entry.

mod engine;

mod constant;
mod human;
mod oracle;
mod read;

use std::sync::Arc;

use crate::policy::Policy;
use crate::task::Task;
use crate::tokenizer::Tokenizer;

pub use engine::{Script, Scripted, View};
pub use oracle::{Conduct, Hand, Haste, OracleStyle};

/// The parts that a scripted policy is made from.
#[derive(Clone)]
pub struct Cast {
    /// The tokens it writes.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// The tasks it may meet; an oracle recognises them by their questions.
    pub tasks: Vec<Arc<Task>>,
    /// The text that an oracle writes around its actions.
    pub style: OracleStyle,
    /// The rate at which an oracle is hasty.
    pub haste: Haste,
}

impl Cast {
    /// A careful cast in the default style.
    pub fn new(tokenizer: Arc<dyn Tokenizer>, tasks: impl IntoIterator<Item = Arc<Task>>) -> Self {
        Self {
            tokenizer,
            tasks: tasks.into_iter().collect(),
            style: OracleStyle::default(),
            haste: Haste::NONE,
        }
    }

    /// The same in another style.
    #[must_use]
    pub fn in_style(self, style: OracleStyle) -> Self {
        Self { style, ..self }
    }

    /// The same, hasty.
    #[must_use]
    pub fn hasty(self, haste: Haste) -> Self {
        Self { haste, ..self }
    }
}

/// A scripted policy that an environment brings.
#[derive(Clone, Copy, Debug)]
pub struct ScriptEntry {
    /// Its name for `--policy`.
    pub name: &'static str,
    /// Makes the policy.
    pub play: fn(Cast) -> Arc<dyn Policy>,
}

impl ScriptEntry {
    /// The name of the script that demonstrates how to be right.
    pub const ORACLE: &str = "oracle";
}
