//! What a trained policy is held against besides its start and twins: other ways to spend as many episodes on the same start, and
//! ways to spend none.

use std::path::Path;
use std::sync::Arc;

use forage_contracts::Episode;
use forage_contracts::policy::Sampling;
use forage_contracts::scripted::{Haste, OracleStyle};
use forage_contracts::seed::Seed;
use forage_env::{EpisodeWriter, Keep, registry};
use forage_eval::SeedEpisodes;
use forage_trainer::{Checkpoint, Demonstrator, SftConfig};

use crate::collect::CollectOptions;
use crate::config::{Baseline, Resolved};
use crate::data::{Data, Tasks};
use crate::error::{Context, Result, RunError, bail};
use crate::evaluate::{
    Evaluated, Opening, Out, Player, Sets, Way, evaluate_checkpoint, evaluate_policy, fault_budget,
};
use crate::forced::Forced;
use crate::layout::{RunLayout, make_folder};
use crate::observer::Observer;
use crate::runtime::runtime;
use crate::session::Session;
use crate::sft::{SftOptions, sft};
use crate::study::open_saved;
use crate::unfinished::Unfinished;

/// Rounds of rejection sampling: each plays an equal share of the episodes with what the last has learned.
const ROUNDS: usize = 4;
/// Questions that are demonstrated at a time.
const DEMONSTRATED: usize = 512;

/// The baselines of a run.
pub(crate) struct Baselines<'a> {
    pub(crate) config: &'a Resolved,
    /// The run's folder, in which baselines that learn are kept.
    pub(crate) run: &'a RunLayout,
    pub(crate) data: &'a Data,
    /// The questions of the evaluation.
    pub(crate) tasks: &'a Tasks,
    /// The policy that the run began with.
    pub(crate) start: &'a Checkpoint,
    /// Its name, as that of a policy in a config.
    pub(crate) start_name: String,
    /// Its episodes on the questions.
    pub(crate) before: &'a Evaluated,
    /// The record of the evaluation, where it can be gone on with.
    pub(crate) unfinished: Option<&'a Unfinished<Sets>>,
    pub(crate) observer: &'a dyn Observer,
}

