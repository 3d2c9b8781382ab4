//! The page of papers: every system is on it, and every file, test, name, setting and command it gives exists.

use std::collections::BTreeSet;

use forage_contracts::CurriculumEntry;
use forage_env::Probe;
use forage_env::registry::{find, rewards};
use forage_lab::Twin;
use forage_trainer::objective::{
    AdvantageEntry, AlgorithmEntry, Entry, LossEntry, ObjectiveConfig,
};
use pulldown_cmark::Event;

use crate::guide::blocks::{events, read, root};

const PAGE: &str = "docs/papers.md";

/// The systems, in the order of the page.
const SYSTEMS: [&str; 75] = [
    // Agents that search.
    "Search-R1",
    "Search-R1 on slime",
    "Search with Python",
    "SearchLM",
    "SSRL",
    "LightSearcher",
    "Think2SQL",
    // Losses and advantages.
    "LUSPO",
    "Lite PPO",
    "Negative reinforcement",
    "SSPO",
    "ACE",
    "SPAE",
    "SIREN",
    "VERL",
    "LiPO",
    "A-LoL",
    "From SFT to RL for vulnerability detection",
    // Data and curricula.
    "Online difficulty filtering",
    "DOTS with rollout replay",
    "LIMR",
    "SEELE",
    "RoRecomp",
    "ReST-RL",
    "RECAP",
    "DeepSearch",
    "Cross-domain study",
    "Layer-wise gradients",
    "Causal reasoning testbed",
    "Echo Chamber",
    // Rewards and verifiers.
    "Spurious Rewards",
    "Noisy rewards",
    "RLBFF",
    "ArenaRL",
    "Pitfalls of verifiers",
    "Libra",
    "Jekyll and Hyde",
    "Clip and delta",
    "Self-PRM",
    "R3, regularised relevance",
    "The alignment ceiling",
    // Ranking.
    "Rank-R1",
    "ReasonRank",
    "ERank",
    "GroupRank",
    "CertDR",
    "Robustness of rankers",
    "Pistis-RAG",
    // Evaluation.
    "rliable",
    "Limits of RLVR",
    "RL and distillation",
    "Self-Critique",
    "Open RL Benchmark",
    "POSIX",
    "LLM Swiss Round",
    "PRISM",
    "Survey of RL for language models",
    // Outside.
    "FORTRESS",
    "USB",
    "MOSSBench",
    "CLS-RL",
    "PEARL",
    "GUI-Libra",
    "WiNGPT-3.0",
    "RLSQM",
    "DR-RL",
    "FlexMoRE",
    "BEER",
    "NeoRL-2",
    // Beside them.
    "GiGPO",
    "Tree-GRPO",
    "MT-GRPO",
    "PPO with a critic",
    "IGPO",
    "Clip-Cov and KL-Cov",
];

/// The kinds of entries that the page names: one, and several.
const KINDS: [(&str, &str); 12] = [
    ("advantage", "advantages"),
    ("algorithm", "algorithms"),
    ("credit", "credits"),
    ("curriculum", "curricula"),
    ("environment", "environments"),
    ("filter", "filters"),
    ("loss", "losses"),
    ("method", "methods"),
    ("probe", "probes"),
    ("recipe", "recipes"),
    ("reward", "rewards"),
    ("twin", "twins"),
];

/// A system on the page.
struct Listed {
    name: String,
    state: String,
    text: String,
}

impl Listed {
    /// Whether there is something to show for it.
    fn is_here(&self) -> bool {
        ["built", "in part"].contains(&self.state.as_str())
    }
}

/// The entries: `- **NAME** (number), *state*: text`.
fn listed(page: &str) -> Vec<Listed> {
    let entry = |part: &str| {
        let part = part.split("\n\n").next().unwrap_or_default();
        let (name, rest) = part.split_once("**").expect("a name in bold");
        let (_, rest) = rest.split_once(", *").unwrap_or_else(|| {
            panic!("{PAGE}: {name} has no state; write `, *built*:` after the name")
        });
        let (state, text) = rest
            .split_once("*: ")
            .unwrap_or_else(|| panic!("{PAGE}: the state of {name} does not end in `*: `"));
        Listed {
            name: name.to_owned(),
            state: state.to_owned(),
            text: text.to_owned(),
        }
    };
    page.split("\n- **").skip(1).map(entry).collect()
}

