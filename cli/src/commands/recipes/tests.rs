use std::collections::BTreeSet;

use forage_env::Presentation;
use forage_env::chat::{ChatTemplate, Conversation, SpecialTokens};
use forage_trainer::Curve;
use forage_trainer::objective::{
    Advantage, Aggregation, Credit, GroupFilter, KlEstimator, PolicyLoss, Recipe as Parts,
};

use super::*;

/// What the publication of a recipe says, in the terms of its comparison with the others.
struct Facts {
    name: &'static str,
    model: &'static str,
    learning_rate: f64,
    /// Questions and episodes of each.
    batch: (usize, usize),
    /// Optimizer steps that a batch becomes.
    steps: usize,
    /// As JSON.
    loss: &'static str,
    /// Coefficient of the penalty in the loss.
    kl: Option<f64>,
    entropy: f64,
    /// Completions at most; passages or titles per search.
    turns: (u64, u64),
    temperature: f32,
    /// Rank and alpha.
    adapter: Option<(usize, f64)>,
    clip_norm: f64,
}

const CLIP: &str = r#"{"ppo_clip": {"low": 0.2, "high": 0.2}}"#;
const CLIP_HIGHER: &str = r#"{"ppo_clip": {"low": 0.2, "high": 0.28}}"#;

const SEARCH_R1: Facts = Facts {
    name: "search_r1_v02",
    model: "Qwen/Qwen2.5-3B",
    learning_rate: 1e-6,
    batch: (512, 5),
    steps: 10,
    loss: CLIP,
    kl: Some(0.001),
    entropy: 0.001,
    turns: (4, 3),
    temperature: 1.0,
    adapter: None,
    clip_norm: 1.0,
};

const INSTRUCT: &str = "Qwen/Qwen2.5-3B-Instruct";
/// One query of up to 100 passages in the place of turns and passages per search.
const SEARCHLM: Facts = Facts {
    name: "searchlm_v2",
    model: INSTRUCT,
    batch: (2, 8),
    steps: 1,
    kl: None,
    entropy: 0.0,
    turns: (1, 100),
    temperature: 0.7,
    ..SEARCH_R1
};
const FACTS: [Facts; 14] = [
    Facts {
        name: "search_r1_v01",
        ..SEARCH_R1
    },
    SEARCH_R1,
    Facts {
        name: "search_r1_v03",
        learning_rate: 5e-7,
        ..SEARCH_R1
    },
    Facts {
        name: "slime",
        batch: (32, 8),
        steps: 1,
        loss: CLIP_HIGHER,
        entropy: 0.0,
        turns: (2, 3),
        ..SEARCH_R1
    },
    Facts {
        name: "verl",
        model: INSTRUCT,
        steps: 2,
        loss: r#"{"ppo_clip": {"low": 0.2, "high": 0.2, "dual": 3}}"#,
        entropy: 0.0,
        turns: (2, 3),
        ..SEARCH_R1
    },
    Facts {
        name: "skyrl",
        model: INSTRUCT,
        steps: 2,
        entropy: 0.0,
        turns: (4, 3),
        clip_norm: 0.5,
        ..SEARCH_R1
    },
    Facts {
        name: "tinker",
        model: "Qwen/Qwen2.5-7B-Instruct",
        learning_rate: 4e-5,
        batch: (512, 8),
        steps: 1,
        loss: r#""is_reinforce""#,
        kl: None,
        entropy: 0.0,
        turns: (5, 3),
        adapter: Some((32, 32.0)),
        clip_norm: 1e9,
        ..SEARCH_R1
    },
    Facts {
        name: "torchtitan",
        model: "Qwen/Qwen3-1.7B",
        batch: (8, 8),
        steps: 1,
        loss: CLIP_HIGHER,
        kl: None,
        entropy: 0.0,
        turns: (4, 3),
        ..SEARCH_R1
    },
    Facts {
        name: "prime_rl_wiki",
        model: "Qwen/Qwen3-4B-Instruct-2507",
        learning_rate: 1e-5,
        batch: (32, 16),
        steps: 1,
        loss: r#"{"dppo_tv": {"low": 0.2, "high": 0.2, "kl_tau": 0.001}}"#,
        kl: None,
        entropy: 0.0,
        turns: (10, 10),
        adapter: Some((8, 32.0)),
        ..SEARCH_R1
    },
    Facts {
        name: "slm_code_search",
        model: "Qwen/Qwen3-4B-Instruct-2507",
        learning_rate: 1e-4,
        batch: (1, 20),
        steps: 1,
        loss: r#""reinforce""#,
        kl: None,
        entropy: 0.01,
        turns: (2, 5),
        temperature: 0.925,
        adapter: Some((16, 32.0)),
        ..SEARCH_R1
    },
    Facts {
        name: "spurious",
        model: "Qwen/Qwen2.5-Math-7B",
        learning_rate: 5e-7,
        batch: (64, 16),
        steps: 8,
        kl: None,
        entropy: 0.0,
        turns: (4, 3),
        ..SEARCH_R1
    },
    Facts {
        name: "searchlm_v1",
        batch: (8, 2),
        ..SEARCHLM
    },
    SEARCHLM,
    Facts {
        name: "minisearch",
        model: "Qwen/Qwen2.5-1.5B-Instruct",
        learning_rate: 5e-6,
        batch: (4, 8),
        steps: 1,
        loss: CLIP_HIGHER,
        kl: None,
        entropy: 0.0,
        turns: (3, 3),
        temperature: 0.7,
        adapter: Some((16, 16.0)),
        clip_norm: 0.1,
    },
];

