//! Many episodes stepped at once.
//!
//! For agents and loops of one's own that act on a batch; the [rollout driver](crate::rollout) does not need it, because it
//! keeps every episode in flight by itself. What waits (a search, a program, a judge) waits for all of them together.

use std::sync::Arc;

use futures::future::join_all;

use crate::environment::{Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Step, TurnKind};
use crate::seed::Seed;
use crate::task::Task;

/// What happens in a place whose episode is over. The names are Gymnasium's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autoreset {
    /// The next episode begins within the same step: the batch holds its opening prompt, [`Final`] what ended.
    SameStep,
    /// Nothing until [`VectorEnv::reset_where`] is called.
    Disabled,
}

/// The episodes to play: each task with the seed of its reset.
pub type Episodes = Box<dyn Iterator<Item = (Arc<Task>, Seed)> + Send>;

/// What a batch of steps gave, one entry per place. Where nothing was stepped the entries are empty, 0 and false.
#[derive(Debug, Default)]
pub struct Batch {
    /// What the policy reads next: an observation, or the opening prompt of a new episode.
    pub observations: Vec<Observation>,
    /// Rewards of the turns.
    pub rewards: Vec<f32>,
    /// Whether the task itself ended.
    pub terminated: Vec<bool>,
    /// Whether a limit ended the episode.
    pub truncated: Vec<bool>,
    /// What was understood.
    pub kinds: Vec<Option<TurnKind>>,
    /// Text that begins the next turn.
    pub forced_prefixes: Vec<Option<String>>,
    /// What ended and gave way to a new episode.
    pub finals: Vec<Option<Final>>,
    /// What failed, at its place; the other places are not touched by it.
    pub faults: Vec<Option<EnvError>>,
}

/// The end of an episode whose place has been taken by the next one.
#[derive(Debug)]
pub struct Final {
    /// What was asked.
    pub task: Arc<Task>,
    /// The last observation.
    pub observation: Observation,
}

/// One place of the batch.
struct Slot {
    env: Box<dyn Environment>,
    /// The task under way; `None` when no episode is.
    task: Option<Arc<Task>>,
}

/// Steps several environments of one kind at once.
pub struct VectorEnv {
    slots: Vec<Slot>,
    spec: EnvSpec,
    autoreset: Autoreset,
    episodes: Episodes,
}

impl VectorEnv {
    /// `places` environments that take their tasks from `episodes`, in the order in which places become free (in one step:
    /// from the first place to the last).
    pub fn new(factory: &dyn EnvFactory, places: usize, autoreset: Autoreset, episodes: Episodes) -> Self {
        let slots = (0..places).map(|_| Slot { env: factory.make(), task: None }).collect();
        Self { slots, spec: factory.spec().clone(), autoreset, episodes }
    }

    /// What all places have in common.
    pub fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    /// The task under way in each place; `None` where the episode is over and no new one began.
    pub fn tasks(&self) -> impl Iterator<Item = Option<&Arc<Task>>> {
        self.slots.iter().map(|slot| slot.task.as_ref())
    }

    /// Whether any episode is under way.
    pub fn is_running(&self) -> bool {
        self.slots.iter().any(|slot| slot.task.is_some())
    }

    /// Begins a new episode in every place.
    pub async fn reset(&mut self) -> Batch {
        let all = vec![true; self.slots.len()];
        self.reset_where(&all).await
    }

    /// Begins a new episode where `mask` says so; an episode under way there is given up.
    ///
    /// # Panics
    /// When there is not one entry per place.
    pub async fn reset_where(&mut self, mask: &[bool]) -> Batch {
        assert_eq!(mask.len(), self.slots.len(), "one entry per place");
        let mut batch = Batch::of(self.slots.len());
        self.begin(mask, &mut batch).await;
        batch
    }

    /// Takes one turn in every place that has an action.
    ///
    /// # Panics
    /// When there is not one entry per place.
    pub async fn step(&mut self, actions: &[Option<Action>]) -> Batch {
        assert_eq!(actions.len(), self.slots.len(), "one entry per place");
        let steps = self.slots.iter_mut().zip(actions).map(|(slot, action)| async move {
            match action {
                Some(action) => Some(slot.env.step(action).await),
                None => None,
            }
        });
        let steps = join_all(steps).await;
        let mut batch = Batch::of(self.slots.len());
        let mut free = vec![false; self.slots.len()];
        for (place, step) in steps.into_iter().enumerate() {
            match step {
                Some(Ok(step)) => {
                    let over = step.terminated || step.truncated;
                    let ended = if over { self.slots[place].task.take() } else { None };
                    batch.take(place, step);
                    free[place] = over && self.autoreset == Autoreset::SameStep;
                    if let Some(task) = ended.filter(|_| free[place]) {
                        let observation = std::mem::take(&mut batch.observations[place]);
                        batch.finals[place] = Some(Final { task, observation });
                    }
                }
                Some(Err(fault)) => batch.faults[place] = Some(fault),
                None => {}
            }
        }
        self.begin(&free, &mut batch).await;
        batch
    }

    /// Resets the places of `mask` as far as there are tasks.
    async fn begin(&mut self, mask: &[bool], batch: &mut Batch) {
        let episodes = &mut self.episodes;
        let resets = self.slots.iter_mut().zip(mask).map(|(slot, &wanted)| {
            slot.task = if wanted { None } else { slot.task.take() };
            let next = if wanted { episodes.next() } else { None };
            async move {
                let (task, seed) = next?;
                let opening = slot.env.reset(&task, seed).await;
                slot.task = opening.is_ok().then_some(task);
                Some(opening)
            }
        });
        // Drawn in order before any of them runs.
        let resets: Vec<_> = resets.collect();
        for (place, opening) in join_all(resets).await.into_iter().enumerate() {
            match opening {
                Some(Ok(opening)) => batch.observations[place] = opening,
                Some(Err(fault)) => batch.faults[place] = Some(fault),
                None => {}
            }
        }
    }
}

impl Batch {
    fn of(places: usize) -> Self {
        fn none<T>(places: usize) -> Vec<Option<T>> {
            (0..places).map(|_| None).collect()
        }
        Self {
            observations: vec![Observation::default(); places],
            rewards: vec![0.0; places],
            terminated: vec![false; places],
            truncated: vec![false; places],
            kinds: none(places),
            forced_prefixes: none(places),
            finals: none(places),
            faults: none(places),
        }
    }

    fn take(&mut self, place: usize, step: Step) {
        self.observations[place] = step.observation;
        self.rewards[place] = step.reward;
        self.terminated[place] = step.terminated;
        self.truncated[place] = step.truncated;
        self.kinds[place] = Some(step.kind);
        self.forced_prefixes[place] = step.forced_prefix;
    }
}
