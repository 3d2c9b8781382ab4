//! The environments by name, and the list of built-in environments and rewards.

use std::sync::{Arc, LazyLock};

use forage_contracts::environment::EnvFactory;
use forage_contracts::reward::RewardEntry;
use forage_contracts::{
    EnvEntry, Metric, Registry, RegistryError, Resources, STEP_METRICS, suggestion,
};
use forage_sandbox::Tools;
use serde_json::Value;

use crate::reward::{
    altered, answers, controls, costs, format, judge, majority, published, random, rankings,
    relevance, reranking, retrieval, search_r1 as whole_text, turns,
};
use crate::{code_search, external, math, query_writer, rerank, search_r1};

/// Every built-in environment, first the one that is played where a config names none. A new one is a file and a line here, and is then
/// covered by the conformance tests; one from outside is registered through [`crate::Plugins`].
pub(crate) const ENVIRONMENTS: &[EnvEntry] = &[
    search_r1::ENTRY,
    code_search::ENTRY,
    query_writer::ENTRY,
    rerank::ENTRY,
    math::ENTRY,
    external::ENTRY,
];

pub(crate) static ENVIRONMENT_REGISTRY: Registry<EnvEntry> = Registry::new(ENVIRONMENTS);

/// Every registered environment, the built-in ones first.
pub fn environments() -> impl Iterator<Item = &'static EnvEntry> {
    ENVIRONMENT_REGISTRY.iter()
}

/// The functions over whole pages that programs of `code-search` call under the default settings, for programs without an
/// episode.
///
/// # Errors
/// When there are no pages, or they cannot be opened or indexed.
pub fn page_functions(
    resources: &Resources,
) -> Result<impl Fn() -> Arc<dyn Tools> + Send + Sync + use<>, RegistryError> {
    code_search::functions(resources)
}

/// Every built-in reward, in the order in which scores add them. A new one is a file and a line here; one from outside is
/// registered through [`crate::Plugins`].
pub(crate) const REWARDS: &[RewardEntry] = &[
    answers::EM,
    answers::SUB_EM,
    answers::F1,
    format::ENTRY,
    format::SELF_SEARCH,
    retrieval::ENTRY,
    published::ENTRY,
    rankings::NDCG,
    rankings::GAIN,
    rankings::MRR,
    rankings::RECALL,
    rankings::PRECISION,
    rankings::RETRIEVED,
    rankings::SYNTAX,
    rankings::RIGHT_PICK,
    reranking::RBO,
    reranking::SCORES,
    query_writer::searchlm::NDCG,
    query_writer::searchlm::V1,
    query_writer::searchlm::V2,
    judge::ENTRY,
    judge::BATCH,
    judge::TOURNAMENT,
    judge::TURNS,
    majority::ENTRY,
    relevance::ENTRY,
    costs::SEARCH_COST,
    costs::REDUNDANT_SEARCHES,
    costs::LENGTH,
    turns::ENTRY,
    random::ENTRY,
    controls::CONSTANT,
    controls::ANY_SEARCH,
    controls::FORMAT_ONLY,
    controls::CONTAINS,
    altered::INVERSE,
    altered::NOISY,
];

pub(crate) static REWARD_REGISTRY: Registry<RewardEntry> = Registry::new(REWARDS);

/// Every registered reward, the built-in ones first.
pub fn rewards() -> impl Iterator<Item = &'static RewardEntry> {
    REWARD_REGISTRY.iter()
}

/// Every metric that a training step may have: the common ones, then those that environments declare.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    STEP_METRICS
        .iter()
        .chain(environments().flat_map(|entry| entry.declares))
}

/// The metric of this name.
pub fn metric(name: &str) -> Option<&'static Metric> {
    metrics().find(|metric| Metric::part(metric.name, name).is_some())
}

/// Finds an environment by its id (`forage/search-r1-v0`) or its short name (`search-r1`, `search-r1-v0`).
///
/// # Errors
/// When there is none; the error names the nearest, or all of them.
pub fn find(id: &str) -> Result<&'static EnvEntry, RegistryError> {
    let known = environments().find(|entry| entry.names().contains(&id));
    known.ok_or_else(|| {
        let names = environments().map(|entry| entry.names()[2]);
        let mut suggestion = suggestion(id, names);
        // As Gymnasium names one, and as a class in Python names itself.
        if id.contains('/') && !id.starts_with("forage/") {
            suggestion.push_str(" (a class in Python is `external`, which --env-command serves)");
        }
        RegistryError::Unknown {
            id: id.to_owned(),
            suggestion,
        }
    })
}

/// Parses a text as a turn of every environment under every profile: the result is an action or a fault.
pub(crate) fn read_everywhere(text: &str) {
    static SEARCH: LazyLock<[search_r1::SearchR1Settings; 10]> =
        LazyLock::new(|| search_r1::Profile::ALL.map(search_r1::Profile::settings));
    static PROGRAMS: LazyLock<[code_search::CodeSearchSettings; 4]> =
        LazyLock::new(|| code_search::Profile::ALL.map(code_search::Profile::settings));
    for settings in PROGRAMS.iter() {
        code_search::parse(text, settings);
    }
    for take in [query_writer::Take::Last, query_writer::Take::First] {
        let _ = query_writer::parse(text, take);
    }
    let _ = query_writer::parse_call(text);
    for form in rerank::Form::ALL {
        form.read(text, &["a", "7"]);
    }
    math::read(text, &["7".to_owned()]);
    whole_text::is_valid_whole_text(text);
    for settings in SEARCH.iter() {
        search_r1::parse(text, settings);
    }
}

/// Makes the factory of the environment `id`. `settings` may be null for the defaults.
///
/// # Errors
/// When the id is unknown or the settings are wrong.
pub fn make(
    id: &str,
    settings: Value,
    resources: Resources,
) -> Result<Arc<dyn EnvFactory>, RegistryError> {
    let settings = if settings.is_null() {
        Value::Object(serde_json::Map::default())
    } else {
        settings
    };
    (find(id)?.make)(settings, resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_found_and_misspelt_ones_suggested() {
        for name in ["forage/search-r1-v0", "search-r1-v0", "search-r1"] {
            assert_eq!(find(name).expect("registered").id, "forage/search-r1-v0");
        }
        let error = find("serach-r1").expect_err("misspelt").to_string();
        assert_eq!(
            error,
            "unknown environment `serach-r1`; did you mean `search-r1`?"
        );
        let error = find("ada/twentyone-v0").expect_err("a class's own name");
        assert!(
            error
                .to_string()
                .ends_with("(a class in Python is `external`, which --env-command serves)"),
            "{error}"
        );
    }
}