fn config(name: &str) -> RunConfig {
    Recipe::find(name).unwrap().config().unwrap()
}

fn parts(name: &str) -> Parts {
    config(name).grpo.update.objective.recipe(1)
}

fn settings(name: &str) -> BTreeMap<String, Value> {
    settings_of(name)
        .unwrap()
        .into_iter()
        .map(|(key, value)| (key.path(), value))
        .collect()
}

#[test]
fn every_file_is_a_recipe_and_has_facts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/recipes");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    let names = |names: &mut dyn Iterator<Item = &'static str>| {
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    assert_eq!(files, names(&mut RECIPES.iter().map(|recipe| recipe.name)));
    assert_eq!(files, names(&mut FACTS.iter().map(|facts| facts.name)));
}

#[test]
fn recipes_say_what_was_published() {
    for facts in FACTS {
        let name = facts.name;
        let config = config(name);
        let (grpo, update) = (&config.grpo, &config.grpo.update);
        let recipe = update.objective.recipe(1);
        assert_eq!(config.policy.checkpoint, facts.model, "{name}");
        let close = |found: f64, expected: f64| (found - expected).abs() <= expected * 1e-9;
        assert!(
            close(update.optimizer.learning_rate, facts.learning_rate),
            "{name}"
        );
        assert!(close(update.optimizer.clip_norm, facts.clip_norm), "{name}");
        assert_eq!(
            (grpo.prompts_per_step, grpo.group_size),
            facts.batch,
            "{name}"
        );
        assert_eq!(
            (update.minibatches, update.epochs),
            (facts.steps, 1),
            "{name}"
        );
        let loss: PolicyLoss = serde_json::from_str(facts.loss).unwrap();
        assert_eq!(recipe.loss, loss, "{name}");
        assert_eq!(
            recipe.kl.map(|kl| (kl.estimator, kl.coefficient)),
            facts.kl.map(|kl| (KlEstimator::LowVar, kl))
        );
        assert!(
            close(recipe.entropy.bonus, facts.entropy) && close(recipe.entropy.top_share, 1.0),
            "{name}"
        );
        assert!(
            (update.temperature - facts.temperature).abs() < 1e-6,
            "{name}"
        );
        assert_eq!(
            config
                .policy
                .lora
                .as_ref()
                .map(|lora| (lora.rank, lora.alpha)),
            facts.adapter,
            "{name}"
        );
        let environment = &config.environment.settings;
        let functions = || {
            environment
                .get("functions")
                .and_then(|functions| functions.get("top_k"))
        };
        let top_k = environment
            .get("top_k")
            .or_else(functions)
            .or_else(|| environment.get("limit"));
        let turns = environment
            .get("max_generations")
            .map_or(Some(1), Json::as_u64);
        assert_eq!(turns, Some(facts.turns.0), "{name}");
        assert_eq!(top_k.and_then(Json::as_u64), Some(facts.turns.1), "{name}");
    }
}

