//! The evaluation of policies.

mod exam;
mod play;
mod player;
mod probes;
mod questions;
mod run;

pub use exam::{EvaluateOptions, Evaluation};
pub(crate) use play::{
    EpisodeFile, Evaluated, PlaySettings, Sets, evaluate_checkpoint, evaluate_policy, fault_budget,
};
pub(crate) use player::{Opening, Player, is_script};
pub use probes::Probed;
pub use run::evaluate;
