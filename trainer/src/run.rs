//! A GRPO run: plays episodes, scores them, improves the policy, logs and writes checkpoints, from each of which it can be resumed.

mod ahead;
mod config;
mod endings;
mod hints;
mod jobs;
mod play;
mod questions;
mod recomposition;
mod replay;
mod rows;
mod sharing;
mod solved;
mod step;
mod together;

use std::collections::VecDeque;
use std::sync::Arc;

use forage_contracts::environment::EnvFactory;
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Metric, Task};
use forage_env::registry;
use forage_env::reward::RewardSet;
use forage_env::{Alarm, Presentation, Severity};
use tracing::Instrument;
use tracing::field::Empty;

use ahead::Batch;
pub use config::GrpoConfig;
pub(crate) use endings::Endings;
use hints::Hints;
pub(crate) use hints::{HintConfig, style};
pub use jobs::group_jobs;
pub(crate) use play::evaluate;
#[cfg(test)]
pub(crate) use play::rollout;
pub(crate) use recomposition::RecompositionConfig;
use replay::Buffer;
pub(crate) use replay::ReplayConfig;
use rows::{describe_replay, describe_update};
use sharing::share;
use solved::Solved;
use together::Held;

use crate::checkpoint::{self, Snapshot};
use crate::curriculum::Memory;
use crate::learner::Learner;
use crate::metrics::Row;
use crate::ranks::{RankError, Ranks, Vote};
pub use crate::records::{Control, RunError, RunPlace};
use crate::records::{Records, Saving};
use crate::sample::Sample;
use crate::student::LearnError;
use crate::update_stats::UpdateStats;
use crate::watch::Sentinel;

/// The questions of a run, with the environment and the rewards.
#[derive(Clone)]
pub struct Problem {
    /// Makes environments.
    pub factory: Arc<dyn EnvFactory>,
    /// Scores episodes.
    pub rewards: Arc<RewardSet>,
    /// Questions to learn from.
    pub train: Arc<[Arc<Task>]>,
    /// Questions for the evaluations during the run.
    pub dev: Arc<[Arc<Task>]>,
    /// The form in which the policy reads an environment's text.
    pub presentation: Presentation,
}

impl Problem {
    /// Returns whether the policy can search, as far as the registry knows.
    fn searches(&self) -> bool {
        registry::find(self.factory.entry()).is_ok_and(|entry| entry.telemetry.searches)
    }
}

/// The source of rollouts.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// The policy plays.
    Play(&'a Problem),
    /// Recorded rollouts: each step takes the next groups, starting over at the end.
    Recorded(&'a [Vec<Sample>]),
}

/// Runs GRPO to its last step. `watch` is called after each step with its metrics row, its episodes (none for recorded rollouts) and the
/// alarms it raised. With several ranks, of the place or of learners put [together](Learner::together), the run begins when all have
/// connected and stops when any one stops.
///
/// # Errors
/// [`RunError`]; what was checkpointed can be resumed.
pub async fn run_grpo(
    learner: &mut Learner,
    source: Source<'_>,
    config: &GrpoConfig,
    place: &RunPlace,
    watch: impl FnMut(&Row, &[Episode], &[Alarm]) -> Control,
) -> Result<(), RunError> {
    let empty = match source {
        Source::Play(problem) => problem.train.is_empty(),
        Source::Recorded(groups) => groups.is_empty(),
    };
    if empty {
        return Err(RunError::NoTasks);
    }
    if let Some(fault) = config.check().into_iter().next() {
        return Err(RunError::Setting(fault));
    }
    if let Source::Recorded(groups) = source {
        config.check_recorded(groups)?;
    }
    let hints = Hints::of(config, source, learner)?;
    ahead::prepare(config, source, place, learner)?;
    let searches = match source {
        Source::Play(problem) => problem.searches(),
        Source::Recorded(_) => false,
    };
    let ranks = together::meet(config, place, learner)?;
    learner.join(Arc::clone(&ranks));
    learner.set_seed(Seed::root(place.seed));
    let mut run = Run {
        learner,
        source,
        config,
        place,
        ranks,
        sentinel: Sentinel::new(config.sentinel, searches),
        hints,
        ahead: VecDeque::new(),
        buffer: Buffer::default(),
        solved: Solved::default(),
        memory: questions::memory(source, config),
        done: 0,
        held: None,
    };
    let mut records = None;
    // Boxed because the future is large.
    let ran = Box::pin(run.steps(&mut records, watch)).await;
    let ran = ran.map_err(|error| run.given_up(error, records.as_mut()));
    run.part(ran.as_ref().err());
    ran
}

/// Writes the step's line to the log.
fn describe_step(row: &Row, episodes: usize) {
    let [rollout_s, update_s, reward] =
        ["time/rollout_s", "time/update_s", "reward/mean"].map(|name| row.get(name));
    tracing::info!(episodes, reward, rollout_s, update_s, "step done");
}

/// A run between two steps.
struct Run<'a> {
    learner: &'a mut Learner,
    source: Source<'a>,
    config: &'a GrpoConfig,
    place: &'a RunPlace,
    ranks: Arc<Ranks>,
    sentinel: Sentinel,
    /// The source of hints, where episodes begin with hints.
    hints: Option<Hints>,
    /// Batches played ahead, that of the next step first.
    ahead: VecDeque<Batch>,
    /// Groups of earlier steps; empty where none are replayed.
    buffer: Buffer,
    /// Right episodes of earlier steps; empty where none are kept.
    solved: Solved,
    /// The questions asked and their outcomes; `None` where no curriculum reads them.
    memory: Option<Memory>,
    /// Steps that all ranks have completed.
    done: u64,
    /// The state before the current step, for a checkpoint when a rank is lost during it; kept only by rank 0 of several.
    held: Option<Held>,
}

