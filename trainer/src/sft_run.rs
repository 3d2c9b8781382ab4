//! Supervised fine-tuning on demonstrations from files: epochs in seeded orders, a held-out share, checkpoints to resume from.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use forage_contracts::seed::Seed;
use forage_contracts::{Metric, SettingError};
use serde::{Deserialize, Serialize};

use crate::checkpoint::Snapshot;
use crate::gradient_spectra::GradientSpectrum;
use crate::metrics::Row;
use crate::optim::{AdamWConfig, Curve, Decay};
use crate::ranks::Ranks;
use crate::records::{Control, Records, RunError, RunPlace, Saving, newest};
use crate::sequence::{Sequence, shuffled};
use crate::student::Student;
use crate::weights::Checkpoint;
use crate::workers::Workers;

/// Share of the steps over which the learning rate rises.
const WARMUP_SHARE: f64 = 0.03;

/// Shape of a run of supervised fine-tuning.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SftConfig {
    /// Passes over the demonstrations.
    pub epochs: u64,
    /// Demonstrations per optimizer step; the last step of an epoch takes what is left.
    pub batch: usize,
    /// Learning rate after warm-up, which takes 3 % of the steps; it then falls along half a cosine.
    pub learning_rate: f64,
    /// Most tokens per forward and backward pass (a longer demonstration is a pass of its own): memory, not meaning.
    pub micro_batch_tokens: usize,
    /// Steps between losses of the held-out demonstrations, which the last step has too; 0 for that alone.
    pub validate_every: u64,
    /// Steps between rows with the nuclear norm and effective rank of the gradient of each projection of attention, layer by layer; 0 for
    /// none.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub gradient_spectra_every: u64,
    /// Steps between checkpoints; 0 writes only the last.
    pub checkpoint_every: u64,
    /// Checkpoints kept.
    pub keep_checkpoints: usize,
}

impl SftConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`SettingError`], which names the setting at fault.
    pub fn check(&self) -> Result<(), SettingError> {
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            let key = "the learning rate";
            return Err(SettingError::range(key, self.learning_rate, "above 0"));
        }
        let counts = [
            ("epochs", self.epochs as usize),
            ("the batch", self.batch),
            ("the tokens of a micro-batch", self.micro_batch_tokens),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err(SettingError::new(*name, "must be at least 1")),
            None => Ok(()),
        }
    }

    /// Optimizer steps on so many demonstrations.
    pub fn steps(&self, demonstrations: usize) -> u64 {
        self.epochs * self.steps_of_epoch(demonstrations)
    }

    fn steps_of_epoch(&self, demonstrations: usize) -> u64 {
        demonstrations.div_ceil(self.batch) as u64
    }

    /// The optimizer of a run of `steps`.
    fn optimizer(&self, steps: u64) -> AdamWConfig {
        AdamWConfig {
            learning_rate: self.learning_rate,
            warmup_steps: (steps as f64 * WARMUP_SHARE) as u64,
            decay: Some(Decay {
                curve: Curve::Cosine,
                steps,
            }),
            ..AdamWConfig::default()
        }
    }
}

/// Demonstrations of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lessons {
    /// Learned.
    pub train: Vec<Sequence>,
    /// Held out: their loss says whether what is learned carries over.
    pub validation: Vec<Sequence>,
}

