//! Batches that are played ahead of their step: `grpo.lookahead`.
//!
//! With depth k, the batch of step s + k begins during step s, under the weights made by the steps before s; the batches of the first k
//! steps begin during step 0. Each batch is sampled to its end under the weights it began with, whatever is published meanwhile: every
//! version in play has its own engine, or adapter on a server. New weights go to the engine with the oldest version, once its batches
//! have ended. Which weights sample a batch therefore depends on its step and the depth, and never on the clock.

use std::collections::VecDeque;
use std::time::Instant;

use forage_contracts::{Episode, Metric, SettingError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::task::JoinHandle;

use super::play::Played;
use super::replay::check_reuse;
use super::{GrpoConfig, Run, RunError, RunPlace, Source};
use crate::learner::Learner;
use crate::metrics::Row;

/// A depth as configs write it.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(
    untagged,
    expecting = "lookahead is a number of steps from 0 on, true for 1, or false for 0"
)]
pub(super) enum Written {
    /// `true` for one step, `false` for none.
    Whether(bool),
    /// The number of steps played ahead.
    Steps(u64),
}

/// Writes 0 and 1 as booleans, as earlier versions did, so that the digests of their runs stay the same.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
pub(super) fn serialize<S: Serializer>(depth: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    let written = match *depth {
        0 => Written::Whether(false),
        1 => Written::Whether(true),
        steps => Written::Steps(steps),
    };
    written.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(match Written::deserialize(deserializer)? {
        Written::Whether(plays) => u64::from(plays),
        Written::Steps(steps) => steps,
    })
}

impl GrpoConfig {
    /// Checks that rollouts older than one step are weighted by importance, and that these ranks can play so far ahead; `on_gpus`:
    /// whether they are GPUs of one process, which sum gradients among themselves.
    ///
    /// # Errors
    /// [`SettingError`], which names the key or what is at fault, and the fix.
    pub fn check_lookahead(&self, ranks: usize, on_gpus: bool) -> Result<(), SettingError> {
        if self.lookahead > 1 {
            check_reuse(&self.update)?;
        }
        if self.lookahead > 1 && ranks > 1 {
            let fault = "play one step ahead at most, because a rank that is lost takes along what it has in play; write 1, or 0 on \
                         several GPUs of one process";
            return Err(SettingError::new("ranks", fault));
        }
        if self.lookahead > 0 && on_gpus {
            let fault = "cannot play ahead, because what a GPU plays beside a sum of gradients may wait for the sum, and the sum for \
                         that; write 0, or start a process for each GPU with --ranks";
            return Err(SettingError::new("several GPUs of one process", fault));
        }
        Ok(())
    }
}

/// Refuses a depth that the run cannot have, and makes room for the versions of the weights that are in play at a time.
pub(super) fn prepare(
    config: &GrpoConfig,
    source: Source<'_>,
    place: &RunPlace,
    learner: &mut Learner,
) -> Result<(), RunError> {
    if matches!(source, Source::Recorded(_)) {
        return Ok(());
    }
    let here = learner.ranks();
    let ranks = place.ranks.as_ref().map_or(here.size(), |ranks| ranks.size);
    let checked = config.check_lookahead(ranks, here.sums_on_devices());
    let versions = config.lookahead.min(config.steps) as usize;
    let kept = checked.and_then(|()| learner.keep_versions(versions));
    kept.map_err(|error| RunError::Setting(error.of("grpo.lookahead")))
}

/// The batch of a coming step.
pub(super) enum Batch {
    /// Still being played.
    Begun(JoinHandle<Played>),
    /// Complete.
    Over(Vec<Episode>),
}

/// Splits a checkpoint's episodes, one batch after the other, into batches; each begins with the first member of its first group.
pub(super) fn restored(episodes: &[Episode]) -> VecDeque<Batch> {
    let batches = episodes.chunk_by(|_, next| (next.group, next.member) != (0, 0));
    batches.map(|batch| Batch::Over(batch.to_vec())).collect()
}

