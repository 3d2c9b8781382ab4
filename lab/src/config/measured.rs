//! The options that gave no more than the default where they were measured, and the sentence that ends their descriptions.

use serde_json::Value;

const NO_DIFFERENCE: &str = "Not shown to differ from the default in exact match on the quickstart's task (docs/results.md).";
const BEHIND: &str =
    "Behind the default in exact match on the quickstart's task (docs/results.md).";

/// The options by the paths of keys and choices: two rows of the table "What was shown to help" in `docs/training.md`.
const MEASURED: [(&str, &[&str]); 2] = [
    (
        NO_DIFFERENCE,
        &[
            "grpo.trees",
            "grpo.branching.frontier",
            "grpo.lookahead",
            "grpo.curriculum.alignment",
            "grpo.curriculum.recap",
            "grpo.update.objective.algorithm.grpo",
            "grpo.update.objective.algorithm.rf_pp_baseline",
            "grpo.update.objective.algorithm.gspo",
            "grpo.update.objective.algorithm.sspo",
            "grpo.update.objective.algorithm.gmpo",
            "grpo.update.objective.algorithm.sapo",
            "grpo.update.objective.algorithm.gpg",
            "grpo.update.objective.algorithm.a_lol",
            "grpo.update.objective.advantage.grpo_population",
            "grpo.update.objective.advantage.dr_grpo",
            "grpo.update.objective.advantage.opo",
            "grpo.update.objective.advantage.code_search",
            "grpo.update.objective.credit.discounted_turns",
            "grpo.update.objective.credit.step_potential",
            "grpo.update.objective.loss.rollout_is",
            "grpo.update.objective.kl",
            "grpo.update.objective.entropy.top_share",
            "grpo.update.objective.entropy.anchored",
            "grpo.update.objective.entropy.clip_cov",
            "reward.relevance",
            "reward.redundant_searches",
        ],
    ),
    (
        BEHIND,
        &[
            "grpo.branching.best",
            "grpo.curriculum.difficulty",
            "grpo.refills",
            "grpo.hints",
            "grpo.update.objective.algorithm.lipo",
            "grpo.update.objective.filter.accuracy_band",
            "grpo.update.objective.advantage.pass_k",
            "grpo.update.objective.signs",
            "grpo.update.objective.signs.overconfident",
            "reward.search_cost",
            "reward.noisy",
        ],
    ),
];

/// Ends the description of each of these options in the schema of a config with its sentence.
pub(super) fn mark(schema: &mut Value) {
    for (sentence, options) in MEASURED {
        for option in options {
            let path: Vec<&str> = option.split('.').collect();
            mark_one(schema, &path, sentence);
        }
    }
}

/// Ends the description of the key or choice at a path with a sentence; false where the schema does not have it.
fn mark_one(schema: &mut Value, path: &[&str], sentence: &str) -> bool {
    let [name, rest @ ..] = path else {
        return false;
    };
    let inner = schema.get_mut("properties");
    if let Some(inner) = inner.and_then(|keys| keys.get_mut(*name)) {
        if !rest.is_empty() {
            return mark_one(inner, rest, sentence);
        }
        // A choice that is a table says what its one key means.
        if inner.get("description").is_some() {
            end(inner, sentence);
        } else {
            end(schema, sentence);
        }
        return true;
    }
    if rest.is_empty() && schema.get("const").and_then(Value::as_str) == Some(*name) {
        end(schema, sentence);
        return true;
    }
    for kind in ["anyOf", "oneOf"] {
        let variants = schema.get_mut(kind).and_then(Value::as_array_mut);
        for variant in variants.into_iter().flatten() {
            if mark_one(variant, path, sentence) {
                return true;
            }
        }
    }
    false
}

fn end(schema: &mut Value, sentence: &str) {
    let about = schema.get("description").and_then(Value::as_str);
    let about = about.unwrap_or_default().trim_end_matches('.');
    schema["description"] = format!("{about}. {sentence}").into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;

    #[test]
    fn the_options_that_the_guide_does_not_show_to_help_say_so() {
        let guide = include_str!("../../../docs/training.md");
        let schema = RunConfig::schema().to_string();
        let rows = ["| not shown to differ |", "| behind |"];
        for (row, (sentence, options)) in rows.into_iter().zip(MEASURED) {
            let row = guide.lines().find(|line| line.starts_with(row)).unwrap();
            let named: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
            for name in &named {
                let ending = format!(".{name}");
                let found = options.iter().filter(|option| option.ends_with(&ending));
                assert_eq!(found.count(), 1, "{name}");
            }
            assert_eq!(named.len(), options.len(), "{named:?}");
            assert_eq!(
                schema.matches(sentence).count(),
                options.len(),
                "{sentence}"
            );
        }
    }
}
