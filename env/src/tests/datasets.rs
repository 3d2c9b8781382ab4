//! Data sets in the forms their publishers use (`fixtures/datasets/make.py` writes them with `pyarrow`), and real ones.

use std::path::{Path, PathBuf};

use forage_contracts::{Split, Task};
use forage_env::dataset::{
    Contamination, DatasetError, digest_ids, pick_ids, read_all, read_tasks,
};
use serde_json::{Value, json};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/datasets")
        .join(name)
}

#[test]
fn every_published_form_is_read_as_its_publisher_means_it() {
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture("expected.json")).expect("a file"))
            .expect("JSON");
    let sets = expected.as_object().expect("an object");
    assert!(sets.len() >= 15);
    for (name, rows) in sets {
        let tasks = read_tasks(&fixture(name), Split::Test)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let read: Vec<Value> = tasks
            .iter()
            .map(|task| {
                json!({"id": task.id, "question": task.question, "golds": task.golds, "evidence": task.evidence,
                       "hops": task.hops, "data_source": task.data_source})
            })
            .collect();
        assert_eq!(&Value::from(read), rows, "{name}");
        assert!(tasks.iter().all(|task| task.split == Split::Test), "{name}");
    }
    let judged = &read_tasks(&fixture("beir"), Split::Test).expect("judged queries")[0];
    assert_eq!((judged.qrels["d1"], judged.qrels["d2"]), (2, 0));
    assert_eq!(read_all(&fixture("beir")).expect("all splits").len(), 1);
}

#[test]
fn a_table_has_several_answers_as_a_json_list_in_a_cell() {
    let folder = tempfile::tempdir().expect("a folder");
    let golds = |name: &str, content: &str| -> Vec<Vec<String>> {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("write");
        let tasks = read_tasks(&path, Split::Dev).unwrap_or_else(|error| panic!("{name}: {error}"));
        tasks.into_iter().map(|task| task.golds).collect()
    };
    let both = "\"[\"\"Ada Varga\"\", \"\"Varga\"\"]\"";
    for names in [
        "id,question,answer",
        "id,question,answers",
        "id,question,golden_answers",
        "id,question,possible_answers",
        "id,Question,Answer",
        "id,problem,answer",
        "id,prompt,ground_truth",
    ] {
        let found = golds("a.csv", &format!("{names}\n1,Who?,{both}\n2,When?,1974\n"));
        assert_eq!(found, [vec!["Ada Varga", "Varga"], vec!["1974"]], "{names}");
    }
    let tabs = golds("a.tsv", &format!("question\tanswer\nWho?\t{both}\n"));
    assert_eq!(tabs, [["Ada Varga", "Varga"]]);
    // An interval is an answer, and a text in another form than a table is what it is.
    assert_eq!(
        golds("b.csv", "problem,answer\nWhere?,\"[1, 2]\"\n"),
        [["[1, 2]"]]
    );
    let row = json!({"question": "Which list?", "answer": "[\"a\"]"});
    assert_eq!(golds("c.jsonl", &row.to_string()), [["[\"a\"]"]]);
    let error = message("d.csv", "question,answer\nWho?,[]\n");
    assert!(error.contains("`answer` has no answer"), "{error}");
}

fn message(name: &str, content: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("write");
    let error = read_tasks(&path, Split::Dev).expect_err("malformed");
    error
        .to_string()
        .replace(&folder.path().display().to_string(), "")
}

#[test]
fn rows_without_an_answer_are_named() {
    for (row, part) in [
        (
            json!({"prompt": "p", "level": 1}),
            "line 1: there is no answer: none of the columns answer, ",
        ),
        (
            json!({"prompt": 3, "answer": "a"}),
            "`prompt` holds no text of a user",
        ),
        (
            json!({"prompt": [{"role": "system", "content": "s"}], "answer": "a"}),
            "holds no text of a user",
        ),
        (
            json!({"prompt": "p", "reward_model": {"ground_truth": {"target": []}}}),
            "ground_truth.target` has no answer",
        ),
        (
            json!({"prompt": "p", "reward_spec": {}}),
            "`reward_spec.ground_truth` has no answer",
        ),
        (
            json!({"responses_create_params": {}, "answer": "a"}),
            "`responses_create_params.input` holds no text",
        ),
        (
            json!({"question": "q", "answer": "", "filename": "x.md"}),
            "`answer` has no answer or an empty one",
        ),
        (
            json!({"question": "q", "answer": "a", "supporting_facts": 1, "_id": "1"}),
            "not a list of titles",
        ),
        (
            json!({"id": "1", "question": "q", "answer": "a", "paragraphs": [], "answerable": false}),
            "answerable part",
        ),
        (
            json!({"id": "1", "question": "q", "answers": {"text": [], "answer_start": []}}),
            "`answers.text` is empty: the question has no answer in its passage; leave out such",
        ),
        (
            json!({"id": "1", "question": "q", "answers": {"text": [" "], "answer_start": [0]}}),
            "`answers.text` has no answer or an empty one",
        ),
        (
            json!({"nl_query": "q", "boolean_query": "a AND b"}),
            "give the file to `forage sft`",
        ),
    ] {
        let text = message("set.jsonl", &row.to_string());
        assert!(text.contains(part), "{row}: {text}");
    }
    let second = message(
        "set.json",
        "[{\"question\":\"q\",\"answer\":\"a\"},\n{\"question\":\"q\",\"answer\":null}]",
    );
    assert!(
        second.contains("`/set.json` row 2: `answer` is null"),
        "{second}"
    );
}