impl Lessons {
    /// Holds out at least `share` of the demonstrations, the same ones for the same seed. Demonstrations of the same prompt, all
    /// that precedes the first token to learn, stay together: a policy that has seen one knows the others.
    ///
    /// # Errors
    /// When the share is not in `[0, 1)`, or nothing is left to learn.
    pub fn split(
        demonstrations: Vec<Sequence>,
        share: f64,
        seed: Seed,
    ) -> Result<Self, SettingError> {
        let key = "the held-out share";
        if !(0.0..1.0).contains(&share) {
            return Err(SettingError::range(key, share, "0 or more and below 1"));
        }
        let count = demonstrations.len();
        let mut prompts: BTreeMap<&[u32], Vec<usize>> = BTreeMap::new();
        for (place, Sequence { ids, targets, .. }) in demonstrations.iter().enumerate() {
            prompts
                .entry(&ids[..targets.first().copied().unwrap_or(0)])
                .or_default()
                .push(place);
        }
        let prompts: Vec<Vec<usize>> = prompts.into_values().collect();
        let wanted = (count as f64 * share).ceil() as usize;
        let mut held_out: BTreeSet<usize> = BTreeSet::new();
        for prompt in shuffled(prompts.len(), seed.child("held out", &[])) {
            if held_out.len() >= wanted {
                break;
            }
            held_out.extend(&prompts[prompt]);
        }
        if held_out.len() >= count {
            let fault = format!(
                "takes {wanted} of {count} demonstrations, which have {} prompts, and leaves none to learn; hold out less",
                prompts.len()
            );
            return Err(SettingError::new(key, fault));
        }
        let mut lessons = Self::default();
        for (place, sequence) in demonstrations.into_iter().enumerate() {
            let part = if held_out.contains(&place) {
                &mut lessons.validation
            } else {
                &mut lessons.train
            };
            part.push(sequence);
        }
        Ok(lessons)
    }

    /// Tokens of the longest demonstration.
    pub fn longest(&self) -> usize {
        self.train
            .iter()
            .chain(&self.validation)
            .map(|sequence| sequence.ids.len())
            .max()
            .unwrap_or(0)
    }

    /// The demonstrations of a step: each epoch has an order of its own, a function of the seed.
    fn batch(&self, config: &SftConfig, seed: u64, step: u64) -> Vec<Sequence> {
        let steps = config.steps_of_epoch(self.train.len());
        let order = shuffled(
            self.train.len(),
            Seed::root(seed).child("order", &[step / steps]),
        );
        let places = order
            .chunks(config.batch)
            .nth((step % steps) as usize)
            .unwrap_or_default();
        places
            .iter()
            .map(|&place| self.train[place].clone())
            .collect()
    }
}

