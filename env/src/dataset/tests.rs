use std::path::{Path, PathBuf};

use super::*;
use crate::task::{Split, Task};

fn file(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("set.jsonl");
    std::fs::write(&path, content).expect("write");
    (folder, path)
}

fn read(content: &str) -> Result<Vec<Task>, DatasetError> {
    let (_folder, path) = file(content.as_bytes());
    read_tasks(&path, None, Split::Dev)
}

fn message(content: &str) -> String {
    let (folder, path) = file(content.as_bytes());
    let error = read_tasks(&path, None, Split::Dev).expect_err("malformed");
    error.to_string().replace(&folder.path().display().to_string(), "")
}

#[test]
fn beir_folders_are_judged_questions_of_a_split() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let root = folder.path().join("scifact");
    std::fs::create_dir_all(root.join("qrels")).expect("folders");
    let queries = "{\"_id\":\"2\",\"text\":\"b\"}\n{\"_id\":\"1\",\"text\":\"a\"}\n{\"_id\":\"3\",\"text\":\"c\"}\n";
    std::fs::write(root.join("queries.jsonl"), queries).expect("write");
    let write = |split: &str, rows: &str| {
        std::fs::write(root.join("qrels").join(split), format!("query-id\tcorpus-id\tscore\n{rows}")).expect("write");
    };
    write("train.tsv", "1\td1\t2\n2\td1\t1\n1\td2\t0\n");
    write("test.tsv", "9\td1\t1\n");
    let tasks = read_tasks(&root, None, Split::Train).expect("a split");
    assert_eq!(tasks.iter().map(|task| task.id.as_str()).collect::<Vec<_>>(), ["2", "1"]);
    assert_eq!((tasks[1].qrels["d1"], tasks[1].qrels["d2"], tasks[1].data_source.as_str()), (2, 0, "scifact"));
    assert!(tasks.iter().all(|task| task.golds.is_empty() && task.split == Split::Train));
    let error = read_tasks(&root, None, Split::Test).expect_err("no such query").to_string();
    assert!(error.contains("judges query `9`"), "{error}");
    assert!(matches!(read_tasks(&root, None, Split::Dev), Err(DatasetError::Beir { .. })));
}

#[test]
fn formats_are_told_apart_by_their_fields() {
    let plain = read("{\"question\":\"q\",\"answer\":3}\n").expect("plain");
    assert_eq!((plain[0].id.as_str(), plain[0].golds.as_slice()), ("line-1", &["3".to_owned()][..]));
    assert_eq!((plain[0].data_source.as_str(), plain[0].split), ("set", Split::Dev));

    let flash = read(r#"{"id":"t_0","question":"q","golden_answers":["a","b"],"data_source":"nq","metadata":null}"#);
    let flash = flash.expect("flashrag");
    assert_eq!((flash[0].golds.len(), flash[0].data_source.as_str()), (2, "nq"));

    let musique =
        r#"{"_id":"m","text":"t","answer":"A","answer_aliases":["B","A"],"gold":["p1","p2"],"decomposition":[1,2,3]}"#;
    let musique = read(musique).expect("musique");
    assert_eq!((musique[0].golds.join(","), musique[0].hops, musique[0].evidence.len()), ("A,B".to_owned(), 3, 2));
}

#[test]
fn native_rows_keep_everything_and_their_split() {
    let mut task = read("{\"question\":\"q\",\"answer\":\"a\"}").expect("plain").remove(0);
    task.evidence = vec!["p#0".into()];
    let row = serde_json::to_string(&task).expect("row");
    assert_eq!(read(&row).expect("native"), [task]);
    let (_folder, path) = file(row.as_bytes());
    assert!(matches!(read_tasks(&path, None, Split::Test), Err(DatasetError::NoSuchSplit { rows: 1, .. })));
}

#[test]
fn malformed_lines_name_the_line_the_fault_and_the_mend() {
    let good = "{\"question\":\"q\",\"answer\":\"a\"}\n";
    assert_eq!(
        message(&format!("{good}{{\"question\":\"q\"}}\n")),
        "data set `/set.jsonl` line 2: `answers` is missing; write `answers` as a string"
    );
    assert_eq!(message(&format!("{good}\n{good}")), "data set `/set.jsonl` line 2: the line is blank; remove it");
    assert!(message("{\"question\":").contains("line 1: the line is not JSON"));
    assert!(message("[1]").contains("not a JSON object"));
    assert!(message("{\"prompt\":\"p\",\"label\":1}").contains("fields [prompt, label] fit no known format"));
    assert!(message("{\"question\":\"q\",\"answers\":[]}").contains("no answer"));
    assert!(message("{\"question\":\" \",\"answer\":\"a\"}").contains("`question` is empty"));
    assert!(message("{\"question\":\"q\",\"answer\":null}").contains("`answer` is null"));
    assert!(message("").contains("is empty"));
    assert!(message("\n\n").contains("is empty"));
}

#[test]
fn invalid_utf8_and_missing_files_are_typed() {
    let (_folder, path) = file(b"{\"question\":\"\xff\",\"answer\":\"a\"}");
    assert!(matches!(read_tasks(&path, None, Split::Dev), Err(DatasetError::Line { line: 1, .. })));
    assert!(matches!(read_tasks(Path::new("/no/such"), None, Split::Dev), Err(DatasetError::Io { .. })));
}

#[test]
fn duplicate_ids_name_both_lines() {
    let row = |id: &str| format!("{{\"id\":\"{id}\",\"question\":\"q\",\"golden_answers\":[\"a\"]}}\n");
    let text = [row("x"), row("y"), row("x")].concat();
    assert!(message(&text).contains("id `x` on lines 1 and 3"));
}

#[test]
fn a_hint_overrides_the_fields() {
    let (_folder, path) = file(br#"{"_id":"z","question":"q","answer":"a"}"#);
    let tasks = read_tasks(&path, Some(TaskFormat::Plain), Split::Dev).expect("plain");
    assert_eq!(tasks[0].id, "line-1");
}

#[test]
fn digest_ignores_order_and_sees_every_id() {
    let tasks = read("{\"question\":\"q\",\"answer\":\"a\"}\n{\"question\":\"r\",\"answer\":\"b\"}").expect("plain");
    let turned: Vec<Task> = tasks.iter().rev().cloned().collect();
    assert_eq!(digest_ids(&tasks), digest_ids(&turned));
    assert_ne!(digest_ids(&tasks), digest_ids(&tasks[..1]));
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn shared_data_sets_are_read_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    for (folder, questions, hops) in [("mini", 200, 2), ("multihop/hotpotqa", 1100, 2), ("xquad_en", 1190, 1)] {
        let path = root.join(folder).join("questions.jsonl");
        if !path.exists() {
            eprintln!("skipped: {} is missing", path.display());
            continue;
        }
        let tasks = read_tasks(&path, None, Split::Test).expect(folder);
        assert_eq!(tasks.len(), questions);
        assert!(tasks.iter().all(|task| task.hops == hops && !task.evidence.is_empty() && !task.golds.is_empty()));
        assert_eq!(Some(tasks[0].data_source.as_str()), folder.split('/').next_back());
    }
}
