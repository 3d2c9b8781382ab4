//! Baselines that a trained policy is compared with, besides its start and twins: other ways to spend as many episodes, or as many
//! seconds, on the same start, and ways that spend none.

mod taught;

use std::sync::Arc;

use forage_contracts::Episode;
use forage_contracts::policy::Sampling;
use forage_env::registry;
use forage_eval::{SeedEpisodes, StepTelemetry};
use forage_trainer::Checkpoint;
use forage_trainer::metrics::Row;

use crate::conduct::steps;
use crate::config::{Baseline, Resolved};
use crate::data::{Data, Tasks};
use crate::error::{Context, Result, RunError};
use crate::evaluate::{
    EpisodeFile, Evaluated, Opening, PlaySettings, Player, Sets, evaluate_checkpoint,
    evaluate_policy, fault_budget,
};
use crate::forced::Forced;
use crate::layout::RunLayout;
use crate::observer::Observer;
use crate::session::Session;
use crate::tracked::seconds;
use crate::unfinished::Unfinished;
use taught::Method;

/// Episodes and seconds of the training of policies, by their names.
pub(crate) type Costs = Vec<(String, [f64; 2])>;

/// Episodes that a run has played, and the seconds of its steps without validations and checkpoints; `None` where it has recorded no
/// times.
pub(crate) fn cost_of(run: &RunLayout) -> Result<Option<[f64; 2]>> {
    if !run.metrics().exists() {
        return Ok(None);
    }
    let rows = Row::read_all(&run.metrics())?;
    let episodes: usize = steps(run)?.iter().map(StepTelemetry::episodes).sum();
    Ok(seconds(&rows).map(|seconds| [episodes as f64, seconds]))
}

/// The baselines of a run.
pub(crate) struct Baselines<'a> {
    pub(crate) config: &'a Resolved,
    /// The run's folder, in which baselines that learn are kept.
    pub(crate) run: &'a RunLayout,
    /// The records of the trained policy, whose episodes and seconds are budgets.
    pub(crate) trained: &'a RunLayout,
    pub(crate) data: &'a Data,
    /// The questions of the evaluation.
    pub(crate) tasks: &'a Tasks,
    /// The policy that the run began with.
    pub(crate) start: &'a Checkpoint,
    /// Its name, as that of a policy in a config.
    pub(crate) start_name: String,
    /// Its episodes on the questions.
    pub(crate) before: &'a Evaluated,
    /// The record of the evaluation, where it can be resumed.
    pub(crate) unfinished: Option<&'a Unfinished<Sets>>,
    pub(crate) observer: &'a dyn Observer,
}

impl Baselines<'_> {
    /// Makes every baseline that the config asks for and plays the questions with it, as with the trained policy; those that learn have a
    /// cost. A baseline of the same config and budget that is in the folder already is not trained again. Blocks.
    ///
    /// # Errors
    /// When a baseline cannot be made, or it is stopped on the way.
    pub(crate) fn evaluate(&self) -> Result<(Vec<(String, Evaluated)>, Costs)> {
        let entry = registry::find(&self.config.environment.id)?;
        let (mut played, mut costs) = (Vec::new(), Costs::new());
        for (name, baseline) in Baseline::asked(self.config, entry)? {
            self.observer.say(&format!("baseline {name}"));
            let found = self.one(&name, baseline);
            let (found, cost) = found.with_context(|| format!("baseline {name}"))?;
            costs.extend(cost.map(|cost| (name.clone(), cost)));
            played.push((name, found));
        }
        Ok((played, costs))
    }

    fn one(&self, name: &str, baseline: Baseline) -> Result<(Evaluated, Option<[f64; 2]>)> {
        let file = self.run.unfinished_set(name);
        let unfinished = self.unfinished;
        let out = unfinished.map(|unfinished| EpisodeFile {
            file: &file,
            unfinished,
        });
        let (method, budget) = match baseline {
            Baseline::ForcedSearch => return Ok((self.forced_search(out)?, None)),
            Baseline::BestOf => return Ok((self.chosen(SeedEpisodes::best_of), None)),
            Baseline::MajorityOf => return Ok((self.chosen(SeedEpisodes::majority_of), None)),
            Baseline::Script(script) => return Ok((self.script(script, out)?, None)),
            Baseline::RejectionSampling(budget) => (Method::RejectionSampling, budget),
            Baseline::Demonstrations(budget) => (Method::Demonstrations, budget),
        };
        let (key, policy, cost) = self.taught(name, method, budget)?;
        // Other settings make another policy, with episodes of its own.
        let file = self.run.unfinished_set(&key);
        let out = out.map(|out| EpisodeFile { file: &file, ..out });
        Ok((self.checkpoint(&policy, out)?, Some(cost)))
    }

    fn checkpoint(&self, policy: &Checkpoint, out: Option<EpisodeFile<'_>>) -> Result<Evaluated> {
        let Self {
            config,
            data,
            tasks,
            observer,
            ..
        } = *self;
        let played = (tasks, config.evaluation.samples_beside());
        evaluate_checkpoint(config, policy, data, played, out, observer)
    }

    /// The session of the start.
    fn session(&self) -> Result<Session> {
        Session::of(self.config, &self.data.corpus, self.start, self.observer)
    }

    fn forced_search(&self, out: Option<EpisodeFile<'_>>) -> Result<Evaluated> {
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
            (self.tasks, self.config.evaluation.samples_beside()),
            out,
            self.observer,
        )
    }

    /// One of the start's samples of each question, used as both the greedy and the sampled episode.
    fn chosen(&self, choose: fn(usize, &[Episode]) -> Vec<Episode>) -> Evaluated {
        let greedy = choose(Baseline::SAMPLES, &self.before.sampled);
        Evaluated {
            sampled: greedy.clone(),
            greedy,
        }
    }

    /// A script writes bytes and plays the same way each time.
    fn script(&self, name: &str, out: Option<EpisodeFile<'_>>) -> Result<Evaluated> {
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
        let settings = PlaySettings {
            in_flight,
            budget: fault_budget(self.config),
            out,
            observer: self.observer,
        };
        let greedy = settings.play_greedily(&rollout, self.tasks, self.config.seed, name)?;
        let sampled = match self.config.evaluation.samples {
            0 => Vec::new(),
            _ => greedy.clone(),
        };
        Ok(Evaluated { greedy, sampled })
    }
}