/// Teaches `start` the demonstrations: token-mean cross-entropy in each step, as many steps as [`SftConfig::steps`] says. `watch`
/// sees each step's metrics row. Blocks; returns the checkpoint that has learned.
///
/// # Errors
/// [`RunError`]; what was checkpointed can be resumed.
pub fn run_sft(
    start: Checkpoint,
    lessons: &Lessons,
    config: &SftConfig,
    place: &RunPlace,
    workers: Workers,
    mut watch: impl FnMut(&Row) -> Control,
) -> Result<Checkpoint, RunError> {
    if lessons.train.is_empty() {
        return Err(RunError::NoTasks);
    }
    let steps = config.steps(lessons.train.len());
    let optimizer = config.optimizer(steps);
    let (context, budget) = (lessons.longest(), config.micro_batch_tokens);
    let mut student = Student::new(start, optimizer, context, budget, workers);
    student.set_seed(Seed::root(place.seed));
    let mut first = 0;
    if let Some(restored) = newest(place, optimizer, || student.checkpoint().clone())? {
        first = restored.state.step;
        student.set_decoder(restored.decoder);
        student.optimizer = restored.optimizer;
    }
    let saving = Saving {
        every: config.checkpoint_every,
        keep: config.keep_checkpoints,
    };
    let mut records = Records::open(place, saving, steps, first)?;
    let alone = Ranks::alone();
    for step in first..steps {
        let started = Instant::now();
        let rate = optimizer.rate(student.optimizer.steps());
        let batch = lessons.batch(config, place.seed, step);
        let every = config.gradient_spectra_every;
        let mut spectra = Vec::new();
        let stats = student
            .imitate_seen(&batch, |student, gradients| {
                if every > 0 && step.is_multiple_of(every) {
                    spectra = student.spectra(gradients);
                }
            })
            .map_err(|source| RunError::Learn { step, source })?;
        let mut row = stats.row(step);
        GradientSpectrum::describe(&mut row, &spectra);
        row.set(Metric::LEARNING_RATE, rate);
        row.set(Metric::TIME_UPDATE, started.elapsed().as_secs_f64());
        let due = config.validate_every > 0 && (step + 1).is_multiple_of(config.validate_every);
        if (due || step + 1 == steps) && !lessons.validation.is_empty() {
            row.set(
                Metric::SFT_VAL_LOSS,
                student.cross_entropy(&lessons.validation),
            );
        }
        let update_s = row.get("time/update_s");
        tracing::info!(step, loss = row.get("sft/loss"), update_s, "step done");
        records.write(&row)?;
        let control = watch(&row);
        records.end(step + 1, control, false, || Snapshot {
            critic: None,
            model: student.checkpoint().clone(),
            optimizer: &student.optimizer,
            ranks: &alone,
            ahead: Vec::new(),
            replay: &[],
            solved: &[],
            memory: None,
            sentinel: None,
            anchor: None,
            averages: None,
        })?;
    }
    Ok(student.into_checkpoint())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequences that differ in their token.
    fn numbered(count: u32) -> Vec<Sequence> {
        (0..count)
            .map(|id| Sequence {
                ids: vec![id, id],
                targets: vec![1],
                ..Sequence::default()
            })
            .collect()
    }

    fn names(sequences: &[Sequence]) -> Vec<u32> {
        sequences.iter().map(|sequence| sequence.ids[0]).collect()
    }

    #[test]
    fn the_held_out_share_is_fixed_and_apart() {
        let split = |seed| Lessons::split(numbered(20), 0.21, Seed::root(seed)).unwrap();
        let lessons = split(1);
        assert_eq!(lessons, split(1));
        assert_ne!(lessons, split(2));
        let (train, validation) = (names(&lessons.train), names(&lessons.validation));
        assert_eq!((train.len(), validation.len()), (15, 5));
        let mut all = [train, validation].concat();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
        let mut twins = numbered(4);
        twins.extend((10..20).flat_map(|id| {
            [3, 4].map(|last| Sequence {
                ids: vec![id, last],
                targets: vec![1],
                ..Sequence::default()
            })
        }));
        let Lessons { train, validation } = Lessons::split(twins, 0.4, Seed::root(1)).unwrap();
        assert!(
            validation.len() >= 10
                && names(&train)
                    .iter()
                    .all(|name| !names(&validation).contains(name))
        );
        assert!(Lessons::split(numbered(20), 1.0, Seed::root(1)).is_err());
        assert!(Lessons::split(numbered(1), 0.1, Seed::root(1)).is_err());
        assert!(Lessons::split(numbered(1), 0.0, Seed::root(1)).is_ok());
    }

    #[test]
    fn an_epoch_sees_each_demonstration_once_in_an_order_of_its_own() {
        let lessons = Lessons {
            train: numbered(7),
            validation: Vec::new(),
        };
        let config = SftConfig {
            epochs: 2,
            batch: 3,
            learning_rate: 1e-3,
            micro_batch_tokens: 10,
            validate_every: 0,
            checkpoint_every: 0,
            keep_checkpoints: 1,
            gradient_spectra_every: 0,
        };
        assert_eq!(config.steps(7), 6);
        let epoch = |first: u64| -> Vec<u32> {
            (first..first + 3)
                .flat_map(|step| names(&lessons.batch(&config, 5, step)))
                .collect()
        };
        let (first, second) = (epoch(0), epoch(3));
        assert_ne!(first, second);
        assert_eq!(first, epoch(0));
        for mut epoch in [first, second] {
            epoch.sort_unstable();
            assert_eq!(epoch, (0..7).collect::<Vec<_>>());
        }
    }

    #[test]
    fn schedules_of_any_length_are_valid() {
        let config = SftConfig {
            epochs: 1,
            batch: 1,
            learning_rate: 1e-3,
            micro_batch_tokens: 10,
            validate_every: 0,
            checkpoint_every: 0,
            keep_checkpoints: 1,
            gradient_spectra_every: 0,
        };
        for steps in [1, 2, 33, 34, 100, 1000] {
            let optimizer = config.optimizer(steps);
            optimizer.check().unwrap();
            assert!(
                (0..steps).all(|step| optimizer.rate(step) > 0.0),
                "{steps} steps"
            );
        }
    }
}
