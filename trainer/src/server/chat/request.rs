//! The body of a chat request.

use forage_contracts::policy::Sampling;
use forage_env::chat::{ChatTemplate, Conversation};
use serde_json::{Map, Value};

use super::message;
use crate::server::fault::Fault;
use crate::server::fields::Fields;
use crate::server::request::{Common, MAX_TOP};

#[derive(Debug, Clone)]
pub(super) struct ChatRequest {
    pub(super) common: Common,
    pub(super) conversation: Conversation,
    /// Whether the last message is continued instead of answered.
    pub(super) continue_final: bool,
    /// `None` for all the context has room for.
    pub(super) max_tokens: Option<usize>,
    /// Other tokens whose log-probabilities are told at each position; `None` for no log-probabilities at all.
    pub(super) logprobs: Option<usize>,
}

impl ChatRequest {
    /// # Errors
    /// The first thing that is wrong with the body.
    pub(super) fn parse(body: &[u8], defaults: Sampling) -> Result<Self, Fault> {
        let mut fields = Fields::read(body)?;
        let common = Common::take(&mut fields, defaults)?;
        let max_tokens = max_tokens(&mut fields)?;
        let logprobs = logprobs(&mut fields)?;
        let messages = messages(&mut fields)?;
        let tools = tools(&mut fields)?;
        let continue_final = fields.flag("continue_final_message")?;
        let add_generation_prompt = fields
            .choice("add_generation_prompt")?
            .unwrap_or(!continue_final);
        if continue_final && add_generation_prompt {
            let message = "`continue_final_message` and `add_generation_prompt` exclude each other";
            return Err(Fault::invalid("continue_final_message", message));
        }
        let options = options(&mut fields)?;
        fields.finish()?;
        let conversation = Conversation {
            messages,
            tools,
            add_generation_prompt,
            options,
        };
        Ok(Self {
            common,
            conversation,
            continue_final,
            max_tokens,
            logprobs,
        })
    }
}

fn max_tokens(fields: &mut Fields) -> Result<Option<usize>, Fault> {
    let new = fields.count("max_completion_tokens", 1..=usize::MAX)?;
    let old = fields.count("max_tokens", 1..=usize::MAX)?;
    if let (Some(new), Some(old)) = (new, old)
        && new != old
    {
        let message = "`max_tokens` and `max_completion_tokens` differ; give one of them";
        return Err(Fault::invalid("max_tokens", message));
    }
    Ok(new.or(old))
}

fn logprobs(fields: &mut Fields) -> Result<Option<usize>, Fault> {
    let asked = fields.flag("logprobs")?;
    let top = fields.count("top_logprobs", 0..=MAX_TOP)?;
    if top.is_some_and(|top| top > 0) && !asked {
        return Err(Fault::invalid(
            "top_logprobs",
            "`top_logprobs` needs `logprobs`: true",
        ));
    }
    Ok(asked.then_some(top.unwrap_or(0)))
}

fn messages(fields: &mut Fields) -> Result<Vec<Value>, Fault> {
    let values = match fields.take("messages") {
        Some(Value::Array(values)) if !values.is_empty() => values,
        _ => {
            return Err(Fault::invalid(
                "messages",
                "`messages` must be a list of at least one message",
            ));
        }
    };
    values
        .into_iter()
        .enumerate()
        .map(|(place, value)| message::read(value, &format!("messages[{place}]")))
        .collect()
}

/// The tools the model may call: none where the choice is `none`.
fn tools(fields: &mut Fields) -> Result<Vec<Value>, Fault> {
    let tools = match fields.take("tools") {
        None => Vec::new(),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(Fault::invalid("tools", "`tools` must be a list")),
    };
    for (place, tool) in tools.iter().enumerate() {
        let name = tool
            .get("function")
            .and_then(|function| function.get("name")?.as_str());
        if tool.get("type").and_then(Value::as_str) != Some("function")
            || name.is_none_or(str::is_empty)
        {
            let place = format!("tools[{place}]");
            let message = format!(
                "`{place}` must be {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}"
            );
            return Err(Fault::invalid(&place, message));
        }
        if tool["function"]
            .get("strict")
            .is_some_and(|strict| strict == true)
        {
            let place = format!("tools[{place}].function.strict");
            let message = format!(
                "`{place}` cannot be kept: what the model writes is not bound to a schema here; leave it out"
            );
            return Err(Fault::invalid(&place, message));
        }
    }
    match fields.take("tool_choice") {
        None => Ok(tools),
        Some(choice) if choice == "auto" => Ok(tools),
        Some(choice) if choice == "none" => Ok(Vec::new()),
        Some(_) => {
            let message = "`tool_choice` must be \"auto\" or \"none\"; no model can be made to call a tool here";
            Err(Fault::invalid("tool_choice", message))
        }
    }
}

fn options(fields: &mut Fields) -> Result<Map<String, Value>, Fault> {
    let options = match fields.take("chat_template_kwargs") {
        None => Map::new(),
        Some(Value::Object(options)) => options,
        Some(_) => {
            return Err(Fault::invalid(
                "chat_template_kwargs",
                "`chat_template_kwargs` must be an object",
            ));
        }
    };
    if let Some(key) = options
        .keys()
        .find(|key| ChatTemplate::RESERVED.contains(&key.as_str()))
    {
        let param = format!("chat_template_kwargs.{key}");
        return Err(Fault::invalid(
            &param,
            format!("`{param}` has a field of its own; give `{key}` beside it"),
        ));
    }
    Ok(options)
}
