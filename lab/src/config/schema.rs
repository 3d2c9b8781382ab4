//! The JSON schema of a config: every key, with its type, default and meaning, from the types that configs are read into.

use forage_contracts::EnvEntry;
use forage_contracts::reward::RewardEntry;
use forage_env::registry::{environments, rewards};
use serde_json::{Map, Value, json};

use super::{EnvironmentConfig, RunConfig, measured};

/// Types inside of types that are followed; no config comes near.
const DEEPEST: usize = 16;

impl RunConfig {
    /// JSON schema (2020-12) of a config file, without references. The keys of registered rewards are in it, and what
    /// `environment.settings` and `retriever.remote` hold by `id` and `kind`: each branch of their `allOf` has the name as `title`.
    /// Descriptions end with what was measured of options that were not shown to help.
    pub fn schema() -> Value {
        let mut schema = inlined(&schemars::schema_for!(Self).into());
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        schema["title"] = "A config of forage".into();
        let properties = &mut schema["properties"];
        properties["reward"]["properties"] = rewards()
            .map(|entry| (entry.name.to_owned(), reward(entry)))
            .collect::<Map<_, _>>()
            .into();
        properties["reward"]["additionalProperties"] = false.into();
        properties["environment"]["allOf"] = environments().map(environment).collect();
        measured::mark(&mut schema);
        schema
    }
}

/// What may be written for a reward: its weight, or a table with its settings.
fn reward(entry: &RewardEntry) -> Value {
    let [low, high] = entry.range;
    let about = format!("{}; {low} to {high}", entry.about);
    let Some(settings) = entry.schema else {
        return json!({"type": ["number", "object"], "description": about});
    };
    let mut settings = inlined(&settings());
    let weight = json!({"type": "number", "description": "Its weight in the score of an episode."});
    let mut properties = Map::from_iter([("weight".to_owned(), weight)]);
    if let Some(Value::Object(own)) = settings.get("properties") {
        properties.extend(own.clone());
    }
    let mut required = vec![Value::from("weight")];
    if let Some(Value::Array(own)) = settings.get("required") {
        required.extend(own.iter().cloned());
    }
    settings["properties"] = properties.into();
    settings["required"] = required.into();
    json!({"description": about, "anyOf": [{"type": "number"}, settings]})
}

/// The settings of an environment where `id` names it, or nothing names another.
fn environment(entry: &'static EnvEntry) -> Value {
    let settings = match entry.schema {
        Some(schema) => inlined(&schema()),
        None => (entry.resolve)(json!({})).map_or_else(
            |_| json!({"type": "object"}),
            |resolved| of_default(&resolved.settings),
        ),
    };
    let names = entry.names();
    let mut named = json!({"properties": {"id": {"enum": names}}});
    if !names.contains(&EnvironmentConfig::default().id.as_str()) {
        named["required"] = json!(["id"]);
    }
    json!({"title": entry.id, "if": named, "then": {"properties": {"settings": settings}}})
}

/// The schema of a key of which nothing but a default is known.
fn of_default(default: &Value) -> Value {
    let form = match default {
        Value::Null => return json!({"default": null}),
        Value::Object(table) => {
            let properties: Map<String, Value> = table
                .iter()
                .map(|(key, value)| (key.clone(), of_default(value)))
                .collect();
            return json!({"type": "object", "properties": properties});
        }
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    json!({"type": form, "default": default})
}

/// A schema with what it refers to in the place of references, and descriptions as running text.
fn inlined(schema: &Value) -> Value {
    resolve(schema, &Map::new(), 0)
}

/// The same inside of a document that defines `known`. What stands beside a reference goes before what it refers to.
fn resolve(schema: &Value, known: &Map<String, Value>, depth: usize) -> Value {
    match schema {
        Value::Object(object) => {
            let known = object
                .get("$defs")
                .and_then(Value::as_object)
                .unwrap_or(known);
            let mut result = Map::new();
            let name = object
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|path| path.rsplit('/').next());
            if let Some(found) = name.and_then(|name| known.get(name))
                && depth < DEEPEST
                && let Value::Object(found) = resolve(found, known, depth + 1)
            {
                result = found;
            }
            for (key, value) in object {
                let value = match (key.as_str(), value) {
                    ("$ref" | "$defs" | "$schema", _) => continue,
                    ("description", Value::String(text)) => running(text).into(),
                    // A default is a value, whatever its keys are called.
                    ("default" | "const", value) => value.clone(),
                    (_, value) => resolve(value, known, depth),
                };
                result.insert(key.clone(), value);
            }
            Value::Object(result)
        }
        Value::Array(list) => list
            .iter()
            .map(|item| resolve(item, known, depth))
            .collect(),
        other => other.clone(),
    }
}

/// A doc comment as running text: on one line, names without links.
fn running(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_followed_and_what_stands_beside_them_stays() {
        let schema = json!({
            "properties": {"a": {"$ref": "#/$defs/A", "description": "of\n [`Self`] here", "default": {"$ref": 1}}},
            "$defs": {"A": {"type": "integer", "description": "of the type"}},
        });
        let expected = json!({"properties": {"a": {"type": "integer", "description": "of `Self` here", "default": {"$ref": 1}}}});
        assert_eq!(inlined(&schema), expected);
        // A type inside of itself ends.
        let endless =
            json!({"$ref": "#/$defs/A", "$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}});
        assert!(inlined(&endless).to_string().len() < 1_000);
    }

    /// An environment from outside that describes nothing still has keys with defaults.
    #[test]
    fn settings_without_a_schema_are_those_that_are_spelled_out() {
        let schema =
            of_default(&json!({"limit": 3, "deep": {"on": true, "share": 0.5, "name": null}}));
        let limit = &schema["properties"]["limit"];
        assert_eq!(
            (limit["type"].as_str(), &limit["default"]),
            (Some("integer"), &json!(3))
        );
        let deep = &schema["properties"]["deep"]["properties"];
        assert_eq!(deep["on"], json!({"type": "boolean", "default": true}));
        assert_eq!(deep["share"]["type"], "number");
    }
}
