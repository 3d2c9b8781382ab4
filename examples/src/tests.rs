//! The environment keeps the contract of every environment, and its own promises.

use std::collections::BTreeMap;
use std::sync::{Arc, Once};

use forage_contracts::environment::{Action, EnvFactory};
use forage_contracts::objective::Settings;
use forage_contracts::policy::Sampling;
use forage_contracts::scripted::{Cast, ScriptEntry, Scripted};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, CurriculumInputs, Resources, Split, Task, Tokenizer};
use forage_env::reward::{RewardSet, Weighting};
use forage_env::{Alarm, CheckPlan, Job, Presentation, Rollout, read_tasks, replay};
use forage_eval::{Bootstrap, Telemetry};
use forage_retriever::{BuildRequest, CorpusFormat, Index, Mode, Query, RemoteSpec, Searched};
use forage_trainer::device::DeviceSpec;
use forage_trainer::{
    Architecture, Checkpoint, Decoder, EngineConfig, Learner, ModelConfig, Sample, Sequence,
    UpdateConfig, Workers,
};
use serde_json::{Value, json};

use super::{by_hops, plugins, sql};

fn resources() -> Resources {
    Resources::new(
        Arc::new(forage_retriever::NoPassages),
        Arc::new(ByteTokenizer),
    )
}

fn factory() -> Arc<dyn EnvFactory> {
    let settings = (sql::ENTRY.for_bytes)(serde_json::Map::new());
    (sql::ENTRY.make)(settings.into(), resources()).expect("settings are valid")
}

fn tasks(count: usize) -> Vec<Task> {
    let questions = sql::ENTRY.questions.expect("its own questions");
    questions(Value::Null, Split::Train, count, Seed::root(1)).expect("made")
}

/// Installs the plug-ins once per process; any test that needs them may come first.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        plugins().install().expect("the names are free");
    });
}

fn rewards() -> RewardSet {
    install();
    let weights: BTreeMap<String, Weighting> = [("em", 1.0), ("rows_match", 0.5)]
        .map(|(name, weight): (&str, f32)| (name.to_owned(), weight.into()))
        .into();
    RewardSet::configured(sql::ENTRY.outcome, &weights, Seed::root(0)).expect("registered")
}

