//! Many episodes stepped at once give what they give one by one; order is enforced around anything.

use std::sync::Arc;

use crate::common::{Down, factory, library, settings, task};
use async_trait::async_trait;
use forage_env::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Step, TurnForm, TurnKind, TurnTool,
};
use forage_env::policy::Finish;
use forage_env::seed::Seed;
use forage_env::task::Task;
use forage_env::vector::{Autoreset, Episodes, VectorEnv};
use forage_env::wrappers::{OrderEnforcing, TimeLimit};

fn action(text: &str) -> Action {
    Action { text: text.to_owned(), finish: Finish::Stop }
}

fn episodes(count: u64) -> Episodes {
    let task = |at: u64| Task { id: format!("t{at}"), question: format!("{} ({at})", task().question), ..task() };
    Box::new((0..count).map(move |at| (Arc::new(task(at)), Seed::root(at))))
}

fn ids(vector: &VectorEnv) -> Vec<Option<&str>> {
    vector.tasks().map(|task| task.map(|task| task.id.as_str())).collect()
}

#[tokio::test]
async fn a_batch_is_its_episodes_one_by_one() {
    let factory = factory(settings(), library());
    let mut vector = VectorEnv::new(factory.as_ref(), 3, Autoreset::Disabled, episodes(3));
    let opened = vector.reset().await;
    let turns = ["<search>mayor of Orlen</search>", "nonsense", "<answer>Velm</answer>"];
    let actions: Vec<Option<Action>> = turns.iter().map(|turn| Some(action(turn))).collect();
    let batch = vector.step(&actions).await;
    for (place, (task, seed)) in episodes(3).enumerate() {
        let mut alone = factory.make();
        assert_eq!(opened.observations[place], alone.reset(&task, seed).await.expect("an episode"));
        let step = alone.step(&action(turns[place])).await.expect("a step");
        assert_eq!(batch.observations[place], step.observation);
        assert_eq!(batch.kinds[place].as_ref(), Some(&step.kind));
        assert_eq!((batch.terminated[place], batch.truncated[place]), (step.terminated, step.truncated));
    }
    assert!(batch.faults.iter().all(Option::is_none) && batch.finals.iter().all(Option::is_none));
    // The finished place takes no step until it is reset, and there is no fourth episode.
    assert_eq!(ids(&vector), [Some("t0"), Some("t1"), None]);
    let batch = vector.step(&[None, None, Some(action("x"))]).await;
    assert!(matches!(batch.faults[2], Some(EnvError::OutOfOrder(_))) && batch.kinds[0].is_none());
    assert!(vector.reset_where(&[false, false, true]).await.observations[2].text.is_empty());
    assert!(vector.is_running());
}

#[tokio::test]
async fn a_finished_place_begins_the_next_episode_in_the_same_step() {
    let factory = factory(settings(), library());
    let mut vector = VectorEnv::new(factory.as_ref(), 2, Autoreset::SameStep, episodes(3));
    vector.reset().await;
    assert_eq!(ids(&vector), [Some("t0"), Some("t1")]);
    let answer = || Some(action("<answer>Velm</answer>"));
    let batch = vector.step(&[Some(action("<search>Velm</search>")), answer()]).await;
    assert_eq!(ids(&vector), [Some("t0"), Some("t2")]);
    let ended = batch.finals[1].as_ref().expect("an end");
    assert_eq!((ended.task.id.as_str(), batch.terminated[1]), ("t1", true));
    assert!(batch.observations[1].text.contains("(2)"), "{}", batch.observations[1].text);
    assert!(matches!(batch.kinds[1], Some(TurnKind::Answer { .. })));
    // The tasks are used up: places fall idle one after the other.
    vector.step(&[answer(), None]).await;
    assert_eq!(ids(&vector), [None, Some("t2")]);
    vector.step(&[None, answer()]).await;
    assert!(!vector.is_running());
}

#[tokio::test]
async fn a_fault_stays_in_its_place() {
    let factory = factory(settings(), Arc::new(Down));
    let mut vector = VectorEnv::new(factory.as_ref(), 2, Autoreset::SameStep, episodes(2));
    vector.reset().await;
    let actions = [Some(action("<search>x</search>")), Some(action("<answer>Velm</answer>"))];
    let batch = vector.step(&actions).await;
    assert!(matches!(batch.faults[0], Some(EnvError::Retriever(_))));
    assert!(batch.faults[1].is_none() && batch.terminated[1]);
}

/// Accepts any step at any time.
struct Careless(EnvSpec);

#[async_trait]
impl Environment for Careless {
    async fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        task.golds.first().map(|_| Observation::default()).ok_or(EnvError::OutOfOrder("without an answer"))
    }

    async fn step(&mut self, _action: &Action) -> Result<Step, EnvError> {
        let kind = TurnKind::Answer { answer: String::new() };
        let observation = Observation::default();
        Ok(Step { observation, reward: 0.0, terminated: true, truncated: false, kind, forced_prefix: None })
    }

    fn spec(&self) -> &EnvSpec {
        &self.0
    }
}

struct CarelessFactory(EnvSpec);

impl EnvFactory for CarelessFactory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(Careless(self.0.clone()))
    }

    fn spec(&self) -> &EnvSpec {
        &self.0
    }

    fn tools(&self) -> Vec<TurnTool> {
        vec![TurnTool { name: "answer", about: "ends the episode", parameter: "text", form: TurnForm::Text }]
    }
}

#[test]
fn wrappers_keep_the_tools_of_what_they_wrap() {
    let inner: Arc<dyn EnvFactory> = Arc::new(CarelessFactory(factory(settings(), library()).spec().clone()));
    for wrapped in [OrderEnforcing::factory(Arc::clone(&inner)), TimeLimit::factory(Arc::clone(&inner), 1)] {
        assert_eq!(wrapped.tools(), inner.tools());
    }
}

#[tokio::test]
async fn order_is_enforced_around_an_environment_that_does_not_care() {
    let spec = factory(settings(), library()).spec().clone();
    let mut env = OrderEnforcing::factory(Arc::new(CarelessFactory(spec))).make();
    let refused = |step: Result<Step, EnvError>| matches!(step, Err(EnvError::OutOfOrder(_)));
    assert!(refused(env.step(&action("x")).await));
    env.reset(&task(), Seed::root(0)).await.expect("an episode");
    assert!(env.step(&action("x")).await.expect("a step").terminated);
    assert!(refused(env.step(&action("x")).await));
    env.reset(&task(), Seed::root(0)).await.expect("another episode");
    let unanswerable = Task { golds: Vec::new(), ..task() };
    assert!(env.reset(&unanswerable, Seed::root(0)).await.is_err());
    assert!(refused(env.step(&action("x")).await), "no episode is left to step in");
}
