//! Baselines that learn: rounds of play and supervised fine-tuning, within a budget.

use std::time::Instant;

use forage_contracts::Metric;
use forage_contracts::scripted::{Haste, OracleStyle};
use forage_contracts::seed::Seed;
use forage_env::{EpisodeWriter, Keep, RejectionCounts};
use forage_eval::write_atomic;
use forage_trainer::metrics::Row;
use forage_trainer::run::GrpoConfig;
use forage_trainer::{Checkpoint, Demonstrator, SftConfig};
use serde::{Deserialize, Serialize};

use super::{Baselines, cost_of};
use crate::collect::CollectOptions;
use crate::config::Budget;
use crate::data::Tasks;
use crate::error::{Context, Result, RunError};
use crate::evaluate::Player;
use crate::grpo::{Experience, digest};
use crate::layout::{RunLayout, make_folder};
use crate::policy::open_saved;
use crate::runtime::runtime;
use crate::sft::{SftOptions, sft};
use crate::tracked::seconds;

/// Number of rounds in which a run's episodes are played: each plays an equal share of them with the policy of the round before.
const ROUNDS: usize = 4;
/// Most rounds of a budget of seconds.
const MOST_ROUNDS: usize = 256;
/// Questions that are demonstrated at a time.
const DEMONSTRATED: usize = 512;
/// Digits of a digest in the name of a folder.
const DIGITS: usize = 12;

/// The source of a round's episodes.
#[derive(Clone, Copy)]
pub(super) enum Method {
    /// Groups of the policy's own episodes, of which the best are kept (Dong et al. 2023, "RAFT").
    RejectionSampling,
    /// A careful oracle.
    Demonstrations,
}

/// The questions of the rounds.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Episodes of all rounds, where episodes are the budget.
    total: usize,
    /// Episodes of a round.
    each: usize,
    /// The budget in seconds, where it is one.
    seconds: Option<f64>,
}

impl Plan {
    /// Questions of the next round, 0 where the budget is spent. A round that would exceed a budget of seconds at the pace of the last one
    /// is cut to what is left; a small remainder is not spent.
    fn next(&self, rounds: &[Played]) -> usize {
        let Some(budget) = self.seconds else {
            let asked: usize = rounds.iter().map(|round| round.questions).sum();
            return self.each.min(self.total.saturating_sub(asked));
        };
        let Some(last) = rounds.last() else {
            return self.each;
        };
        let spent: f64 = rounds.iter().map(|round| round.seconds).sum();
        // Negative numbers and NaN become 0.
        let left = ((budget - spent) * last.questions as f64 / last.seconds) as usize;
        if rounds.len() == MOST_ROUNDS || left < self.each.div_ceil(ROUNDS) {
            return 0;
        }
        left.min(self.each)
    }
}

/// The record of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Played {
    /// Training questions asked.
    questions: usize,
    /// Episodes of them.
    episodes: usize,
    /// Episodes that are learned from.
    kept: usize,
    /// Seconds of its play, and of the updates after it where they are over.
    seconds: f64,
}

