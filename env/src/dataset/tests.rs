use std::path::{Path, PathBuf};

use forage_contracts::environment::TurnKind;
use forage_contracts::policy::Finish;
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Split, Task, Turn};
use forage_retriever::{CorpusReader, ReadError};

use super::*;
use crate::rollout::EpisodeWriter;

fn file(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("set.jsonl");
    std::fs::write(&path, content).expect("write");
    (folder, path)
}

fn read(content: &str) -> Result<Vec<Task>, DatasetError> {
    let (_folder, path) = file(content.as_bytes());
    read_tasks(&path, Split::Dev)
}

fn message(content: &str) -> String {
    let (folder, path) = file(content.as_bytes());
    let error = read_tasks(&path, Split::Dev).expect_err("malformed");
    error
        .to_string()
        .replace(&folder.path().display().to_string(), "")
}

#[test]
fn beir_folders_are_judged_questions_of_a_split() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let root = folder.path().join("scifact");
    std::fs::create_dir_all(root.join("qrels")).expect("folders");
    let queries = "{\"_id\":\"2\",\"text\":\"b\"}\n{\"_id\":\"1\",\"text\":\"a\"}\n{\"_id\":\"3\",\"text\":\"c\"}\n";
    std::fs::write(root.join("queries.jsonl"), queries).expect("write");
    let write = |split: &str, rows: &str| {
        std::fs::write(
            root.join("qrels").join(split),
            format!("query-id\tcorpus-id\tscore\n{rows}"),
        )
        .expect("write");
    };
    write("train.tsv", "1\td1\t2\n2\td1\t1\n1\td2\t0\n");
    write("test.tsv", "9\td1\t1\n");
    let tasks = read_tasks(&root, Split::Train).expect("a split");
    assert_eq!(
        tasks
            .iter()
            .map(|task| task.id.as_str())
            .collect::<Vec<_>>(),
        ["2", "1"]
    );
    assert_eq!(
        (
            tasks[1].qrels["d1"],
            tasks[1].qrels["d2"],
            tasks[1].data_source.as_str()
        ),
        (2, 0, "scifact")
    );
    assert!(
        tasks
            .iter()
            .all(|task| task.golds.is_empty() && task.split == Split::Train)
    );
    let error = read_tasks(&root, Split::Test)
        .expect_err("no such query")
        .to_string();
    assert!(error.contains("judges query `9`"), "{error}");
    let error = read_tasks(&root, Split::Dev).expect_err("no such judgments");
    let words = error.to_string();
    assert!(words.contains("none of `dev`"), "{words}");
}

#[test]
fn formats_are_told_apart_by_their_fields() {
    let plain = read("{\"question\":\"q\",\"answer\":3}\n").expect("plain");
    assert_eq!(
        (plain[0].id.as_str(), plain[0].golds.as_slice()),
        ("line-1", &["3".to_owned()][..])
    );
    assert_eq!(
        (plain[0].data_source.as_str(), plain[0].split),
        ("set", Split::Dev)
    );

    let flash = r#"{"id":"t_0","question":"q","golden_answers":["a","b"],"data_source":"nq","metadata":null}"#;
    let flash = read(flash).expect("flashrag");
    assert_eq!(
        (flash[0].golds.len(), flash[0].data_source.as_str()),
        (2, "nq")
    );

    let solved = r#"{"question":"q","answer":"It is <<2*3=6>>6.\n#### 1,006"}"#;
    assert_eq!(read(solved).expect("gsm8k")[0].golds, ["1,006"]);
    let unsolved = solved.to_owned() + "\n{\"question\":\"q\",\"answer\":\"6\"}";
    assert!(message(&unsolved).contains("line 2: `answer` does not end in a line `#### NUMBER`"));

    let musique = r#"{"_id":"m","text":"t","answer":"A","answer_aliases":["B","A"],"gold":["p1","p2"],"decomposition":[1,2,3]}"#;
    let musique = read(musique).expect("musique");
    assert_eq!(
        (
            musique[0].golds.join(","),
            musique[0].hops,
            musique[0].evidence.len()
        ),
        ("A,B".to_owned(), 3, 2)
    );
}

