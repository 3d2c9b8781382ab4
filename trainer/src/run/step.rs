//! One training step on one page: questions, episodes, advantages, minibatches, gradients, optimizer, weight sync, metrics row.
//!
//! Every call is a function of the weights, the run's seed and the step, so a step replays exactly.

use std::time::Instant;

use forage_contracts::{Episode, Metric};

use super::{Run, RunError, describe_update};
use crate::gradient_spectra::GradientSpectrum;
use crate::learner::Learner;
use crate::metrics::Row;
use crate::sample::Sample;
use crate::student::LearnError;
use crate::update_stats::UpdateStats;

impl Run<'_> {
    /// Runs one step: rollouts, an update on them, and the new weights to the sampler. Returns the metrics row and the episodes (none for
    /// recorded rollouts).
    pub(super) async fn step(&mut self, step: u64) -> Result<(Row, Vec<Episode>), RunError> {
        let mut row = Row::new(step);
        let questions = self.questions(step, &mut row)?;
        let episodes = self.rollouts(&questions, step, &mut row).await?;
        self.look_ahead(step)?;
        let groups = self.groups(&episodes, step, &mut row);
        let started = Instant::now();
        let failed = |source| RunError::Learn { step, source };
        let mut stats = self.learner.learn_from(groups).map_err(failed)?;
        let mut spectra = std::mem::take(&mut self.learner.spectra);
        let left_out = self.left_out(&episodes, step, &mut row);
        if !left_out.is_empty() {
            let next = self.learner.learn_from(left_out).map_err(failed)?;
            stats = stats.followed_by(next);
            if spectra.is_empty() {
                spectra = std::mem::take(&mut self.learner.spectra);
            }
        }
        // Once per step, however many batches it learned from.
        self.learner.average(stats.ranks);
        describe_update(&mut row, &stats);
        GradientSpectrum::describe(&mut row, &spectra);
        row.set(Metric::TIME_UPDATE, started.elapsed().as_secs_f64());
        self.wait_for_next(step, &mut row).await?;
        self.sync_weights(&stats, step, &mut row).await?;
        self.evaluate(step, &mut row).await?;
        Ok((row, episodes))
    }
}

impl Learner {
    /// Improves the weights on groups of rollouts: one optimizer step per minibatch and epoch, the critic's before the policy's. Groups
    /// without a gradient are counted; when no other is left nothing changes. The sampler keeps the old weights until `publish`.
    ///
    /// # Errors
    /// [`LearnError::NonFinite`] and [`LearnError::Critic`]; earlier steps on the same batch stay. [`LearnError::Ranks`] when a rank is lost.
    pub fn improve(&mut self, groups: Vec<Vec<Sample>>) -> Result<UpdateStats, LearnError> {
        let stats = self.learn_from(groups)?;
        self.average(stats.ranks);
        Ok(stats)
    }

    /// As [`Self::improve`], for one of several batches of a step: leaves the moving averages of hidden states as they are.
    fn learn_from(&mut self, groups: Vec<Vec<Sample>>) -> Result<UpdateStats, LearnError> {
        self.spectra.clear();
        let masked = self.draw_masks();
        let (mut scored, counts, ranks) = self.advantages(groups)?;
        self.set_old_logprobs(&mut scored)?;
        let minibatches = self.minibatches(scored);
        let passes = if self.waits_for_critic() {
            0
        } else {
            self.epochs()
        };
        let mut stats = UpdateStats {
            groups: counts,
            masked,
            penalised: self.recipe.kl.is_some(),
            ranks,
            values: self.learn_values(&minibatches)?,
            ..UpdateStats::default()
        };
        for minibatch in (0..passes).flat_map(|_| &minibatches) {
            let (gradients, sums) = self.gradients(minibatch)?;
            self.note_spectra(&gradients);
            let (norm, rate) = self.optimize(gradients)?;
            stats.add(&sums, norm, rate);
        }
        Ok(stats)
    }
}
