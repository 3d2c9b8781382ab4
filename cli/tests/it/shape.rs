//! The shape of the source: import cycles between folders and the size of the public surface, counted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::tidy::{ORDER, product, root, sources};

/// Modules of a crate by path, each with the modules that it imports.
type Imports = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

/// The code of a file: without its tests and comments.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a source file");
    let text = product(&text);
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn files(member: &str) -> BTreeMap<Vec<String>, PathBuf> {
    let folder = root().join(member).join("src");
    let mut found = Vec::new();
    sources(&folder, &mut found);
    let module = |path: PathBuf| {
        let inside = path
            .strip_prefix(&folder)
            .expect("inside")
            .with_extension("");
        let mut parts: Vec<String> = inside
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        if matches!(parts.last().map(String::as_str), Some("mod" | "lib")) {
            parts.pop();
        }
        (parts, path)
    };
    let tests =
        |path: &PathBuf| path.iter().any(|part| part == "tests") || path.ends_with("tests.rs");
    // The program's own file only calls the library.
    found.retain(|path| !tests(path) && !path.ends_with("src/main.rs"));
    found.into_iter().map(module).collect()
}

/// The paths of an import: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<String> {
    let Some(open) = tree.find('{') else {
        return vec![tree.trim().to_owned()];
    };
    let inside = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut begin, mut parts) = (0, 0, Vec::new());
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inside[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[begin..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    let below = |part: &str| paths(&format!("{}{}", tree[..open].trim(), part.trim()));
    parts.flat_map(below).collect()
}

/// The absolute path of one that a module writes; `None` where it begins outside of the crate.
fn absolute(
    own: &[String],
    path: &str,
    files: &BTreeMap<Vec<String>, PathBuf>,
) -> Option<Vec<String>> {
    let parts = path.split("::");
    let mut parts = parts.map(|part| part.split(" as ").next().unwrap_or(part).trim());
    let first = parts.next()?;
    let mut place = match first {
        "crate" => Vec::new(),
        "super" => own[..own.len().checked_sub(1)?].to_vec(),
        "self" => own.to_vec(),
        child => {
            let child = [own, &[child.to_owned()]].concat();
            files.contains_key(&child).then_some(child)?
        }
    };
    for part in parts {
        match part {
            "self" => {}
            "super" => drop(place.pop()),
            part => place.push(part.to_owned()),
        }
    }
    Some(place)
}

/// The paths of the crate in a module.
#[derive(Default)]
struct Module {
    /// Those that it imports or passes on, by the names they get, and its children.
    names: Vec<(String, Vec<String>)>,
    /// Those that its own code uses: what it only passes on is not an import.
    used: BTreeSet<Vec<String>>,
}

fn is_of_word(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}

/// The paths in code that begin with `start`, a name and `::`.
fn written<'t>(code: &'t str, start: &str) -> Vec<&'t str> {
    let found = code.match_indices(start).filter_map(|(at, _)| {
        let goes_on = |letter: char| is_of_word(letter) || letter == ':' || letter == '$';
        let before = &code[..at];
        // `pub(in path)` states visibility and uses nothing of that path.
        if before.ends_with(goes_on) || before.ends_with("(in ") {
            return None;
        }
        let is_path = |letter: char| is_of_word(letter) || letter == ':';
        let path = code[at..].split(|letter: char| !is_path(letter)).next()?;
        Some(path.trim_end_matches(':'))
    });
    found.collect()
}

fn module(own: &[String], code: &str, files: &BTreeMap<Vec<String>, PathBuf>) -> Module {
    let (mut module, mut body) = (Module::default(), String::new());
    let mut passed_on = Vec::new();
    for statement in code.split(';') {
        // A text may have the word as well.
        let is_of_import =
            |letter: char| is_of_word(letter) || letter.is_whitespace() || ":{},*".contains(letter);
        let import = statement.rsplit_once("use ");
        let import = import.filter(|(_, tree)| tree.chars().all(is_of_import));
        let import = import.map(|(rest, tree)| (rest, paths(tree)));
        let import = import.filter(|(_, paths)| {
            let first = paths.first();
            first.is_some_and(|first| absolute(own, first, files).is_some())
        });
        let (rest, imported) = import.unwrap_or((statement, Vec::new()));
        body.push_str(rest);
        body.push(';');
        let line = rest.rsplit('\n').next().unwrap_or_default();
        let is_passed_on = line.trim_start().starts_with("pub");
        for path in imported {
            let Some(place) = absolute(own, &path, files) else {
                continue;
            };
            let name = path.rsplit_once(" as ").map(|(_, name)| name.trim());
            let name = name.or(place.last().map(String::as_str));
            let name = name.unwrap_or_default().to_owned();
            if is_passed_on {
                passed_on.push((name.clone(), place.clone()));
            } else {
                module.used.insert(place.clone());
            }
            module.names.push((name, place));
        }
    }
    let words: BTreeSet<&str> = body.split(|letter: char| !is_of_word(letter)).collect();
    let passed_on = passed_on.into_iter();
    let used = passed_on.filter(|(name, _)| words.contains(name.as_str()));
    module.used.extend(used.map(|(_, place)| place));
    for start in ["crate::", "super::"] {
        let paths = written(&body, start).into_iter();
        let places = paths.filter_map(|path| absolute(own, path, files));
        module.used.extend(places);
    }
    let children = files.keys().filter_map(|file| {
        let (name, above) = file.split_last()?;
        (above == own).then(|| (name.clone(), file.clone()))
    });
    module.names.extend(children);
    // What is used of a module that was imported.
    for (name, place) in &module.names {
        for path in written(&body, &format!("{name}::")) {
            let parts = path.split("::").skip(1).map(str::to_owned);
            let place = place.iter().cloned().chain(parts);
            module.used.insert(place.collect());
        }
    }
    module
}