#[test]
fn a_file_in_a_folder_keeps_its_path() {
    for (file, page) in [
        ("velm.md", "velm"),
        ("guide/index.markdown", "./guide/index"),
        ("guide\\\\api\\\\index.md", "./guide/api/index"),
    ] {
        let row = format!("{{\"question\":\"q\",\"answer\":\"a\",\"filename\":\"{file}\"}}");
        assert_eq!(read(&row).expect("trivia")[0].evidence, [page]);
    }
    let nameless = "{\"question\":\"q\",\"answer\":\"a\",\"filename\":\"guide/.md\"}";
    assert!(message(nameless).contains("`filename` is empty"));
    let without = "{\"question\":\"q\",\"answer\":\"a\",\"filename\":\"velm.md\"}\n{\"question\":\"q\",\"answer\":\"a\"}";
    assert!(message(without).contains(
        "line 2: `filename` is missing; write `filename` as a string, or leave it out of every row"
    ));
    let late = "{\"question\":\"q\",\"answer\":\"a\"}\n{\"question\":\"q\",\"answer\":\"a\",\"filename\":\"velm.md\"}";
    assert!(message(late).contains("line 2: `filename` is here, and the first row has none"));
}

#[test]
fn a_null_is_no_value() {
    let rows = [
        r#"{"_id":"a","text":"t","question":null,"answer":null,"answers":"A","answer_aliases":null,"gold":null}"#,
        r#"{"question":"t","reward_model":null,"reward_spec":{"ground_truth":{"target":["A"]}}}"#,
        r#"{"problem":null,"answer":null,"Problem":"t","Answer":"A"}"#,
        r#"{"prompt":"t","info":{"answer":null,"target":"A"}}"#,
    ];
    for row in rows {
        let task = read(row).expect("a value for each").remove(0);
        assert_eq!(
            (task.question.as_str(), task.golds),
            ("t", vec!["A".to_owned()]),
            "{row}"
        );
        assert!(task.evidence.is_empty());
    }
}

#[test]
fn native_rows_keep_everything_and_their_split() {
    let mut task = read("{\"question\":\"q\",\"answer\":\"a\"}")
        .expect("plain")
        .remove(0);
    task.evidence = vec!["p#0".into()];
    let row = serde_json::to_string(&task).expect("row");
    assert_eq!(read(&row).expect("native"), [task]);
    let (_folder, path) = file(row.as_bytes());
    assert!(matches!(
        read_tasks(&path, Split::Test),
        Err(DatasetError::NoSuchSplit { rows: 1, .. })
    ));
}

