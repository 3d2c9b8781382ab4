//! Messages of clients as chat templates read them.

use serde_json::{Map, Value};

use crate::server::fault::Fault;
use crate::server::fields::Fields;

/// Reads one message. Parts of text are joined by line ends, `developer` is `system`, arguments of calls become objects.
pub(super) fn read(value: Value, place: &str) -> Result<Value, Fault> {
    let mut fields = Fields::of(value, place)?;
    let wrong = |key: &str, must: &str| {
        let name = format!("{place}.{key}");
        Fault::invalid(&name, format!("`{name}` must be {must}"))
    };
    let role = match fields.text("role")?.as_deref() {
        Some("system" | "developer") => "system",
        Some("user") => "user",
        Some("assistant") => "assistant",
        Some("tool") => "tool",
        _ => return Err(wrong("role", "system, developer, user, assistant or tool")),
    };
    let content = match fields.take("content") {
        None => None,
        Some(content) => Some(text(content, &format!("{place}.content"))?),
    };
    let mut message = Map::new();
    message.insert("role".to_owned(), role.into());
    if role == "assistant" {
        let calls = match fields.take("tool_calls") {
            None => Vec::new(),
            Some(Value::Array(calls)) => calls,
            Some(_) => return Err(wrong("tool_calls", "a list")),
        };
        if content.is_none() && calls.is_empty() {
            return Err(wrong("content", "a string where there are no tool calls"));
        }
        message.insert("content".to_owned(), content.into());
        let calls = calls.into_iter().enumerate();
        let calls: Vec<Value> = calls
            .map(|(number, value)| call(value, &format!("{place}.tool_calls[{number}]")))
            .collect::<Result<_, _>>()?;
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        if let Some(thoughts) = fields.text("reasoning_content")? {
            message.insert("reasoning_content".to_owned(), thoughts.into());
        }
    } else {
        let content =
            content.ok_or_else(|| wrong("content", "a string or a list of parts of text"))?;
        message.insert("content".to_owned(), content.into());
    }
    let other = if role == "tool" {
        &["name", "tool_call_id"][..]
    } else {
        &["name"]
    };
    for &key in other {
        if let Some(text) = fields.text(key)? {
            message.insert(key.to_owned(), text.into());
        }
    }
    fields.finish()?;
    Ok(Value::Object(message))
}

fn text(content: Value, place: &str) -> Result<String, Fault> {
    let parts = match content {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        _ => {
            return Err(Fault::invalid(
                place,
                format!("`{place}` must be a string or a list of parts of text"),
            ));
        }
    };
    let part = |(number, part): (usize, Value)| {
        let place = format!("{place}[{number}]");
        let mut fields = Fields::of(part, &place)?;
        let kind = fields.take("type");
        let text = if kind.is_some_and(|kind| kind == "text") {
            fields.text("text")?
        } else {
            None
        };
        let message = || {
            format!(
                "`{place}` must be {{\"type\": \"text\", \"text\": ...}}; this server reads text only"
            )
        };
        let text = text.ok_or_else(|| Fault::invalid(&place, message()))?;
        fields.finish().map(|()| text)
    };
    let texts: Vec<String> = parts
        .into_iter()
        .enumerate()
        .map(part)
        .collect::<Result<_, _>>()?;
    Ok(texts.join("\n"))
}

/// A call as templates read it: they write the arguments as JSON themselves.
fn call(mut value: Value, place: &str) -> Result<Value, Fault> {
    let wrong = |key: &str, must: &str| {
        let name = format!("{place}{key}");
        Fault::invalid(&name, format!("`{name}` must be {must}"))
    };
    if value
        .get("function")
        .and_then(|function| function.get("name")?.as_str())
        .is_none()
    {
        return Err(wrong(".function.name", "a string"));
    }
    let arguments = &mut value["function"]["arguments"];
    if let Value::String(text) = arguments {
        // Clients send no arguments as an empty text.
        let text = if text.trim().is_empty() {
            "{}"
        } else {
            text.as_str()
        };
        *arguments = serde_json::from_str(text).unwrap_or(Value::Null);
    }
    if !arguments.is_object() {
        return Err(wrong(".function.arguments", "a JSON object, as text"));
    }
    Ok(value)
}