#[test]
fn conventions_that_are_easily_lost() {
    let unbiased = |epsilon: f64| json!({"grpo": {"epsilon": epsilon}});
    for (name, advantage, aggregation) in [
        ("search_r1_v02", unbiased(1e-6), Aggregation::TokenMean),
        ("slime", unbiased(1e-6), Aggregation::SeqMeanTokenMean),
        ("verl", unbiased(1e-6), Aggregation::TokenMean),
        ("skyrl", unbiased(1e-6), Aggregation::TokenMean),
        ("tinker", json!("dr_grpo"), Aggregation::Sum),
        (
            "torchtitan",
            json!({"grpo_population": {"epsilon": 1e-6}}),
            Aggregation::TokenMean,
        ),
        ("prime_rl_wiki", json!("dr_grpo"), Aggregation::TokenMean),
        (
            "slm_code_search",
            json!("code_search"),
            Aggregation::SeqMeanTokenMean,
        ),
        ("spurious", unbiased(1e-9), Aggregation::SeqMeanTokenMean),
        ("minisearch", unbiased(1e-4), Aggregation::TokenMean),
        ("searchlm_v1", unbiased(1e-4), Aggregation::TokenMean),
        ("searchlm_v2", unbiased(1e-4), Aggregation::TokenMean),
    ] {
        let advantage: Advantage = serde_json::from_value(advantage).unwrap();
        assert_eq!(
            (parts(name).advantage, parts(name).aggregation),
            (advantage, aggregation),
            "{name}"
        );
    }
    let dropping: Vec<&str> = RECIPES
        .iter()
        .map(|recipe| recipe.name)
        .filter(|name| parts(name).filter.is_some())
        .collect();
    assert_eq!(dropping, ["tinker", "torchtitan", "prime_rl_wiki"]);
    assert_eq!(parts("tinker").filter, Some(GroupFilter::ZeroVariance));
    assert_eq!(
        parts("slm_code_search").credit,
        Credit::DiscountedTurns { gamma: 0.99 }
    );
    let corrected: Vec<&str> = RECIPES
        .iter()
        .map(|recipe| recipe.name)
        .filter(|name| parts(name).correction.is_some())
        .collect();
    assert_eq!(corrected, ["skyrl"]);
    // Warm-up in optimizer steps: the share of the batches, rounded down, times the steps of a batch; SkyRL's as written.
    for (name, share, batches) in [
        ("search_r1_v01", 950, 305),
        ("search_r1_v02", 285, 1005),
        ("verl", 285, 331),
    ] {
        let config = config(name);
        assert_eq!(config.grpo.steps, batches, "{name}");
        let warmup = share * batches / 1000 * config.grpo.update.minibatches as u64;
        assert_eq!(config.grpo.update.optimizer.warmup_steps, warmup, "{name}");
    }
    assert_eq!(config("skyrl").grpo.update.optimizer.warmup_steps, 94);
    for (version, steps) in [("searchlm_v1", 3 * 3399_u64 / 8 + 1), ("searchlm_v2", 2879)] {
        let config = config(version);
        let decay = config.grpo.update.optimizer.decay.unwrap();
        assert_eq!(
            (decay.curve, decay.steps, config.grpo.steps),
            (Curve::Linear, steps, steps),
            "{version}"
        );
        assert_eq!(
            config.reward,
            [(version.to_owned(), 1.0.into())].into(),
            "{version}"
        );
    }
    let decay = config("minisearch").grpo.update.optimizer.decay.unwrap();
    assert_eq!(
        (decay.curve, decay.steps, config("minisearch").grpo.steps),
        (Curve::Cosine, 500, 500)
    );
}