impl Baselines<'_> {
    /// The policy that a method reaches within a budget, with the name of its folder and the episodes and seconds of its training.
    pub(super) fn taught(
        &self,
        name: &str,
        method: Method,
        budget: Budget,
    ) -> Result<(String, Checkpoint, [f64; 2])> {
        let plan = self.plan(method, budget)?;
        let key = format!("{name}-{}", self.digest_of(plan)?);
        let folder = self.run.baseline(&key);
        let (mut policy, mut policy_name) = (self.start.clone(), self.start_name.clone());
        let mut is_start = true;
        let mut rounds: Vec<Played> = Vec::new();
        loop {
            let count = plan.next(&rounds);
            if count == 0 {
                break;
            }
            let number = rounds.len();
            let run = folder.part(&format!("round-{}", number + 1));
            let from = rounds.iter().map(|round| round.questions).sum();
            let tasks = self.training(from, count);
            let mut round = self.played(&run, method, number, &tasks, &policy)?;
            if round.kept == 0 {
                self.observer.warn(&format!(
                    "{name}, round {}: none of {} episodes earned anything, so nothing is learned",
                    number + 1,
                    round.episodes
                ));
            } else {
                policy = self.fine_tuned(&run, &policy_name, is_start)?;
                policy_name = run.policy().to_string_lossy().into_owned();
                is_start = false;
                round.seconds += seconds(&Row::read_all(&run.metrics())?).unwrap_or_default();
            }
            rounds.push(round);
        }
        let episodes: usize = rounds.iter().map(|round| round.episodes).sum();
        let spent = rounds.iter().map(|round| round.seconds).sum();
        Ok((key, policy, [episodes as f64, spent]))
    }

    /// The rounds of a method within a budget.
    fn plan(&self, method: Method, budget: Budget) -> Result<Plan> {
        let grpo = &self.config.grpo;
        let metrics = self.trained.metrics();
        let rows = if metrics.exists() {
            Row::read_all(&metrics)?
        } else {
            Vec::new()
        };
        let questions = asked(grpo, &rows);
        let total = match method {
            Method::RejectionSampling => questions,
            Method::Demonstrations => questions.saturating_mul(grpo.group_size),
        };
        let each = match (method, budget) {
            // The oracle does not change from round to round.
            (Method::Demonstrations, Budget::Episodes) => total,
            _ => total.div_ceil(ROUNDS),
        };
        let seconds = match budget {
            Budget::Episodes => None,
            Budget::Seconds => {
                let cost = cost_of(self.trained)?;
                Some(cost.map(|[_, seconds]| seconds).with_context(|| {
                    let metrics = self.trained.metrics();
                    format!(
                        "it may take as many seconds as the run, and {} has no times; remove it from evaluation.baselines",
                        metrics.display()
                    )
                })?)
            }
        };
        Ok(Plan {
            total,
            each,
            seconds,
        })
    }

    /// The beginning of the digest of all that shapes a baseline: the run's settings, its training questions, the budget.
    fn digest_of(&self, plan: Plan) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(digest(self.config, Experience::Data(self.data))?.as_bytes());
        hasher.update(format!("{plan:?}").as_bytes());
        let digest = hasher.finalize().to_hex();
        Ok(digest.chars().take(DIGITS).collect())
    }

    /// `count` training questions from an index on, starting over at the end.
    fn training(&self, from: usize, count: usize) -> Tasks {
        let train = self.data.train.iter().cycle();
        let place = from.checked_rem(self.data.train.len()).unwrap_or(0);
        train.skip(place).take(count).cloned().collect()
    }

    /// Plays a round, or reads it from its folder.
    fn played(
        &self,
        run: &RunLayout,
        method: Method,
        number: usize,
        tasks: &Tasks,
        policy: &Checkpoint,
    ) -> Result<Played> {
        make_folder(run.folder())?;
        let file = run.played();
        if file.exists() {
            let named = || format!("cannot read {}", file.display());
            let bytes = std::fs::read(&file).with_context(named)?;
            return serde_json::from_slice(&bytes).with_context(named);
        }
        let began = Instant::now();
        let (episodes, kept) = match method {
            Method::RejectionSampling => {
                let found = self.sample(run, number, tasks, policy)?;
                (found.episodes, found.kept)
            }
            Method::Demonstrations => (tasks.len(), self.demonstrate(run, number, tasks)?),
        };
        let played = Played {
            questions: tasks.len(),
            episodes,
            kept,
            // Whole milliseconds are the same number when they are read back.
            seconds: began.elapsed().as_millis() as f64 / 1e3,
        };
        let json = serde_json::to_vec(&played)?;
        write_atomic(&file, &json).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(played)
    }

    /// Plays a group of each question and keeps its best episodes, as far as they earned anything.
    fn sample(
        &self,
        run: &RunLayout,
        number: usize,
        tasks: &Tasks,
        policy: &Checkpoint,
    ) -> Result<RejectionCounts> {
        let options = CollectOptions {
            policy: None,
            model: None,
            token_file: None,
            samples: self.config.grpo.group_size,
            out: run.demonstrations(),
            // Of equal episodes a single one would be the shortest: a lucky guess before an answer that was looked up.
            keep: Keep::Bests,
            min_reward: f32::MIN_POSITIVE,
            temperature: None,
            questions: None,
            record_tools: None,
            resume: false,
        };
        let chat = self.config.policy.chat.as_ref();
        let player = Player::here(policy, chat, &self.config.generation())?;
        let seed = Seed::root(self.config.seed).child("collect", &[number as u64]);
        let corpus = &self.data.corpus;
        let jobs = options.jobs(self.config, tasks, seed);
        options.gather(self.config, corpus, player, &jobs, None, self.observer)
    }

    /// Writes an episode of the oracle for each question and returns how many there are to learn from.
    fn demonstrate(&self, run: &RunLayout, number: usize, tasks: &Tasks) -> Result<usize> {
        let session = self.session()?;
        let section = self.config.warm_start.as_ref();
        let style: OracleStyle = section
            .map(|section| section.learning.style)
            .unwrap_or_default();
        let demonstrator = Demonstrator {
            factory: session.factory,
            tokenizer: session.format.tokenizer,
            style,
            seed: Seed::root(self.config.seed).child("demonstrations", &[number as u64]),
        };
        let mut writer = EpisodeWriter::create(&run.demonstrations())?;
        let (mut kept, total) = (0, tasks.len() as u64);
        for (part, tasks) in (0..).zip(tasks.chunks(DEMONSTRATED)) {
            let shown = demonstrator.episodes(tasks, Haste::NONE, part);
            for episode in runtime()?.block_on(shown)? {
                writer.write(episode)?;
                kept += 1;
            }
            let done = (part + 1) * DEMONSTRATED as u64;
            let observer = self.observer;
            observer.progress("demonstrations", done.min(total), total, "");
            if observer.is_stopped() {
                writer.discard()?;
                return Err(RunError::stopped(
                    "interrupted before its demonstrations were played; --resume plays them again",
                ));
            }
        }
        writer.finish()?;
        Ok(kept)
    }

    /// A policy after one pass over the demonstrations in a folder, at the run's learning rate and with as many of them to a step as
    /// the run has questions.
    fn fine_tuned(&self, run: &RunLayout, policy: &str, is_start: bool) -> Result<Checkpoint> {
        let config = self.config;
        if !run.policy().exists() {
            let options = SftOptions {
                demonstrations: run.demonstrations(),
                policy: policy.to_owned(),
                seed: config.seed,
                device: config.device,
                threads: config.threads(),
                lora: config.policy.lora.clone().filter(|_| is_start),
                min_reward: None,
                skip_long: true,
                context: Some(config.engine.context_tokens),
                validation: 0.0,
                learning: SftConfig {
                    epochs: 1,
                    batch: config.grpo.prompts_per_step,
                    learning_rate: config.grpo.update.optimizer.learning_rate,
                    micro_batch_tokens: config.grpo.update.micro_batch_tokens,
                    validate_every: 0,
                    gradient_spectra_every: 0,
                    checkpoint_every: 0,
                    keep_checkpoints: 1,
                },
                folder: run.folder().to_owned(),
                resume: run.holds_run(),
            };
            sft(&options, self.observer)?;
        }
        open_saved(&run.policy(), config)
    }
}

