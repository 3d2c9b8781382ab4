//! Probes: the same questions asked under a change, and compared with the unchanged evaluation.

use std::collections::BTreeSet;
use std::sync::Arc;

use forage_contracts::environment::EnvFactory;
use forage_contracts::policy::Sampling;
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Provenance, TokenLog};
use forage_env::{PassageProbe, Probe};
use forage_eval::{Bootstrap, Critique, ProbeResult, QuestionKey, Sensitivity};
use forage_trainer::{Checkpoint, Sequence, Workers};
use serde::Serialize;
use serde_json::Value;

use super::exam::{Exam, beside};
use super::play::{EpisodeFile, PlaySettings, Sets};
use crate::error::{Context, Result, RunError};
use crate::session::Session;
use crate::unfinished::Unfinished;

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

/// The unchanged evaluation that probes are compared with.
pub(super) struct ProbeBase<'a> {
    pub(super) exam: &'a Exam<'a>,
    pub(super) session: &'a Session,
    /// Its greedy episodes.
    pub(super) episodes: &'a [Episode],
    /// Its record, where there is a file for its episodes.
    pub(super) unfinished: Option<&'a Unfinished<Sets>>,
}

impl ProbeBase<'_> {
    /// Refuses probes that cannot be played, before anything is.
    pub(super) fn check(exam: &Exam<'_>, session: &Session) -> Result<()> {
        let base = ProbeBase {
            exam,
            session,
            episodes: &[],
            unfinished: None,
        };
        for probe in &exam.options.probes {
            match probe {
                Probe::SelfCritique => {
                    base.weights()?;
                }
                Probe::ParaphrasedPrompt => {
                    base.wordings()?;
                }
                _ => {
                    base.passages(*probe)?;
                }
            }
        }
        Ok(())
    }

    /// The environment under a probe of passages; `None` of another probe.
    fn passages(&self, probe: Probe) -> Result<Option<Arc<dyn EnvFactory>>> {
        let unfit = || format!("--probe {}", probe.name());
        let seed = Seed::root(self.exam.seed);
        let passages = PassageProbe::new(probe, &self.exam.tasks, seed).in_config(unfit())?;
        let Some(passages) = passages else {
            return Ok(None);
        };
        let environment = &self.session.environment;
        let settings = Value::Object(environment.settings.clone());
        let resources = self.session.resources.clone();
        let factory = Arc::new(passages)
            .factory(&environment.id, settings, resources)
            .in_config(unfit())?;
        Ok(Some(factory))
    }

    /// The prompts in other words.
    fn wordings(&self) -> Result<Vec<Value>> {
        let environment = &self.session.environment;
        let settings = Value::Object(environment.settings.clone());
        let name = Probe::ParaphrasedPrompt.name();
        Probe::wordings(&environment.id, &settings).in_config(format!("--probe {name}"))
    }

    /// The policy's weights, for entropies.
    fn weights(&self) -> Result<&Checkpoint> {
        self.exam.player.weights.as_ref().ok_or_else(|| {
            RunError::config_because(
                format!("--probe {}", Probe::SelfCritique.name()),
                "name a policy with weights, a folder or builtin:quickstart; scripts and servers tell no entropies",
            )
        })
    }

    /// Plays the questions greedily under a probe.
    pub(super) fn probe(&self, probe: Probe) -> Result<Probed> {
        let Some(factory) = self.passages(probe)? else {
            return match probe {
                Probe::SelfCritique => self.self_critique().map(Probed::Critique),
                _ => self.paraphrased().map(Probed::Wordings),
            };
        };
        let episodes = self.play(&self.session.with_factory(factory), probe.name())?;
        let result =
            ProbeResult::from_episodes(probe.name(), self.episodes, &episodes, self.bootstrap())?;
        Ok(Probed::Passages(Box::new(result)))
    }

    /// Plays the questions under each wording of the instructions.
    fn paraphrased(&self) -> Result<Sensitivity> {
        let name = Probe::ParaphrasedPrompt.name();
        let environment = &self.session.environment;
        let prompts = self.wordings()?;
        let mut sets = vec![self.episodes.to_vec()];
        for (place, prompt) in prompts.into_iter().enumerate() {
            let mut settings = environment.settings.clone();
            settings.insert("prompt".to_owned(), prompt);
            let session = self.session.with_settings(settings)?;
            sets.push(self.play(&session, &format!("{name}-{}", place + 1))?);
        }
        let found = Sensitivity::of(&sets, self.bootstrap())?;
        Ok(match &self.exam.player.weights {
            Some(weights) => {
                found.with_logprobs(&self.logprobs(weights, &sets), self.bootstrap())?
            }
            None => found,
        })
    }

    /// `[question][prompt][response][token]`, nats: log-probabilities of the policy's tokens of each wording's episode when they follow
    /// the prompt of each wording, observations included. Left out are questions that a fault ended under some wording, that got no
    /// response or that do not fit the model.
    fn logprobs(&self, weights: &Checkpoint, sets: &[Vec<Episode>]) -> Vec<Vec<Vec<Vec<f32>>>> {
        let wordings = sets.len();
        let longest = weights.config.max_position_embeddings;
        let questions = (0..self.episodes.len()).filter_map(|place| {
            let asked: Option<Vec<&Episode>> = sets.iter().map(|set| set.get(place)).collect();
            let asked = asked.filter(|asked| asked.iter().all(|one| !one.ending.is_infra()))?;
            let pairs = asked.iter().flat_map(|prompt| {
                asked
                    .iter()
                    .map(move |response| reprompted(&response.tokens, &prompt.tokens))
            });
            let pairs: Vec<Sequence> = pairs.collect();
            let fits = |pair: &Sequence| !pair.targets.is_empty() && pair.ids.len() <= longest;
            pairs.iter().all(fits).then_some(pairs)
        });
        let sequences: Vec<Sequence> = questions.flatten().collect();
        let mut found = weights
            .logprobs(&sequences, &self.workers(weights))
            .into_iter();
        let count = sequences.len() / (wordings * wordings);
        let mut next = || found.by_ref().take(wordings).collect::<Vec<_>>();
        (0..count)
            .map(|_| (0..wordings).map(|_| next()).collect())
            .collect()
    }

    fn workers(&self, weights: &Checkpoint) -> Workers {
        Workers::for_model(
            self.exam.threads,
            &weights.config,
            &weights.decoder.device(),
        )
    }

    /// Asks for a second attempt that differs from the first, and compares how certain the policy is in both.
    fn self_critique(&self) -> Result<Critique> {
        let name = Probe::SelfCritique.name();
        let weights = self.weights()?;
        let factory = Probe::second_attempt(Arc::clone(&self.session.factory), self.episodes);
        let second = self.play(&self.session.with_factory(factory), name)?;
        let workers = self.workers(weights);
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
        let trained = self.exam.trained.iter();
        let trained: BTreeSet<&str> = trained.map(|task| task.question.as_str()).collect();
        Ok(Critique::of(&attempts, &trained, self.bootstrap())?)
    }

    fn bootstrap(&self) -> Bootstrap {
        Bootstrap::new(self.exam.seed)
    }

    fn play(&self, session: &Session, name: &str) -> Result<Vec<Episode>> {
        let policy = Arc::clone(&self.exam.player.policy);
        let rollout = session.rollout(policy, Sampling::GREEDY)?;
        let Exam {
            tasks,
            seed,
            budget,
            options,
            observer,
            ..
        } = self.exam;
        let file = options.out.as_ref().map(|out| beside(out, name));
        let out = file.as_deref().zip(self.unfinished);
        let settings = PlaySettings {
            in_flight: self.exam.player.in_flight,
            budget: *budget,
            out: out.map(|(file, unfinished)| EpisodeFile { file, unfinished }),
            observer: *observer,
        };
        settings.play_greedily(&rollout, tasks, *seed, name)
    }
}