#[test]
fn malformed_lines_name_the_line_the_fault_and_the_fix() {
    let good = "{\"question\":\"q\",\"answer\":\"a\"}\n";
    assert_eq!(
        message(&format!("{good}{{\"question\":\"q\"}}\n")),
        "`/set.jsonl` line 2: neither `answer` nor `answers` is there; write the one of them that other rows have"
    );
    let unasked = message(&format!("{good}{{\"answer\":\"a\"}}\n"));
    assert!(
        unasked.contains("line 2: neither `question` nor `text` is there"),
        "{unasked}"
    );
    // Every row has the fields of the first.
    let other = "{\"id\":\"x\",\"question\":\"q\",\"golden_answers\":[\"a\"]}\n";
    let mixed = message(&format!("{good}{other}"));
    assert!(mixed.ends_with("a file of the format `plain`, and this row is of `search-r1`"));
    let apart: Vec<String> = read(&format!("{good}\n{good}"))
        .expect("plain")
        .into_iter()
        .map(|task| task.id)
        .collect();
    assert_eq!(
        apart,
        ["line-1", "line-3"],
        "blank lines are counted and passed over"
    );
    let cut = message("{\"question\":");
    assert!(
        cut.contains("line 1: not a JSON object (EOF") && cut.contains(" at column "),
        "{cut}"
    );
    assert!(message("[1]").contains("not a JSON object"));
    assert!(
        message("{\"text\":\"p\",\"score\":1}")
            .contains("fields [text, score] fit no known format")
    );
    assert!(message("{\"question\":\"q\",\"answers\":[]}").contains("no answer"));
    // An empty list of golds is written on purpose; where there is none, something is missing.
    let task = |known: &str| {
        format!(
            "{{\"id\":\"1\",\"question\":\"q\",{known},\"data_source\":\"s\",\"split\":\"dev\"}}"
        )
    };
    assert!(
        read(&task("\"golds\":[]")).expect("a task")[0]
            .golds
            .is_empty()
    );
    assert!(message(&task("\"qrels\":{}")).contains("`golds` has no answer"));
    // Every answer of articles and punctuation alone would be right where an empty one is accepted.
    assert!(
        message(&task("\"golds\":[\"a\",\" \"]")).contains("`golds` has no answer or an empty")
    );
    let aliases = "\"answer\":\"a\",\"answer_aliases\":[\"\"]}";
    for fields in [
        "{\"_id\":\"1\",\"text\":\"q\"",
        "{\"id\":\"1\",\"question\":\"q\",\"paragraphs\":[]",
    ] {
        let found = message(&format!("{fields},{aliases}"));
        assert!(
            found.contains("`answer_aliases` has no answer or an empty one"),
            "{found}"
        );
    }
    assert!(message("{\"question\":\" \",\"answer\":\"a\"}").contains("`question` is empty"));
    assert!(message("{\"question\":\"q\",\"answer\":null}").contains("`answer` is null"));
    assert!(message("").contains("is empty"));
    assert!(message("\n\n").contains("is empty"));
}

#[test]
fn invalid_utf8_and_missing_files_are_typed() {
    let (_folder, path) = file(b"{\"question\":\"\xff\",\"answer\":\"a\"}");
    assert!(matches!(
        read_tasks(&path, Split::Dev),
        Err(DatasetError::Rows(ReadError::Malformed { .. }))
    ));
    assert!(matches!(
        read_tasks(Path::new("/no/such"), Split::Dev),
        Err(DatasetError::Rows(ReadError::Missing { .. }))
    ));
}

#[test]
fn duplicate_ids_name_both_lines() {
    let row =
        |id: &str| format!("{{\"id\":\"{id}\",\"question\":\"q\",\"golden_answers\":[\"a\"]}}\n");
    let text = [row("x"), row("y"), row("x")].concat();
    assert!(message(&text).contains("id `x` is on line 1 and again on line 3"));
}

#[test]
fn duplicate_ids_of_a_folder_name_both_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let row =
        |id: &str| format!("{{\"id\":\"{id}\",\"question\":\"q\",\"golden_answers\":[\"a\"]}}\n");
    let write = |name: &str, ids: &[&str]| {
        let rows: String = ids.iter().map(|id| row(id)).collect();
        std::fs::write(folder.path().join(name), rows).expect("write");
    };
    write("a.jsonl", &["x", "y", "z"]);
    write("b.jsonl", &["v", "y"]);
    let error = read_tasks(folder.path(), Split::Dev).expect_err("one id twice");
    let told = error.to_string();
    assert!(told.contains("on line 2 of `"), "{told}");
    assert!(
        told.contains("b.jsonl`: id `y`") && told.contains("again on line 2"),
        "{told}"
    );
}

