//! `forage eval --probe`: the same questions under a change.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use forage_env::episode::Episode;
use forage_env::probe::{self, PassageProbe, Probe, wordings};
use forage_env::registry::Resources;
use forage_env::rollout::Rollout;
use forage_env::seed::Seed;
use forage_eval::critique::Critique;
use forage_eval::measures::QuestionKey;
use forage_eval::stats::Bootstrap;
use forage_eval::{ProbeResult, Sensitivity};
use forage_trainer::logprobs::entropies;
use forage_trainer::sequence::Sequence;
use forage_trainer::workers::Workers;
use serde::Serialize;
use serde_json::Value;

use super::Material;
use crate::commands::note;
use crate::config::{BadConfig, EnvironmentConfig};
use crate::pipeline::play;
use crate::pipeline::write_episodes;
use crate::setup;

/// What came of a probe.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Probed {
    Passages(Box<ProbeResult>),
    Wordings(Sensitivity),
    Critique(Critique),
}

impl Probed {
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Passages(result) => result.to_text(),
            Self::Wordings(sensitivity) => sensitivity.to_text(),
            Self::Critique(critique) => critique.to_text(),
        }
    }
}

/// An evaluation that probes are held against.
pub(super) struct Plain<'a> {
    pub(super) material: &'a Material,
    pub(super) resources: Resources,
    pub(super) rollout: &'a Rollout,
    /// Its greedy episodes.
    pub(super) episodes: &'a [Episode],
    /// Where those were written; the probe's go beside them.
    pub(super) out: Option<&'a Path>,
}

impl Plain<'_> {
    /// Plays the questions greedily under a probe.
    pub(super) fn under(&self, probe: Probe) -> Result<Probed> {
        let Material { tasks, seed, environment, .. } = self.material;
        let bootstrap = Bootstrap::new(*seed);
        let unfit = || BadConfig(format!("--probe {}", probe.name()));
        let Some(passages) = PassageProbe::new(probe, tasks, Seed::root(*seed)).with_context(unfit)? else {
            return match probe {
                Probe::SelfCritique => self.again().map(Probed::Critique),
                _ => self.reworded().map(Probed::Wordings),
            };
        };
        let settings = Value::Object(environment.settings.clone());
        let resources = Resources { notice: note, ..self.resources.clone() };
        let factory = probe::factory(&environment.id, settings, resources, Arc::new(passages)).with_context(unfit)?;
        let episodes = self.play(&Rollout { factory, ..self.rollout.clone() }, probe.name())?;
        let result = ProbeResult::from_episodes(probe.name(), self.episodes, &episodes, bootstrap)?;
        Ok(Probed::Passages(Box::new(result)))
    }

    /// Plays the questions under each wording of the instructions.
    fn reworded(&self) -> Result<Sensitivity> {
        let Material { environment, window, seed, .. } = self.material;
        let name = Probe::ParaphrasedPrompt.name();
        let settings = Value::Object(environment.settings.clone());
        let prompts = wordings(&environment.id, &settings).with_context(|| BadConfig(format!("--probe {name}")))?;
        let mut sets = vec![self.episodes.to_vec()];
        for (place, prompt) in prompts.into_iter().enumerate() {
            let mut settings = environment.settings.clone();
            settings.insert("prompt".to_owned(), prompt);
            let environment = EnvironmentConfig { id: environment.id.clone(), settings };
            let factory = setup::environment(&environment, self.resources.clone(), *window)?;
            let rollout = Rollout { factory, ..self.rollout.clone() };
            sets.push(self.play(&rollout, &format!("{name}-{}", place + 1))?);
        }
        Ok(Sensitivity::of(&sets, Bootstrap::new(*seed))?)
    }

    /// Asks for another way than that of the first attempt, and compares how certain the policy is along both.
    fn again(&self) -> Result<Critique> {
        let Material { weights, seed, threads, .. } = self.material;
        let name = Probe::SelfCritique.name();
        let Some(weights) = weights else {
            let fix = "name a policy with weights, a folder or builtin:quickstart; scripts have no entropies";
            return Err(anyhow::anyhow!(fix).context(BadConfig(format!("--probe {name}"))));
        };
        let factory = probe::second_attempt(Arc::clone(&self.rollout.factory), self.episodes);
        let second = self.play(&Rollout { factory, ..self.rollout.clone() }, name)?;
        let workers = Workers::for_model(*threads, &weights.config, &weights.decoder.device());
        let entropies = |episodes: &[&Episode]| {
            let sequences: Vec<Sequence> = episodes.iter().map(|episode| Sequence::from_log(&episode.tokens)).collect();
            entropies(weights, &sequences, &workers)
        };
        let scored = |episode: &Episode| !episode.ending.is_infra();
        let pairs: Vec<(&Episode, &Episode)> =
            self.episodes.iter().zip(&second).filter(|(first, second)| scored(first) && scored(second)).collect();
        let (first, second): (Vec<&Episode>, Vec<&Episode>) = pairs.into_iter().unzip();
        let both = entropies(&first).into_iter().zip(entropies(&second));
        let attempts = first.iter().zip(both).map(|(episode, (one, other))| (QuestionKey::of(episode), one, other));
        Ok(Critique::of(&attempts.collect::<Vec<_>>(), Bootstrap::new(*seed))?)
    }

    fn play(&self, rollout: &Rollout, name: &str) -> Result<Vec<Episode>> {
        let episodes = play(rollout, &self.material.tasks, self.material.seed, 0)?.greedy;
        if let Some(path) = self.out {
            write_episodes(&path.with_extension(format!("{name}.jsonl")), episodes.iter().cloned())?;
        }
        Ok(episodes)
    }
}