#[test]
fn what_is_shown_reads_back_as_the_same() {
    for recipe in RECIPES {
        let config = recipe.config().unwrap();
        let text = format!("{}\n{}", recipe.notes(), spelled_out(&config).unwrap());
        let again = RunConfig::parse(&text, &[])
            .unwrap_or_else(|error| panic!("{}: {error:#}", recipe.name));
        assert_eq!(
            spelled_out(&again).unwrap(),
            spelled_out(&config).unwrap(),
            "{}",
            recipe.name
        );
        let update = |config: &RunConfig| {
            config
                .grpo
                .update
                .objective
                .recipe(config.engine.context_tokens)
        };
        assert_eq!(update(&again), update(&config), "{}", recipe.name);
        assert!(
            recipe.notes().contains("Exact:") && recipe.notes().contains("Different on purpose:"),
            "{}",
            recipe.name
        );
    }
}

#[test]
fn recipes_leave_no_setting_of_the_environment_to_its_defaults() {
    for recipe in RECIPES {
        let written: Table = toml::from_str(recipe.text).unwrap();
        let mut as_written = BTreeMap::new();
        flatten(
            written["environment"]["settings"].as_table().unwrap(),
            "environment.settings",
            &mut as_written,
        );
        let resolved = settings_of(recipe.name).unwrap();
        let limits = |key: &Key| key.section.ends_with(".limits");
        for key in resolved
            .keys()
            .filter(|key| key.section.starts_with("environment.settings") && !limits(key))
        {
            let profile = as_written.keys().any(|key| key.name == "profile");
            assert!(
                as_written.contains_key(key) || profile,
                "{}: {}",
                recipe.name,
                key.path()
            );
        }
    }
}

#[test]
fn two_ports_of_one_recipe_differ_where_they_should() {
    let differences = differences(
        &settings_of("search_r1_v02").unwrap(),
        &settings_of("verl").unwrap(),
    );
    let found = |path: &str| {
        let difference = differences
            .iter()
            .find(|difference| difference.path == path)?;
        Some((difference.a.clone(), difference.b.clone()))
    };
    let both = |a: Value, b: Value| Some((Some(a), Some(b)));
    assert_eq!(
        found("grpo.update.minibatches"),
        both(Value::Integer(10), Value::Integer(2))
    );
    assert_eq!(
        found("grpo.update.objective.entropy.bonus"),
        both(Value::Float(0.001), Value::Float(0.0))
    );
    assert_eq!(
        found("grpo.update.objective.loss.ppo_clip.dual"),
        Some((None, Some(Value::Float(3.0))))
    );
    assert_eq!(found("grpo.update.objective.loss.ppo_clip.low"), None);
    assert_eq!(found("grpo.update.optimizer.learning_rate"), None);
    let sections: Vec<&str> = differences
        .iter()
        .filter_map(|difference| difference.path.rsplit_once('.'))
        .map(|(section, _)| section)
        .collect();
    assert!(sections.is_sorted(), "{sections:?}");
}

