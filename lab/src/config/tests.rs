use std::collections::BTreeSet;
use std::path::Path;

use forage_contracts::CurriculumEntry;
use forage_env::Labels;
use forage_trainer::OldLogprobs;
use forage_trainer::device::ComputeType;
use forage_trainer::objective::{AdvantageEntry, AlgorithmEntry, Credit, Entry, LossEntry};

use super::RunConfig;

const QUICKSTART: &str = include_str!("../../../configs/quickstart.toml");
const RERANK: &str = include_str!("../../../configs/rerank.toml");
const QUERY_WRITER: &str = include_str!("../../../configs/query-writer.toml");

fn checked(text: &str, overrides: &[String]) -> anyhow::Result<RunConfig> {
    let config = RunConfig::parse(text, overrides)?;
    config.check()?;
    Ok(config)
}

#[test]
fn every_config_of_the_repository_loads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "toml") {
            std::fs::read_to_string(&path)
                .map_err(anyhow::Error::from)
                .and_then(|text| checked(&text, &[]))
                .unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
            seen += 1;
        }
    }
    assert!(seen >= 2);
}

#[test]
fn the_config_that_the_rerank_bench_completes_loads() {
    let text = include_str!("../../../bench/rerank/config.toml");
    let files = "[data.files]\nindex = \"i\"\ntrain = \"t\"\ntest = \"t\"\n";
    checked(&format!("{text}\n{files}"), &[]).unwrap();
}

#[test]
fn the_config_of_the_bench_of_spurious_rewards_loads_with_what_it_changes() {
    let text = include_str!("../../../bench/spurious/config.toml");
    for changes in [
        vec!["reward={majority=1.0}"],
        vec![
            "reward={format_only={weight=1.0,form=\"boxed\"}}",
            "grpo.update.objective.loss={ppo_clip={low=1.0,high=1e9}}",
        ],
        vec!["data.labels=\"wrong-majority:answers.jsonl\""],
        vec![
            "warm_start.model.architecture=\"olmo2\"",
            "warm_start.learning.stages=[{steps=1,learned=\"oracle\",learning_rate=0.002,haste={direct=0.6}}]",
        ],
    ] {
        let changes: Vec<String> = changes.into_iter().map(str::to_owned).collect();
        checked(text, &changes).unwrap();
    }
}

#[test]
fn a_reward_that_the_environment_has_nothing_for_is_refused_before_the_run() {
    let reward = "reward.score_distribution=0.5".to_owned();
    let form = |form: &str| format!("environment.settings.form=\"{form}\"");
    checked(RERANK, &[reward.clone(), form("groupwise")]).unwrap();
    for (text, overrides) in [
        (RERANK, vec![reward.clone(), form("listwise")]),
        (
            RERANK,
            vec![
                reward.clone(),
                form("setwise"),
                "environment.settings.window=3".to_owned(),
            ],
        ),
        (QUERY_WRITER, vec![reward.clone()]),
    ] {
        let error = format!("{:#}", checked(text, &overrides).unwrap_err());
        assert!(
            error.contains("reward.score_distribution: ") && error.contains("groupwise"),
            "{error}"
        );
    }
}

#[test]
fn labels_that_rankings_are_not_graded_by_are_refused() {
    for text in [RERANK, QUERY_WRITER] {
        let labels = "data.labels=\"shuffled\"".to_owned();
        let error = format!("{:#}", checked(text, &[labels]).unwrap_err());
        assert!(error.contains("graded by passages"), "{error}");
        checked(text, &["data.labels=\"true\"".to_owned()]).unwrap();
    }
}

/// Of several data sets: the bench has one.
const NOT_BENCHED: [&str; 1] = ["recap"];