/// The file that defines what a path names: re-exports are followed.
fn defined(path: &[String], modules: &BTreeMap<Vec<String>, Module>) -> Vec<String> {
    let mut path = path.to_vec();
    // Two modules may pass on all of each other.
    for _ in 0..8 {
        let lengths = (0..=path.len()).rev();
        let mut starts = lengths.map(|length| &path[..length]);
        let Some(known) = starts.find(|start| modules.contains_key(*start)) else {
            break;
        };
        let rest = &path[known.len()..];
        let led = rest.first().and_then(|first| {
            let names = &modules[known].names;
            names.iter().find(|(name, _)| name == first)
        });
        let Some((_, led)) = led else {
            return known.to_vec();
        };
        path = [led.as_slice(), &rest[1..]].concat();
    }
    path
}

/// The files that a module uses.
fn uses(own: &[String], modules: &BTreeMap<Vec<String>, Module>) -> BTreeSet<Vec<String>> {
    let places = modules[own].used.iter().map(|path| defined(path, modules));
    places
        .filter(|place| !place.is_empty() && place != own)
        .collect()
}

fn imports(member: &str) -> Imports {
    let files = files(member);
    let modules: BTreeMap<Vec<String>, Module> = files
        .iter()
        .map(|(own, path)| (own.clone(), module(own, &code(path), &files)))
        .collect();
    let of = |own: &Vec<String>| (own.clone(), uses(own, &modules));
    modules.keys().map(of).collect()
}

#[test]
fn the_file_that_defines_what_is_used_is_found() {
    let texts = [
        ("", "mod a; mod c; pub use a::B;"),
        ("a", "mod b; pub(crate) use b::{B, self as d};"),
        (
            "a::b",
            "pub struct B; fn e() { crate::c::f(super::super::c::G) }",
        ),
        ("c", "use crate::B; pub(in crate::a) struct I;"),
        ("d", "use crate::{a, c}; fn f() { a::d::J::k() }"),
        (
            "e",
            "pub use super::c::G; pub use super::a::b::L; struct M(L);",
        ),
    ];
    let own = |name: &str| -> Vec<String> {
        let parts = name.split("::").filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let files = texts.map(|(name, _)| (own(name), PathBuf::new()));
    let files = BTreeMap::from(files);
    let modules = texts.map(|(name, text)| (own(name), module(&own(name), text, &files)));
    let modules = BTreeMap::from(modules);
    for (name, expected) in [
        ("", vec![]),
        ("a", vec![]),
        ("a::b", vec!["c"]),
        ("c", vec!["a::b"]),
        ("d", vec!["a", "a::b", "c"]),
        ("e", vec!["a::b"]),
    ] {
        let found = uses(&own(name), &modules);
        let found: Vec<String> = found.iter().map(|place| place.join("::")).collect();
        assert_eq!(found, expected, "{name}");
    }
}

/// Modules that `from` reaches.
fn reached(imports: &Imports, from: &[String]) -> BTreeSet<Vec<String>> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_vec()]);
    while let Some(module) = next.pop() {
        for imported in imports.get(&module).into_iter().flatten() {
            if seen.insert(imported.clone()) {
                next.push(imported.clone());
            }
        }
    }
    seen
}

/// The folder of a module: that of its name where there is one, else the crate's.
fn folder<'a>(module: &'a [String], imports: &Imports) -> &'a str {
    let first = module.first().map_or("", String::as_str);
    let has_files = imports
        .keys()
        .any(|other| other.len() > 1 && other[0] == first);
    if has_files { first } else { "" }
}

#[test]
fn folders_do_not_import_each_other_in_circles() {
    /// Circles that are left, by crate. The list only ever shrinks.
    const LEFT: [&str; 0] = [];
    let mut circles = BTreeSet::new();
    for member in ORDER {
        let imports = imports(member);
        let reach: BTreeMap<&Vec<String>, _> = imports
            .keys()
            .map(|module| (module, reached(&imports, module)))
            .collect();
        for (module, seen) in &reach {
            let back =
                |other: &&Vec<String>| reach.get(other).is_some_and(|seen| seen.contains(*module));
            let circle: Vec<&Vec<String>> = seen.iter().filter(back).collect();
            let folders: BTreeSet<&str> =
                circle.iter().map(|other| folder(other, &imports)).collect();
            if folders.len() > 1 {
                let names: Vec<String> = circle.iter().map(|other| other.join("::")).collect();
                circles.insert(format!("{member}: {}", names.join(", ")));
            }
        }
    }
    let known = |circle: &&String| !LEFT.contains(&circle.as_str());
    let new: Vec<&String> = circles.iter().filter(known).collect();
    assert!(new.is_empty(), "{new:#?}");
}

#[test]
fn the_public_surface_does_not_grow() {
    /// Most public items at the top level of the library crates' files.
    const MOST: usize = 500;
    let kinds = [
        "fn ",
        "const fn ",
        "async fn ",
        "struct ",
        "enum ",
        "trait ",
        "const ",
        "static ",
        "type ",
        "mod ",
    ];
    let public = |line: &&str| {
        let rest = line.strip_prefix("pub ");
        rest.is_some_and(|rest| kinds.iter().any(|kind| rest.starts_with(kind)))
    };
    let count: usize = ORDER
        .iter()
        .flat_map(|member| files(member).into_values())
        .map(|path| code(&path).lines().filter(public).count())
        .sum();
    assert!(
        count <= MOST,
        "{count} public items: make what no other crate uses private"
    );
}
