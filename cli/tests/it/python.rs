//! `forage python`: one program, many, and what goes wrong.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn forage(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forage"))
        .current_dir(folder)
        .arg("python")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_program_prints_fails_and_leaves_as_pythons_do() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("print(6 * 7)", 0, "42\n", ""),
        ("\u{feff}print(6 * 7)", 0, "42\n", ""),
        (
            "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)",
            3,
            "out\n",
            "err\n",
        ),
        ("exit()", 0, "", ""),
        ("exit('no luck')", 1, "", "no luck\n"),
        ("", 0, "", ""),
        (
            "print('a')\n1 / 0",
            1,
            "a\n",
            "Traceback (most recent call last):\n  File \"<python>\", line 2, in <module>\n    1 / 0\n    ~~^~~\n\
             ZeroDivisionError: division by zero\n",
        ),
    ];
    for (code, status, stdout, stderr) in cases {
        std::fs::write(folder.path().join("program.py"), code).unwrap();
        let output = forage(folder.path(), &["program.py"]);
        let seen = (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        );
        assert_eq!(seen, (Some(status), stdout, stderr), "{code}");
    }
}

#[test]
fn a_pipe_is_a_program_and_pages_can_be_searched() {
    let folder = tempfile::tempdir().unwrap();
    let page = json!({"id": "ada", "title": "Ada", "content": "# Ada\nWrote notes.\n## Later\nDied young.\n"});
    std::fs::write(folder.path().join("pages.jsonl"), format!("{page}\n")).unwrap();
    let index = [
        "index",
        "build",
        "--corpus",
        "pages.jsonl",
        "--out",
        "index",
    ];
    let built = Command::new(env!("CARGO_BIN_EXE_forage"))
        .current_dir(folder.path())
        .args(index)
        .args(["--format", "whole-pages"])
        .output();
    assert!(built.unwrap().status.success());
    for pages in ["pages.jsonl", "index"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forage"))
            .current_dir(folder.path())
            .args(["python", "--pages", pages])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let code =
            b"page = search_pages('notes')[0]\nprint(page, read_section(page['page_id'] + ':later'))\n";
        child.stdin.take().unwrap().write_all(code).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            text(&output.stdout),
            "{'page_id': 'ada', 'title': 'Ada'} ## Later\nDied young.\n\n",
            "{pages}"
        );
    }
}

#[test]
fn many_programs_are_answered_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let program = |number| {
        json!({"id": number, "code": format!("print({number})\n[][{number}]")}).to_string()
    };
    let programs = (0..20).map(program).collect::<Vec<_>>().join("\n");
    let programs = ["\u{feff}", &programs].concat();
    std::fs::write(folder.path().join("in.jsonl"), programs).unwrap();
    let output = forage(
        folder.path(),
        &["--jsonl", "in.jsonl", "--out", "out.jsonl", "--jobs", "3"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    let rows: Vec<Value> = rows
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    assert_eq!(rows.len(), 20);
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(
            (&row["id"], &row["stdout"]),
            (&json!(number), &json!(format!("{number}\n")))
        );
        assert_eq!(
            (&row["status"], &row["error"]["kind"]),
            (&json!("exception"), &json!("IndexError"))
        );
        assert_eq!(row["error"]["message"], "list index out of range");
        assert!(row["wall_us"].is_u64() && row["calls"] == json!([]));
    }
}

#[test]
fn wrong_input_is_named_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("in.jsonl"),
        "{\"id\": 1, \"code\": \"\"}\n{\"id\": 2}\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("bytes.py"), b"print('\xff')").unwrap();
    let sound = "{\"id\": 1, \"code\": \"\"}\n";
    std::fs::write(folder.path().join("sound.jsonl"), sound).unwrap();
    let cases: [(&[&str], i32, &str); 7] = [
        (
            &["--jsonl", "in.jsonl", "--out", "out.jsonl"],
            1,
            "in.jsonl, line 2: not {\"id\", \"code\"}",
        ),
        (
            &["--jsonl", "none.jsonl", "--out", "out.jsonl"],
            1,
            "cannot read none.jsonl",
        ),
        (
            &["--jsonl", "sound.jsonl", "--out", "./sound.jsonl"],
            1,
            "it is the file that is read; name another one",
        ),
        (&["none.py"], 1, "cannot read none.py"),
        (&["bytes.py"], 1, "not UTF-8 from byte 7 on"),
        (
            &["bytes.py", "--timeout-s", "0"],
            2,
            "--timeout-s 0 is not between 0 and 86400",
        ),
        (&["bytes.py", "--pages", "none.jsonl"], 1, "none.jsonl"),
    ];
    for (arguments, status, words) in cases {
        let output = forage(folder.path(), arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(
            text(&output.stderr).contains(words),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
    assert!(!folder.path().join("out.jsonl").exists());
    let kept = std::fs::read_to_string(folder.path().join("sound.jsonl"));
    assert_eq!(kept.unwrap(), sound);
}
