use serde_json::json;

use super::super::tests::finder;
use super::*;
use crate::wiki::SectionMode;
use crate::wiki::find::SearchMode;

fn tools(settings: FunctionSettings) -> PageTools {
    PageTools::new(finder(settings.search), settings)
}

fn v0() -> PageTools {
    tools(FunctionSettings::default())
}

fn call(tools: &PageTools, name: &str, arguments: Value) -> Result<Value, String> {
    let Value::Object(arguments) = arguments else {
        panic!("an object")
    };
    tools
        .call(name, &arguments)
        .map_err(|error| error.to_string())
}

#[test]
fn searches_give_ids_and_titles() {
    let found = call(
        &v0(),
        "search_pages",
        json!({"query": "town mayor", "n": 10}),
    );
    assert_eq!(found, Ok(json!([{"page_id": "orlen", "title": "Orlen"}])));
    let similar = tools(FunctionSettings {
        similarity: true,
        search: SearchMode::Titles,
        ..FunctionSettings::default()
    });
    let found = call(&similar, "search_pages", json!({"query": "orlen"})).expect("found");
    let value = found[0]["similarity"].as_f64().expect("a number");
    assert!(value > 0.0 && value < 1.0, "{value}");
    assert_eq!(
        call(&similar, "search_pages", json!({"query": "mayor"})),
        Ok(json!([]))
    );
    assert_eq!(
        call(&v0(), "search_pages", json!({"query": "orlen ada", "n": 1}))
            .map(|all| all[1].is_null()),
        Ok(true)
    );
}

#[test]
fn wrong_arguments_raise() {
    for (arguments, message) in [
        (
            json!({"query": 5}),
            "TypeError: search_pages() argument 'query' must be str, not int",
        ),
        (
            json!({"query": null}),
            "TypeError: search_pages() argument 'query' must be str, not NoneType",
        ),
        (
            json!({"query": "x", "n": 0}),
            "ValueError: n must be at least 1",
        ),
        (
            json!({"query": "x", "n": -2}),
            "ValueError: n must be at least 1",
        ),
        (
            json!({"query": "x", "n": "3"}),
            "TypeError: search_pages() argument 'n' must be int, not str",
        ),
        (
            json!({"query": "x", "n": 2.5}),
            "TypeError: search_pages() argument 'n' must be int, not float",
        ),
    ] {
        assert_eq!(
            call(&v0(), "search_pages", arguments),
            Err(message.to_owned())
        );
    }
}

#[test]
fn sections_and_their_errors_are_those_of_v0() {
    let tools = v0();
    let listed = call(&tools, "view_sections", json!({"page_id": "orlen"})).expect("listed");
    assert_eq!(
        listed[1],
        json!({"section_id": "orlen:people", "section_name": "People"})
    );
    let read = call(
        &tools,
        "read_section",
        json!({"section_id": "orlen:people"}),
    );
    assert_eq!(read, Ok(json!("## People\n\nIts mayor is Ada Brandt.\n")));
    assert_eq!(
        call(&tools, "read_section", json!({"section_id": "plain:full"})),
        Ok(json!("No heading here."))
    );
    let format = "ValueError: Invalid section_id format. Expected: page_id:section_name";
    for (name, arguments, message) in [
        ("read_section", json!({"section_id": "orlen"}), format),
        (
            "read_section",
            json!({"section_id": "x:y"}),
            "ValueError: Page not found: x",
        ),
        (
            "read_section",
            json!({"section_id": "orlen:a:b"}),
            "ValueError: Section not found: orlen:a:b",
        ),
        (
            "view_sections",
            json!({"page_id": "x"}),
            "ValueError: Page not found: x",
        ),
    ] {
        assert_eq!(call(&tools, name, arguments), Err(message.to_owned()));
    }
    let calls = tools.take_calls();
    assert_eq!(calls[1].found, ["orlen:people"]);
    assert_eq!(calls[3].error.as_deref(), Some(format));
    assert_eq!(calls.len(), 7);
    assert!(tools.take_calls().is_empty());
}

#[test]
fn sections_and_their_errors_are_those_of_v1() {
    let tools = tools(FunctionSettings {
        flavour: Flavour::V1,
        takes_n: false,
        ..FunctionSettings::default()
    });
    let names: Vec<String> = tools.specs().into_iter().map(|spec| spec.name).collect();
    assert_eq!(
        names,
        [
            "wiki_search_pages",
            "wiki_view_sections",
            "wiki_read_section"
        ]
    );
    assert!(tools.specs()[0].parameters.len() == 1);
    let missing = call(
        &tools,
        "wiki_read_section",
        json!({"section_id": "orlen:x"}),
    );
    assert_eq!(missing, Ok(json!("Section not found: orlen:x")));
    assert_eq!(
        call(&tools, "wiki_view_sections", json!({"page_id": "x"})),
        Err("KeyError: x".to_owned())
    );
    let calls = tools.take_calls();
    assert_eq!(
        (calls[0].tool.as_str(), calls[0].gave()),
        (READ_TOOL, false)
    );
}

