//! Policies that write programs, in the code-search environment over a generated world.

use std::sync::Arc;

use forage_contracts::environment::EnvFactory;
use forage_contracts::policy::{Policy, Sampling};
use forage_contracts::scripted::{Cast, Haste, OracleStyle, ScriptEntry};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Ending, Episode, Resources, Split, Task, Tokenizer};
use forage_env::code_search::CodeTurn;
use forage_env::demonstrate::demonstrate;
use forage_env::registry::make;
use forage_env::reward::RewardSet;
use forage_env::reward::give_up::is_give_up;
use forage_env::rollout::{Job, Presentation, Rollout};
use forage_env::world::{World, WorldSpec};
use forage_env::{Wiki, code_search};
use forage_retriever::Bm25Retriever;
use serde_json::json;

type Tasks = Vec<Arc<Task>>;

fn world() -> World {
    World::new(WorldSpec::new(600, 3)).unwrap()
}

fn tasks(world: &World, count: u64) -> Tasks {
    world
        .questions(Split::Test, count)
        .unwrap()
        .map(Arc::new)
        .collect()
}

fn factory(world: &World) -> Arc<dyn EnvFactory> {
    let retriever = Arc::new(Bm25Retriever::in_memory(world.passages().collect()).unwrap());
    let wiki = Arc::new(Wiki::of_world(world).unwrap());
    let settings = json!({"prompt": "short", "max_generations": 5, "max_turn_tokens": 2000, "max_episode_tokens": 20000});
    let resources = Resources::new(retriever, Arc::new(ByteTokenizer)).with_open_wiki(wiki);
    make("code-search", settings, resources).unwrap()
}

async fn play(
    policy: Arc<dyn Policy>,
    tasks: &Tasks,
    factory: Arc<dyn EnvFactory>,
) -> Vec<Episode> {
    let rewards = Arc::new(RewardSet::exact_match());
    let rollout = Rollout {
        policy,
        tokenizer: Arc::new(ByteTokenizer),
        factory,
        rewards,
        sampling: Sampling::FULL,
        presentation: Presentation::RAW,
    };
    let job = |(group, task): (u64, &Arc<Task>)| Job {
        task: Arc::clone(task),
        group,
        member: 0,
        seed: Seed::root(5).child("play", &[group]),
        branches_from: None,
        hint: None,
        temperature: None,
    };
    rollout.run((0..).zip(tasks).map(job).collect()).await
}

fn script(name: &str, tasks: &Tasks, style: OracleStyle) -> Arc<dyn Policy> {
    let cast = Cast::new(Arc::new(ByteTokenizer), tasks.iter().cloned()).in_style(style);
    code_search::ENTRY.script(name, cast).unwrap()
}

fn oracle(tasks: &Tasks, style: OracleStyle) -> Arc<dyn Policy> {
    script(ScriptEntry::ORACLE, tasks, style)
}

fn mean_reward(episodes: &[Episode]) -> f64 {
    episodes
        .iter()
        .map(|episode| f64::from(episode.reward().expect("no fault")))
        .sum::<f64>()
        / episodes.len() as f64
}

fn programs(episodes: &[Episode]) -> Vec<CodeTurn> {
    episodes.iter().flat_map(CodeTurn::all).collect()
}