/// Questions that a run asked in training, those of several passes as often as they came: what its settings plan, and by its rows those
/// in the place of groups that its filter dropped.
fn asked(grpo: &GrpoConfig, rows: &[Row]) -> usize {
    let steps = usize::try_from(grpo.steps).unwrap_or(usize::MAX);
    let refilled: f64 = rows
        .iter()
        .filter_map(|row| row.get(Metric::REFILLED))
        .sum();
    let planned = grpo.prompts_played().saturating_mul(steps);
    planned.saturating_add(refilled as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_in_the_place_of_dropped_ones_were_asked_too() {
        let settings = serde_json::json!({"steps": 3, "prompts_per_step": 4});
        let grpo: GrpoConfig = serde_json::from_value(settings).unwrap();
        let row = |(step, refilled): (u64, Option<f64>)| {
            let mut row = Row::new(step);
            if let Some(refilled) = refilled {
                row.set(Metric::REFILLED, refilled);
            }
            row
        };
        let rows =
            |refilled: [Option<f64>; 3]| -> Vec<Row> { (0..).zip(refilled).map(row).collect() };
        assert_eq!(asked(&grpo, &rows([None; 3])), 12);
        assert_eq!(asked(&grpo, &rows([Some(2.0), Some(0.0), Some(5.0)])), 19);
    }

    /// A round of so many questions and seconds.
    fn round(questions: usize, seconds: f64) -> Played {
        Played {
            questions,
            episodes: questions,
            kept: 0,
            seconds,
        }
    }

    #[test]
    fn episodes_are_spent_to_the_last() {
        let plan = Plan {
            total: 10,
            each: 3,
            seconds: None,
        };
        let mut rounds = Vec::new();
        while plan.next(&rounds) > 0 {
            rounds.push(round(plan.next(&rounds), 100.0));
        }
        let asked: Vec<usize> = rounds.iter().map(|round| round.questions).collect();
        assert_eq!(asked, [3, 3, 3, 1]);
    }

    #[test]
    fn seconds_are_spent_and_not_exceeded() {
        let plan = Plan {
            total: 10,
            each: 8,
            seconds: Some(60.0),
        };
        assert_eq!(plan.next(&[]), 8, "the first shows the pace");
        let first = round(8, 40.0);
        assert_eq!(plan.next(&[first]), 4, "what is left at five seconds each");
        assert_eq!(plan.next(&[first, round(4, 19.0)]), 0, "hardly anything");
        assert_eq!(plan.next(&[round(8, 90.0)]), 0, "overdrawn");
        let quick = vec![round(8, 0.0); MOST_ROUNDS];
        assert_eq!(plan.next(&quick[1..]), 8);
        assert_eq!(plan.next(&quick), 0, "it ends");
    }
}