impl Run<'_> {
    /// Starts the batches up to the depth that have not begun, under the weights before this step's update.
    pub(super) fn look_ahead(&mut self, step: u64) -> Result<(), RunError> {
        let Source::Play(problem) = self.source else {
            return Ok(());
        };
        let first = step + 1 + self.ahead.len() as u64;
        let last = step.saturating_add(self.config.lookahead);
        for next in first..=last.min(self.config.steps - 1) {
            let questions = self.questions(next, &mut Row::default())?;
            let playing = self.play(problem, &questions, 0, next);
            self.ahead.push_back(Batch::Begun(tokio::spawn(playing)));
        }
        Ok(())
    }

    /// Waits for the next step's batch, since publishing replaces the weights that it is played with.
    pub(super) async fn wait_for_next(&mut self, step: u64, row: &mut Row) -> Result<(), RunError> {
        if !self.ahead.is_empty() {
            let started = Instant::now();
            self.settle(step, 1).await?;
            row.set(Metric::TIME_WAIT, started.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Waits for those of the next `count` steps' batches that have begun.
    pub(super) async fn settle(&mut self, step: u64, count: usize) -> Result<(), RunError> {
        for place in 0..count.min(self.ahead.len()) {
            if let Some(batch) = self.ahead.remove(place) {
                let next = step + 1 + place as u64;
                let episodes = self.episodes_of(batch, next).await?;
                self.ahead.insert(place, Batch::Over(episodes));
            }
        }
        Ok(())
    }

    /// The episodes of a step's batch, awaited if necessary.
    pub(super) async fn episodes_of(
        &self,
        batch: Batch,
        step: u64,
    ) -> Result<Vec<Episode>, RunError> {
        match batch {
            Batch::Over(episodes) => Ok(episodes),
            Batch::Begun(playing) => {
                let own = playing
                    .await
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
                self.collect(own, 0..self.config.prompts_played(), step)
            }
        }
    }

    /// The batches played ahead, all of which are complete.
    pub(super) fn batches(&self) -> impl Iterator<Item = &[Episode]> {
        self.ahead.iter().filter_map(|batch| match batch {
            Batch::Begun(_) => None,
            Batch::Over(episodes) => Some(episodes.as_slice()),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn depths_are_read_in_either_form_and_written_in_the_older_one() {
        let read =
            |written: &Value| serde_json::from_value::<GrpoConfig>(json!({"lookahead": written}));
        for (written, depth, again) in [
            (json!(false), 0, json!(false)),
            (json!(0), 0, json!(false)),
            (json!(true), 1, json!(true)),
            (json!(1), 1, json!(true)),
            (json!(3), 3, json!(3)),
        ] {
            let config = read(&written).unwrap();
            assert_eq!(config.lookahead, depth, "{written}");
            assert_eq!(json!(config)["lookahead"], again, "{written}");
        }
        for written in [json!(-1), json!(1.5), json!("two")] {
            let error = read(&written).unwrap_err().to_string();
            assert!(error.contains("a number of steps"), "{written}: {error}");
        }
        assert_eq!(GrpoConfig::default().lookahead, 0);
    }

    #[test]
    fn how_far_ranks_play_ahead_depends_on_who_sums_gradients() {
        let checked = |depth: u64, ranks: usize, on_gpus: bool| {
            let config = GrpoConfig {
                lookahead: depth,
                ..GrpoConfig::default()
            };
            let checked = config.check_lookahead(ranks, on_gpus);
            checked.map_err(|error| error.to_string())
        };
        for (depth, ranks, on_gpus) in [(2, 1, false), (1, 4, false), (0, 4, true)] {
            assert_eq!(checked(depth, ranks, on_gpus), Ok(()));
        }
        let error = checked(2, 4, false).unwrap_err();
        assert!(error.contains("ranks play one step ahead"), "{error}");
        let error = checked(1, 2, true).unwrap_err();
        for part in [
            "GPUs of one process cannot play ahead",
            "write 0",
            "--ranks",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