#[test]
fn ids_begin_anew_in_each_data_set() {
    let row = |source: &str, id: &str, question: &str| {
        format!(
            "{{\"id\":\"{id}\",\"question\":\"{question}\",\"golden_answers\":[\"a\"],\"data_source\":\"{source}\"}}\n"
        )
    };
    let merged = [
        row("nq", "train_0", "who?"),
        row("nq", "train_1", "when?"),
        row("hotpotqa", "train_0", "where?"),
    ];
    let tasks = read(&merged.concat()).expect("one file of two data sets");
    let names: Vec<String> = tasks.iter().map(Task::name).collect();
    assert_eq!(names, ["nq/train_0", "nq/train_1", "hotpotqa/train_0"]);
    let twice = [merged.concat(), row("nq", "train_0", "why?")].concat();
    assert!(message(&twice).contains("id `nq/train_0` is on line 1 and again on line 4"));

    let (folder, _) = file(b"");
    let list = folder.path().join("ids");
    let pick = |text: &str| {
        std::fs::write(&list, text).expect("write");
        pick_ids(&tasks, &list)
    };
    let picked = pick("hotpotqa/train_0\ntrain_1\n").expect("both are clear");
    assert_eq!(picked, [tasks[2].clone(), tasks[1].clone()]);
    let several = pick("train_0\n").expect_err("two data sets").to_string();
    assert!(several.contains("as in `nq/train_0`"), "{several}");
    let again = pick("train_1\nnq/train_1\n").expect_err("the same question");
    assert!(
        again.to_string().contains("stands on line 1 already"),
        "{again}"
    );
}

#[test]
fn files_named_after_splits_are_those_splits() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let write = |name: &str| {
        let row = format!("{{\"id\":\"0\",\"question\":\"{name}?\",\"answer\":\"a\"}}\n");
        std::fs::write(folder.path().join(name), row).expect("write");
    };
    let asked = |split| -> Result<Vec<String>, DatasetError> {
        let tasks = read_tasks(folder.path(), split)?;
        Ok(tasks.into_iter().map(|task| task.question).collect())
    };
    write("train-00000-of-00001.jsonl");
    assert_eq!(
        asked(Split::Test).expect("one split is any"),
        ["train-00000-of-00001.jsonl?"]
    );
    write("test.jsonl");
    assert_eq!(asked(Split::Test).expect("a split"), ["test.jsonl?"]);
    assert_eq!(
        asked(Split::Train).expect("a split"),
        ["train-00000-of-00001.jsonl?"]
    );
    assert!(matches!(
        asked(Split::Dev),
        Err(DatasetError::NoSuchSplit { rows: 2, .. })
    ));
    let splits = read_all(folder.path()).expect("both");
    let splits: Vec<Split> = splits.into_iter().map(|task| task.split).collect();
    assert_eq!(splits, [Split::Test, Split::Train]);
    let folder = tempfile::tempdir().expect("temporary folder");
    for name in ["train.json", "test.json"] {
        let row = format!("[{{\"question\":\"{name}?\",\"answer\":\"a\"}}]");
        std::fs::write(folder.path().join(name), row).expect("write");
    }
    let tasks = read_tasks(folder.path(), Split::Test).expect("lists where there is nothing else");
    assert_eq!(tasks[0].question, "test.json?");
    let folder = tempfile::tempdir().expect("temporary folder");
    for name in ["set_v1.0_train.jsonl", "set_v1.0_dev.jsonl"] {
        let row = format!("{{\"question\":\"{name}?\",\"answer\":\"a\"}}");
        std::fs::write(folder.path().join(name), row).expect("write");
    }
    let tasks = read_tasks(folder.path(), Split::Dev).expect("named at the end");
    assert_eq!(
        (tasks.len(), tasks[0].question.as_str()),
        (1, "set_v1.0_dev.jsonl?")
    );
}

#[test]
fn a_split_without_answers_leaves_the_others_readable() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for (name, answer) in [("test.jsonl", "null"), ("train.jsonl", "\"a\"")] {
        let row = format!("{{\"question\":\"q\",\"answer\":{answer}}}");
        std::fs::write(folder.path().join(name), row).expect("write");
    }
    let tasks = read_tasks(folder.path(), Split::Train).expect("answers");
    assert_eq!((tasks.len(), tasks[0].id.as_str()), (1, "line-2"));
    let error = read_tasks(folder.path(), Split::Test).expect_err("none");
    assert!(error.to_string().contains("`answer` is null"), "{error}");
}

