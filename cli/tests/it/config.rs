//! `forage config`: what it prints is what the guide holds, and what it writes can be used.

use std::path::Path;

use crate::support::{done, fails, forage};

fn refused(arguments: &[&str]) -> String {
    let output = forage(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Mended by `forage config explain > docs/reference-config.md`.
#[test]
fn the_reference_of_the_guide_is_the_one_that_is_printed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference-config.md");
    let page = std::fs::read_to_string(page).unwrap();
    let printed = done(&["config", "explain"]);
    let differing = page
        .lines()
        .zip(printed.lines())
        .find(|(page, printed)| page != printed);
    assert!(
        page == printed,
        "docs/reference-config.md is not what `forage config explain` prints; the first line that differs: {differing:?}"
    );
    for part in [
        "## `[grpo]`\n",
        "| `group_size` | whole number | `8` | Episodes per question. |",
        "## `[environment.settings]` of forage/search-r1-v0\n",
        "## `[environment.settings.limits]` of forage/code-search-v0\n",
        "## `[retriever.remote.http]` of qdrant\n",
        "## `[[warm_start.learning.stages]]`\n",
        "| `aggregation.dr_grpo.length` |",
        "| `judge.max_calls` |",
    ] {
        assert!(printed.contains(part), "{part}");
    }
}

#[test]
fn a_key_is_explained_with_what_recipes_write() {
    let text = done(&["config", "explain", "grpo.group_size"]);
    assert!(
        text.starts_with(
            "grpo.group_size\n  whole number, by default 8\n  Episodes per question.\n"
        ),
        "{text}"
    );
    assert!(text.contains("search_r1_v01 5"), "{text}");
    // A part is enough; of two environments both answer.
    let text = done(&["config", "explain", "max_turn_tokens"]);
    for of in ["forage/search-r1-v0", "forage/code-search-v0"] {
        assert!(
            text.contains(&format!("environment.settings.max_turn_tokens, of {of}\n")),
            "{text}"
        );
    }
    let text = done(&["config", "explain", "grpo.update"]);
    assert!(
        text.contains("  minibatches  whole number, by default 1: Optimizer steps"),
        "{text}"
    );
    let error = refused(&["config", "explain", "grpo.group_sise"]);
    assert!(error.contains("did you mean `grpo.group_size`?"), "{error}");
}

#[test]
fn the_schema_holds_every_key_and_no_reference() {
    let schema: serde_json::Value = serde_json::from_str(&done(&["config", "schema"])).unwrap();
    let steps = &schema["properties"]["grpo"]["properties"]["steps"];
    assert_eq!(steps["type"], "integer");
    assert_eq!(steps["default"], 100);
    assert_eq!(schema["additionalProperties"], false);
    let search = &schema["properties"]["environment"]["allOf"][0];
    assert_eq!(search["title"], "forage/search-r1-v0");
    let top_k = &search["then"]["properties"]["settings"]["properties"]["top_k"];
    assert_eq!(top_k["description"], "Passages asked of the retriever.");
    let text = schema.to_string();
    assert!(!text.contains("\"$ref\"") && !text.contains("\"$defs\""));
}

#[test]
fn a_config_is_begun_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = at("mine.toml");
    let (corpus, questions) = (at("corpus.jsonl"), at("train.jsonl"));
    let init = [
        "config",
        "init",
        &file,
        "--corpus",
        &corpus,
        "--questions",
        &questions,
    ];
    for (policy, fault) in [
        ("http://127.0.0.1:9", "is a server"),
        ("builtin:quikstart", "no builtin policy `quikstart`"),
    ] {
        let (_, error) = fails(&["config", "init", &file, "--policy", policy]);
        assert!(error.contains(fault), "{error}");
    }
    let begun = forage(&init);
    let said = String::from_utf8(begun.stderr).unwrap();
    for key in ["corpus", "train"] {
        let warning = format!("warning: data.files.{key}: there is no ");
        assert!(begun.status.success() && said.contains(&warning), "{said}");
    }
    let again = forage(&init);
    assert_eq!(again.status.code(), Some(1));
    let error = String::from_utf8(again.stderr).unwrap();
    let fix = "mine.toml is there already; name another file, or remove it";
    assert!(error.contains(fix), "{error}");
    let error = refused(&["config", "check", &file]);
    assert!(error.contains("data.files.corpus: there is no"), "{error}");
    // Whatever is wrong is told at once.
    let wrong = [
        "grpo.group_size=0",
        "evaluation.resamples=0",
        "reward.em=0.0",
        "grpo.fault_share=2.0",
        "environment.settings.top_k=many",
    ];
    let set = wrong.iter().flat_map(|item| ["--set", item]);
    let all: Vec<&str> = ["config", "check", &file].into_iter().chain(set).collect();
    let error = refused(&all);
    for part in [
        "data.files.corpus: there is no",
        "data.files.train: there is no",
        "grpo.group_size must",
        "evaluation.resamples must",
        "[reward] gives nothing a weight",
        "fault_share is 2",
        "environment.settings.top_k: ",
    ] {
        assert!(error.matches(part).count() == 1, "{part}: {error}");
    }
    let passage = "{\"_id\": \"a\", \"title\": \"A\", \"text\": \"a fruit\"}\n";
    std::fs::write(&corpus, passage).unwrap();
    std::fs::write(&questions, passage).unwrap();
    let error = refused(&["config", "check", &file]);
    assert!(error.contains("fit no known format"), "{error}");
    let question = "{\"question\": \"Which fruit?\", \"answer\": \"Apple\"}\n";
    std::fs::write(&questions, question).unwrap();
    // The questions that are learned from, held out as well.
    let begun = std::fs::read_to_string(&file).unwrap();
    let leaky = at("leaky.toml");
    let test = format!("test = {questions:?}");
    std::fs::write(&leaky, begun.replace("train_share = 0.8", &test)).unwrap();
    let checked = forage(&["config", "check", &leaky]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(
        checked.status.success() && said.contains("warning: 1 of 1 held-out questions are learned"),
        "{said}"
    );
    assert!(done(&["config", "check", &file]).contains("can be used"));
    // A path below a folder of the tests' own is not a name on the hub.
    let lost = [
        "config",
        "check",
        &file,
        "--set",
        "policy.checkpoint=tests/lost",
    ];
    let error = refused(&lost);
    assert!(
        error.contains("policy.checkpoint: there is no folder `tests/lost` here"),
        "{error}"
    );
    let settings = ["environment={ id = \"math\" }", "device=metal:7"];
    let settings = settings.iter().flat_map(|item| ["--set", item]);
    let other: Vec<&str> = ["config", "check", "smoke"]
        .into_iter()
        .chain(settings)
        .collect();
    let said = forage(&other).stderr;
    let said = String::from_utf8_lossy(&said);
    for part in [
        "builtin:quickstart was taught search-r1 and plays math",
        "warning: metal:7 cannot be used here",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }

    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        format!("{text}\n[grpo]\nstepz = 1\ngroup_sise = 2\n"),
    )
    .unwrap();
    let error = refused(&["config", "check", &file]);
    for near in ["grpo.steps", "grpo.group_size"] {
        assert!(
            error.contains(&format!("did you mean `{near}`?")),
            "{error}"
        );
    }
    let error = refused(&["config", "check", "search_r1_v0l"]);
    assert!(error.contains("search_r1_v01"), "{error}");
}
