//! Cascades and rankers under attack, from the command line.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What `forage` prints, run in a folder.
fn forage(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_forage"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The error of a command that does not begin.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_forage"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A folder with a world and its index, and the configs of the repository.
fn place() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["configs", "trainer"] {
        let there = root.join(name).canonicalize().unwrap();
        std::os::unix::fs::symlink(there, folder.path().join(name)).unwrap();
    }
    let world = ["world", "--pages", "100", "--seed", "3", "--out", "world"];
    forage(folder.path(), &world);
    let index = ["index", "build", "--corpus", "world/beir", "--out", "index"];
    forage(folder.path(), &index);
    folder
}

const ENCODER: &str = "trainer/tests/fixtures/tiny_bert";
const CROSS_ENCODER: &str = "trainer/tests/fixtures/tiny_cross_encoder";
const QUERIES: &str = "world/beir/queries.jsonl";

const RETRIEVAL: [&str; 8] = [
    "eval",
    "retrieval",
    "--index",
    "index",
    "--queries",
    QUERIES,
    "--qrels",
    "world/beir/qrels/test.tsv",
];

#[test]
fn stages_of_a_cascade_stand_beside_their_cost() {
    let place = place();
    let run = |more: &[&str]| forage(place.path(), &[&RETRIEVAL[..], more].concat());
    let json = |more: &[&str]| -> Value { serde_json::from_str(&run(more)).unwrap() };
    let found = json(&[
        "--json",
        "--stages",
        "bm25:100,bm25:50,dense:20,cross-encoder:10,policy:4",
        "--encoder",
        ENCODER,
        "--reranker",
        CROSS_ENCODER,
        "--config",
        "configs/rerank.toml",
        "--policy",
        "oracle",
    ]);
    let stages = found["stages"].as_array().unwrap();
    let names: Vec<&str> = stages
        .iter()
        .map(|row| row["stage"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["bm25", "bm25", "dense", "cross-encoder", "policy"]);
    assert_eq!(found["unranked"], 0);
    let of = |row: &Value, name: &str| row["metrics"][name]["estimate"].as_f64().unwrap();

    // The first stage is the retriever as it is evaluated alone, and BM25 over its own hits changes nothing.
    let alone = json(&["--json", "-k", "100"]);
    for name in ["ndcg@10", "recall@10", "recall@100"] {
        let expected = alone[name].as_f64().unwrap();
        for row in &stages[..2] {
            assert!((of(row, name) - expected).abs() < 1e-12, "{name}");
        }
    }
    // A later stage finds nothing new.
    for row in stages {
        assert!((of(row, "recall@100") - of(&stages[0], "recall@100")).abs() < 1e-12);
        for cost in ["cpu_ms", "ms"] {
            assert!(row[cost].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    // Whoever knows the judgments puts what is relevant of four candidates in front.
    assert!(of(&stages[4], "ndcg@10") > of(&stages[3], "ndcg@10"));
    let candidates: Vec<f64> = stages
        .iter()
        .map(|row| row["candidates"].as_f64().unwrap())
        .collect();
    let info = forage(place.path(), &["index", "info", "index", "--json"]);
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(Some(candidates[0]), info["counts"]["passages"].as_f64());
    for (found, most) in candidates[1..].iter().zip([50.0, 20.0, 10.0, 4.0]) {
        assert!(*found > 1.0 && *found <= most, "{candidates:?}");
    }

    let table = run(&["--stages", "bm25:20"]);
    for part in [
        "stage",
        "candidates",
        "ndcg@10",
        "recall@10",
        "CPU ms",
        "judged queries",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn the_file_of_a_ranking_is_named_and_stays_until_there_is_another() {
    let place = place();
    let read = || std::fs::read_to_string(place.path().join("ranked.txt")).unwrap();
    forage(
        place.path(),
        &[&RETRIEVAL[..], &["--run", "ranked.txt"]].concat(),
    );
    let before = read();
    assert!(before.contains(" Q0 "), "{before}");
    let told = forage(
        place.path(),
        &[&RETRIEVAL[..], &["--run", "/dev/stdout"]].concat(),
    );
    assert!(told.contains(&before), "{told}");
    let remote = "kind = \"search-r1\"\nurl = \"http://127.0.0.1:9/retrieve\"\n";
    std::fs::write(place.path().join("remote.toml"), remote).unwrap();
    let mut elsewhere = RETRIEVAL;
    elsewhere[2..4].copy_from_slice(&["--remote", "remote.toml"]);
    for (command, run, part) in [
        (RETRIEVAL, "none/ranked.txt", "cannot write none/ranked.txt"),
        (elsewhere, "ranked.txt", "127.0.0.1:9"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_forage"))
            .args(command)
            .args(["--run", run])
            .current_dir(place.path())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{error}");
    }
    assert_eq!(read(), before);
}

#[test]
fn a_ranking_is_compared_with_the_run_of_another() {
    let place = place();
    let written = [&RETRIEVAL[..], &["-k", "20", "--run", "ranked.txt"]].concat();
    forage(place.path(), &written);
    let command = [&RETRIEVAL[..], &["-k", "20", "--against", "ranked.txt"]].concat();
    let json = || -> Value {
        let found = forage(place.path(), &[&command[..], &["--json"]].concat());
        serde_json::from_str(&found).unwrap()
    };
    let same = json();
    let metrics = same["against"]["metrics"].as_object().unwrap();
    assert!(metrics.len() > 10, "{same}");
    for (name, found) in metrics {
        assert_eq!(found["mean"], same[name], "{name}");
        for key in ["estimate", "low", "high"] {
            assert_eq!(found["difference"][key].as_f64(), Some(0.0), "{name}");
        }
        let ends = &same["intervals"][name];
        assert!(ends[0].as_f64() <= ends[1].as_f64(), "{name}: {ends}");
    }
    assert_eq!(same["against"]["unanswered"], 0);

    // The lists of the first judged query alone: all others count 0.
    let run = std::fs::read_to_string(place.path().join("ranked.txt")).unwrap();
    let qrels = std::fs::read_to_string(place.path().join(RETRIEVAL[7])).unwrap();
    let judged: BTreeSet<&str> = qrels
        .lines()
        .skip(1)
        .filter_map(|line| line.split('\t').next())
        .collect();
    let of = |query: &str| {
        let lines = run
            .lines()
            .filter(|line| line.split(' ').next() == Some(query));
        lines.collect::<Vec<&str>>().join("\n")
    };
    let first = *judged.first().unwrap();
    std::fs::write(place.path().join("ranked.txt"), of(first)).unwrap();
    let part = json();
    let others = judged.len() - 1;
    assert_eq!(part["against"]["unanswered"].as_u64(), Some(others as u64));
    let found = &part["against"]["metrics"]["recall@10"];
    assert!(found["difference"]["low"].as_f64() > Some(0.0), "{found}");
    let table = forage(place.path(), &command);
    let counts = format!("({others} without results, counted as 0); 0 without judgments left out");
    for words in ["other  difference", "the other run: ", counts.as_str()] {
        assert!(table.contains(words), "{words}: {table}");
    }

    let error = refused(
        place.path(),
        &[&command[..], &["--run", "ranked.txt"]].concat(),
    );
    assert!(error.contains("is a file that is read"), "{error}");
    std::fs::write(place.path().join("other.txt"), "q Q0 d 1 high tag\n").unwrap();
    let other = [&RETRIEVAL[..], &["--against", "other.txt"]].concat();
    let error = refused(place.path(), &other);
    assert!(
        error.contains("other.txt line 1: the score `high`"),
        "{error}"
    );
    let compared = Command::new(env!("CARGO_BIN_EXE_forage"))
        .args(["compare", "ranked.txt", "ranked.txt"])
        .current_dir(place.path())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&compared.stderr);
    let part = "`ranked.txt` is a TREC run, not a file of episodes: forage eval retrieval --against ranked.txt";
    assert!(
        !compared.status.success() && error.contains(part),
        "{error}"
    );
}

#[test]
fn stages_that_cannot_be_are_refused() {
    let place = place();
    for (stages, part) in [
        ("bm25", "`bm25` is not NAME:CANDIDATES"),
        ("bm25:0", "`bm25:0` is not NAME:CANDIDATES"),
        ("best:10", "the first stage is a search mode"),
        ("bm25:10,hybrid:5", "`hybrid` cannot be a later stage"),
        ("bm25:10,dense:5", "name an encoder"),
        ("bm25:10,cross-encoder:5", "needs a reranker"),
        ("bm25:10,policy:5", "give --config"),
    ] {
        let error = refused(
            place.path(),
            &[&RETRIEVAL[..], &["--stages", stages]].concat(),
        );
        assert!(error.contains(part), "{stages}: {error}");
    }
    // A model that would be of no use.
    for (stages, model) in [
        ("bm25:10,dense:5", ["--reranker", CROSS_ENCODER]),
        ("boolean:10,bm25:5", ["--encoder", ENCODER]),
    ] {
        let error = refused(
            place.path(),
            &[&RETRIEVAL[..], &["--stages", stages], &model].concat(),
        );
        let part = format!("leave {} out", model[0]);
        assert!(error.contains(&part), "{stages}: {error}");
    }
    let answers = [
        "--stages",
        "bm25:10,policy:5",
        "--config",
        "configs/smoke.toml",
    ];
    let error = refused(place.path(), &[&RETRIEVAL[..], &answers[..]].concat());
    assert!(error.contains("ends in an answer"), "{error}");
}

#[test]
fn rankings_are_shown_beside_the_passages_that_they_are_judged_by() {
    let place = place();
    let play = |policy: &str, out: &str| {
        let ranks = ["eval", "--env", "rerank", "--policy", policy];
        let asked = ["--index", "index", "--questions", "world/beir"];
        let kept = ["--limit", "20", "--out", out];
        forage(place.path(), &[&ranks[..], &asked, &kept].concat());
        forage(place.path(), &["runs", "show", out, "--wrong", "-n", "20"])
    };
    let first = play("first-stage", "first.jsonl");
    assert!(
        first.contains("\nrelevant: ") && !first.contains("\ngold: "),
        "{first}"
    );
    let better = play("oracle", "oracle.jsonl");
    let count = |shown: &str| shown.matches("\nrelevant: ").count();
    assert!(count(&better) < count(&first), "{better}");
}

#[test]
fn judgments_of_another_corpus_are_refused() {
    let place = place();
    let other = place.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let passage = "{\"_id\": \"1\", \"title\": \"One\", \"text\": \"A text.\"}\n";
    std::fs::write(other.join("corpus.jsonl"), passage).unwrap();
    let corpora = ["--corpus", "world/beir", "--corpus", "other"];
    let build = [
        &["index", "build"][..],
        &corpora[..],
        &["--out", "both"][..],
    ]
    .concat();
    forage(place.path(), &build);
    // Its ids begin with the names of the corpora.
    let mut command = RETRIEVAL;
    command[3] = "both";
    let ways: [&[&str]; 2] = [&[], &["--stages", "bm25:10"]];
    for more in ways {
        let error = refused(place.path(), &[&command[..], more].concat());
        let part = "judges no passage of the index both relevant";
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn queries_of_other_judgments_are_refused() {
    let place = place();
    let queries = "{\"_id\": \"17\", \"text\": \"Who sings?\"}\n";
    std::fs::write(place.path().join("queries.jsonl"), queries).unwrap();
    let mut command = RETRIEVAL;
    command[5] = "queries.jsonl";
    let ways: [&[&str]; 2] = [&[], &["--stages", "bm25:10"]];
    for more in ways {
        let error = refused(place.path(), &[&command[..], more].concat());
        let part = "no query of queries.jsonl is judged, `17` for instance";
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_ranking_is_not_written_over_the_files_that_it_is_made_of() {
    let place = place();
    let kept = std::fs::read(place.path().join(QUERIES)).unwrap();
    let run = ["--run", "world/../world/beir/queries.jsonl"];
    let error = refused(place.path(), &[&RETRIEVAL[..], &run].concat());
    assert!(error.contains("is a file that is read"), "{error}");
    assert_eq!(std::fs::read(place.path().join(QUERIES)).unwrap(), kept);
}

#[test]
fn rankers_are_attacked_and_certified() {
    let place = place();
    let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    // Keywords of questions for words of every passage; then words that no passage has.
    write(
        "near.txt",
        "the birthplace occupation spouse employer\nis birthplace occupation spouse employer\n",
    );
    write("none.txt", "zzqzz yyqyy\n");
    let command = [
        "eval",
        "robustness",
        "--index",
        "index",
        "--queries",
        QUERIES,
        "--encoder",
        ENCODER,
        "--reranker",
        CROSS_ENCODER,
        "--depth",
        "5",
        "-k",
        "2",
        "--words",
        "2",
        "--samples",
        "20",
        "--limit",
        "12",
    ];
    let run = |more: &[&str]| forage(place.path(), &[&command[..], more].concat());
    let json = |synonyms: &str| -> Vec<Value> {
        let found = run(&["--json", "--synonyms", synonyms]);
        let found: Value = serde_json::from_str(&found).unwrap();
        found["rankers"].as_array().unwrap().clone()
    };
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap();
    let near = json("near.txt");
    let names: Vec<&str> = near
        .iter()
        .map(|row| row["ranker"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["bm25", "dense", "cross-encoder"]);
    assert!(number(&near[0], "attacked") > 0.0 && number(&near[0], "mean_rise") > 0.0);
    for row in &near {
        assert!(row["lists"].as_u64().unwrap() > 5 && number(row, "replaceable") > 0.5);
        for share in ["attacked", "certified"] {
            assert!((0.0..=1.0).contains(&number(row, share)), "{row}");
        }
    }
    for row in json("none.txt") {
        for name in ["attacked", "mean_rise", "replaceable"] {
            assert!(number(&row, name).abs() < 1e-12, "{row}");
        }
    }
    // Nothing can be replaced: every list is safe whose scores differ at the cut.
    assert!(number(&json("none.txt")[0], "certified") > 0.0);
    let table = run(&["--synonyms", "near.txt"]);
    assert!(
        table.contains("mean rise") && table.contains("cross-encoder"),
        "{table}"
    );

    write("bad.txt", "big\n");
    let error = refused(
        place.path(),
        &[&command[..], &["--synonyms", "bad.txt"]].concat(),
    );
    assert!(
        error.contains("line 1: `big` has no substitutes"),
        "{error}"
    );
    let few = [
        "--index",
        "index",
        "--queries",
        QUERIES,
        "--synonyms",
        "near.txt",
        "-k",
        "20",
    ];
    let error = refused(
        place.path(),
        &[&["eval", "robustness"][..], &few[..]].concat(),
    );
    assert!(error.contains("a larger --depth"), "{error}");
    let many = ["eval", "robustness", "--samples", "100001"];
    let error = refused(place.path(), &[&many[..], &few[..6]].concat());
    assert!(
        error.contains("--samples is 100001: give 100000 or less"),
        "{error}"
    );
}

#[test]
fn a_cross_encoder_orders_what_a_boolean_query_finds() {
    let place = place();
    let search = |more: &[&str]| -> (Vec<Value>, String) {
        let query = "(birthplace OR spouse OR employer";
        let command = ["search", "index", query, "--mode", "boolean", "--json"];
        let output = Command::new(env!("CARGO_BIN_EXE_forage"))
            .args(command)
            .args(["-k", "5"])
            .args(more)
            .current_dir(place.path())
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        let hits = String::from_utf8(output.stdout).unwrap();
        let hits = hits.lines().map(|line| serde_json::from_str(line).unwrap());
        (hits.collect(), told)
    };
    let ids = |hits: &[Value]| -> BTreeSet<String> {
        hits.iter().map(|hit| hit["id"].to_string()).collect()
    };
    let scores = |hits: &[Value]| -> BTreeSet<String> {
        hits.iter().map(|hit| hit["score"].to_string()).collect()
    };
    let (first, told) = search(&[]);
    let reranker = ["--reranker", CROSS_ENCODER, "--rerank-depth", "5"];
    let (anew, told_anew) = search(&reranker);
    assert_eq!(first.len(), 5);
    assert_eq!(ids(&anew), ids(&first));
    assert!(scores(&anew).is_disjoint(&scores(&first)));
    // What was repaired in the query is told either way.
    for told in [told, told_anew] {
        assert!(told.contains("note: "), "{told}");
    }
}
