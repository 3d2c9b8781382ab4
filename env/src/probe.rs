//! Probes: the same questions under a change that tells what a policy's answers rest on.
//!
//! Four of them change what searches find, question by question: [`PassageProbe`], a wrapper around the retriever that
//! [`PassageProbe::factory`] puts under any environment that reads passages. Two change the prompt: [`Probe::wordings`] has the instructions in
//! other words, [`Probe::second_attempt`] asks again for another way. Controls that change what is paid for are rewards (`crate::reward::controls`), those that change what
//! counts as right are labels ([`crate::dataset::Labels`]).

mod critique;
mod passages;
mod wordings;

use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Step, TurnTool,
};
use forage_contracts::seed::Seed;
use forage_contracts::{RegistryError, Resources, Task};
use serde_json::Value;

use crate::dataset::LabelError;
use crate::registry::make;

pub use passages::PassageProbe;

/// A change under which a policy is evaluated again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// Every search finds nothing, and there is no page. What is answered rightly all the same was known before, or guessed.
    NoSearch,
    /// Every search finds the passages of another question.
    ShuffledPassages,
    /// The pages that hold the question's evidence are found by no search, with all their passages, and cannot be read by their ids.
    MissingPassages,
    /// The best hit of every search asserts a wrong answer.
    PoisonedPassages,
    /// The instructions say the same in other words.
    ParaphrasedPrompt,
    /// The question is asked again, with the first attempt in view, for another way.
    SelfCritique,
}

impl Probe {
    /// All probes.
    pub const ALL: [Self; 6] = [
        Self::NoSearch,
        Self::ShuffledPassages,
        Self::MissingPassages,
        Self::PoisonedPassages,
        Self::ParaphrasedPrompt,
        Self::SelfCritique,
    ];

    /// Its name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSearch => "no-search",
            Self::ShuffledPassages => "shuffled-passages",
            Self::MissingPassages => "missing-passages",
            Self::PoisonedPassages => "poisoned-passages",
            Self::ParaphrasedPrompt => "paraphrased-prompt",
            Self::SelfCritique => "self-critique",
        }
    }
}

impl FromStr for Probe {
    type Err = ProbeError;

    fn from_str(name: &str) -> Result<Self, ProbeError> {
        Self::ALL
            .into_iter()
            .find(|probe| probe.name() == name)
            .ok_or_else(|| ProbeError::Unknown {
                name: name.to_owned(),
                known: Self::ALL.map(Self::name).join(", "),
            })
    }
}

/// A probe that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// No probe has this name.
    #[error("unknown probe `{name}`; write one of {known}")]
    Unknown {
        /// As written.
        name: String,
        /// The probes that exist.
        known: String,
    },
    /// The environment has nothing the probe could change.
    #[error("probe {probe}: {what}; {fix}")]
    Environment {
        /// The probe.
        probe: &'static str,
        /// What is in the way.
        what: String,
        /// What to do about it.
        fix: &'static str,
    },
    /// A task does not say what to take away.
    #[error(
        "probe missing-passages: task `{task}` does not say where its evidence is; give it `evidence` or `qrels`"
    )]
    NoEvidence {
        /// Its id.
        task: String,
    },
    /// All questions have the same evidence.
    #[error(
        "probe shuffled-passages: no other question has other evidence than `{task}`; ask more questions"
    )]
    NoOther {
        /// Its id.
        task: String,
    },
    /// There is no wrong answer to assert.
    #[error("probe poisoned-passages")]
    NoWrongAnswer(#[from] LabelError),
    /// The environment or its settings are not known.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl PassageProbe {
    /// The environments of `id` over passages that this probe changes, question by question.
    ///
    /// # Errors
    /// [`ProbeError`] when the environment reads no passages the probe could change, or cannot be made.
    pub fn factory(
        self: Arc<Self>,
        id: &str,
        settings: Value,
        resources: Resources,
    ) -> Result<Arc<dyn EnvFactory>, ProbeError> {
        self.check(id, &settings)?;
        let plain = make(id, settings.clone(), resources.clone())?;
        let recipe = Recipe {
            id: id.to_owned(),
            settings,
            resources,
            probe: self,
        };
        Ok(Arc::new(Factory {
            recipe: Arc::new(recipe),
            plain,
        }))
    }
}

/// What the environment of a question is made from.
struct Recipe {
    id: String,
    settings: Value,
    resources: Resources,
    probe: Arc<PassageProbe>,
}

struct Factory {
    recipe: Arc<Recipe>,
    /// The unchanged factory, whose spec is that of the probe.
    plain: Arc<dyn EnvFactory>,
}

impl EnvFactory for Factory {
    fn make(&self) -> Box<dyn Environment> {
        let (recipe, plain) = (Arc::clone(&self.recipe), Arc::clone(&self.plain));
        Box::new(Probed {
            recipe,
            plain,
            inner: None,
        })
    }

    fn spec(&self) -> &EnvSpec {
        self.plain.spec()
    }

    fn entry(&self) -> &str {
        self.plain.entry()
    }

    fn tools(&self) -> Vec<TurnTool> {
        self.plain.tools()
    }
}

/// An environment that is made anew for each question, over what its searches are to find.
struct Probed {
    recipe: Arc<Recipe>,
    plain: Arc<dyn EnvFactory>,
    inner: Option<Box<dyn Environment>>,
}

#[async_trait]
impl Environment for Probed {
    async fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        let Recipe {
            id,
            settings,
            resources,
            probe,
        } = self.recipe.as_ref();
        let retriever = probe.retriever(task, &resources.retriever);
        let wiki = resources.wiki.as_ref();
        let resources = Resources {
            retriever,
            wiki: wiki.map(|wiki| probe.wiki(task, wiki)),
            ..resources.clone()
        };
        let factory = make(id, settings.clone(), resources).map_err(EnvError::own)?;
        self.inner.insert(factory.make()).reset(task, seed).await
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        match &mut self.inner {
            Some(inner) => inner.step(action).await,
            None => Err(EnvError::NotReset),
        }
    }

    fn spec(&self) -> &EnvSpec {
        self.plain.spec()
    }
}