#[test]
fn integers_of_more_than_64_bits_are_refused() {
    for (before, after, field) in [
        ("{\"question\":\"q\",\"answer\":", "}", "answer"),
        (
            "{\"prompt\":\"q\",\"reward_model\":{\"ground_truth\":",
            "}}",
            "reward_model.ground_truth",
        ),
    ] {
        let rows = ["-7", "0.5", "18446744073709551615", "100000000000000000000"]
            .map(|number| [before, number, after].concat());
        let text = message("set.jsonl", &rows.join("\n"));
        let (fault, fix) = text.split_once("; ").expect("a fault and its fix");
        assert!(fault.contains(&format!("line 4: `{field}` is 1")), "{text}");
        assert_eq!(fix, format!("write `{field}` as a string"));
    }
}

#[test]
fn answers_of_problems_fit_a_box() {
    let row = |answer: &str| json!({"problem": "p", "answer": answer}).to_string();
    for answer in ["\\frac{1}{2", "1}", "\\boxed{5}"] {
        let good = ["\\frac{1}{2}", "\\{1, 2\\}", "$12"].map(row);
        let rows = [good.join("\n"), row(answer)].join("\n");
        let text = message("set.jsonl", &rows);
        let fault = format!("line 4: `answer` has `{answer}`, which no closed \\boxed{{}} holds");
        assert!(text.contains(&fault), "{text}");
    }
}

#[test]
fn a_file_name_does_not_say_how_many_hops_a_question_has() {
    let row = json!({"question": "q", "answer": "a", "filename": "velm.md"}).to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wiki.jsonl");
    std::fs::write(&path, row).expect("write");
    let tasks = read_tasks(&path, Split::Test).expect("tasks");
    assert_eq!(tasks[0].evidence, ["velm"]);
    assert_eq!(tasks[0].hops, 0, "the page may be where several begin");
}

#[test]
fn files_are_cut_by_place_and_picked_by_id() {
    let rows: String = (0..10)
        .map(|at| json!({"question": format!("q{at}"), "answer": "a"}).to_string() + "\n")
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trivia.jsonl");
    std::fs::write(&path, rows).expect("write");
    let tasks = read_tasks(&path, Split::Train).expect("tasks");
    let (train, test) = Split::cut(tasks.clone(), 0.8);
    assert_eq!(
        (train.len(), test.len(), test[0].question.as_str()),
        (8, 2, "q8")
    );
    assert!(
        train.iter().all(|task| task.split == Split::Train)
            && test.iter().all(|task| task.split == Split::Test)
    );
    let list = folder.path().join("train.ids");
    let pick = |text: &str| {
        std::fs::write(&list, text).expect("write");
        pick_ids(&tasks, &list)
    };
    let picked = pick("# fixed\nline-3\n\n line-1 \n").expect("both are there");
    assert_eq!(
        picked
            .iter()
            .map(|task| task.id.as_str())
            .collect::<Vec<_>>(),
        ["line-3", "line-1"]
    );
    assert_eq!(
        digest_ids(&picked),
        digest_ids(&[tasks[0].clone(), tasks[2].clone()])
    );
    for (text, part) in [
        (
            "line-1\nline-99",
            "line 2: the data set has no question `line-99`",
        ),
        (
            "line-1\nline-2\nline-1",
            "line 3: id `line-1` stands on line 1 already",
        ),
        ("# none", "names no id"),
    ] {
        let error = pick(text).expect_err(part);
        assert!(
            matches!(error, DatasetError::Ids { .. }) && error.to_string().contains(part),
            "{error}"
        );
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn real_data_sets_are_read_and_their_repetitions_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let path = root.join("multihop/2wikimultihopqa/questions.jsonl");
    if !path.exists() {
        eprintln!("skipped: {} is missing", path.display());
        return;
    }
    let read =
        |set: &str| -> Vec<Task> { read_all(&root.join(set).join("questions.jsonl")).expect(set) };
    assert_eq!(
        (
            read("multihop/2wikimultihopqa").len(),
            read("multihop/musique").len()
        ),
        (500, 100)
    );
    // The small set was drawn from HotpotQA: a leak that must be found.
    let (mini, hotpot) = (read("mini"), read("multihop/hotpotqa"));
    let shared = mini
        .iter()
        .filter(|task| hotpot.iter().any(|other| other.question == task.question))
        .count();
    let found = Contamination::between(&mini, &hotpot);
    assert!(
        found.same_question.len() >= shared,
        "{} of {shared}",
        found.same_question.len()
    );
    let (first, second) = Split::cut(hotpot, 0.8);
    assert!(
        Contamination::between(&first, &second)
            .same_question
            .is_empty()
    );
}

#[test]
fn a_split_without_any_answer_is_looked_at_all_the_same() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let read = |name: &str, rows: &[&str]| {
        let path = folder.path().join(name);
        std::fs::write(&path, rows.join("\n")).expect("write");
        read_all(&path).map_err(|error| error.to_string())
    };
    let null = r#"{"id":"a","question":"Who?","answer":null,"supporting_facts":{"title":[]}}"#;
    let left_out = r#"{"_id":"b","question":"Where?","context":[]}"#;
    let empty = r#"{"id":"c","question":"When?","answer":""}"#;
    for row in [null, left_out, empty] {
        let tasks = read("test.jsonl", &[row]).expect("without answers");
        assert!(tasks.len() == 1 && tasks[0].golds.is_empty(), "{tasks:?}");
    }
    let whole = r#"{"id":"d","question":"Why?","answer":"rain"}"#;
    let refused = read("mixed.jsonl", &[whole, empty]).expect_err("one is missing");
    assert!(
        refused.contains("line 2: `answer` has no answer"),
        "{refused}"
    );
    let corpus = r#"{"_id":"e","title":"E","text":"a text"}"#;
    assert!(read("corpus.jsonl", &[corpus]).is_err());
}