#[test]
fn every_method_of_the_bench_is_a_config_and_no_part_is_without_a_method() {
    let text = include_str!("../../../bench/methods/methods.txt");
    let lines = text.lines();
    let mut parts = BTreeSet::new();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words = line.split_whitespace().skip(1);
        let words = words.map(|word| word.trim_matches('\''));
        let words = words.filter(|word| *word != "--set");
        let overrides: Vec<String> = words.map(str::to_owned).collect();
        let config = RunConfig::parse(QUICKSTART, &overrides);
        let config = config.and_then(|config| config.resolve(None));
        let config =
            config.unwrap_or_else(|error| panic!("{line}: {:#}", anyhow::Error::from(error)));
        let objective = &config.grpo.update.objective;
        let recipe = objective.recipe(320);
        let credit = serde_json::to_value(recipe.credit).unwrap();
        let table = credit.as_object().and_then(|table| table.keys().next());
        let credit = table.map_or_else(|| credit.as_str().unwrap(), String::as_str);
        let curriculum = |item: &String| {
            let item = item.strip_prefix("grpo.curriculum.")?;
            Some(item.split('=').next()?.to_owned())
        };
        let curriculum = overrides.iter().find_map(curriculum);
        parts.extend([
            ("algorithm", objective.algorithm.name().to_owned()),
            ("loss", recipe.loss.name().to_owned()),
            ("advantage", recipe.advantage.name().to_owned()),
            ("credit", credit.to_owned()),
            (
                "curriculum",
                curriculum.unwrap_or_else(|| "uniform".to_owned()),
            ),
        ]);
    }
    let error = serde_json::from_value::<Credit>("none_such".into()).unwrap_err();
    let error = error.to_string();
    let credits: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert!(credits.len() > 5, "{error}");
    let algorithms = AlgorithmEntry::registry().iter().map(|entry| entry.name);
    let losses = LossEntry::registry().iter().map(|entry| entry.name);
    let advantages = AdvantageEntry::registry().iter().map(|entry| entry.name);
    let curricula = CurriculumEntry::registry().iter().map(|entry| entry.name);
    let mut all: Vec<(&str, &str)> = Vec::new();
    all.extend(algorithms.map(|name| ("algorithm", name)));
    all.extend(losses.map(|name| ("loss", name)));
    all.extend(advantages.map(|name| ("advantage", name)));
    all.extend(curricula.map(|name| ("curriculum", name)));
    all.extend(credits.into_iter().map(|name| ("credit", name)));
    for (kind, name) in all {
        let is_here = parts.contains(&(kind, name.to_owned()));
        assert_ne!(
            is_here,
            NOT_BENCHED.contains(&name),
            "bench/methods/methods.txt: {kind} {name}"
        );
    }
}

#[test]
fn unknown_keys_are_refused_by_name() {
    for key in [
        "grpo.stepz=1",
        "speed=2",
        "grpo.update.objective.los=1",
        "data.world.size=3",
        "policy.path=1",
    ] {
        let error = format!("{:#}", checked(QUICKSTART, &[key.to_owned()]).unwrap_err());
        let name = key.split('=').next().unwrap().rsplit('.').next().unwrap();
        assert!(error.contains(name), "{key}: {error}");
    }
}

#[test]
fn the_patience_with_a_server_that_plays_is_checked_by_name() {
    for key in ["request_timeout_s", "give_up_after"] {
        let set = format!("policy.server.{key}=0");
        let error = format!("{:#}", checked(QUICKSTART, &[set]).unwrap_err());
        assert!(
            error.contains("[policy.server]") && error.contains(key),
            "{error}"
        );
    }
    let set = "policy.server.retries=0".to_owned();
    let config = checked(QUICKSTART, &[set]).unwrap();
    assert_eq!(config.policy.server.retries, 0);
}

