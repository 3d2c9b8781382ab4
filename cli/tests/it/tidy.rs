//! Rules of the tree that no compiler checks: which crate names which engine, sizes of files, what docs may say.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Crates in the order dependencies may point: to the left only.
pub(crate) const ORDER: [&str; 10] = [
    "features",
    "contracts",
    "net",
    "sandbox",
    "retriever",
    "env",
    "trainer",
    "eval",
    "lab",
    "cli",
];
/// Stands outside, as a user's crate would: it may name any of them, none of them names it.
const OUTSIDE: &str = "examples";

fn manifest(member: &str) -> toml::Table {
    std::fs::read_to_string(root().join(member).join("Cargo.toml"))
        .unwrap()
        .parse()
        .unwrap()
}

fn dependencies(member: &str) -> Vec<String> {
    asked(&manifest(member), &manifest("."))
}

/// The crates that a manifest asks for, tests apart, by their own names, whatever it calls them and on whatever target.
fn asked(manifest: &toml::Table, workspace: &toml::Table) -> Vec<String> {
    let shared = &workspace["workspace"]["dependencies"];
    let mut places = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        places.extend(targets.values().filter_map(toml::Value::as_table));
    }
    let mut names = Vec::new();
    for place in places {
        for kind in ["dependencies", "build-dependencies"] {
            let given = place.get(kind).and_then(toml::Value::as_table);
            for (key, entry) in given.into_iter().flatten() {
                let entries = [Some(entry), shared.get(key)].into_iter().flatten();
                let renamed: Option<&str> = entries
                    .filter_map(|entry| entry.get("package"))
                    .find_map(toml::Value::as_str);
                names.push(renamed.unwrap_or(key).to_owned());
            }
        }
    }
    names
}

#[test]
fn a_dependency_is_known_by_its_own_name() {
    let read = |text: &str| text.parse::<toml::Table>().unwrap();
    let manifest = read(
        "[dependencies]\na = { package = \"burn\" }\nb = { workspace = true }\n\
         [build-dependencies]\nc = \"1\"\n[target.'cfg(unix)'.dependencies]\nd = \"1\"\n",
    );
    let workspace = read("[workspace.dependencies]\nb = { package = \"wasmtime\" }\n");
    assert_eq!(asked(&manifest, &workspace), ["burn", "wasmtime", "c", "d"]);
}

#[test]
fn dependencies_point_one_way() {
    for (place, member) in ORDER.iter().enumerate() {
        for later in &ORDER[place..] {
            let name = format!("forage-{later}");
            assert!(
                !dependencies(member).contains(&name),
                "{member} must not depend on {name}"
            );
        }
    }
}

#[test]
fn nothing_depends_on_what_stands_outside() {
    for member in ORDER {
        let named = dependencies(member);
        assert!(
            !named.contains(&"forage-examples".to_owned()),
            "{member} must not depend on the examples"
        );
        assert!(
            !named.contains(&"rusqlite".to_owned()),
            "{member}: rusqlite is for the examples alone"
        );
    }
    assert!(dependencies(OUTSIDE).contains(&"forage".to_owned()));
    let members = std::fs::read_to_string(root().join("Cargo.toml"))
        .unwrap()
        .parse::<toml::Table>()
        .unwrap();
    let members = members["workspace"]["members"].as_array().unwrap().len();
    assert_eq!(
        members,
        ORDER.len() + 1,
        "a new crate has its place in ORDER"
    );
}

#[test]
fn sandbox_and_retriever_know_nothing_of_each_other() {
    assert!(!dependencies("retriever").contains(&"forage-sandbox".to_owned()));
}

/// A plug-in builds against the contracts alone: they bring no index, sandbox, server or tensors.
#[test]
fn the_contracts_are_light() {
    const LIGHT: [&str; 6] = [
        "async-trait",
        "blake3",
        "rand_chacha",
        "serde",
        "serde_json",
        "thiserror",
    ];
    assert_eq!(dependencies("contracts"), LIGHT);
    let lock: toml::Table = std::fs::read_to_string(root().join("Cargo.lock"))
        .unwrap()
        .parse()
        .unwrap();
    let packages = lock["package"].as_array().unwrap();
    let (mut seen, mut next) = (BTreeSet::new(), vec!["forage-contracts"]);
    while let Some(name) = next.pop() {
        if !seen.insert(name) {
            continue;
        }
        let named = |package: &&toml::Value| package["name"].as_str() == Some(name);
        for package in packages.iter().filter(named) {
            let below = package.get("dependencies").and_then(toml::Value::as_array);
            let names = below.into_iter().flatten().filter_map(toml::Value::as_str);
            next.extend(names.filter_map(|name| name.split(' ').next()));
        }
    }
    for heavy in ["burn", "wasmtime", "tantivy", "axum", "tokenizers", "tokio"] {
        assert!(!seen.contains(heavy), "{heavy} is behind the contracts");
    }
}