/// What a text sets as code.
fn code(text: &str) -> Vec<String> {
    let pieces = events(text).filter_map(|(event, _)| match event {
        Event::Code(code) => Some(code.into_string()),
        _ => None,
    });
    pieces.collect()
}

/// The paths and tests among pieces of code: `path` and `path::function`.
fn paths(text: &str) -> Vec<(String, Option<String>)> {
    let code = code(text).into_iter();
    let paths = code.filter(|code| code.contains('/') && !code.contains(' '));
    let parts = paths.map(|code| match code.split_once("::") {
        Some((path, function)) => (path.to_owned(), Some(function.to_owned())),
        None => (code, None),
    });
    parts.collect()
}

/// The names of entries with their kinds: "loss `luspo`", "rewards `mrr` and `recall`".
fn names(text: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    // The kind of the next piece of code, and whether several follow each other.
    let mut next: Option<(&'static str, bool)> = None;
    for (event, _) in events(text) {
        match event {
            Event::Text(text) => {
                let goes_on = [",", "and", ", and"].contains(&text.trim())
                    && next.is_some_and(|(_, several)| several);
                if !goes_on {
                    let word = text.split_whitespace().next_back().unwrap_or_default();
                    let of = KINDS
                        .iter()
                        .find(|(one, several)| word == *one || word == *several);
                    next = of.map(|&(one, several)| (one, word == several));
                }
            }
            Event::Code(code) => {
                if let Some((kind, several)) = next {
                    found.push((kind, code.into_string()));
                    next = several.then_some((kind, true));
                }
            }
            Event::SoftBreak => {}
            _ => next = None,
        }
    }
    found
}

/// Whether a list has an entry of this name.
fn has<E: Entry>(name: &str) -> bool {
    E::registry().iter().any(|entry| entry.label().0 == name)
}

fn exists(kind: &str, name: &str) -> bool {
    match kind {
        "advantage" => has::<AdvantageEntry>(name),
        "algorithm" => has::<AlgorithmEntry>(name),
        "loss" => has::<LossEntry>(name),
        "curriculum" => has::<CurriculumEntry>(name),
        "credit" | "filter" => {
            // One with settings is refused for another reason.
            let read = toml::from_str::<ObjectiveConfig>(&format!("{kind} = \"{name}\""));
            read.err()
                .is_none_or(|error| !error.to_string().contains("unknown variant"))
        }
        "environment" => find(name).is_ok(),
        // One that is measured beside the others.
        "method" => read("bench/methods/methods.txt")
            .lines()
            .any(|line| line.split_whitespace().next() == Some(name)),
        "probe" => name.parse::<Probe>().is_ok(),
        "recipe" => root().join(format!("configs/recipes/{name}.toml")).exists(),
        "reward" => rewards().any(|entry| entry.name == name),
        "twin" => name.parse::<Twin>().is_ok(),
        other => panic!("no list of {other}"),
    }
}

#[test]
fn every_system_is_there_with_its_state() {
    let page = read(PAGE);
    let found = listed(&page);
    let names: Vec<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, SYSTEMS, "{PAGE} and the list of systems differ");
    for entry in &found {
        let (name, state) = (&entry.name, entry.state.as_str());
        assert!(
            ["built", "in part", "not built", "outside"].contains(&state),
            "{PAGE}: {name} is `{state}`"
        );
        if !entry.is_here() {
            continue;
        }
        for part in ["Here: ", "Shown by: ", "Left out"] {
            assert!(
                entry.text.contains(part),
                "{PAGE}: {name} is {state} and has no `{part}`"
            );
        }
        let paths = paths(&entry.text);
        assert!(
            paths.iter().any(|(_, function)| function.is_none()),
            "{PAGE}: {name} is {state} and names no file"
        );
        assert!(
            paths.iter().any(|(_, function)| function.is_some()),
            "{PAGE}: {name} is {state} and names no test"
        );
    }
}

/// Tells whether a source file has a test of this name: comments and other attributes may stand between.
fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let is_test = |place: usize| {
        let above = text[..place].rsplit('\n').skip(1).map(str::trim);
        above
            .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
            .any(|line| line == "#[test]" || line.starts_with("#[tokio::test"))
    };
    text.match_indices(&head).any(|(place, _)| is_test(place))
}

