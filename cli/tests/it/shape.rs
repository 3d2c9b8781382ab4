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

/// The module that a path leads to from `own`; `None` outside of the crate.
fn target(
    own: &[String],
    path: &str,
    files: &BTreeMap<Vec<String>, PathBuf>,
) -> Option<Vec<String>> {
    let mut base = match path.split("::").next()? {
        "crate" => Vec::new(),
        "super" | "self" => own.to_vec(),
        _ => return None,
    };
    for part in path
        .split("::")
        .map(|part| part.split(" as ").next().unwrap_or(part).trim())
    {
        match part {
            "crate" | "self" => {}
            "super" => {
                base.pop();
            }
            part => base.push(part.to_owned()),
        }
    }
    while !base.is_empty() && !files.contains_key(&base) {
        base.pop();
    }
    (!base.is_empty() && base != own).then_some(base)
}

fn imports(member: &str) -> Imports {
    let files = files(member);
    let of = |(own, path): (&Vec<String>, &PathBuf)| {
        let code = code(path);
        let statements = code.split(';').filter_map(|statement| {
            let (_, tree) = statement.rsplit_once("use ")?;
            (tree.starts_with("crate::") || tree.starts_with("super::")).then_some(tree)
        });
        let found = statements.flat_map(paths);
        let found = found
            .filter_map(|path| target(own, &path, &files))
            .collect();
        (own.clone(), found)
    };
    files.iter().map(of).collect()
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
    /// Public items at the top level of the library crates' files. It only ever falls.
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