/// The plug-ins of the examples that search no index need nothing but the contracts.
#[test]
fn plugins_are_written_against_the_contracts() {
    for plugin in [
        "by_hops",
        "cards",
        "median",
        "notes",
        "quiz",
        "rows_match",
        "sql",
        "tapered",
    ] {
        let path = root().join(format!("{OUTSIDE}/src/{plugin}.rs"));
        let text = std::fs::read_to_string(path).unwrap();
        let named = text.split("use forage_").skip(1);
        let named: BTreeSet<&str> = named.filter_map(|rest| rest.split("::").next()).collect();
        assert_eq!(named, BTreeSet::from(["contracts"]), "{plugin}");
        assert_eq!(
            text.matches("forage_").count(),
            text.matches("use forage_").count(),
            "{plugin}"
        );
    }
}

#[test]
fn each_engine_is_named_by_one_crate() {
    for (engine, owner) in [
        ("burn", "trainer"),
        ("cubecl", "trainer"),
        ("tantivy", "retriever"),
        ("turbovec", "retriever"),
        ("hnsw_rs", "retriever"),
        ("wasmtime", "sandbox"),
        ("ratatui", "cli"),
    ] {
        let part = format!("{engine}-");
        for member in ORDER.into_iter().chain([OUTSIDE]) {
            // `features` chooses features of crates that others call.
            let of_engine =
                |name: &String| name == engine || (member != "features" && name.starts_with(&part));
            let named = dependencies(member).iter().any(of_engine);
            assert_eq!(named, member == owner, "{engine} in {member}");
        }
    }
}

