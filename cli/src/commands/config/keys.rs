//! The keys of a config, read off its schema.

use serde_json::{Map, Value};

/// One key of a config, or one table of keys.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// The table it is in, by its path; empty at the top. A list of tables ends in `[]`.
    pub(super) section: String,
    /// Its name there; with the name of a choice before it where only that choice has the key.
    pub(super) name: String,
    /// The environment or the kind of remote retriever that has it; `None` for a key of every config.
    pub(super) of: Option<String>,
    /// The values that may be written, in words.
    pub(super) form: String,
    /// Its default as TOML; `None` where there is none.
    pub(super) default: Option<String>,
    /// It has to be written where its table is.
    pub(super) required: bool,
    pub(super) meaning: String,
    /// Names that it may be, or tables it may hold, with what each means.
    pub(super) choices: Vec<(String, String)>,
    /// It is a table with keys of its own.
    pub(super) is_table: bool,
    /// It is a table with any keys.
    pub(super) is_open: bool,
}

impl Key {
    /// The path that `--set` takes.
    pub(super) fn path(&self) -> String {
        join(&self.section, &self.name)
    }
}

/// Every key, tables before what is in them.
pub(super) fn keys(schema: &Value) -> Vec<Key> {
    let mut keys = Vec::new();
    let place = Place {
        section: String::new(),
        prefix: String::new(),
        of: None,
    };
    table(schema, &place, &mut keys);
    keys
}

/// The places of the keys.
struct Place {
    section: String,
    /// Before each name: the choice they belong to, with a dot.
    prefix: String,
    of: Option<String>,
}

pub(super) fn join(section: &str, name: &str) -> String {
    if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    }
}

/// Adds the keys of a table, then those that it has by the value of another key.
fn table(schema: &Value, place: &Place, keys: &mut Vec<Key>) {
    let required: Vec<&str> = list(schema, "required")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    // A choice says what its one key means.
    let about = only_property(schema).and_then(|_| schema.get("description"));
    for (name, inner) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        // A schema of `true` has its description elsewhere.
        if inner.is_object() {
            let mut inner = without_null(inner);
            if let Some(about) = about.filter(|_| inner.get("description").is_none()) {
                inner["description"] = about.clone();
            }
            let required = required.contains(&name.as_str());
            key(name, &inner, required, place, keys);
        }
    }
    for branch in list(schema, "allOf") {
        let place = Place {
            section: place.section.clone(),
            prefix: place.prefix.clone(),
            of: text(branch, "title").map(str::to_owned),
        };
        table(branch.get("then").unwrap_or(&Value::Null), &place, keys);
    }
}

fn key(name: &str, schema: &Value, required: bool, place: &Place, keys: &mut Vec<Key>) {
    let name = format!("{}{name}", place.prefix);
    let has_keys = |schema: &Value| {
        let own = schema.get("properties").and_then(Value::as_object);
        own.is_some_and(|own| !own.is_empty()) || !list(schema, "allOf").is_empty()
    };
    let is_table = has_keys(schema);
    let variants = variants(schema);
    keys.push(Key {
        section: place.section.clone(),
        name: name.clone(),
        of: place.of.clone(),
        form: form(schema),
        default: schema
            .get("default")
            .filter(|value| !value.is_null())
            .map(toml),
        required,
        meaning: text(schema, "description").unwrap_or_default().to_owned(),
        choices: choices(schema),
        is_table,
        is_open: !is_table && variants.is_empty() && types(schema).contains(&"object"),
    });
    // The keys of a choice are listed with it; a table that is not a choice begins a section.
    let below = |section: String, prefix: String| Place {
        section,
        prefix,
        of: place.of.clone(),
    };
    if is_table && place.prefix.is_empty() {
        let section = join(&place.section, &name);
        table(schema, &below(section, String::new()), keys);
    } else if is_table {
        let inside = below(place.section.clone(), format!("{name}."));
        table(schema, &inside, keys);
    }
    if let Some(items) = schema.get("items").filter(|items| has_keys(items)) {
        let section = format!("{}[]", join(&place.section, &name));
        table(items, &below(section, String::new()), keys);
    }
    for variant in variants {
        let inside = below(place.section.clone(), format!("{name}."));
        table(variant, &inside, keys);
    }
}

fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    let found = schema.get(key).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key).and_then(Value::as_str)
}

/// The alternatives of a schema.
fn variants(schema: &Value) -> Vec<&Value> {
    let all = list(schema, "oneOf").iter().chain(list(schema, "anyOf"));
    all.collect()
}

/// The types of a schema, without null.
fn types(schema: &Value) -> Vec<&str> {
    let found = match schema.get("type") {
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    };
    found.into_iter().filter(|name| *name != "null").collect()
}