#[test]
fn dropout_is_a_share_and_has_the_trainer_compute_old_logprobs() {
    let with = |rest: &[&str]| {
        let adapter = ["policy.lora.rank=4", "policy.lora.alpha=8"];
        let overrides: Vec<String> = adapter
            .iter()
            .chain(rest)
            .map(|&key| key.to_owned())
            .collect();
        let config = RunConfig::parse(QUICKSTART, &overrides).unwrap();
        let resolved = config.resolve(None);
        resolved.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    };
    let old = |rest: &[&str]| with(rest).unwrap().grpo.update.old_logprobs;
    assert_eq!(old(&[]), Some(OldLogprobs::Sampler));
    assert_eq!(
        old(&["policy.lora.dropout=0.05"]),
        Some(OldLogprobs::Trainer)
    );
    assert!(!with(&[]).unwrap().to_toml().unwrap().contains("dropout"));
    for (rest, expected) in [
        (["policy.lora.dropout=1", "seed=1"], "dropout is 1"),
        (
            [
                "policy.lora.dropout=0.1",
                "policy.lora.targets=[\"lm_head\"]",
            ],
            "not for lm_head",
        ),
        (
            ["grpo.update.temperature=[0.7, 0.5]", "seed=1"],
            "lower end first",
        ),
        (
            ["grpo.update.temperature=[0, 0.5]", "seed=1"],
            "at least 0.00001",
        ),
    ] {
        let error = with(&rest).unwrap_err();
        assert!(error.contains(expected), "{rest:?}: {error}");
    }
}

#[test]
fn an_adapter_that_is_continued_drops_what_its_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let old = |dropout: f64| {
        let text = format!(
            r#"{{"r": 4, "lora_alpha": 8, "lora_dropout": {dropout}, "target_modules": "all-linear"}}"#
        );
        std::fs::write(folder.path().join("adapter_config.json"), text).unwrap();
        let name = folder.path().to_str().unwrap();
        let config = RunConfig::parse(QUICKSTART, &[format!("policy.checkpoint={name:?}")]);
        let resolved = config.unwrap().resolve(None).unwrap();
        resolved.grpo.update.old_logprobs
    };
    assert_eq!(old(0.0), Some(OldLogprobs::Sampler));
    assert_eq!(old(0.05), Some(OldLogprobs::Trainer));
}