/// Checks the Containerfile without building it: every copied path exists, the toolchain is the pinned one, the user is not root.
#[test]
fn the_containerfile_fits_the_tree() {
    let text = std::fs::read_to_string(root().join("Containerfile")).unwrap();
    let toolchain: toml::Table = std::fs::read_to_string(root().join("rust-toolchain.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let channel = toolchain["toolchain"]["channel"].as_str().unwrap();
    for pinned in [
        format!("/rust:{channel}-"),
        format!("RUSTUP_TOOLCHAIN={channel}\n"),
    ] {
        assert!(text.contains(&pinned), "no `{pinned}`");
    }
    let mut copied = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["COPY", sources @ .., _] = words.as_slice()
            && sources.first() != Some(&"--from=build")
        {
            for source in sources {
                assert!(root().join(source).exists(), "{source} is not here");
                copied += 1;
            }
        }
    }
    assert!(copied > 0, "nothing is copied");
    let mut users = text.lines().filter_map(|line| line.strip_prefix("USER "));
    assert!(
        users
            .next_back()
            .is_some_and(|user| user != "root" && user != "0")
    );
    assert!(
        !text.contains("://"),
        "no host but those of the base images"
    );
}

pub(crate) fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A source file without what only tests see: the top-level items behind `#[cfg(test)]`.
pub(crate) fn product(text: &str) -> String {
    let (mut kept, mut in_test) = (String::new(), false);
    for line in text.lines() {
        if in_test {
            let starts_an_attribute = line.starts_with('#');
            let at_top = line.starts_with(|first: char| !first.is_whitespace());
            in_test = starts_an_attribute || !at_top || !line.ends_with([';', '}']);
        } else if line == "#[cfg(test)]" {
            in_test = true;
        } else {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[test]
fn tests_are_left_out_and_what_follows_them_is_not() {
    let text = "#[cfg(test)]\n#[path = \"x.rs\"]\nmod x;\npub fn a() {}\n#[cfg(test)]\nuse b::{\n    c,\n};\n\
                #[cfg(test)]\nmod t {\n    fn d() {}\n}\nfn e() {}\n";
    assert_eq!(product(text), "pub fn a() {}\nfn e() {}\n");
}

#[test]
fn files_stay_readable() {
    let mut found = Vec::new();
    for member in ORDER.into_iter().chain([OUTSIDE]) {
        sources(&root().join(member).join("src"), &mut found);
    }
    assert!(found.len() > 50);
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        assert!(
            lines <= 600,
            "{} has {lines} lines: split it by meaning",
            path.display()
        );
        // An example shows that a task is one file.
        let of_tests = path
            .iter()
            .any(|part| part == "tests" || part == "tests.rs");
        if of_tests || path.starts_with(root().join(OUTSIDE)) {
            continue;
        }
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let code = product(&text).lines().filter(is_code).count();
        assert!(
            code <= 400,
            "{} has {code} lines of code: split it by meaning",
            path.display()
        );
    }
}

#[test]
fn the_map_of_the_code_is_short_and_its_walk_leads_somewhere() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = map.lines().count();
    assert!(lines <= 150, "ARCHITECTURE.md has {lines} lines");
    let (_, walk) = map.split_once("## The walk\n").unwrap();
    let walk = walk.split("\n## ").next().unwrap();
    let named: BTreeSet<&str> = walk.split('`').skip(1).step_by(2).collect();
    assert!(named.len() <= 40, "the walk names {} files", named.len());
    for path in named.into_iter().filter(|path| path.contains("/src/")) {
        assert!(root().join(path).exists(), "{path} is not here");
    }
}

/// Tells whether a file only declares modules and passes on what is in them.
fn only_declares(text: &str) -> bool {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code: Vec<&str> = code.collect();
    let mut code = code.join("\n");
    while let Some(start) = code.find('#') {
        let Some(length) = code[start..].find("]\n") else {
            return false;
        };
        code.replace_range(start..=start + length, "");
    }
    let statements = code.split(';').map(str::trim);
    let mut statements = statements.filter(|statement| !statement.is_empty());
    statements.all(|statement| {
        let words = match statement.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => {
                rest.split_once(')').map_or("", |(_, rest)| rest)
            }
            Some(rest) => rest,
            None => statement,
        };
        let words = words.trim_start();
        (words.starts_with("mod ") && !words.contains('{')) || words.starts_with("use ")
    })
}

#[test]
fn mod_files_declare_and_pass_on() {
    let declared = "//! A folder.\n\n#![allow(\n    clippy::x,\n    reason = \"[y]\"\n)]\n#[cfg(test)]\nmod a;\npub(in b) mod c;\n\
                    pub use a::{\n    D, E,\n};\n";
    assert!(only_declares(declared));
    for code in [
        "const F: u8 = 1;",
        "fn g() {}",
        "mod h { fn i() {} }",
        "struct J;",
    ] {
        assert!(!only_declares(&format!("{declared}{code}\n")), "{code}");
    }
    let mut found = Vec::new();
    for member in ORDER {
        sources(&root().join(member).join("src"), &mut found);
    }
    found.retain(|path| path.ends_with("mod.rs") && path.iter().all(|part| part != "tests"));
    assert!(!found.is_empty());
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            only_declares(&product(&text)),
            "{} holds code: give it a file with a name",
            path.display()
        );
    }
}