impl<'a> Run<'a> {
    /// Runs the remaining steps. Only rank 0 keeps `records`.
    async fn steps(
        &mut self,
        records: &mut Option<Records<'a>>,
        mut watch: impl FnMut(&Row, &[Episode], &[Alarm]) -> Control,
    ) -> Result<(), RunError> {
        let (config, place) = (self.config, self.place);
        let first = self.restore().await?;
        if first > config.steps {
            let (done, steps) = (first, config.steps);
            return Err(RunError::Shorter { done, steps });
        }
        self.done = first;
        self.learner
            .announce()
            .await
            .map_err(|source| RunError::Learn {
                step: first,
                source,
            })?;
        // Ranks that begin with different weights must not go on.
        self.agree(first, Vote::default())?;
        let saving = Saving {
            every: config.checkpoint_every,
            keep: config.keep_checkpoints,
        };
        if self.ranks.is_first() {
            *records = Some(Records::open(place, saving, config.steps, first)?);
        }
        for step in first..config.steps {
            self.hold(step);
            let span = tracing::info_span!("step", step, rank = Empty);
            if self.ranks.size() > 1 {
                span.record("rank", self.ranks.rank());
            }
            let (row, episodes) = self.step(step).instrument(span.clone()).await?;
            span.in_scope(|| describe_step(&row, episodes.len()));
            let alarms = self.sentinel.observe(&row);
            let grave = alarms
                .iter()
                .find(|alarm| alarm.severity == Severity::Stop && config.sentinel.stop);
            if let Some(records) = records {
                records.write(&row)?;
            }
            let vote = Vote {
                stop: watch(&row, &episodes, &alarms) == Control::Stop,
                pause: grave.is_some(),
                norm: row.get(Metric::GRADIENT).unwrap_or(0.0).to_bits(),
                ..Vote::default()
            };
            let agreed = self.agree(step, vote)?;
            let done = step + 1;
            self.done = done;
            let control = if agreed.stop {
                Control::Stop
            } else {
                Control::Continue
            };
            let Some(records) = records else {
                if saving.is_due(done, config.steps, control, agreed.pause) {
                    self.learner.send_moments().map_err(lost_at(done))?;
                }
                if agreed.pause || (agreed.stop && done < config.steps) {
                    return Err(RunError::Followed { step: done });
                }
                continue;
            };
            if saving.is_due(done, config.steps, control, agreed.pause) {
                self.settle(step, usize::MAX).await?;
            }
            let saved = records
                .end(done, control, agreed.pause, || self.snapshot())
                .map_err(|error| self.unsaved(error, done))?;
            if let (true, Some(folder)) = (agreed.pause, saved) {
                let diagnosis = grave.map(|alarm| alarm.message.clone());
                return Err(RunError::Paused {
                    step: done,
                    diagnosis: diagnosis
                        .unwrap_or_else(|| "another rank raised an alarm.".to_owned()),
                    folder,
                });
            }
        }
        Ok(())
    }

    /// The groups that a step learns from: those just played, then replayed ones; or the next recorded ones. Groups just played are kept
    /// for replay.
    fn groups(&mut self, episodes: &[Episode], step: u64, row: &mut Row) -> Vec<Vec<Sample>> {
        if let Source::Recorded(groups) = self.source {
            let count = self.config.prompts_per_step.min(groups.len());
            let first = step as usize * count;
            return (first..first + count)
                .map(|index| groups[index % groups.len()].clone())
                .collect();
        }
        let played = || episodes.chunks(self.config.group_size);
        let mut groups: Vec<Vec<Sample>> = played().map(samples).collect();
        if self.config.solved > 0 {
            let mut joined = 0;
            for (group, samples) in played().zip(&mut groups) {
                let kept = self.solved.sample(group);
                joined += usize::from(kept.is_some());
                samples.extend(kept);
            }
            row.set(Metric::REPLAY_SOLUTIONS, joined as f64);
        }
        if let Some(recomposition) = self.config.recomposition {
            let chosen = groups
                .iter_mut()
                .map(|group| recomposition.recompose(group, true));
            let chosen: usize = chosen.sum();
            let all: usize = groups.iter().map(Vec::len).sum();
            row.set(Metric::PRIORITY, chosen as f64 / all.max(1) as f64);
        }
        if let Some(replay) = self.config.replay {
            let seed = Seed::root(self.place.seed).child("replay", &[step]);
            let drawn = self
                .buffer
                .draw(replay.groups(self.config.prompts_per_step), seed);
            describe_replay(row, &drawn, self.learner.optimizer().steps());
            groups.extend(drawn.into_iter().map(samples));
            self.buffer
                .keep(played(), &self.learner.recipe, replay.capacity);
        }
        groups
    }

