//! The environment keeps the contract of every environment, and its own promises.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage::Plugins;
use forage_env::check::{CheckPlan, check_environment};
use forage_env::environment::{Action, EnvFactory, TurnKind};
use forage_env::policy::{Finish, Sampling};
use forage_env::registry::Resources;
use forage_env::reward::{RewardSet, Weighting};
use forage_env::rollout::{Job, Presentation, Rollout, replay};
use forage_env::scripted::{Cast, Human, ORACLE};
use forage_env::seed::Seed;
use forage_env::task::{Split, Task};
use forage_env::tokenizer::{ByteTokenizer, Tokenizer};
use serde_json::json;

use super::{rows_match, sql};

fn resources() -> Resources {
    Resources::new(Arc::new(forage_retriever::NoPassages), Arc::new(ByteTokenizer))
}

fn factory() -> Arc<dyn EnvFactory> {
    let settings = (sql::ENTRY.for_bytes)(serde_json::Map::new());
    (sql::ENTRY.make)(settings.into(), resources()).expect("settings are valid")
}

fn tasks(count: usize) -> Vec<Task> {
    (sql::ENTRY.questions.expect("its own questions"))(Split::Train, count, Seed::root(1))
}

fn rewards() -> RewardSet {
    // Installed once per process; both tests that need it may come first.
    let _ = Plugins::new().environment(sql::ENTRY).reward(rows_match::ENTRY).install();
    let weights: BTreeMap<String, Weighting> =
        [("em", 1.0), ("rows_match", 0.5)].map(|(name, weight): (&str, f32)| (name.to_owned(), weight.into())).into();
    RewardSet::configured(sql::ENTRY.outcome, &weights, Seed::root(0)).expect("registered")
}

#[tokio::test]
async fn the_contract_of_environments_is_kept() {
    let plan = CheckPlan::of(&sql::ENTRY);
    let checked =
        check_environment(factory().as_ref(), &tasks(8), &RewardSet::exact_match(), &plan, Seed::root(0)).await;
    assert_eq!(checked, Ok(()));
    for wrong in [json!({"max_row": 3}), json!({"max_rows": 0})] {
        assert!((sql::ENTRY.make)(wrong.clone(), resources()).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn an_oracle_is_always_right_and_its_episodes_replay() {
    let tasks: Vec<Arc<Task>> = tasks(40).into_iter().map(Arc::new).collect();
    let tokenizer: Arc<dyn Tokenizer> = Arc::new(ByteTokenizer);
    let rollout = Rollout {
        policy: sql::ENTRY.script(ORACLE, Cast::new(Arc::clone(&tokenizer), tasks.clone())).expect("its own oracle"),
        tokenizer,
        factory: factory(),
        rewards: Arc::new(rewards()),
        sampling: Sampling::GREEDY,
        presentation: Presentation::Raw,
    };
    let job = |(group, task): (u64, &Arc<Task>)| Job {
        task: Arc::clone(task),
        group,
        member: 0,
        seed: Seed::root(group),
        leaves: None,
    };
    let episodes = rollout.run((0..).zip(&tasks).map(job).collect()).await;
    for episode in &episodes {
        assert_eq!(episode.reward(), Some(1.5), "{episode:?}");
        let differences = replay(rollout.factory.as_ref(), &rollout.rewards, episode).await.expect("it replays");
        assert_eq!(differences, []);
    }
    let mut altered = episodes[0].clone();
    altered.turns[0].observation.push('x');
    let differences = replay(rollout.factory.as_ref(), &rollout.rewards, &altered).await.expect("it replays");
    assert_eq!(differences.iter().map(|found| found.place.as_str()).collect::<Vec<_>>(), ["turn 1 observation"]);
    // A right answer after a query that finds something else earns the answer alone.
    let guess = format!("<answer>{}</answer>", tasks[0].golds[0]);
    let lines = ["<sql>SELECT 1</sql>".to_owned(), guess];
    let policy = Human::new(Arc::new(ByteTokenizer), move |view| lines.get(view.shown.len()).cloned());
    let guessed = Rollout { policy: Arc::new(policy), ..rollout.clone() };
    let job = Job { task: Arc::clone(&tasks[0]), group: 0, member: 0, seed: Seed::root(0), leaves: None };
    let episode = guessed.run(vec![job]).await.remove(0);
    let score = episode.score.expect("a score");
    assert_eq!((score.parts["em"], score.parts["rows_match"], score.total), (1.0, 0.0, 1.0));
}

/// What the environment shows for a query.
async fn shown(query: &str) -> String {
    let mut env = factory().make();
    env.reset(&tasks(1)[0], Seed::root(0)).await.expect("a database");
    let action = Action { text: format!("<sql>{query}</sql>"), finish: Finish::Stop };
    let step = env.step(&action).await.expect("a step");
    assert!(matches!(step.kind, TurnKind::Search { .. }));
    step.observation.text
}

#[tokio::test]
async fn queries_read_and_do_nothing_else() {
    let listed = shown("SELECT name, city FROM customers ORDER BY id").await;
    assert_eq!(listed.lines().count(), 1 + 1 + 1 + 8 + 1 + 1, "{listed}");
    assert!(listed.contains("(more rows)"), "{listed}");
    assert!(shown("SELECT name FROM customers WHERE 1 = 0").await.contains("(no rows)"));
    for (refused, part) in [
        ("DROP TABLE orders", "not authorized"),
        ("DELETE FROM orders", "not authorized"),
        ("ATTACH 'x.db' AS x", "not authorized"),
        ("PRAGMA query_only", "not authorized"),
        ("SELECT random()", "not authorized"),
        ("SELECT strftime('%s', 'now')", "not authorized"),
        ("SELECT load_extension('x')", "error"),
        ("SELECT colour FROM customers", "no such column"),
        ("SELEC 1", "syntax error"),
        ("SELECT 1; SELECT 2", "error"),
        ("", "rows"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT MAX(i) FROM n", "takes too long"),
        ("SELECT zeroblob(1000000000)", "too"),
    ] {
        let text = shown(refused).await;
        assert!(text.contains(part), "{refused}: {text}");
    }
}

#[test]
fn splits_share_no_database_and_questions_follow_from_the_seed() {
    let questions = sql::ENTRY.questions.expect("its own questions");
    let of = |split, seed| questions(split, 30, Seed::root(seed));
    assert_eq!(of(Split::Train, 1), of(Split::Train, 1));
    assert_ne!(of(Split::Train, 1), of(Split::Train, 2));
    let train: Vec<String> = of(Split::Train, 1).into_iter().map(|task| task.id).collect();
    let seeds =
        |ids: &[String]| ids.iter().map(|id| id.split('@').next_back().unwrap_or("").to_owned()).collect::<Vec<_>>();
    let test: Vec<String> = of(Split::Test, 1).into_iter().map(|task| task.id).collect();
    assert_eq!(train.len(), 30);
    assert!(seeds(&train).iter().all(|seed| !seeds(&test).contains(seed)));
}