/// The items that a source file names of a module, whose path ends with `::`: `a` and `b` of `module::a` and `module::{b::{c, d}}`.
fn named_of<'t>(text: &'t str, module: &str) -> Vec<&'t str> {
    let word = |part: &'t str| {
        let is_other = |letter: char| letter != '_' && !letter.is_alphanumeric();
        part.trim_start().split(is_other).next().unwrap_or_default()
    };
    let mut found = Vec::new();
    for (place, _) in text.match_indices(module) {
        let rest = &text[place + module.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push(word(rest));
            continue;
        };
        let mut depth = 0_usize;
        for part in group.split_inclusive([',', '{', '}']) {
            if depth == 0 {
                found.push(word(part));
            }
            if part.ends_with('{') {
                depth += 1;
            } else if part.ends_with('}') {
                let Some(outer) = depth.checked_sub(1) else {
                    break;
                };
                depth = outer;
            }
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn imports_are_read_one_by_one_and_in_groups() {
    let text = "use a::math;\nuse a::{\n    b::{c, d},\n    rerank, Wiki};\nlet e = a::f(g);";
    let expected = ["math", "b", "rerank", "Wiki", "f"];
    assert_eq!(named_of(text, "a::"), expected);
}

/// An environment of equal rank with the built-in ones costs one folder and one line only as long as nothing else names those.
#[test]
fn built_in_environments_are_named_in_their_folders_and_the_registry() {
    const ENVIRONMENTS: [&str; 6] = [
        "code_search",
        "external",
        "math",
        "query_writer",
        "rerank",
        "search_r1",
    ];
    let own = |path: &str| {
        let mine = |name: &str| {
            path.starts_with(&format!("env/src/{name}/")) || path == format!("env/src/{name}.rs")
        };
        ENVIRONMENTS.into_iter().any(mine)
            || path == "env/src/registry.rs"
            || path.ends_with("tests.rs")
            || path.contains("/tests/")
    };
    // Formats of files, a policy and a config that have the name of an environment.
    let of_another = [
        "cli/src/commands/recipes.rs",
        "env/src/dataset/format/search_r1.rs",
        "env/src/world/export.rs",
        "lab/src/builtin.rs",
    ];
    let names = |path: &str, text: &str| {
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let code: Vec<&str> = text.lines().filter(is_code).collect();
        let code = code.join("\n");
        // Ids of one word are words of other things too.
        let ids = ["search-r1", "code-search", "query-writer"];
        let is_written = |id: &str| code.contains(&format!("\"{id}\""));
        if !of_another.contains(&path) && ids.into_iter().any(is_written) {
            return true;
        }
        let mut modules = vec!["forage_env::".to_owned()];
        if let Some(inside) = path.strip_prefix("env/src/") {
            let above = 1 + inside.matches('/').count();
            modules.extend(["crate::".to_owned(), "super::".repeat(above)]);
        }
        // The crate's own file declares the folders, and could pass on what is in them.
        if path == "env/src/lib.rs" {
            modules.push("use ".to_owned());
        }
        modules
            .iter()
            .flat_map(|module| named_of(&code, module))
            .any(|name| ENVIRONMENTS.contains(&name))
    };
    let mut files = Vec::new();
    for member in ["env", "trainer", "eval", "lab", "cli"] {
        sources(&root().join(member).join("src"), &mut files);
    }
    let mut found: Vec<String> = Vec::new();
    for file in files {
        let path = file
            .strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        if !own(&path) && names(&path, &product(&text)) {
            found.push(path);
        }
    }
    assert!(
        found.is_empty(),
        "{found:?} name an environment: reach it through its registry entry"
    );
}

/// The error type of a `Result`, from the text behind its `<`.
fn error_of(rest: &str) -> Option<&str> {
    let (mut depth, mut start) = (0_usize, None);
    for (place, letter) in rest.char_indices() {
        match letter {
            '<' | '(' | '[' => depth += 1,
            '>' if rest[..place].ends_with('-') => {}
            '>' if depth == 0 => return start.map(|start: usize| rest[start..place].trim()),
            '>' | ')' | ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => start = Some(place + 1),
            _ => {}
        }
    }
    None
}

/// The number of results in a file whose error is a `String`.
fn string_errors(text: &str) -> usize {
    let results = text.match_indices("Result<");
    let errors = results.filter_map(|(place, found)| error_of(&text[place + found.len()..]));
    errors.filter(|error| *error == "String").count()
}

#[test]
fn errors_of_libraries_are_types() {
    assert_eq!(
        string_errors("Result<(), String> Result<Vec<(u8, String)>, E> Result<A<B>,\n String>"),
        2
    );
    let mut files = Vec::new();
    for member in [
        "contracts",
        "sandbox",
        "retriever",
        "env",
        "trainer",
        "eval",
        "lab",
    ] {
        sources(&root().join(member).join("src"), &mut files);
    }
    let mut found = Vec::new();
    let is_test =
        |file: &PathBuf| file.ends_with("tests.rs") || file.iter().any(|part| part == "tests");
    for file in files.into_iter().filter(|file| !is_test(file)) {
        let text = std::fs::read_to_string(&file).unwrap();
        if string_errors(&product(&text)) > 0 {
            found.push(
                file.strip_prefix(root())
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    assert!(found.is_empty(), "{found:?}: give the error a type");
}
