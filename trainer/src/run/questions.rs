//! The questions of a step, and the rollouts on them.

use std::time::Instant;

use forage_contracts::environment::Outcome;
use forage_contracts::seed::Seed;
use forage_contracts::{Asked, CurriculumInputs, Episode, Metric, SettingError};
use forage_env::registry;

use super::rows::describe_episodes;
use super::solved::keep_confident;
use super::{GrpoConfig, Hints, Problem, Run, RunError, Source};
use crate::curriculum::Memory;
use crate::metrics::Row;
use crate::objective::Credit;
use crate::sample::Sample;

impl GrpoConfig {
    /// Checks the curriculum and the refills.
    pub(crate) fn check_questions(&self) -> Result<(), SettingError> {
        self.curriculum.check()?;
        if self.refills == 0 {
            return Ok(());
        }
        let recipe = self.update.objective.recipe(1);
        let fault = if recipe.filter.is_none() {
            "is set, and no group is dropped; set update.objective.filter, or leave it out"
        } else if matches!(recipe.credit, Credit::InformationGain { .. }) {
            "is set, and with credit information_gain it is not known before the update which groups are dropped; leave it out"
        } else {
            return Ok(());
        };
        Err(SettingError::new("refills", fault))
    }

    /// Applies the rules for endings and wrong answers to the episodes of groups, one group after the other.
    pub(crate) fn treat(&self, episodes: &mut [Episode]) {
        self.endings.mark(episodes);
        if self.confident_wrong {
            keep_confident(episodes, self.group_size);
        }
    }

    /// Returns whether every step asks as many questions as every other, in an order that follows from the seed alone.
    fn is_plain(&self) -> bool {
        self.refills == 0 && self.curriculum.is_uniform()
    }
}

/// The initial memory of a run; `None` where nothing reads it.
pub(super) fn memory(source: Source<'_>, config: &GrpoConfig) -> Option<Memory> {
    match source {
        Source::Play(problem) if !config.is_plain() => Some(Memory::of(&problem.train)),
        Source::Play(_) | Source::Recorded(_) => None,
    }
}

impl Run<'_> {
    /// Indices of the questions that a step asks first; empty for recorded rollouts. They depend on the questions asked before and their
    /// outcomes up to the step at which they are played, so that look-ahead draws the same ones as the step itself.
    pub(super) fn questions(&mut self, step: u64, row: &mut Row) -> Result<Vec<usize>, RunError> {
        let Source::Play(problem) = self.source else {
            return Ok(Vec::new());
        };
        let count = self.config.prompts_played();
        let over = step.saturating_sub(self.config.lookahead.max(1));
        let known = self.memory.as_ref();
        let known = known.map(|memory| memory.before(step, over));
        let drawn = self.draw(
            problem,
            known.as_deref(),
            count,
            step,
            &mut |name, value| {
                row.set(name, value);
            },
        )?;
        Ok(match &mut self.memory {
            Some(memory) => memory.ask_once(step, drawn),
            None => drawn,
        })
    }

    fn draw(
        &self,
        problem: &Problem,
        asked: Option<&[Asked]>,
        count: usize,
        step: u64,
        note: &mut dyn FnMut(&'static str, f64),
    ) -> Result<Vec<usize>, RunError> {
        let inputs = CurriculumInputs {
            questions: &problem.train,
            asked: asked.unwrap_or_default(),
            drawn: asked.map_or(step as usize * count, <[Asked]>::len),
            step,
            count,
            seed: Seed::root(self.place.seed),
        };
        let drawn = self.config.curriculum.draw(&inputs, note);
        drawn.map_err(|error| RunError::Setting(error.in_table("grpo")))
    }

    /// Plays one group of episodes per question, unless look-ahead has, and refills the batch.
    pub(super) async fn rollouts(
        &mut self,
        questions: &[usize],
        step: u64,
        row: &mut Row,
    ) -> Result<Vec<Episode>, RunError> {
        let Source::Play(problem) = self.source else {
            return Ok(Vec::new());
        };
        let started = Instant::now();
        let mut episodes = if let Some(batch) = self.ahead.pop_front() {
            self.episodes_of(batch, step).await?
        } else {
            let own = self.play(problem, questions, 0, step).await;
            self.collect(own, 0..questions.len(), step)?
        };
        self.take_in(0, &mut episodes, step);
        let infra = |source| RunError::Infra { step, source };
        let budget = self.config.fault_budget();
        budget.check(&episodes).map_err(infra)?;
        for _ in 0..self.config.refills {
            let missing = self.missing(&episodes);
            if missing == 0 {
                break;
            }
            let asked = self.memory.as_ref().map(Memory::asked);
            let more = self.draw(problem, asked, missing, step, &mut |_, _| {})?;
            if let Some(memory) = &mut self.memory {
                memory.ask(step, &more);
            }
            let first = episodes.len() / self.config.group_size;
            let own = self.play(problem, &more, first, step).await;
            let mut played = self.collect(own, first..first + missing, step)?;
            self.take_in(first, &mut played, step);
            episodes.extend(played);
            budget.check(&episodes).map_err(infra)?;
        }
        if self.config.refills > 0 {
            let groups = episodes.len() / self.config.group_size;
            row.set(Metric::REFILLED, (groups - questions.len()) as f64);
        }
        describe_episodes(row, &episodes, self.learner.optimizer().steps());
        self.config.endings.describe(row, &episodes);
        if self.hints.is_some() {
            Hints::describe(row, &episodes);
        }
        if let Ok(entry) = registry::find(problem.factory.entry()) {
            // An infrastructure fault says nothing about the policy.
            let played = episodes.iter().filter(|one| !one.ending.is_infra());
            let played: Vec<&Episode> = played.collect();
            (entry.metrics)(&played, &mut |name, value| row.set(name, value));
        }
        row.set(Metric::TIME_ROLLOUT, started.elapsed().as_secs_f64());
        Ok(episodes)
    }

    /// Applies the rules for endings to episodes, and remembers the outcomes of the step's questions from number `first` on.
    fn take_in(&mut self, first: usize, episodes: &mut [Episode], step: u64) {
        self.config.treat(episodes);
        let size = self.config.group_size;
        if self.config.solved > 0 {
            self.solved.keep(episodes.chunks(size), self.config.solved);
        }
        if let Some(memory) = &mut self.memory {
            memory.learn(step, first, episodes.chunks(size).map(accuracy));
        }
    }

    /// Number of groups that the batch lacks, because the filter will drop some of those played.
    fn missing(&self, episodes: &[Episode]) -> usize {
        let kept = episodes.chunks(self.config.group_size).filter(|group| {
            let samples = group.iter().filter_map(Sample::of);
            let samples: Vec<Sample> = samples.chain(self.solved.sample(group)).collect();
            self.learner.recipe.keeps(&samples)
        });
        self.config.prompts_played().saturating_sub(kept.count())
    }
}

/// Mean accuracy of a group's scored episodes without a hint; those with one are as often right as the hints aim for. `None` without any.
fn accuracy(group: &[Episode]) -> Option<f32> {
    let unaided = group.iter().filter(|episode| episode.hinted == 0);
    let scores = unaided.filter_map(|episode| episode.score.as_ref());
    let scores: Vec<f32> = scores.map(Outcome::accuracy).collect();
    (!scores.is_empty()).then(|| scores.iter().sum::<f32>() / scores.len() as f32)
}
