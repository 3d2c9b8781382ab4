//! Watching a run: the sentinel on simulated and real runs, the facts of episodes, event files, tensors that are not finite.

#[path = "../common/mod.rs"]
mod common;
mod events;
mod failures;
mod nan;
mod real_runs;
mod simulate;
mod text;
