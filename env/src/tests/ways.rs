//! More ways to search: budgets, the policy as its own search engine, functions that open, find in and order pages.

use std::sync::Arc;

use forage_contracts::environment::{Action, EnvFactory, TurnKind};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Ending, Episode, Resources};

use super::common::{factory, jobs, library, lines, pages, rollout, settings, task};
use forage_env::Wiki;
use forage_env::code_search::settings::FunctionSettings;
use forage_env::code_search::{CodeSearchSettings, Form};
use forage_env::registry::make;
use forage_env::search_r1::{SearchForm, SearchR1Settings, Searcher};
use forage_env::settings::OnInvalid;
use serde_json::json;

async fn play(turns: &[&str], settings: SearchR1Settings) -> Episode {
    rollout(lines(turns), factory(settings, library()))
        .run(jobs(task(), 1))
        .await
        .remove(0)
}

const SEARCH: &str = "<search>mayor of Orlen</search>";

#[tokio::test]
async fn a_spent_budget_runs_no_more_queries_and_says_so() {
    let budget = SearchR1Settings {
        search_budget: 1,
        ..settings()
    };
    let episode = play(&[SEARCH, SEARCH, "<answer>Velm</answer>"], budget.clone()).await;
    assert_eq!(
        (episode.searches(), &episode.ending),
        (1, &Ending::Answered)
    );
    assert!(episode.turns[0].observation.contains("Ada Brandt"));
    let TurnKind::Invalid { fault } = &episode.turns[1].kind else {
        panic!("{:?}", episode.turns[1].kind)
    };
    assert_eq!(fault, "the budget of 1 queries is spent");
    assert_eq!(
        episode.turns[1].observation,
        "\nNo searches are left. Answer now between <answer> and </answer>.\n"
    );
    let ends = SearchR1Settings {
        on_invalid: OnInvalid::End,
        ..budget
    };
    assert!(matches!(
        play(&[SEARCH, SEARCH], ends).await.ending,
        Ending::Malformed { .. }
    ));
    let calls = SearchR1Settings {
        form: SearchForm::ToolCalls,
        search_budget: 1,
        ..settings()
    };
    let call = |query: &str| {
        format!(
            "<tool_call>{}</tool_call>",
            json!({"name": "search", "arguments": {"query": query}})
        )
    };
    let mut env = factory(calls, library()).make();
    env.reset(&task(), Seed::root(1)).await.unwrap();
    let text = [call("Orlen"), call("Velm")].concat();
    let step = env.step(&Action::new(text)).await.unwrap();
    // Two are one too many: neither is run, each is answered.
    assert_eq!(
        step.observation.results,
        ["None of these 2 queries was run. Queries left: 1."; 2]
    );
    let step = env.step(&Action::new(call("Orlen"))).await.unwrap();
    assert_eq!(step.kind.queries().count(), 1);
    let step = env.step(&Action::new(call("Orlen"))).await.unwrap();
    assert_eq!(
        step.observation.results,
        ["No searches are left. Answer now between <answer> and </answer>."]
    );
}

#[tokio::test]
async fn a_policy_may_answer_its_own_searches() {
    let own = SearchR1Settings {
        searcher: Searcher::Policy,
        ..settings()
    };
    let factory = factory(own.clone(), library());
    assert_eq!(factory.spec().stop, ["</answer>"]);
    let turn = "<think>who?</think><search>mayor of Orlen</search><information>Ada Brandt, born in Velm</information>\
                <think>she</think><answer> Velm </answer>";
    let episode = play(&[turn], own.clone()).await;
    assert_eq!(
        (episode.answer(), episode.ending.clone(), episode.reward()),
        (Some("Velm"), Ending::Answered, Some(1.0))
    );
    assert_eq!(
        episode
            .prompt
            .matches("what a search engine would find")
            .count(),
        1
    );
    // Nobody searched, and nothing was shown.
    assert_eq!(
        (
            episode.searches(),
            episode.score.unwrap().parts["retrieval"]
        ),
        (0, 0.0)
    );
    let silent = SearchR1Settings {
        on_invalid: OnInvalid::End,
        ..own.clone()
    };
    assert!(matches!(
        play(&[SEARCH], silent).await.ending,
        Ending::Malformed { .. }
    ));
    let calls = SearchR1Settings {
        form: SearchForm::ToolCalls,
        ..own
    }
    .check()
    .unwrap_err()
    .to_string();
    assert!(
        calls.contains("`searcher` is policy and `form` is tool_calls"),
        "{calls}"
    );
}

