use std::collections::BTreeSet;

use forage_env::Presentation;
use forage_env::chat::{ChatTemplate, Conversation, SpecialTokens};
use forage_trainer::OldLogprobs;

use super::*;

mod sources;

fn config(name: &str) -> RunConfig {
    Recipe::find(name).unwrap().config().unwrap()
}

fn settings_of(name: &str) -> BTreeMap<Key, Value> {
    settings(&named(Path::new(name), &[]).unwrap(), name).unwrap()
}

fn by_path(name: &str) -> BTreeMap<String, Value> {
    settings_of(name)
        .into_iter()
        .map(|(key, value)| (key.path(), value))
        .collect()
}

#[test]
fn every_file_is_a_recipe() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/recipes");
    let stem = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        path.file_stem().unwrap().to_str().unwrap().to_owned()
    };
    let files: BTreeSet<String> = std::fs::read_dir(folder).unwrap().map(stem).collect();
    let names: BTreeSet<String> = RECIPES
        .iter()
        .map(|recipe| recipe.name.to_owned())
        .collect();
    assert_eq!(files, names);
}

#[test]
fn what_follows_from_other_settings_does() {
    for recipe in RECIPES {
        let (name, grpo) = (recipe.name, &recipe.config().unwrap().grpo);
        if let Some(decay) = grpo.update.optimizer.decay {
            assert_eq!(decay.steps, grpo.steps, "{name}");
        }
        let corrected = grpo.update.objective.recipe(1).correction.is_some();
        let trainer = grpo.update.old_logprobs == Some(OldLogprobs::Trainer);
        assert!(trainer || !corrected, "{name}");
    }
    for version in ["searchlm_v1", "searchlm_v2"] {
        assert_eq!(
            config(version).reward,
            [(version.to_owned(), 1.0.into())].into(),
            "{version}"
        );
    }
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
fn the_sources_stand_behind_the_values_that_are_shown() {
    let notes = |text: &str| -> BTreeSet<String> {
        let lines = places(text).into_iter();
        let noted = lines.filter(|(path, _)| path.is_some());
        let notes = noted.filter_map(|(_, line)| Some(line.split_once("  # ")?.1.to_owned()));
        notes.collect()
    };
    for recipe in RECIPES {
        let spelled = spelled_out(&recipe.config().unwrap()).unwrap();
        let shown = annotated(&spelled, recipe.text);
        let table = |text: &str| toml::from_str::<Table>(text).unwrap();
        assert_eq!(table(&shown), table(&spelled), "{}", recipe.name);
        assert_eq!(notes(&shown), notes(recipe.text), "{}", recipe.name);
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
        let resolved = settings_of(recipe.name);
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
    let differences = differences(&settings_of("search_r1_v02"), &settings_of("verl"));
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
    let differences = differences(&settings_of("search_r1_v02"), &settings_of("skyrl"));
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
    let quickstart = by_path(&name);
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
    assert_eq!(seen, 6);
}