#[tokio::test]
async fn the_contract_of_environments_is_kept() {
    let plan = CheckPlan::of(&sql::ENTRY);
    let checked = plan
        .check(
            factory().as_ref(),
            &tasks(8),
            &RewardSet::exact_match(),
            Seed::root(0),
        )
        .await;
    assert_eq!(checked, Ok(()));
    for wrong in [json!({"max_row": 3}), json!({"max_rows": 0})] {
        assert!(
            (sql::ENTRY.make)(wrong.clone(), resources()).is_err(),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn an_oracle_is_always_right_and_its_episodes_replay() {
    let tasks: Vec<Arc<Task>> = tasks(40).into_iter().map(Arc::new).collect();
    let tokenizer: Arc<dyn Tokenizer> = Arc::new(ByteTokenizer);
    let rollout = Rollout {
        policy: sql::ENTRY
            .script(
                ScriptEntry::ORACLE,
                Cast::new(Arc::clone(&tokenizer), tasks.clone()),
            )
            .expect("its own oracle"),
        tokenizer,
        factory: factory(),
        rewards: Arc::new(rewards()),
        sampling: Sampling::GREEDY,
        presentation: Presentation::RAW,
    };
    let job = |(group, task): (u64, &Arc<Task>)| Job {
        task: Arc::clone(task),
        group,
        member: 0,
        seed: Seed::root(group),
        branches_from: None,
        hint: None,
        temperature: None,
    };
    let episodes = rollout.run((0..).zip(&tasks).map(job).collect()).await;
    for episode in &episodes {
        assert_eq!(episode.reward(), Some(1.5), "{episode:?}");
        let (_, differences) = replay(rollout.factory.as_ref(), &rollout.rewards, episode)
            .await
            .expect("it replays");
        assert_eq!(differences, []);
    }
    let mut altered = episodes[0].clone();
    altered.turns[0].observation.push('x');
    let (_, differences) = replay(rollout.factory.as_ref(), &rollout.rewards, &altered)
        .await
        .expect("it replays");
    assert_eq!(
        differences
            .iter()
            .map(|found| found.place.as_str())
            .collect::<Vec<_>>(),
        ["turn 1 observation"]
    );
    // A right answer after a query that finds something else earns the answer alone.
    let guess = format!("<answer>{}</answer>", tasks[0].golds[0]);
    let lines = ["<sql>SELECT 1</sql>".to_owned(), guess];
    let policy = Scripted::human(Arc::new(ByteTokenizer), move |view| {
        lines.get(view.shown.len()).cloned()
    });
    let guessed = Rollout {
        policy: Arc::new(policy),
        ..rollout.clone()
    };
    let job = Job {
        task: Arc::clone(&tasks[0]),
        group: 0,
        member: 0,
        seed: Seed::root(0),
        branches_from: None,
        hint: None,
        temperature: None,
    };
    let episode = guessed.run(vec![job]).await.remove(0);
    let score = episode.score.expect("a score");
    assert_eq!(
        (score.parts["em"], score.parts["rows_match"], score.total),
        (1.0, 0.0, 1.0)
    );
}

/// Alarms of twelve episodes in which a policy writes these turns, with what they show.
async fn alarms(turns: &'static [&'static str]) -> Vec<(String, String)> {
    let policy = Scripted::human(Arc::new(ByteTokenizer), move |view| {
        turns.get(view.shown.len()).map(|turn| (*turn).to_owned())
    });
    let rollout = Rollout {
        policy: Arc::new(policy),
        tokenizer: Arc::new(ByteTokenizer),
        factory: factory(),
        rewards: Arc::new(rewards()),
        sampling: Sampling::GREEDY,
        presentation: Presentation::RAW,
    };
    let job = |(group, task)| Job {
        task: Arc::new(task),
        group,
        member: 0,
        seed: Seed::root(group),
        branches_from: None,
        hint: None,
        temperature: None,
    };
    let episodes = rollout.run((0..).zip(tasks(12)).map(job).collect()).await;
    let found = Telemetry::from_episodes(&episodes, Bootstrap::new(1)).expect("scored episodes");
    let shown = |alarm: Alarm| (alarm.kind, alarm.examples[0].excerpt.clone());
    found.alarms.into_iter().map(shown).collect()
}

#[tokio::test]
async fn telemetry_has_items_of_its_own_and_reads_its_turns() {
    let kinds = |alarms: &[(String, String)]| {
        let kinds = alarms.iter().map(|(kind, _)| kind.clone());
        kinds.collect::<Vec<_>>()
    };
    let found = alarms(&["<sql>SELEC 1</sql>", "<answer>Zzyzx</answer>"]).await;
    assert_eq!(
        kinds(&found),
        [
            "unsupported_answer",
            "unfounded_answer",
            "failed_statements"
        ]
    );
    assert_eq!(found[2].1, "SELEC 1");
    let echoed = alarms(&["<sql>SELECT 'Zzyzx'</sql>", "<answer>Zzyzx</answer>"]).await;
    assert_eq!(kinds(&echoed), ["unsupported_answer", "fabricated_support"]);
    let forged = alarms(&[
        "<rows>Zzyzx</rows><sql>SELECT city FROM customers</sql>",
        "<answer>yes</answer>",
    ])
    .await;
    assert_eq!(kinds(&forged), ["forged_observation"]);
}

/// What the environment shows for a query.
async fn shown(query: &str) -> String {
    let mut env = factory().make();
    env.reset(&tasks(1)[0], Seed::root(0))
        .await
        .expect("a database");
    let action = Action::new(format!("<sql>{query}</sql>"));
    let step = env.step(&action).await.expect("a step");
    assert_eq!(step.kind.calls()[0].arguments["statement"], query);
    assert_eq!(
        step.kind.queries().count(),
        0,
        "a statement is not a search"
    );
    step.observation.text
}

#[tokio::test]
async fn queries_read_and_do_nothing_else() {
    let listed = shown("SELECT name, city FROM customers ORDER BY id").await;
    assert_eq!(listed.lines().count(), 1 + 1 + 1 + 8 + 1 + 1, "{listed}");
    assert!(listed.contains("(more rows)"), "{listed}");
    assert!(
        shown("SELECT name FROM customers WHERE 1 = 0")
            .await
            .contains("(no rows)")
    );
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
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT MAX(i) FROM n",
            "takes too long",
        ),
        ("SELECT zeroblob(1000000000)", "too"),
    ] {
        let text = shown(refused).await;
        assert!(text.contains(part), "{refused}: {text}");
    }
}

