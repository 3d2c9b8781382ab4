//! `docs/profiles.md` says what the profiles are: its tables are these.

use std::collections::BTreeMap;
use std::path::Path;

use forage_env::reward::published::{Grader, PublishedSettings};
use forage_env::search_r1::Profile;
use serde_json::Value;

/// Every setting by its path; the prompt, which is the user's, and the name of the profile left out.
fn flatten(value: &Value, path: &str, settings: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                flatten(value, &path, settings);
            }
        }
        value if !["profile", "prompt", "grader"].contains(&path) => {
            // Weights are 32 bits wide.
            let float = value
                .as_f64()
                .filter(|_| value.is_f64())
                .map(|number| (number as f32).to_string());
            settings.insert(
                path.to_owned(),
                format!("`{}`", float.unwrap_or_else(|| value.to_string())),
            );
        }
        _ => {}
    }
}

/// A table of settings: the first column whole, the others where they differ from it.
fn table(columns: &[(&str, Value)]) -> String {
    let flat = |value: &Value| {
        let mut settings = BTreeMap::new();
        flatten(value, "", &mut settings);
        settings
    };
    let columns: Vec<(&str, BTreeMap<String, String>)> = columns
        .iter()
        .map(|(name, value)| (*name, flat(value)))
        .collect();
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut lines = vec![
        format!("| setting | {} |", names.join(" | ")),
        format!("|{}", "---|".repeat(names.len() + 1)),
    ];
    for key in columns[0].1.keys() {
        let first = &columns[0].1[key];
        let cells = columns
            .iter()
            .enumerate()
            .map(|(place, (_, settings))| match &settings[key] {
                same if place > 0 && same == first => "",
                value => value.as_str(),
            });
        lines.push(format!(
            "| `{key}` | {} |",
            cells.collect::<Vec<_>>().join(" | ")
        ));
    }
    lines.join("\n")
}

#[test]
fn the_documentation_shows_every_setting_of_every_profile() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/profiles.md");
    let text = std::fs::read_to_string(path).expect("the documentation");
    let v02 = Profile::SearchR1V02.settings();
    for same in [Profile::SearchR1V01, Profile::SearchR1V03] {
        let settings = forage_env::search_r1::SearchR1Settings {
            profile: Profile::SearchR1V02,
            ..same.settings()
        };
        assert_eq!(settings, v02, "one column for the three");
    }
    let of = |profile: Profile| serde_json::to_value(profile.settings()).expect("serialises");
    let tags = [
        ("forage", of(Profile::Forage)),
        ("search_r1_v01 to v03", of(Profile::SearchR1V02)),
        ("slime", of(Profile::Slime)),
        ("skyrl", of(Profile::Skyrl)),
        ("minisearch", of(Profile::Minisearch)),
    ];
    let calls = [
        ("forage", of(Profile::Forage)),
        ("verl", of(Profile::Verl)),
        ("tinker", of(Profile::Tinker)),
        ("torchtitan", of(Profile::Torchtitan)),
    ];
    let grades =
        |grader| serde_json::to_value(PublishedSettings::published(grader)).expect("serialises");
    let graders = [
        ("search_r1_v01, v02, slime", grades(Grader::Slime)),
        ("search_r1_v03", grades(Grader::SearchR1V03)),
        ("verl", grades(Grader::Verl)),
        ("skyrl", grades(Grader::Skyrl)),
        ("tinker", grades(Grader::Tinker)),
        ("torchtitan", grades(Grader::Torchtitan)),
        ("minisearch", grades(Grader::Minisearch)),
        ("spurious", grades(Grader::Spurious)),
    ];
    for columns in [&tags[..], &calls, &graders] {
        let expected = table(columns);
        assert!(
            text.contains(&expected),
            "docs/profiles.md lacks this table:\n{expected}"
        );
    }
}