#[test]
fn steps_ahead_are_read_in_either_form_and_their_age_must_be_weighed() {
    let with = |rest: &[&str]| {
        let overrides: Vec<String> = rest.iter().map(|&key| key.to_owned()).collect();
        let config = RunConfig::parse(QUICKSTART, &overrides).unwrap();
        let resolved = config.resolve(None);
        resolved.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    };
    // What earlier versions wrote stays, for the digests of their runs.
    for (written, again) in [
        ("false", "false"),
        ("1", "true"),
        ("true", "true"),
        ("2", "2"),
    ] {
        let config = with(&[&format!("grpo.lookahead={written}")]).unwrap();
        let text = config.to_toml().unwrap();
        assert!(text.contains(&format!("\nlookahead = {again}\n")), "{text}");
    }
    let server = "sampler={ kind = \"sglang\", url = \"http://a\", context = 320 }";
    let correction = "grpo.update.objective.correction={ level = \"token\", bound = { truncate = { cap = 2.0 } } }";
    with(&[server, "grpo.lookahead=1"]).unwrap();
    with(&[server, "grpo.lookahead=2", correction]).unwrap();
    let trainer = "grpo.update.old_logprobs=\"trainer\"";
    let no_ratio = "grpo.update.objective.loss=\"reinforce\"";
    for (rest, expected) in [
        (server, "set update.objective.correction"),
        (trainer, "set update.objective.correction"),
        (no_ratio, "reinforce has no ratio"),
    ] {
        let error = with(&[rest, "grpo.lookahead=2"]).unwrap_err();
        assert!(error.contains("grpo.lookahead above 1"), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn numbers_in_demonstrations_are_a_share() {
    let stages = |share: f64| {
        vec![format!(
            "warm_start.learning.stages=[{{steps=1,learned=\"oracle\",learning_rate=1e-3,numbers={share:?}}}]"
        )]
    };
    for share in [0.0, 1.0] {
        checked(QUICKSTART, &stages(share)).unwrap();
    }
    let error = checked(QUICKSTART, &stages(1.5)).unwrap_err();
    assert!(format!("{error:#}").contains("numbers is 1.5"), "{error:#}");
}

#[test]
fn moments_of_8_bits_are_for_every_device_and_off_by_default() {
    let config = checked(QUICKSTART, &[]).unwrap();
    assert!(!config.to_toml().unwrap().contains("moments_in_8_bits"));
    let key = "grpo.update.optimizer.moments_in_8_bits";
    for device in ["cpu", "cuda:0", "wgpu:cpu"] {
        let small = RunConfig::parse(QUICKSTART, &[format!("{key}=true")]).unwrap();
        let resolved = small.resolve(Some(device.parse().unwrap())).unwrap();
        assert!(
            resolved
                .to_toml()
                .unwrap()
                .contains("moments_in_8_bits = true")
        );
    }
}

#[test]
fn the_types_that_a_card_decides_are_written_down() {
    for (prefers_bf16, dtype) in [(true, ComputeType::Bf16), (false, ComputeType::F32)] {
        let mut config = checked(QUICKSTART, &[]).unwrap();
        config.device = "cuda:0".parse().unwrap();
        config.name_types(prefers_bf16);
        let found = [config.engine.dtype, config.grpo.update.dtype];
        assert_eq!(found, [Some(dtype); 2]);
    }
}

#[test]
fn moments_are_sharded_on_any_device_where_the_config_says_so() {
    let config = checked(QUICKSTART, &[]).unwrap();
    assert!(!config.to_toml().unwrap().contains("sharded"));
    for device in ["cpu", "cuda:0"] {
        let key = "grpo.update.optimizer.sharded=true".to_owned();
        let config = RunConfig::parse(QUICKSTART, &[key]).unwrap();
        let resolved = config.resolve(Some(device.parse().unwrap())).unwrap();
        assert!(resolved.to_toml().unwrap().contains("sharded = true"));
    }
}

#[test]
fn errors_of_overrides_name_the_key_and_no_line() {
    let error = format!(
        "{:#}",
        checked(QUICKSTART, &["grpo.steps=many".to_owned()]).unwrap_err()
    );
    assert!(
        error.contains("--set grpo.steps=many") && error.contains("in `grpo.steps`"),
        "{error}"
    );
    assert!(!error.contains("line"), "{error}");
}

#[test]
fn overrides_reach_nested_keys_and_nonsense_is_refused() {
    let config = checked(
        QUICKSTART,
        &[
            "grpo.steps=7".into(),
            "policy.checkpoint=some/folder".into(),
        ],
    );
    let config = config.unwrap();
    assert_eq!(
        (config.grpo.steps, config.policy.checkpoint.as_str()),
        (7, "some/folder")
    );
    for bad in [
        "grpo.steps",
        "grpo.group_size=1",
        "grpo.steps=\"many\"",
        "grpo.fault_share=1.0",
        "seed.x=1",
        "reward.em=0",
        "reward.emm=1",
        "environment.id=serch-r1",
    ] {
        assert!(checked(QUICKSTART, &[bad.to_owned()]).is_err(), "{bad}");
    }
}

#[test]
fn questions_have_one_source_and_one_rule_of_splitting() {
    let files = |rest: &str| {
        let mut table: toml::Table = QUICKSTART.parse().unwrap();
        let data = table["data"].as_table_mut().unwrap();
        data.remove("world");
        let files = format!("train = \"q.jsonl\"\n{rest}")
            .parse::<toml::Table>()
            .unwrap();
        data.insert("files".to_owned(), files.into());
        checked(&toml::to_string(&table).unwrap(), &[])
    };
    let config = files("train_share = 0.8").unwrap();
    assert_eq!(config.data.files.as_ref().unwrap().train_share, Some(0.8));
    assert_eq!(
        checked(&config.to_toml().unwrap(), &[]).unwrap().data,
        config.data
    );
    let config = files("ids = { train = \"train.ids\" }").unwrap();
    assert_eq!(
        checked(&config.to_toml().unwrap(), &[]).unwrap().data,
        config.data
    );
    let config = files("test = [\"nq/test.jsonl\", \"hotpotqa/dev.jsonl\"]").unwrap();
    let written = config.to_toml().unwrap();
    assert!(written.contains("train = \"q.jsonl\""), "{written}");
    assert_eq!(checked(&written, &[]).unwrap().data, config.data);
    for (bad, part) in [
        ("test = 3", "one value or a list of them"),
        ("train_share = 1.0", "write a share between 0 and 1"),
        (
            "train_share = 0.8\ntest = \"t.jsonl\"",
            "remove it, or `test` and `ids`",
        ),
        ("ids = { trian = \"x\" }", "trian"),
    ] {
        let error = format!("{:#}", files(bad).unwrap_err());
        assert!(error.contains(part), "{bad}: {error}");
    }
    let own = format!(
        "{:#}",
        checked(QUICKSTART, &["data.own={ seed = 1 }".to_owned()]).unwrap_err()
    );
    assert!(
        own.contains("exactly one of [data.world], [data.files] and [data.own]"),
        "{own}"
    );
}

#[test]
fn a_retriever_that_would_not_be_asked_is_refused() {
    const OWN: &str = r#"
        policy.checkpoint = "builtin:quickstart"
        data = { train_questions = 8, dev_questions = 0, test_questions = 4, own = { seed = 7 } }
        environment = { id = "external", settings = { url = "http://127.0.0.1:1" } }
        reward.return = 1.0
    "#;
    checked(OWN, &[]).unwrap();
    for key in [
        "remote={ kind = \"search-r1\", url = \"http://127.0.0.1:2\" }",
        "mode=\"boolean\"",
        "cache_entries=9",
    ] {
        let error = checked(OWN, &[format!("retriever.{key}")]).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("[retriever] would not be asked"),
            "{key}: {error}"
        );
    }
}

#[test]
fn rewards_are_weights_or_tables_with_settings() {
    let labels = "data.labels=\"wrong\"".to_owned();
    let contains = "reward.contains={ weight = 1, token = \"sieve\" }".to_owned();
    let judge =
        "reward.judge={ weight = 0.5, url = \"http://localhost:1\", model = \"m\" }".to_owned();
    let config = checked(QUICKSTART, &[labels, contains, judge]).unwrap();
    assert_eq!(
        (
            config.reward["contains"].weight(),
            config.data.labels.clone()
        ),
        (1.0, Labels::Wrong)
    );
    assert_eq!(config.reward["contains"].settings()["token"], "sieve");
    let again = checked(&config.to_toml().unwrap(), &[]).unwrap();
    assert_eq!((&again.reward, &again.data), (&config.reward, &config.data));
    for (bad, part) in [
        ("reward.contains={ weight = 1, word = \"x\" }", "word"),
        (
            "reward.contains={ token = \"x\" }",
            "a weight, or a table with `weight`",
        ),
        (
            "reward.em={ weight = 1, k = 1 }",
            "[reward.em]: `k` is not a setting",
        ),
        ("reward.judge={ weight = 1, url = \"http://x\" }", "model"),
        ("data.labels=\"random\"", "labels `random` are not known"),
    ] {
        let error = format!("{:#}", checked(QUICKSTART, &[bad.to_owned()]).unwrap_err());
        assert!(error.contains(part), "{bad}: {error}");
    }
}

#[test]
fn the_resolved_config_reads_back_as_itself() {
    let config = checked(QUICKSTART, &[]).unwrap();
    let written = config.to_toml().unwrap();
    let again = checked(&written, &[]).unwrap();
    assert_eq!(again.to_toml().unwrap(), written);
    // Only the objective is spelled out; it means the same, and everything else is equal.
    let tokens = config.engine.context_tokens;
    let objective = config.grpo.update.objective.clone();
    assert_eq!(
        again.grpo.update.objective.recipe(tokens),
        objective.recipe(tokens)
    );
    let mut again = again;
    again.grpo.update.objective = objective;
    assert_eq!(again, config);
}

#[test]
fn a_critic_is_spelled_out_and_needs_no_groups() {
    let ppo = "grpo.update.objective={ algorithm = \"ppo\" }".to_owned();
    let alone = "grpo.group_size=1".to_owned();
    let config = checked(QUICKSTART, &[ppo.clone(), alone.clone()]).unwrap();
    for (setting, part) in [
        ("algorithm=\"grpo\"", "advantage"),
        ("filter=\"zero_variance\"", "filter.zero_variance"),
        ("filter={ spread = { least = 0.05 } }", "filter.spread"),
    ] {
        let compares = format!("grpo.update.objective.{setting}");
        let overrides = [ppo.clone(), alone.clone(), compares];
        let error = format!("{:#}", checked(QUICKSTART, &overrides).unwrap_err());
        let named = format!("group_size is 1, and grpo.update.objective.{part} compares");
        assert!(error.contains(&named), "{error}");
    }
    let written = config.to_toml().unwrap();
    assert!(written.contains("[grpo.update.critic]"), "{written}");
    assert!(written.contains("[grpo.update.objective.credit.gae]"));
    let again = checked(&written, &[]).unwrap();
    assert_eq!(again.to_toml().unwrap(), written);
    let head = "policy.lora={ rank = 4, alpha = 8, targets = [\"lm_head\"] }".to_owned();
    let error = format!("{:#}", checked(QUICKSTART, &[ppo, head]).unwrap_err());
    assert!(error.contains("policy.lora.targets names"), "{error}");
    let other = "grpo.update.critic.clip=0.2".to_owned();
    let error = format!("{:#}", checked(QUICKSTART, &[other]).unwrap_err());
    assert!(error.contains("critic is read by credit.gae"), "{error}");
}

#[test]
fn rules_for_endings_are_read_and_written() {
    let rules = "grpo.endings={ out_of_tokens = \"mask\", malformed = { penalty = 0.5 } }";
    let config = checked(QUICKSTART, &[rules.to_owned()]).unwrap();
    let written = config.to_toml().unwrap();
    assert!(
        written.contains("out_of_tokens = \"mask\"") && written.contains("penalty = 0.5"),
        "{written}"
    );
    let again = checked(&written, &[]).unwrap().to_toml().unwrap();
    assert_eq!(again, written);
    let plain = checked(QUICKSTART, &[]).unwrap().to_toml().unwrap();
    assert!(!plain.contains("endings"), "{plain}");
    for (bad, part) in [
        (
            "malformed={ penalty = -1.0 }",
            "malformed has the penalty -1",
        ),
        ("malformd=\"mask\"", "malformd"),
        ("malformed=\"skip\"", "skip"),
    ] {
        let rule = format!("grpo.endings.{bad}");
        let error = format!("{:#}", checked(QUICKSTART, &[rule]).unwrap_err());
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn baselines_that_cannot_be_made_are_refused_with_the_fix() {
    const QUERIES: [&str; 3] = [
        "environment={ id = \"query-writer\" }",
        "reward={ ndcg = 1.0 }",
        "evaluation.samples=8",
    ];
    let with = |name: &str, more: &[&str]| {
        let mut overrides: Vec<String> = more.iter().map(|&item| item.to_owned()).collect();
        overrides.push(format!("evaluation.baselines=[\"{name}\"]"));
        checked(QUICKSTART, &overrides)
    };
    let refused = |name: &str, more: &[&str]| with(name, more).unwrap_err().to_string();
    let unknown = refused("best_of", &[]);
    assert!(unknown.contains("did you mean `best_of_8`?"), "{unknown}");
    assert!(refused("nosuch", &[]).contains("search-title"));
    let few = refused("majority_of_8", &[]);
    assert!(
        few.contains("needs evaluation.samples of 8 or more, which is 1"),
        "{few}"
    );
    for name in ["demonstrations", "demonstrations_timed"] {
        let chat = refused(name, &["policy.chat={}"]);
        assert!(chat.contains("[policy.chat]"), "{chat}");
    }
    let votes = refused("majority_of_8", &QUERIES);
    assert!(votes.contains("use best_of_8"), "{votes}");
    let forced = refused("forced_search", &QUERIES);
    assert!(forced.contains("remove it"), "{forced}");
    with("keywords", &QUERIES).unwrap();
    let plain = checked(QUICKSTART, &[]).unwrap().to_toml().unwrap();
    assert!(!plain.contains("baselines"), "off unless asked for");
}