#[test]
fn tables_are_aligned_and_long_values_cut() {
    let differences = differences(
        &settings_of("search_r1_v02").unwrap(),
        &settings_of("skyrl").unwrap(),
    );
    let text = as_text("search_r1_v02", "skyrl", &differences);
    let mut lines = text.lines();
    let column = lines.next().unwrap().find("search_r1_v02").unwrap();
    let row = |path: &str| text.lines().find(|line| line.starts_with(path)).unwrap();
    assert_eq!(
        row("grpo.update.minibatches ")[column..]
            .split_whitespace()
            .collect::<Vec<_>>(),
        ["10", "2"]
    );
    assert!(
        lines.all(|line| line.as_bytes()[column - 1] == b' ' && line.as_bytes()[column] != b' '),
        "{text}"
    );
    assert!(
        text.lines()
            .all(|line| line.chars().count() < column + 2 * WIDTH + 4),
        "{text}"
    );
    assert_eq!(shown(Some(&Value::Float(1e-6))), "1e-6");
    assert_eq!(shown(Some(&Value::Float(0.001))), "0.001");
    assert!(text.contains("...") && as_text("a", "b", &[]).contains("the same"));
}

#[test]
fn defaults_of_an_environment_are_no_difference() {
    let name = format!("{}/../configs/quickstart.toml", env!("CARGO_MANIFEST_DIR"));
    let quickstart = settings(&name);
    assert_eq!(
        quickstart["environment.id"],
        Value::String("forage/search-r1-v0".to_owned())
    );
    assert_eq!(
        quickstart["environment.settings.append_eos_after_stop"],
        Value::Boolean(false)
    );
    assert_eq!(quickstart["grpo.update.temperature"].to_string(), "1.0");
}

/// A published template; nothing, with a printed reason, where the shared data are missing.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn template(model: &str) -> Option<ChatTemplate> {
    let family = if model.contains("Qwen3") {
        "qwen3"
    } else {
        "qwen2.5"
    };
    let file = format!("../../shared/data/qwen/chat_template.{family}.jinja");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let Ok(source) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: {} is missing", path.display());
        return None;
    };
    Some(ChatTemplate::from_source(&source, SpecialTokens::default()).unwrap())
}

#[test]
fn prompts_can_be_read_and_episodes_fit_the_engine() {
    for recipe in RECIPES {
        let config = recipe.config().unwrap();
        let settings = Json::Object(config.environment.settings.clone());
        let resolved = (registry::find(&config.environment.id).unwrap().resolve)(settings).unwrap();
        assert!(resolved.prompt.is_some(), "{}", recipe.name);
        let limit = |key: &str| usize::try_from(resolved.settings[key].as_u64().unwrap()).unwrap();
        let limits = [limit("max_turn_tokens"), limit("max_episode_tokens")];
        assert!(
            [limits[0], limits[1], config.engine.context_tokens].is_sorted(),
            "{}: {limits:?}",
            recipe.name
        );
        if let (Some(chat), Some(template)) =
            (&config.policy.chat, template(&config.policy.checkpoint))
        {
            let presentation = Presentation::chat(template, chat.clone());
            assert!(presentation.is_ok(), "{}: {presentation:?}", recipe.name);
        }
    }
}

#[test]
fn openings_written_by_hand_are_those_of_the_template() {
    let mut seen = 0;
    for recipe in RECIPES {
        let config = recipe.config().unwrap();
        let Some(written) = config
            .environment
            .settings
            .get("prompt")
            .and_then(|prompt| prompt.get("text"))
        else {
            continue;
        };
        let Some(template) = template(&config.policy.checkpoint) else {
            return;
        };
        let prompt = include_str!("../../../../configs/prompts/search_r1.txt");
        let mut messages = vec![json!({"role": "user", "content": prompt})];
        if !config.policy.checkpoint.ends_with("-Instruct") {
            // The template of the base models names another default.
            messages.insert(
                0,
                json!({"role": "system", "content": "You are a helpful assistant."}),
            );
        }
        let conversation = Conversation {
            messages,
            add_generation_prompt: true,
            ..Conversation::default()
        };
        assert_eq!(
            written.as_str().unwrap(),
            template.render(&conversation).unwrap(),
            "{}",
            recipe.name
        );
        seen += 1;
    }
    assert_eq!(seen, 5);
}
