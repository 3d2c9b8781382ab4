//! Watching a run: the sentinel on simulated and real runs, the facts of episodes, event files, tensors that are not finite.

mod events;
mod failures;
mod real_runs;
mod simulate;