#[test]
fn rows_without_a_data_set_are_of_their_file() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let hub = |repository: &str, file: &str| {
        format!("/c/hub/datasets--{repository}/snapshots/{commit}/{file}")
    };
    for (path, source) in [
        ("popqa.jsonl".to_owned(), "popqa"),
        ("train.jsonl".to_owned(), "train"),
        ("./train.jsonl".to_owned(), "train"),
        // A test runs in the folder of its crate.
        (".".to_owned(), "env"),
        ("src/../train.jsonl".to_owned(), "env"),
        ("../nq/train.jsonl".to_owned(), "nq"),
        ("/sets/nq/train.jsonl.gz".to_owned(), "nq"),
        ("data/train.parquet".to_owned(), "data"),
        ("/sets/nq/test-00000-of-00001.parquet".to_owned(), "nq"),
        (
            hub("RUC-NLPIR--FlashRAG_datasets", "bamboogle/test.jsonl"),
            "bamboogle",
        ),
        (
            hub("PeterJinGo--nq_hotpotqa_train", "train.parquet"),
            "nq_hotpotqa_train",
        ),
        (
            hub("akariasai--PopQA", "default/test/0000.parquet"),
            "PopQA",
        ),
    ] {
        assert_eq!(
            CorpusReader::source_name(Path::new(&path)),
            source,
            "{path}"
        );
    }
}

#[test]
fn digest_ignores_order_and_sees_every_id() {
    let tasks =
        read("{\"question\":\"q\",\"answer\":\"a\"}\n{\"question\":\"r\",\"answer\":\"b\"}")
            .expect("plain");
    let turned: Vec<Task> = tasks.iter().rev().cloned().collect();
    assert_eq!(digest_ids(&tasks), digest_ids(&turned));
    assert_ne!(digest_ids(&tasks), digest_ids(&tasks[..1]));
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn shared_data_sets_are_read_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    for (folder, questions, hops) in [
        ("mini", 200, 2),
        ("multihop/hotpotqa", 1100, 2),
        ("xquad_en", 1190, 1),
    ] {
        let path = root.join(folder).join("questions.jsonl");
        if !path.exists() {
            eprintln!("skipped: {} is missing", path.display());
            continue;
        }
        let tasks = read_tasks(&path, Split::Test).expect(folder);
        assert_eq!(tasks.len(), questions);
        assert!(
            tasks.iter().all(|task| task.hops == hops
                && !task.evidence.is_empty()
                && !task.golds.is_empty())
        );
        assert_eq!(
            Some(tasks[0].data_source.as_str()),
            folder.split('/').next_back()
        );
    }
}

fn labelled(count: usize) -> Vec<Task> {
    let rows =
        (0..count).map(|at| format!("{{\"question\":\"q{at}\",\"answer\":\"answer {at}\"}}\n"));
    read(&rows.collect::<String>()).expect("plain")
}

fn golds(tasks: &[Task]) -> Vec<&str> {
    tasks
        .iter()
        .flat_map(|task| task.golds.iter().map(String::as_str))
        .collect()
}

