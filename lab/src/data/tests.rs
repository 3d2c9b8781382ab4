//! Splits of files, and what a config says of its questions.

use std::path::PathBuf;

use forage_retriever::Index;

use super::*;
use crate::config::{EnvironmentConfig, FilesConfig};

#[test]
fn questions_of_evaluations_are_enough_for_evaluations() {
    let config = |files: &str| {
        let set = [
            format!("data={{ files = {{ index = 'index', {files} }} }}"),
            "grpo.evaluate_every=0".to_owned(),
        ];
        let text = include_str!("../../../configs/smoke.toml");
        RunConfig::parse(text, &set).unwrap()
    };
    let only = config("test = 'test.jsonl'");
    only.check().unwrap();
    assert!(!only.trains());
    let missing = only.missing_at_start().join("; ");
    assert!(
        missing.contains("data.files.train: no questions to learn from"),
        "{missing}"
    );
    let written = RunConfig::parse(&only.to_toml().unwrap(), &[]).unwrap();
    assert_eq!(written.data, only.data);
    for (files, fault) in [
        ("train = []", "no file of questions is named"),
        (
            "test = 'test.jsonl', train_share = 0.8",
            "which names no file",
        ),
    ] {
        let error = crate::error::causes(&config(files).check().unwrap_err());
        assert!(error.contains(fault), "{error}");
    }
}

#[test]
fn pages_are_cut_for_environments_that_read_or_rank_passages_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("pages.jsonl");
    std::fs::write(
        &pages,
        "{\"id\": \"a\", \"title\": \"A\", \"content\": \"red\"}\n",
    )
    .unwrap();
    let mut environment = EnvironmentConfig::plain("code-search").unwrap();
    let format = environment.format_of(&pages).unwrap();
    assert_eq!(format, CorpusFormat::WHOLE_PAGES);
    let search = serde_json::json!({"search": "passages"});
    environment.settings.insert("functions".to_owned(), search);
    let others = ["search-r1", "query-writer"].map(|id| EnvironmentConfig::plain(id).unwrap());
    for environment in others.into_iter().chain([environment]) {
        let format = environment.format_of(&pages).unwrap();
        assert_eq!(format, CorpusFormat::PAGES);
    }
}

#[test]
fn an_open_data_set_that_no_question_is_of_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let load = |open: &str| {
        let overrides = [
            "data.world.pages=100".to_owned(),
            "data.train_questions=20".to_owned(),
            "data.dev_questions=0".to_owned(),
            "data.test_questions=5".to_owned(),
            "grpo.evaluate_every=0".to_owned(),
            format!("reward.relevance={{ weight = 1.0, open = ['{open}'] }}"),
        ];
        let text = include_str!("../../../configs/smoke.toml");
        let config = RunConfig::parse(text, &overrides).unwrap();
        Data::load(&config.resolve(None).unwrap(), folder.path())
    };
    load("forage-world").unwrap();
    let error = load("forage-word").err().unwrap();
    let found = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(
        found.contains("reward.relevance.open has the data set `forage-word`")
            && found.contains("did you mean `forage-world`?"),
        "{found}"
    );
}

