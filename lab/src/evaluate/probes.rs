//! Probes: the same questions under a change.

use std::sync::Arc;

use forage_contracts::Episode;
use forage_contracts::policy::Sampling;
use forage_contracts::seed::Seed;
use forage_env::{PassageProbe, Probe};
use forage_eval::{Bootstrap, Critique, ProbeResult, QuestionKey, Sensitivity};
use forage_trainer::{Sequence, Workers};
use serde::Serialize;
use serde_json::Value;

use super::exam::Exam;
use super::play::play;
use crate::error::{Context, Result, RunError};
use crate::records::write_episodes;
use crate::session::Session;

/// The findings of a probe.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Probed {
    /// Other passages, or none.
    Passages(Box<ProbeResult>),
    /// The instructions in other words.
    Wordings(Sensitivity),
    /// A second attempt.
    Critique(Critique),
}

impl Probed {
    /// The findings as a table or in words.
    pub fn to_text(&self) -> String {
        match self {
            Self::Passages(result) => result.to_text(),
            Self::Wordings(sensitivity) => sensitivity.to_text(),
            Self::Critique(critique) => critique.to_text(),
        }
    }
}

/// An evaluation that probes are held against.
pub(super) struct Plain<'a> {
    pub(super) exam: &'a Exam<'a>,
    pub(super) session: &'a Session,
    /// Its greedy episodes.
    pub(super) episodes: &'a [Episode],
}

impl Plain<'_> {
    /// Plays the questions greedily under a probe.
    pub(super) fn under(&self, probe: Probe) -> Result<Probed> {
        let unfit = || format!("--probe {}", probe.name());
        let seed = Seed::root(self.exam.seed);
        let passages = PassageProbe::new(probe, &self.exam.tasks, seed).in_config(unfit())?;
        let Some(passages) = passages else {
            return match probe {
                Probe::SelfCritique => self.again().map(Probed::Critique),
                _ => self.reworded().map(Probed::Wordings),
            };
        };
        let environment = &self.session.environment;
        let settings = Value::Object(environment.settings.clone());
        let factory = Arc::new(passages)
            .factory(&environment.id, settings, self.session.resources.clone())
            .in_config(unfit())?;
        let episodes = self.play(&self.session.with_factory(factory), probe.name())?;
        let result =
            ProbeResult::from_episodes(probe.name(), self.episodes, &episodes, self.bootstrap())?;
        Ok(Probed::Passages(Box::new(result)))
    }

    /// Plays the questions under each wording of the instructions.
    fn reworded(&self) -> Result<Sensitivity> {
        let name = Probe::ParaphrasedPrompt.name();
        let environment = &self.session.environment;
        let settings = Value::Object(environment.settings.clone());
        let prompts =
            Probe::wordings(&environment.id, &settings).in_config(format!("--probe {name}"))?;
        let mut sets = vec![self.episodes.to_vec()];
        for (place, prompt) in prompts.into_iter().enumerate() {
            let mut settings = environment.settings.clone();
            settings.insert("prompt".to_owned(), prompt);
            let session = self.session.with_settings(settings)?;
            sets.push(self.play(&session, &format!("{name}-{}", place + 1))?);
        }
        Ok(Sensitivity::of(&sets, self.bootstrap())?)
    }

    /// Asks for another way than that of the first attempt, and compares how certain the policy is along both.
    fn again(&self) -> Result<Critique> {
        let name = Probe::SelfCritique.name();
        let Some(weights) = &self.exam.player.weights else {
            return Err(RunError::config_because(
                format!("--probe {name}"),
                "name a policy with weights, a folder or builtin:quickstart; scripts and servers tell no entropies",
            ));
        };
        let factory = Probe::second_attempt(Arc::clone(&self.session.factory), self.episodes);
        let second = self.play(&self.session.with_factory(factory), name)?;
        let workers = Workers::for_model(
            self.exam.threads,
            &weights.config,
            &weights.decoder.device(),
        );
        let entropies = |episodes: &[&Episode]| {
            let sequences: Vec<Sequence> = episodes
                .iter()
                .map(|episode| Sequence::from_log(&episode.tokens))
                .collect();
            weights.entropies(&sequences, &workers)
        };
        let scored = |episode: &Episode| !episode.ending.is_infra();
        let pairs = self.episodes.iter().zip(&second);
        let (first, second): (Vec<&Episode>, Vec<&Episode>) = pairs
            .filter(|(first, second)| scored(first) && scored(second))
            .unzip();
        let both = entropies(&first).into_iter().zip(entropies(&second));
        let attempts: Vec<_> = first
            .iter()
            .zip(both)
            .map(|(episode, (one, other))| (QuestionKey::of(episode), one, other))
            .collect();
        Ok(Critique::of(&attempts, self.bootstrap())?)
    }

    fn bootstrap(&self) -> Bootstrap {
        Bootstrap::new(self.exam.seed)
    }

    fn play(&self, session: &Session, name: &str) -> Result<Vec<Episode>> {
        let policy = Arc::clone(&self.exam.player.policy);
        let rollout = session.rollout(policy, Sampling::GREEDY)?;
        let Exam { tasks, seed, .. } = self.exam;
        let in_flight = self.exam.player.in_flight;
        let episodes = play(&rollout, tasks, *seed, 0, in_flight)?.greedy;
        if let Some(path) = &self.exam.options.out {
            let beside = path.with_extension(format!("{name}.jsonl"));
            write_episodes(&beside, episodes.iter().cloned())?;
        }
        Ok(episodes)
    }
}