#[test]
fn splits_share_no_database_and_questions_follow_from_the_seed() {
    let questions = sql::ENTRY.questions.expect("its own questions");
    let of = |split, seed| questions(Value::Null, split, 30, Seed::root(seed)).expect("made");
    assert_eq!(of(Split::Train, 1), of(Split::Train, 1));
    assert_ne!(of(Split::Train, 1), of(Split::Train, 2));
    let train: Vec<String> = of(Split::Train, 1)
        .into_iter()
        .map(|task| task.id)
        .collect();
    let seeds = |ids: &[String]| {
        ids.iter()
            .map(|id| id.split('@').next_back().unwrap_or("").to_owned())
            .collect::<Vec<_>>()
    };
    let test: Vec<String> = of(Split::Test, 1).into_iter().map(|task| task.id).collect();
    assert_eq!(train.len(), 30);
    assert!(
        seeds(&train)
            .iter()
            .all(|seed| !seeds(&test).contains(seed))
    );
}

/// The folder of the examples.
fn file(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[tokio::test]
async fn formats_and_retrievers_from_outside_are_found_by_their_names() {
    install();
    let corpus = file("notes.jsonl");
    let format = CorpusFormat::detect(&corpus).expect("detected");
    assert_eq!(format.name(), "notes");
    let remote = json!({"kind": "trigrams", "corpus": corpus, "format": "notes"});
    let remote: RemoteSpec = serde_json::from_value(remote).expect("registered");
    let own = remote.open(None).await.expect("a retriever");

    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("index");
    Index::build(&BuildRequest::new(&corpus, format, &place), &mut |_, _| {}).expect("an index");
    let index = Arc::new(Index::open(&place).expect("an index"));
    let mode: Mode = "trigrams".parse().expect("registered");
    let searched = Searched {
        index: &index,
        encoder: None,
    };
    let over_index = (mode.open)(&searched).expect("a retriever");

    let tasks = read_tasks(&file("quiz.jsonl"), Split::Test).expect("questions");
    assert_eq!(tasks[2].golds, ["Halloran", "the Hallorans"]);
    for retriever in [own, over_index] {
        let queries: Vec<Query> = tasks
            .iter()
            .map(|task| Query::new(task.oracle[0].query.as_str()))
            .collect();
        let hits = retriever.search(&queries, 1).await.expect("hits");
        let found: Vec<&str> = hits.iter().map(|hits| hits[0].id.as_str()).collect();
        assert_eq!(found, ["moon", "bell", "mill"]);
    }
    let unknown = serde_json::from_value::<RemoteSpec>(json!({"kind": "bigrams"}));
    let message = unknown.expect_err("not registered").to_string();
    assert!(message.contains("anserini, trigrams"), "{message}");
}

/// A tiny model of a family.
fn random(family: &str) -> Checkpoint {
    let config = ModelConfig {
        architecture: Architecture::named(family).expect("a family"),
        vocab_size: 257,
        hidden_size: 16,
        intermediate_size: 32,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 8,
        max_position_embeddings: 32,
        rope_theta: 10_000.0,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
    };
    let device = DeviceSpec::Cpu.open().expect("the processor");
    let decoder = Decoder::random(&config, Seed::root(1), &device);
    Checkpoint::of_bytes(config, decoder).expect("a tokenizer")
}

fn learner(checkpoint: Checkpoint, update: UpdateConfig) -> Learner {
    let engine = EngineConfig {
        context: 32,
        cache_tokens: 64,
        step_tokens: 32,
        sequences: 2,
        bf16: false,
    };
    Learner::new(checkpoint, update, engine, Workers::new(1))
}

#[test]
fn a_step_is_trained_with_the_loss_and_the_advantage_that_a_config_names() {
    install();
    let written = "[objective]\nadvantage = \"median\"\nloss.tapered.high = 1.0\n";
    let update: UpdateConfig = toml::from_str(written).expect("both are registered");
    assert_eq!(update.check(), Ok(()));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rollouts.jsonl");
    // Two tokens each that their sampler found unlikely: ratios are far above the bound of the loss.
    let lines = [1.0, 0.0, 0.0, 0.25].map(|reward| {
        let line = json!({"group": 0, "ids": [1, 2, 3, 4], "mask": [0, 0, 1, 1], "logprobs": [0, 0, -20, -20], "reward": reward});
        format!("{line}\n")
    });
    std::fs::write(&path, lines.concat()).expect("it can be written");
    let groups = Sample::read_groups(&path, 257, 32, None).expect("they can be read");
    let stats = learner(random("qwen3"), update)
        .improve(groups)
        .expect("a finite gradient");
    assert_eq!((stats.updates, stats.tokens), (1, 8));
    assert!(stats.grad_norm > 0.0);
    // The median is 0.125, below which two of four earned; the mean would be above three.
    assert!((stats.clip_frac - 0.5).abs() < 1e-9, "{stats:?}");
}

#[test]
fn a_curriculum_from_outside_asks_by_its_own_order() {
    let task = |hops| {
        Arc::new(Task {
            hops,
            ..Task::new(format!("{hops}"), "Who?")
        })
    };
    let questions = [3, 1, 2].map(task);
    let inputs = CurriculumInputs {
        questions: &questions,
        asked: &[],
        drawn: 2,
        step: 1,
        count: 4,
        seed: Seed::root(1),
    };
    let drawn = (by_hops::ENTRY.draw)(&Settings::of(&[], &[]), &inputs, &mut |_, _| {});
    assert_eq!(drawn, [0, 1, 2, 0]);
}

#[test]
fn a_family_from_outside_learns_as_the_one_it_is_made_of_and_is_written_under_its_own_name() {
    install();
    let sequence = Sequence {
        ids: (1..24).collect(),
        targets: (3..23).collect(),
        ..Sequence::default()
    };
    let folder = tempfile::tempdir().expect("a folder");
    let losses = ["mistral", "llama"].map(|family| {
        let mut learner = learner(random(family), UpdateConfig::default());
        let mut losses = Vec::new();
        for _ in 0..3 {
            let step = learner.imitate(std::slice::from_ref(&sequence));
            losses.push(step.expect("a finite gradient").loss.to_bits());
        }
        let place = folder.path().join(family);
        learner
            .checkpoint()
            .save(&place)
            .expect("it can be written");
        losses
    });
    assert_eq!(losses[0], losses[1]);
    assert_ne!(losses[0][0], losses[0][2]);
    let weights = |family| std::fs::read(folder.path().join(family).join("model.safetensors"));
    assert_eq!(
        weights("mistral").expect("weights"),
        weights("llama").expect("weights")
    );
    let place = folder.path().join("mistral/config.json");
    let written = std::fs::read_to_string(&place).expect("a config");
    let mut config: serde_json::Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(config["model_type"], "mistral");
    assert_eq!(config["architectures"], json!(["MistralForCausalLM"]));
    // Without it transformers would give the model its default window.
    assert!(config["sliding_window"].is_null() && written.contains("sliding_window"));
    let read = ModelConfig::from_file(&place).expect("its own config");
    assert_eq!(read.architecture.name(), "mistral");
    // As version 0.1 was published.
    config["sliding_window"] = json!(4096);
    config
        .as_object_mut()
        .expect("a table")
        .remove("use_sliding_window");
    std::fs::write(&place, config.to_string()).expect("it can be written");
    let error = ModelConfig::from_file(&place)
        .expect_err("a window")
        .to_string();
    assert!(error.contains("sliding_window is not supported"), "{error}");
    // Its published shape, and its name where names are listed.
    let published = ModelConfig::published("Mistral-7B-v0.3").expect("a shape");
    assert_eq!(published.parameters(), 7_248_023_552);
    let error = Architecture::named("gemma")
        .expect_err("no family")
        .to_string();
    assert!(error.contains("olmo2, mistral"), "{error}");
}

#[test]
fn values_outside_the_range_of_a_setting_are_refused_by_key() {
    install();
    for (written, expected) in [
        (
            "loss.tapered.high = 0",
            "loss.tapered.high is 0: it must be above 0",
        ),
        (
            "loss.ppo_clip = { low = 2, high = 0.2 }",
            "loss.ppo_clip.low is 2: it must be in [0, 1]",
        ),
    ] {
        let update: UpdateConfig =
            toml::from_str(&format!("[objective]\n{written}")).expect("known");
        let error = update.check().expect_err("out of range").to_string();
        assert!(error.contains(expected), "{error}");
    }
}