#[test]
fn a_verdict_without_held_out_questions_is_told_where_to_name_some() {
    let folder = tempfile::tempdir().unwrap();
    let overrides = [
        "data.world.pages=100",
        "data.train_questions=20",
        "data.dev_questions=0",
        "data.test_questions=0",
        "grpo.evaluate_every=0",
    ];
    let text = include_str!("../../../configs/smoke.toml");
    let config = RunConfig::parse(text, &overrides.map(str::to_owned)).unwrap();
    let data = Data::load(&config.resolve(None).unwrap(), folder.path()).unwrap();
    let error = crate::error::causes(&data.held_out().err().unwrap());
    for part in [
        "no held-out questions",
        "data.files.test",
        "data.test_questions",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn questions_without_answers_are_for_rewards_that_do_without() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, row: serde_json::Value| {
        let path = folder.path().join(name);
        std::fs::write(&path, row.to_string()).unwrap();
        path
    };
    let passage = serde_json::json!({"_id": "a", "title": "A", "text": "a fruit"});
    let question = serde_json::json!({
        "id": "1", "question": "Why?", "golds": [], "data_source": "open", "split": "train",
    });
    let (corpus, train) = (
        write("corpus.jsonl", passage),
        write("open.jsonl", question),
    );
    let load = |reward: &str| {
        let overrides = [
            format!("data={{ files = {{ corpus = {corpus:?}, train = {train:?} }} }}"),
            "grpo.evaluate_every=0".to_owned(),
            format!("reward={{ {reward} = 1.0 }}"),
        ];
        let text = include_str!("../../../configs/smoke.toml");
        let config = RunConfig::parse(text, &overrides).unwrap();
        let run = folder.path().join(reward);
        std::fs::create_dir(&run).unwrap();
        Data::load(&config.resolve(None).unwrap(), &run)
    };
    assert_eq!(load("format").unwrap().train.len(), 1);
    let error = crate::error::causes(&load("em").err().unwrap());
    assert!(
        error.contains("`open/1`") && error.contains("the reward `em` needs"),
        "{error}"
    );
}

#[test]
fn a_resolved_config_is_of_its_questions() {
    let resolve = |text: &str, overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let config = RunConfig::parse(text, &overrides).unwrap();
        config.resolve(None).unwrap()
    };
    let small = [
        "data.world.pages=100",
        "data.train_questions=20",
        "data.dev_questions=0",
        "data.test_questions=5",
        "grpo.evaluate_every=0",
    ];
    let config = resolve(include_str!("../../../configs/smoke.toml"), &small);
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let digests = Data::load(&config, first.path()).unwrap().digests;
    assert!(digests.train.is_some() && digests.test.is_some() && digests.dev.is_none());
    let record = config.record(Some(&digests), None).unwrap();
    let again = resolve(&record, &[]);
    assert_eq!(Data::load(&again, first.path()).unwrap().digests, digests);
    let other = resolve(&record, &["data.train_questions=19"]);
    let error = Data::load(&other, second.path()).err().unwrap();
    assert!(matches!(error, RunError::Config { .. }));
    assert_eq!(
        error.to_string(),
        "data.digests.train is of other questions"
    );
}

#[test]
fn a_split_may_be_several_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |set: &str, id: &str| {
        let path = folder.path().join(set).join("test.jsonl");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let row = serde_json::json!({"id": id, "question": "q", "golden_answers": ["a"]});
        std::fs::write(&path, row.to_string()).unwrap();
        path
    };
    let read = |test: &[PathBuf]| {
        let files = toml::toml! { train = "" };
        let mut files: FilesConfig = files.try_into().unwrap();
        files.train = vec![test[0].clone()];
        files.test = test.to_vec();
        file_splits(&files, None)
    };
    let (nq, hotpotqa) = (write("nq", "test_0"), write("hotpotqa", "test_0"));
    let [_, _, test] = read(&[nq.clone(), hotpotqa]).unwrap();
    let names: Vec<String> = test.iter().map(|task| task.name()).collect();
    assert_eq!(names, ["nq/test_0", "hotpotqa/test_0"]);
    let error = read(&[nq.clone(), nq]).err().unwrap().to_string();
    assert!(error.contains("the question nq/test_0"), "{error}");
    // Rows without ids are numbered, anew in each file and on in a folder.
    let parts = folder.path().join("popqa");
    std::fs::create_dir(&parts).unwrap();
    let [one, two] = [0, 1].map(|number| {
        let path = parts.join(format!("test-0000{number}-of-00002.jsonl"));
        std::fs::write(&path, r#"{"question": "q", "answer": "a"}"#).unwrap();
        path
    });
    let error = crate::error::causes(&read(&[one, two]).err().unwrap());
    assert!(
        error.contains("the question popqa/line-1") && error.contains("name the folder"),
        "{error}"
    );
    let [_, _, test] = read(&[parts]).unwrap();
    let names: Vec<String> = test.iter().map(|task| task.name()).collect();
    assert_eq!(names, ["popqa/line-1", "popqa/line-2"]);
}