/// An episode's tokens moved behind the prompt of another; the policy's are the targets.
fn reprompted(response: &TokenLog, prompt: &TokenLog) -> Sequence {
    let opening = |log: &TokenLog| {
        let first = log.spans().first();
        first
            .filter(|span| span.provenance == Provenance::Prompt)
            .map_or(0, |span| span.end)
    };
    let [own, other] = [response, prompt].map(opening);
    let Sequence { ids, targets, .. } = Sequence::from_log(response);
    let moved = targets.iter().map(|target| target - own + other);
    Sequence {
        ids: [&prompt.ids()[..other], &ids[own..]].concat(),
        targets: moved.filter(|&target| target > 0).collect(),
        ..Sequence::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_keeps_its_tokens_after_another_prompt() {
        let log = |prompt: &[u32]| {
            let mut log = TokenLog::with_prompt(prompt);
            log.push_policy(&[7, 8], &[-1.0; 2], 0, None);
            log.push_environment(&[5]);
            log.push_policy(&[9], &[-1.0], 0, None);
            log.push_forced(&[6]);
            log
        };
        let (short, long) = (log(&[1]), log(&[2, 3, 4]));
        let found = reprompted(&short, &long);
        assert_eq!(found.ids, [2, 3, 4, 7, 8, 5, 9, 6]);
        assert_eq!(found.targets, [3, 4, 6], "what the policy wrote");
        assert_eq!(reprompted(&long, &short).targets, [1, 2, 4]);
        assert_eq!(reprompted(&long, &long), Sequence::from_log(&long));
    }
}
