//! The descriptions of the servers' routes are those of the routes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::tidy::root;

/// Not described: pages for people, and protocols that are not requests of HTTP.
const OTHERS: [&str; 3] = ["/", "/ws", "/mcp"];

/// Method and path of every `.route("PATH", METHOD(...))` in a source, on one line or several; `{*id}` is `{id}`.
fn routes(path: &str) -> BTreeSet<(String, String)> {
    let source = std::fs::read_to_string(root().join(path)).expect("a source file");
    let parts = source.split(".route(").skip(1);
    let found = parts.filter_map(|part| {
        let (path, rest) = part.trim_start().strip_prefix('"')?.split_once("\",")?;
        let (method, _) = rest.split_once(['(', ':'])?;
        Some((method.trim().to_owned(), path.replace("{*", "{")))
    });
    found
        .filter(|(_, path)| !OTHERS.contains(&path.as_str()))
        .collect()
}

#[test]
fn every_route_is_described_and_no_other() {
    let common = routes("net/src/server/routes.rs");
    assert!(common.len() >= 5, "{common:?}");
    let servers = [
        ("retriever/src/server", "routes.rs"),
        ("env/src/server", "routes.rs"),
        ("trainer/src/server", "routes.rs"),
        ("cli/src/commands/serve", "run.rs"),
    ];
    for (server, source) in servers {
        let text = std::fs::read_to_string(root().join(server).join("openapi.json")).unwrap();
        let description: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            description["info"]["version"],
            env!("CARGO_PKG_VERSION"),
            "{server}"
        );
        let described: BTreeSet<(String, String)> = description["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().unwrap().keys();
                methods.map(|method| (method.clone(), path.clone()))
            })
            .collect();
        let served = &common | &routes(&format!("{server}/{source}"));
        assert_eq!(described, served, "{server}");
        for reference in text.split("\"$ref\": \"#").skip(1) {
            let (place, _) = reference.split_once('"').unwrap();
            assert!(
                description.pointer(place).is_some(),
                "{server}: nothing stands at {place}"
            );
        }
    }
}