#[test]
fn only_tests_are_taken_for_tests() {
    let text =
        "#[test]\n/// Why.\nfn a() {}\n\nfn b() {}\n    #[tokio::test]\n    async fn c() {}\n";
    let found = ["a", "b", "c"].map(|name| has_test(text, name));
    assert_eq!(found, [true, false, true]);
}

#[test]
fn every_file_and_test_it_names_exists() {
    let paths = paths(&read(PAGE));
    assert!(paths.len() > SYSTEMS.len(), "{} paths", paths.len());
    for (path, function) in paths {
        let file = root().join(&path);
        assert!(file.exists(), "{PAGE}: `{path}` is not here");
        if let Some(function) = function {
            let text = std::fs::read_to_string(&file).expect("a source file");
            assert!(
                has_test(&text, &function),
                "{PAGE}: `{path}` has no test `{function}`"
            );
        }
    }
}

#[test]
fn every_name_it_gives_is_in_its_list() {
    let names = names(&read(PAGE));
    let kinds: BTreeSet<&str> = names.iter().map(|(kind, _)| *kind).collect();
    for (kind, _) in KINDS {
        assert!(kinds.contains(kind), "{PAGE} names no {kind}");
        assert!(!exists(kind, "none_such"), "a {kind} of any name exists");
    }
    for (kind, name) in names {
        assert!(exists(kind, &name), "{PAGE}: there is no {kind} `{name}`");
    }
}

/// The keys of configs by their paths, as the reference of the guide has them.
fn keys() -> BTreeSet<String> {
    let reference = read("docs/reference-config.md");
    let (mut section, mut found) = (String::new(), BTreeSet::new());
    for line in reference.lines() {
        if let Some(rest) = line.strip_prefix("## `[") {
            rest.split(']')
                .next()
                .unwrap_or_default()
                .clone_into(&mut section);
        } else if let Some((key, _)) = line.strip_prefix("| `").and_then(|row| row.split_once('`'))
        {
            found.insert(format!("{section}.{key}"));
        }
    }
    found
}

/// A text with points and no blanks is a key, as a whole or from a table on.
#[test]
fn every_setting_it_gives_is_in_the_reference() {
    let keys = keys();
    let is_key = |setting: &str| {
        let end = format!(".{setting}");
        keys.iter().any(|key| key == setting || key.ends_with(&end))
    };
    assert!(!is_key("grpo.none_such") && !is_key("signs.none_such"));
    let written = code(&read(PAGE)).into_iter();
    let settings: Vec<String> = written
        .filter(|code| code.contains('.') && !code.contains(['/', ' ', ':']))
        .collect();
    assert!(settings.len() > 5, "{settings:?}");
    for setting in settings {
        assert!(is_key(&setting), "{PAGE}: no key `{setting}`");
    }
}

#[test]
fn every_command_it_gives_is_there_with_its_options() {
    let written = code(&read(PAGE)).into_iter();
    let commands: Vec<String> = written
        .filter_map(|code| Some(code.strip_prefix("forage ")?.to_owned()))
        .collect();
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        let (options, words): (Vec<&str>, Vec<&str>) = command
            .split_whitespace()
            .partition(|word| word.starts_with("--"));
        let help = format!("cli/tests/it/snapshots/it__help__{}.snap", words.join("-"));
        assert!(
            root().join(&help).exists(),
            "{PAGE}: there is no command `forage {}`",
            words.join(" ")
        );
        let help = read(&help);
        for option in options {
            assert!(help.contains(option), "{PAGE}: `forage {command}`");
        }
    }
}

#[test]
fn names_are_read_behind_their_kinds() {
    let text = "Losses `no`: loss `a` and `no`, rewards `b`, `c`\nand `d` (`no`); the probe `e`, credit\n`f`.";
    let expected = [
        ("loss", "a"),
        ("reward", "b"),
        ("reward", "c"),
        ("reward", "d"),
        ("probe", "e"),
        ("credit", "f"),
    ]
    .map(|(kind, name)| (kind, name.to_owned()));
    assert_eq!(names(text), expected);
}