#[test]
fn two_questions_of_an_environment_with_one_id_are_refused() {
    let own: MakeQuestions = |settings, split, _, _| {
        let ids: Vec<String> = serde_json::from_value(settings["ids"].clone())?;
        let task = |id: String| Task {
            split,
            ..Task::new(id, "Who?")
        };
        Ok(ids.into_iter().map(task).collect())
    };
    let brought = |ids: [&str; 3]| {
        let settings = Map::from_iter([("ids".to_owned(), Value::from(ids.to_vec()))]);
        own_questions(own, settings, Split::Train, 3, 7)
    };
    assert_eq!(brought(["a", "b", "c"]).unwrap().len(), 3);
    let error = crate::error::causes(&brought(["a", "b", "a"]).err().unwrap());
    assert!(
        error.contains("questions 1 and 3 of train are both a")
            && error.contains("an id of its own"),
        "{error}"
    );
}

#[test]
fn folders_with_the_same_ids_are_one_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let write = |set: &str, text: &str| {
        let place = folder.path().join(set);
        std::fs::create_dir_all(place.join("qrels")).unwrap();
        let row = serde_json::json!({"_id": "1", "title": "T", "text": text});
        std::fs::write(place.join("corpus.jsonl"), row.to_string()).unwrap();
        let row = serde_json::json!({"_id": "q", "text": "question"});
        std::fs::write(place.join("queries.jsonl"), row.to_string()).unwrap();
        let judged = "query-id\tcorpus-id\tscore\nq\t1\t2\n";
        std::fs::write(place.join("qrels/train.tsv"), judged).unwrap();
        place
    };
    let places = vec![write("nfcorpus", "red"), write("scifact", "blue")];
    let files = toml::toml! { train = "" };
    let mut files: FilesConfig = files.try_into().unwrap();
    (files.corpus, files.train) = (places.clone(), places);
    let layout = RunLayout::new(folder.path());
    let (environment, retriever) = (EnvironmentConfig::default(), RetrieverConfig::default());
    let load = |files: &FilesConfig| load_files(files, (&environment, &retriever, true), &layout);
    let (_, [train, _, _]) = load(&files).unwrap();
    let judged: Vec<_> = train
        .iter()
        .map(|task| (task.name(), task.qrels.clone()))
        .collect();
    let of = |set: &str| {
        let qrels = [(format!("{set}/1"), 2)];
        (format!("{set}/q"), std::collections::BTreeMap::from(qrels))
    };
    assert_eq!(judged, [of("nfcorpus"), of("scifact")]);
    let index = Index::open(layout.index()).unwrap();
    for (ordinal, set) in ["nfcorpus", "scifact"].into_iter().enumerate() {
        let id = format!("{set}/1");
        assert_eq!(index.ordinal_of(&id).unwrap(), Some(ordinal as u32));
    }
    // In this order, and no other corpus.
    files.corpus.reverse();
    assert!(load(&files).is_err());
    // Without the corpora nothing says how judgments are to be renamed.
    files.corpus.clear();
    files.index = Some(layout.index());
    let error = load(&files).err().unwrap().to_string();
    assert!(
        error.contains("passage `1`, which nfcorpus/q judges, as `nfcorpus/1`"),
        "{error}"
    );
    files.corpus.clone_from(&files.train);
    load(&files).unwrap();
    // One alone keeps its ids.
    files.corpus.truncate(1);
    let [train, _, _] = file_splits(&files, None).unwrap();
    assert!(train.iter().all(|task| task.qrels.contains_key("1")));
}

#[test]
fn questions_are_read_before_an_index_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let page = "{\"id\": \"one\", \"title\": \"One\", \"content\": \"A text.\"}\n";
    std::fs::write(at("pages.jsonl"), page).unwrap();
    let rows = "{\"question\": \"Who?\", \"answer\": \"Ada\"}\n{\"question\"\n";
    std::fs::write(at("a.jsonl"), rows).unwrap();
    let data = format!(
        "data={{ files = {{ corpus = {:?}, format = \"pages\", train = {:?} }} }}",
        at("pages.jsonl"),
        at("a.jsonl")
    );
    let text = include_str!("../../../configs/smoke.toml");
    let config = RunConfig::parse(text, &[data, "grpo.evaluate_every=0".to_owned()]).unwrap();
    let run = at("run");
    std::fs::create_dir(&run).unwrap();
    assert!(Data::load(&config.resolve(None).unwrap(), &run).is_err());
    assert!(!RunLayout::new(&run).index().exists());
}