#[test]
fn shuffled_and_wrong_labels_are_never_the_own_and_follow_from_the_seed() {
    let tasks = labelled(50);
    for labels in [Labels::Shuffled, Labels::Wrong] {
        let once = labels
            .relabel(tasks.clone(), Seed::root(1))
            .expect("others");
        assert_eq!(
            once,
            labels
                .relabel(tasks.clone(), Seed::root(1))
                .expect("others")
        );
        assert_ne!(
            once,
            labels
                .relabel(tasks.clone(), Seed::root(2))
                .expect("others")
        );
        for (before, after) in tasks.iter().zip(&once) {
            assert_ne!(before.golds, after.golds);
            assert_eq!(
                Task {
                    golds: before.golds.clone(),
                    ..after.clone()
                },
                *before
            );
        }
        assert!(matches!(
            labels.relabel(labelled(1), Seed::root(1)),
            Err(LabelError::NoOther { .. })
        ));
        assert_eq!(
            String::from(labels.clone())
                .parse::<Labels>()
                .expect("reads back"),
            labels
        );
    }
    let shuffled = Labels::Shuffled
        .relabel(tasks.clone(), Seed::root(1))
        .expect("others");
    let mut sorted = golds(&shuffled);
    sorted.sort_unstable();
    let mut before = golds(&tasks);
    before.sort_unstable();
    assert_eq!(sorted, before);
    // An alias is an answer too, in any spelling.
    let mut alike = labelled(2);
    alike[1].golds.push("The Answer 0!".to_owned());
    for labels in [Labels::Wrong, Labels::Shuffled] {
        assert!(matches!(
            labels.relabel(alike.clone(), Seed::root(1)),
            Err(LabelError::NoOther { .. })
        ));
    }
}

#[test]
fn shuffled_labels_are_true_nowhere_even_where_answers_are_shared() {
    let mut tasks = labelled(60);
    for (at, task) in tasks.iter_mut().enumerate() {
        task.golds = vec![["weaver", "The Surgeon", "1916", "smith"][at % 4].to_owned()];
    }
    for seed in 0..20 {
        let shuffled = Labels::Shuffled
            .relabel(tasks.clone(), Seed::root(seed))
            .expect("others");
        for (before, after) in tasks.iter().zip(&shuffled) {
            assert_ne!(before.golds, after.golds, "{}", before.id);
        }
        let (mut before, mut after) = (golds(&tasks), golds(&shuffled));
        before.sort_unstable();
        after.sort_unstable();
        assert_eq!(before, after, "each label has moved, none is lost");
    }
}

#[test]
fn majority_labels_are_the_most_frequent_answers_of_episodes() {
    let tasks = labelled(3);
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("episodes.jsonl");
    let mut writer = EpisodeWriter::create(&path).expect("a file");
    let played = [
        (0, Some("x")),
        (0, Some("The Y")),
        (0, Some("y.")),
        (1, Some("answer 1")),
        (1, None),
        (1, None),
    ];
    for (question, answer) in played {
        let kind = answer.map_or(TurnKind::invalid(""), TurnKind::answer);
        let turn = Turn {
            policy: String::new(),
            finish: Finish::Stop,
            kind,
            observation: String::new(),
            reward: 0.0,
        };
        let episode = Episode {
            turns: vec![turn],
            ..Episode::new(tasks[question].clone())
        };
        writer.write(episode).expect("written");
    }
    writer.finish().expect("a whole file");
    let label = |labels: &str| {
        let labels: Labels = format!("{labels}:{}", path.display())
            .parse()
            .expect("labels");
        labels.relabel(tasks.clone(), Seed::root(1))
    };
    let majority = label("majority").expect("labels");
    assert_eq!(
        (golds(&majority), majority[1].id.as_str()),
        (vec!["The Y", "answer 1"], tasks[1].id.as_str())
    );
    assert_eq!(golds(&label("wrong-majority").expect("labels")), ["The Y"]);
    let missing: Labels = "majority:/no/such".parse().expect("labels");
    assert!(matches!(
        missing.relabel(tasks.clone(), Seed::root(1)),
        Err(LabelError::Record(_))
    ));
    let right: Vec<Task> = tasks[1..].to_vec();
    let labels = Labels::WrongMajority(path.clone());
    assert!(matches!(
        labels.relabel(right, Seed::root(1)),
        Err(LabelError::NoneLeft { questions: 2, .. })
    ));
    for unknown in ["majority", "majority:", "Wrong", ""] {
        assert!(unknown.parse::<Labels>().is_err(), "{unknown}");
    }
}