#[test]
fn ids_of_pages_may_have_colons() {
    let page = |id: &str, text: &str| forage_contracts::Passage::new(id, "Help", text);
    let pages = [
        page("Help:Contents", "# A\n\n## History\n\nOld.\n"),
        page(
            "Help",
            "# Contents: more\n\nx\n# Contents:History\n\nNew.\n",
        ),
    ];
    let wiki = std::sync::Arc::new(crate::wiki::Wiki::in_memory(&pages).expect("a wiki"));
    let passages = forage_retriever::Bm25Retriever::in_memory(pages.to_vec()).expect("indexed");
    let finder = Finder::new(wiki, SearchMode::Titles, std::sync::Arc::new(passages));
    let tools = PageTools::new(finder.expect("indexed"), FunctionSettings::default());
    let listed = call(&tools, "view_sections", json!({"page_id": "Help:Contents"}));
    let id = listed.expect("listed")[1]["section_id"].clone();
    assert_eq!(id, "Help:Contents:history");
    for (id, read) in [
        (id.as_str().expect("a text"), Ok("## History\n\nOld.\n")),
        ("Help:contents:_more", Ok("# Contents: more\n\nx")),
        ("Help:Contents:full", Ok("# A\n\n## History\n\nOld.\n")),
        (
            "Help:Contents:nope",
            Err("ValueError: Section not found: Help:Contents:nope"),
        ),
        ("No:Page:full", Err("ValueError: Page not found: No")),
        (
            "Help:Contents",
            Err("ValueError: Invalid section_id format. Expected: page_id:section_name"),
        ),
    ] {
        let read = read.map(Value::from).map_err(str::to_owned);
        assert_eq!(
            call(&tools, "read_section", json!({"section_id": id})),
            read
        );
    }
}

#[test]
fn subtrees_are_an_option() {
    let tools = tools(FunctionSettings {
        section_mode: SectionMode::Subtree,
        ..FunctionSettings::default()
    });
    let read = call(&tools, "read_section", json!({"section_id": "orlen:orlen"})).expect("read");
    assert!(read.as_str().expect("a text").contains("Its mayor"));
}

#[test]
fn what_was_returned_is_remembered() {
    let tools = v0();
    let returned = |gold: &str| tools.returned_any(&[gold]).expect("readable");
    assert!(!returned("ada brandt"));
    call(&tools, "view_sections", json!({"page_id": "orlen"})).expect("listed");
    assert!(returned("people") && !returned("ada brandt"));
    call(&tools, "search_pages", json!({"query": "velm", "n": 1})).expect("found");
    assert!(returned("ada brandt") && !returned("velm"));
    call(
        &tools,
        "read_section",
        json!({"section_id": "ada_brandt:full"}),
    )
    .expect("read");
    assert!(returned("velm"));
}

#[test]
fn long_arguments_are_the_programs_fault_and_recorded_in_short() {
    let long = "x ".repeat(50_000);
    for mode in [SearchMode::Titles, SearchMode::Pages, SearchMode::Passages] {
        let tools = tools(FunctionSettings {
            search: mode,
            more: true,
            ..FunctionSettings::default()
        });
        let refused = "ValueError: the query has 100000 bytes; at most 65536 are searched for";
        for (name, arguments) in [
            ("search_pages", json!({"query": long})),
            ("rank_pages", json!({"query": long, "page_ids": ["orlen"]})),
        ] {
            assert_eq!(call(&tools, name, arguments), Err(refused.to_owned()));
        }
        let error = call(&tools, "view_sections", json!({"page_id": long}));
        assert!(error.expect_err("no such page").len() > 100_000);
        let calls = tools.take_calls();
        assert_eq!(calls.len(), 3);
        for call in calls {
            let recorded = serde_json::to_string(&call).expect("serialises");
            assert!(recorded.len() < 3_000, "{} bytes", recorded.len());
            assert!(
                call.argument.contains("[100000 bytes, blake3 "),
                "{recorded}"
            );
        }
    }
}

#[test]
fn a_search_that_nobody_waits_for_fails_and_is_not_recorded() {
    let over = CancelFlag::new();
    over.cancel();
    let found = json!({"query": "orlen"});
    let ranked = json!({"query": "mayor", "page_ids": ["orlen", "plain"]});
    for (mode, name, arguments) in [
        (SearchMode::Titles, "search_pages", &found),
        (SearchMode::Pages, "search_pages", &found),
        (SearchMode::Passages, "search_pages", &found),
        (SearchMode::Pages, "rank_pages", &ranked),
    ] {
        let tools = tools(FunctionSettings {
            search: mode,
            more: true,
            ..FunctionSettings::default()
        });
        let arguments = arguments.as_object().expect("an object");
        let answer = within(over.clone(), tools.answer(name, arguments));
        assert!(
            matches!(
                answer.now_or_never(),
                Some(Err(Failure::Retriever(RetrieverError::Cancelled)))
            ),
            "{name} over {mode:?}"
        );
        assert!(tools.take_calls().is_empty());
    }
}