#[tokio::test]
async fn the_oracle_finds_nearly_everything_and_controls_do_not() {
    let world = world();
    let (tasks, factory) = (tasks(&world, 60), factory(&world));
    for style in [OracleStyle::Plain, OracleStyle::Terse] {
        let episodes = play(oracle(&tasks, style), &tasks, Arc::clone(&factory)).await;
        assert!(
            mean_reward(&episodes) >= 0.95,
            "{style:?}: {}",
            mean_reward(&episodes)
        );
        assert!(
            programs(&episodes)
                .iter()
                .all(|code| code.worked() == Some(true)),
            "{style:?}"
        );
        let hops: usize = tasks.iter().map(|task| usize::from(task.hops)).sum();
        assert!(
            programs(&episodes).len() >= hops * 19 / 20,
            "one program for each hop"
        );
    }
    let one_call = play(
        script("one-call", &tasks, OracleStyle::Plain),
        &tasks,
        Arc::clone(&factory),
    )
    .await;
    assert!(mean_reward(&one_call) < 0.3, "{}", mean_reward(&one_call));
    assert!(
        programs(&one_call)
            .iter()
            .all(|code| code.worked() == Some(true) && code.printed)
    );
    assert!(
        one_call
            .iter()
            .all(|episode| episode.queries().eq([episode.task.question.as_str()]))
    );
    let broken = play(
        script("broken-code", &tasks, OracleStyle::Plain),
        &tasks,
        factory,
    )
    .await;
    assert!(mean_reward(&broken) <= 0.0);
    let programs = programs(&broken);
    assert_eq!(programs.len(), 2 * tasks.len());
    assert!(programs.iter().all(|code| code.worked() == Some(false)));
    let faults = |kind: &str| {
        programs
            .iter()
            .filter(|code| code.error.as_deref() == Some(kind))
            .count()
    };
    assert!(faults("SyntaxError") > 0 && faults("NameError") > 0 && faults("KeyError") > 0);
    assert!(
        programs
            .iter()
            .any(|code| code.redefined == ["search_pages"])
    );
    assert!(
        broken
            .iter()
            .all(|episode| episode.answer().is_some_and(is_give_up))
    );
}

#[tokio::test]
async fn an_oracle_without_a_known_solution_reads_pages_that_name_the_same() {
    let world = world();
    let factory = factory(&world);
    let unguided = |task: Arc<Task>| {
        Arc::new(Task {
            oracle: Vec::new(),
            ..Task::clone(&task)
        })
    };
    let tasks: Tasks = tasks(&world, 60)
        .into_iter()
        .filter(|task| task.hops == 1)
        .map(unguided)
        .collect();
    let episodes = play(oracle(&tasks, OracleStyle::Plain), &tasks, factory).await;
    assert!(mean_reward(&episodes) >= 0.9, "{}", mean_reward(&episodes));
}

#[tokio::test]
async fn hasty_demonstrators_fail_as_they_are_told_to() {
    let world = world();
    let (tasks, factory) = (tasks(&world, 30), factory(&world));
    let tokenizer: Arc<dyn Tokenizer> = Arc::new(ByteTokenizer);
    let shown = async |haste| {
        let rewards = Arc::new(RewardSet::exact_match());
        let (factory, tokenizer) = (Arc::clone(&factory), Arc::clone(&tokenizer));
        demonstrate(
            &tasks,
            OracleStyle::Terse,
            haste,
            factory,
            tokenizer,
            rewards,
            Seed::root(3),
        )
        .await
        .unwrap()
    };
    let silent = shown(Haste {
        silent: 1.0,
        ..Haste::NONE
    })
    .await;
    assert!(
        programs(&silent)
            .iter()
            .all(forage_env::code_search::CodeTurn::unprinted)
    );
    let broken = shown(Haste {
        broken: 1.0,
        ..Haste::NONE
    })
    .await;
    assert!(
        programs(&broken)
            .iter()
            .all(|code| code.worked() == Some(false))
    );
    for episodes in [&silent, &broken] {
        assert_eq!(programs(episodes).len(), tasks.len());
        assert!(
            episodes
                .iter()
                .all(|episode| episode.answer() == Some("unknown"))
        );
    }
    let skimmed = shown(Haste {
        skim: 1.0,
        ..Haste::NONE
    })
    .await;
    assert!(
        programs(&skimmed)
            .iter()
            .all(|code| code.worked() == Some(true) && code.printed)
    );
    assert!(mean_reward(&skimmed) < 0.6, "{}", mean_reward(&skimmed));
    let early = shown(Haste {
        early: 1.0,
        ..Haste::NONE
    })
    .await;
    assert_eq!(programs(&early).len(), tasks.len(), "one program each");
    let one_hop = tasks.iter().filter(|task| task.hops == 1).count();
    let most = one_hop as f64 / tasks.len() as f64;
    let earned = mean_reward(&early);
    assert!(earned > 0.0 && earned <= most, "{earned} of {most}");
    let guessed = shown(Haste {
        guess: 1.0,
        ..Haste::NONE
    })
    .await;
    assert!(programs(&guessed).is_empty() && mean_reward(&guessed) < 0.1);
    assert!(
        guessed
            .iter()
            .all(|episode| episode.ending == Ending::Answered)
    );
}