impl Baselines<'_> {
    /// Makes every baseline that the config asks for and plays the questions with it, as the trained policy plays them. Those that
    /// learn spend as many episodes as the run; what a folder holds already is not trained again. Blocks.
    ///
    /// # Errors
    /// When a baseline cannot be made, or it is stopped on the way.
    pub(crate) fn evaluate(&self) -> Result<Vec<(String, Evaluated)>> {
        let entry = registry::find(&self.config.environment.id)?;
        let asked = Baseline::asked(self.config, entry)?.into_iter();
        let played = asked.map(|(name, baseline)| {
            self.observer.say(&format!("baseline {name}"));
            let found = self.one(&name, baseline);
            let found = found.with_context(|| format!("baseline {name}"))?;
            Ok((name, found))
        });
        played.collect()
    }

    fn one(&self, name: &str, baseline: Baseline) -> Result<Evaluated> {
        let file = self.run.unfinished_set(name);
        let unfinished = self.unfinished;
        let out = unfinished.map(|unfinished| Out {
            file: &file,
            unfinished,
        });
        match baseline {
            Baseline::ForcedSearch => self.forced_search(out),
            Baseline::BestOf => Ok(self.chosen(SeedEpisodes::best_of)),
            Baseline::MajorityOf => Ok(self.chosen(SeedEpisodes::majority_of)),
            Baseline::RejectionSampling => self.checkpoint(&self.rejection_sampling(name)?, out),
            Baseline::Demonstrations => self.checkpoint(&self.demonstrations(name)?, out),
            Baseline::Script(script) => self.script(script, out),
        }
    }

    fn checkpoint(&self, policy: &Checkpoint, out: Option<Out<'_>>) -> Result<Evaluated> {
        let Self {
            config,
            data,
            tasks,
            observer,
            ..
        } = *self;
        evaluate_checkpoint(config, policy, data, tasks, out, observer)
    }

    /// The session of the start.
    fn session(&self) -> Result<Session> {
        Session::of(self.config, &self.data.corpus, self.start, self.observer)
    }

    fn forced_search(&self, out: Option<Out<'_>>) -> Result<Evaluated> {
        let session = self.session()?;
        let entry = registry::find(&self.config.environment.id)?;
        let opening = Forced::opening(entry, &session.factory.spec().stop);
        let opening = opening.ok_or_else(|| {
            RunError::config_because(
                "evaluation.baselines: forced_search opens a turn with a tag, and this environment's actions have none",
                "remove it",
            )
        })?;
        let opening = session.format.tokenizer.encode(&opening);
        let policy = self.config.generation().start(self.start);
        let policy = Arc::new(Forced::new(policy, opening));
        evaluate_policy(
            self.config,
            &session,
            policy,
            self.tasks,
            out,
            self.observer,
        )
    }

    /// One of the start's samples of each question: it stands for a greedy and for a sampled episode.
    fn chosen(&self, choose: fn(usize, &[Episode]) -> Vec<Episode>) -> Evaluated {
        let greedy = choose(Baseline::SAMPLES, &self.before.sampled);
        Evaluated {
            sampled: greedy.clone(),
            greedy,
        }
    }

    /// A script plays in bytes, and the same way each time.
    fn script(&self, name: &str, out: Option<Out<'_>>) -> Result<Evaluated> {
        let generation = self.config.generation();
        let opening = Opening::of(self.config, Some(name), &generation);
        let Player {
            policy,
            format,
            in_flight,
            ..
        } = opening.open(self.tasks)?;
        let environment = opening.limits(&self.config.environment)?;
        let rewards = self.config.rewards()?;
        let corpus = &self.data.corpus;
        let session = Session::new(&environment, rewards, corpus, format, self.observer)?;
        let rollout = session.rollout(policy, Sampling::GREEDY)?;
        let way = Way {
            in_flight,
            budget: fault_budget(self.config),
            out,
            observer: self.observer,
        };
        let greedy = way.play_greedily(&rollout, self.tasks, self.config.seed, name)?;
        let sampled = match self.config.evaluation.samples {
            0 => Vec::new(),
            _ => greedy.clone(),
        };
        Ok(Evaluated { greedy, sampled })
    }

    /// Questions that the run asked in training, those of several passes as often as they came.
    fn questions(&self) -> usize {
        let grpo = &self.config.grpo;
        let steps = usize::try_from(grpo.steps).unwrap_or(usize::MAX);
        grpo.prompts_played().saturating_mul(steps)
    }

    /// Some of the training questions from a place on, over again where they end.
    fn training(&self, from: usize, count: usize) -> Tasks {
        let train = self.data.train.iter().cycle();
        let place = from.checked_rem(self.data.train.len()).unwrap_or(0);
        train.skip(place).take(count).cloned().collect()
    }

    /// Rounds of rejection sampling (Dong et al. 2023, "RAFT"): play a group of each question, keep its best episodes as far as they
    /// earned anything, learn what was kept, play on.
    fn rejection_sampling(&self, name: &str) -> Result<Checkpoint> {
        let each = self.questions().div_ceil(ROUNDS);
        let (mut policy, mut policy_name) = (self.start.clone(), self.start_name.clone());
        let mut is_start = true;
        for round in 0..ROUNDS {
            let run = self
                .run
                .baseline(name)
                .part(&format!("round-{}", round + 1));
            make_folder(run.folder())?;
            if !run.demonstrations().exists() {
                let options = CollectOptions {
                    policy: None,
                    model: None,
                    token_file: None,
                    samples: self.config.grpo.group_size,
                    out: run.demonstrations(),
                    // One of equals would be the shortest: a lucky guess before an answer that was looked up.
                    keep: Keep::Bests,
                    min_reward: f32::MIN_POSITIVE,
                    temperature: None,
                    questions: None,
                    record_tools: None,
                    resume: false,
                };
                let chat = self.config.policy.chat.as_ref();
                let player = Player::here(&policy, chat, &self.config.generation())?;
                let tasks = self.training(round * each, each);
                let seed = Seed::root(self.config.seed).child("collect", &[round as u64]);
                let corpus = &self.data.corpus;
                let jobs = options.jobs(self.config, &tasks, seed);
                let found =
                    options.gather(self.config, corpus, player, &jobs, None, self.observer)?;
                if found.kept == 0 {
                    self.observer.warn(&format!(
                        "{name}, round {}: none of {} episodes earned anything, so nothing is learned",
                        round + 1,
                        found.episodes
                    ));
                    continue;
                }
            }
            policy = self.fine_tuned(&run, &policy_name, is_start)?;
            policy_name = run.policy().to_string_lossy().into_owned();
            is_start = false;
        }
        Ok(policy)
    }

    /// Fine-tuning on as many demonstrations of a careful oracle as the run played episodes.
    fn demonstrations(&self, name: &str) -> Result<Checkpoint> {
        let run = self.run.baseline(name);
        make_folder(run.folder())?;
        let file = run.demonstrations();
        if !file.exists() {
            self.demonstrate(&file)?;
        }
        self.fine_tuned(&run, &self.start_name, true)
    }

    fn demonstrate(&self, file: &Path) -> Result<()> {
        let session = self.session()?;
        let section = self.config.warm_start.as_ref();
        let style: OracleStyle = section
            .map(|section| section.learning.style)
            .unwrap_or_default();
        let demonstrator = Demonstrator {
            factory: session.factory,
            tokenizer: session.format.tokenizer,
            style,
            seed: Seed::root(self.config.seed).child("demonstrations", &[]),
        };
        let group = self.config.grpo.group_size;
        let episodes = self.questions().saturating_mul(group);
        let tasks = self.training(0, episodes);
        let mut writer = EpisodeWriter::create(file)?;
        for (part, tasks) in (0..).zip(tasks.chunks(DEMONSTRATED)) {
            let shown = demonstrator.episodes(tasks, Haste::NONE, part);
            for episode in runtime()?.block_on(shown)? {
                writer.write(episode)?;
            }
            let done = (part + 1) * DEMONSTRATED as u64;
            let total = episodes as u64;
            let observer = self.observer;
            observer.progress("demonstrations", done.min(total), total, "");
            if observer.is_stopped() {
                writer.discard()?;
                bail!("interrupted; start again");
            }
        }
        Ok(writer.finish()?)
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