    /// The compensation batch, if the schedule has one for this step: of the oldest waiting groups, the members that were left out
    /// before. The groups just played are put in the queue.
    fn left_out(&mut self, episodes: &[Episode], step: u64, row: &mut Row) -> Vec<Vec<Sample>> {
        let Some(recomposition) = self.config.recomposition else {
            return Vec::new();
        };
        let seed = Seed::root(self.place.seed);
        let waited = if recomposition.compensates(step, self.config.steps, seed) {
            self.buffer.take(self.config.prompts_per_step)
        } else {
            Vec::new()
        };
        let drawn: Vec<&[Episode]> = waited.iter().map(Vec::as_slice).collect();
        describe_replay(row, &drawn, self.learner.optimizer().steps());
        let left = |group: &[Episode]| {
            let mut group = samples(group);
            let count = recomposition.recompose(&mut group, false);
            (count > 0).then_some(group)
        };
        let played = episodes.chunks(self.config.group_size);
        let played = played.filter(|group| left(group).is_some());
        self.buffer
            .keep(played, &self.learner.recipe, recomposition.capacity);
        drawn.into_iter().filter_map(left).collect()
    }

    /// Hands changed weights to the sampler; recorded rollouts have none.
    async fn sync_weights(
        &mut self,
        stats: &UpdateStats,
        step: u64,
        row: &mut Row,
    ) -> Result<(), RunError> {
        if stats.updates == 0 || matches!(self.source, Source::Recorded(_)) {
            return Ok(());
        }
        let failed = |source| RunError::Learn { step, source };
        if let Some(pushed) = self.learner.publish().await.map_err(failed)? {
            row.set(Metric::PUSH_VERIFIED, pushed.servers as f64);
            row.set(Metric::PUSH_GAP, pushed.gap);
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            model: self.learner.checkpoint(),
            optimizer: self.learner.optimizer(),
            ranks: &self.ranks,
            critic: self.learner.critic_state(),
            ahead: self.batches().collect(),
            replay: self.buffer.groups(),
            solved: self.solved.episodes(),
            memory: self.memory.as_ref(),
            sentinel: Some(&self.sentinel),
            anchor: self.learner.anchor(),
            averages: self.learner.averages(),
        }
    }

    async fn restore(&mut self) -> Result<u64, RunError> {
        let RunPlace {
            folder,
            config_digest,
            ..
        } = self.place;
        let own = if self.place.resume {
            checkpoint::list(folder)?.pop()
        } else {
            None
        };
        let is_sent = self.place.ranks.is_some();
        let newest = if is_sent {
            share(&self.ranks, own, folder)?
        } else {
            own
        };
        let Some(newest) = newest else {
            return Ok(0);
        };
        let optimizer = self.config.update.optimizer;
        let (start, critic) = (self.learner.checkpoint(), self.learner.critic.as_deref());
        let shard = self.ranks.shard();
        let restored = checkpoint::load(&newest, config_digest, optimizer, shard, &start, critic)?;
        let replays = self.config.replay.is_some() || self.config.recomposition.is_some();
        let read = [replays, self.config.solved > 0];
        restored.check_lengths(&newest, self.learner.context, read)?;
        if is_sent && !self.ranks.is_first() {
            // Removes the received copy.
            let _ = std::fs::remove_dir_all(&newest);
        }
        let step = restored.state.step;
        if let Some(before) = restored.state.sentinel {
            self.sentinel.go_on_from(before);
        }
        self.learner.set_anchor(restored.state.anchor);
        self.learner.set_averages(restored.state.averages);
        self.ahead = ahead::restored(&restored.ahead);
        if replays {
            self.buffer = Buffer::of(&restored.replay);
        }
        if self.config.solved > 0 {
            self.solved = Solved::of(restored.solved);
        }
        if let Some(memory) = &mut self.memory {
            memory.restore(restored.memory);
            if self.ahead.is_empty() {
                memory.forget_from(step);
            }
        }
        let failed = |source| RunError::Learn { step, source };
        self.learner
            .restore(restored.decoder, restored.optimizer, restored.critic)
            .await
            .map_err(failed)?;
        Ok(step)
    }
}

/// The samples of a group's scored episodes.
fn samples(group: &[Episode]) -> Vec<Sample> {
    group.iter().filter_map(Sample::of).collect()
}

/// Makes the error of a step from a lost rank.
fn lost_at(step: u64) -> impl Fn(RankError) -> RunError {
    move |error| RunError::Learn {
        step,
        source: LearnError::Ranks(error),
    }
}