fn wiki_factory(more: bool) -> Arc<dyn EnvFactory> {
    let settings = CodeSearchSettings {
        form: Form::FunctionCalls,
        functions: FunctionSettings {
            more,
            ..FunctionSettings::default()
        },
        ..CodeSearchSettings::default()
    };
    let wiki = Arc::new(Wiki::in_memory(&pages()).unwrap());
    let resources = Resources::new(library(), Arc::new(ByteTokenizer)).with_open_wiki(wiki);
    make(
        "code-search",
        serde_json::to_value(settings).unwrap(),
        resources,
    )
    .unwrap()
}

#[tokio::test]
async fn pages_are_opened_found_in_and_put_into_order() {
    let call = |name: &str, arguments: serde_json::Value| {
        format!(
            "<tool_call>{}</tool_call>",
            json!({"name": name, "arguments": arguments})
        )
    };
    let mut env = wiki_factory(true).make();
    let opening = env.reset(&task(), Seed::root(1)).await.unwrap().text;
    assert!(
        opening.contains("- rank_pages(query, page_ids)"),
        "{opening}"
    );
    for (turn, expected) in [
        (
            call("open_page", json!({"page_id": "orlen"})),
            "[part 1 of 1]\n# Orlen",
        ),
        (
            call("open_page", json!({"page_id": "orlen", "part": 2})),
            "orlen has parts 1 to 1, and no part 2",
        ),
        (
            call("open_page", json!({"page_id": "orlen", "part": -1})),
            "orlen has parts 1 to 1, and no part -1",
        ),
        (
            call(
                "find_in_page",
                json!({"page_id": "orlen", "text": "ADA brandt"}),
            ),
            "Its mayor is Ada Brandt.",
        ),
        (
            call("find_in_page", json!({"page_id": "orlen", "text": " "})),
            "text is empty",
        ),
        (
            call(
                "rank_pages",
                json!({"query": "born in Velm", "page_ids": ["orlen", "velm", "ada_brandt"]}),
            ),
            "['ada_brandt', 'velm', 'orlen']",
        ),
        (
            call("rank_pages", json!({"query": "x", "page_ids": "orlen"})),
            "must be list of str, not str",
        ),
        (
            call(
                "rank_pages",
                json!({"query": "x", "page_ids": ["orlen", {"page_id": "velm"}]}),
            ),
            "rank_pages() argument 'page_ids[1]' must be str, not dict",
        ),
    ] {
        env.reset(&task(), Seed::root(1)).await.unwrap();
        let step = env.step(&Action::new(turn.clone())).await.unwrap();
        assert!(
            step.observation.text.contains(expected),
            "{turn}: {}",
            step.observation.text
        );
    }
    // Read in a page that was opened, the answer counts as found.
    env.reset(&task(), Seed::root(1)).await.unwrap();
    let text = call("open_page", json!({"page_id": "velm"}));
    let step = env.step(&Action::new(text)).await.unwrap();
    assert!(step.kind.calls()[0].gold_read);
    let mut plain = wiki_factory(false).make();
    assert!(
        !plain
            .reset(&task(), Seed::root(1))
            .await
            .unwrap()
            .text
            .contains("open_page")
    );
    let text = call("open_page", json!({"page_id": "velm"}));
    let step = plain.step(&Action::new(text)).await.unwrap();
    assert!(
        step.observation
            .text
            .contains("there is no tool 'open_page'"),
        "{}",
        step.observation.text
    );
}

#[tokio::test]
async fn programs_have_the_functions_too() {
    let settings = CodeSearchSettings {
        functions: FunctionSettings {
            more: true,
            ..FunctionSettings::default()
        },
        ..CodeSearchSettings::default()
    };
    let wiki = Arc::new(Wiki::in_memory(&pages()).unwrap());
    let resources = Resources::new(library(), Arc::new(ByteTokenizer)).with_open_wiki(wiki);
    let mut env = make(
        "code-search",
        serde_json::to_value(settings).unwrap(),
        resources,
    )
    .unwrap()
    .make();
    env.reset(&task(), Seed::root(1)).await.unwrap();
    let text = "<python>\nids = rank_pages('mayor', ['velm', 'orlen'])\nprint(ids, open_page(ids[0])[:15], \
                open_page(ids[0], part=1)[:6], len(find_in_page('orlen', 'tay')))\n</python>";
    let step = env.step(&Action::new(text)).await.unwrap();
    assert!(
        step.observation
            .text
            .contains("['orlen', 'velm'] [part 1 of 1]\n# [part  1"),
        "{}",
        step.observation.text
    );
}