/// The schema of a key that may be left out: TOML has no null, so neither have the keys.
fn without_null(schema: &Value) -> Value {
    let Value::Object(object) = schema else {
        return schema.clone();
    };
    let mut object = object.clone();
    let is_null = |variant: &Value| variant.get("type").is_some_and(|name| name == "null");
    let others: Vec<&Value> = list(schema, "anyOf")
        .iter()
        .filter(|variant| !is_null(variant))
        .collect();
    if let [Value::Object(only)] = others.as_slice() {
        object.remove("anyOf");
        let mut merged: Map<String, Value> = only.clone();
        merged.extend(object);
        object = merged;
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    Value::Object(object)
}

/// The names and tables that may be written, each with its meaning.
fn choices(schema: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |written: String, about: &Value| {
        let meaning = text(about, "description").unwrap_or_default().to_owned();
        found.push((written, meaning));
    };
    for value in list(schema, "enum") {
        add(toml(value), &Value::Null);
    }
    for variant in variants(schema) {
        if let Some(value) = variant.get("const") {
            add(toml(value), variant);
        }
        for value in list(variant, "enum") {
            add(toml(value), &Value::Null);
        }
        if let Some(only) = only_property(variant) {
            add(format!("{{ {only} = ... }}"), variant);
        }
    }
    found
}

/// The name of the only property of a table that names one alternative.
fn only_property(schema: &Value) -> Option<&str> {
    let properties = schema.get("properties")?.as_object()?;
    let [name] = list(schema, "required") else {
        return None;
    };
    properties.keys().next().filter(|_| properties.len() == 1)?;
    name.as_str()
}

/// The values that may be written, in words.
fn form(schema: &Value) -> String {
    let named = !list(schema, "enum").is_empty() || schema.get("const").is_some();
    let mut forms: Vec<String> = Vec::new();
    let mut add = |form: String| {
        if !forms.contains(&form) {
            forms.push(form);
        }
    };
    if named {
        add("name".to_owned());
    } else {
        for name in types(schema) {
            add(match name {
                "integer" => "whole number".to_owned(),
                "number" => "number".to_owned(),
                "boolean" => "true or false".to_owned(),
                "string" => "text".to_owned(),
                "array" => list_form(schema),
                _ => "table".to_owned(),
            });
        }
    }
    for variant in variants(schema) {
        add(form(variant));
    }
    if forms.is_empty() {
        "any value".to_owned()
    } else {
        forms.join(" or ")
    }
}

fn list_form(schema: &Value) -> String {
    let items = schema.get("items").map_or_else(String::new, |items| {
        format!(
            " of {}",
            form(items).replace("whole number", "whole numbers")
        )
    });
    match (schema.get("minItems"), schema.get("maxItems")) {
        (Some(least), Some(most)) if least == most => format!("list{items}, {least} of them"),
        _ => format!("list{items}"),
    }
}

/// A value as TOML writes it inline.
fn toml(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => decimal(float),
            _ => number.to_string(),
        },
        Value::String(text) => format!("{text:?}"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(table) if table.is_empty() => "{}".to_owned(),
        Value::Object(table) => {
            let pairs: Vec<String> = table
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| format!("{key} = {}", toml(value)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

/// A number in its shortest form: of four bytes where it was one of four bytes.
fn decimal(float: f64) -> String {
    let short = float as f32;
    let plain = float == 0.0 || (1e-3..1e6).contains(&float.abs());
    match (f64::from(short).to_bits() == float.to_bits(), plain) {
        (true, true) => format!("{short:?}"),
        (true, false) => format!("{short:e}"),
        (false, true) => format!("{float:?}"),
        (false, false) => format!("{float:e}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_choices_and_lists_become_keys() {
        let schema = json!({"properties": {
            "seed": {"type": "integer", "default": 1, "description": "A seed."},
            "part": {"anyOf": [
                {"type": "object", "properties": {"share": {"type": "number"}}, "required": ["share"], "description": "no"},
                {"type": "null"},
            ], "description": "A part."},
            "rule": {"oneOf": [
                {"const": "mean", "type": "string", "description": "The mean."},
                {"type": "object", "properties": {"fixed": {"type": "object", "properties": {"length": {"type": "integer"}}}},
                 "required": ["fixed"], "description": "A constant."},
            ]},
            "stages": {"type": "array", "items": {"type": "object", "properties": {"rate": {"type": "number"}}}},
            "server": {"type": "object", "properties": {"kind": {"const": "a"}}, "allOf": [
                {"title": "a", "then": {"properties": {"kind": true, "url": {"type": ["string", "null"], "default": null}}}},
            ]},
        }});
        let keys = keys(&schema);
        let paths: Vec<String> = keys.iter().map(Key::path).collect();
        assert_eq!(
            paths,
            [
                "seed",
                "part",
                "part.share",
                "rule",
                "rule.fixed",
                "rule.fixed.length",
                "stages",
                "stages[].rate",
                "server",
                "server.kind",
                "server.url"
            ]
        );
        let of = |path: &str| keys.iter().find(|key| key.path() == path).unwrap();
        assert_eq!(of("seed").default.as_deref(), Some("1"));
        assert_eq!(of("part").meaning, "A part.");
        assert!(of("part").is_table && of("part.share").required);
        let choices = [
            ("\"mean\"", "The mean."),
            ("{ fixed = ... }", "A constant."),
        ];
        assert_eq!(
            of("rule").choices,
            choices.map(|(name, about)| (name.to_owned(), about.to_owned()))
        );
        assert_eq!(of("rule.fixed.length").section, "");
        assert_eq!(of("server.url").of.as_deref(), Some("a"));
        assert_eq!(
            (of("server.url").form.as_str(), &of("server.url").default),
            ("text", &None)
        );
    }

    #[test]
    fn numbers_are_as_short_as_they_were_written() {
        for (value, written) in [
            (json!(f64::from(0.7_f32)), "0.7"),
            (json!(0.7), "0.7"),
            (json!(3e-7), "3e-7"),
            (json!(1), "1"),
            (json!([0.5, 1.0]), "[0.5, 1.0]"),
            (json!({"a": "x\n", "b": null}), "{ a = \"x\\n\" }"),
        ] {
            assert_eq!(toml(&value), written);
        }
    }
}
