//! Reads the programs: Python files whose `#:` lines say where a program begins and what it may do.
//!
//! ```text
//! #: NAME -> OUTCOME ...      a program begins; it may end in any of these ways
//! #: before CODE              a turn before it
//! #: repeat N "A" ["B"]       `@@` in the program stands for A N times, or for A N times, 1, and B N times
//! #: out [TEXT]               its output begins with this line, or is empty
//! #: redefined TOOL           the turn reports that this tool's name is taken
//! #: same                     another session with the same seed prints the same
//! #: then CODE                the turn after it, instead of a small sum and a search
//! #: prints [TEXT]            what that turn prints
//! #: ends OUTCOME ...         how that turn may end, instead of `ok`
//! ```
//!
//! An outcome is a status, or `exception:KIND` for one kind of exception. `@FILE@`, `@FOLDER@` and `@PORT@` stand for a file, a
//! folder and a port of the machine that no program may reach.

use std::fs;
use std::path::Path;

use forage_sandbox::{Status, TurnOutput};

/// What every session must still be able to do, unless a program says otherwise.
const THEN: &str = "print(6 * 7, search_pages('bridge')[0]['id'])";
const PRINTS: &str = "42 page-1";

/// A way to end.
#[derive(Debug)]
pub(crate) struct Outcome {
    status: Status,
    kind: Option<String>,
}

impl Outcome {
    fn read(text: &str) -> Self {
        let (status, kind) = text.split_once(':').map_or((text, None), |(status, kind)| {
            (status, Some(kind.to_owned()))
        });
        let status = serde_json::from_value(status.into())
            .unwrap_or_else(|_| panic!("`{status}` is not a status"));
        Self { status, kind }
    }

    pub(crate) fn fits(&self, turn: &TurnOutput) -> bool {
        let kind = turn
            .error
            .as_ref()
            .and_then(|error| error.kind.rsplit('.').next());
        turn.status == self.status
            && self
                .kind
                .as_deref()
                .is_none_or(|wanted| kind == Some(wanted))
    }
}

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) code: String,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) before: Option<String>,
    pub(crate) out: Option<String>,
    pub(crate) redefined: Option<String>,
    pub(crate) same: bool,
    pub(crate) then: String,
    pub(crate) prints: Option<String>,
    pub(crate) ends: Vec<Outcome>,
}

/// The programs of `tests/hostile/NAME.py`.
pub(crate) fn read(name: &str, places: &[(&str, String)]) -> Vec<Program> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/hostile")
        .join(name)
        .with_extension("py");
    let text = fs::read_to_string(&path).unwrap();
    let mut programs: Vec<(Vec<String>, String)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("#: ") {
            Some(header) if header.contains(" -> ") => {
                programs.push((vec![header.to_owned()], String::new()));
            }
            Some(header) => programs
                .last_mut()
                .expect("a program begins first")
                .0
                .push(header.to_owned()),
            None => {
                let code = &mut programs.last_mut().expect("a program begins first").1;
                code.push_str(line);
                code.push('\n');
            }
        }
    }
    programs
        .into_iter()
        .map(|(headers, code)| program(&headers, &code, places))
        .collect()
}

fn program(headers: &[String], code: &str, places: &[(&str, String)]) -> Program {
    let (name, outcomes) = headers[0]
        .split_once(" -> ")
        .expect("the first header names the program");
    let rest: Vec<(&str, &str)> = headers[1..]
        .iter()
        .map(|header| header.split_once(' ').unwrap_or((header, "")))
        .collect();
    let find = |key: &str| {
        rest.iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| (*value).to_owned())
    };
    for (key, _) in &rest {
        let known = [
            "before",
            "repeat",
            "out",
            "redefined",
            "same",
            "then",
            "prints",
            "ends",
        ];
        assert!(known.contains(key), "{name}: unknown header `{key}`");
    }
    let mut code = code.trim_end_matches('\n').to_owned() + "\n";
    for (place, value) in places {
        code = code.replace(place, value);
    }
    if let Some(repeat) = find("repeat") {
        code = code.replace("@@", &repeated(&repeat));
    }
    let then = find("then");
    let prints = if then.is_none() {
        Some(PRINTS.to_owned())
    } else {
        find("prints")
    };
    let ends = find("ends").unwrap_or_else(|| "ok".to_owned());
    Program {
        name: name.to_owned(),
        code,
        outcomes: outcomes.split_whitespace().map(Outcome::read).collect(),
        before: find("before"),
        out: find("out"),
        redefined: find("redefined"),
        same: find("same").is_some(),
        then: then.unwrap_or_else(|| THEN.to_owned()),
        prints,
        ends: ends.split_whitespace().map(Outcome::read).collect(),
    }
}

/// `N "A" ["B"]`, the texts as JSON writes them.
fn repeated(header: &str) -> String {
    let (count, texts) = header.split_once(' ').expect("a count and a text");
    let count: usize = count.parse().expect("a count");
    let mut texts = serde_json::Deserializer::from_str(texts)
        .into_iter::<String>()
        .map(|text| text.expect("a text"));
    let opening = texts.next().expect("a text").repeat(count);
    texts.next().map_or_else(
        || opening.clone(),
        |closing| format!("{opening}1{}", closing.repeat(count)),
    )
}
