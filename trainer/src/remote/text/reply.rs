//! What a server answers, read as a reply: text, calls of tools as Hermes models write them, and the tokens that it counted.

use forage_contracts::policy::{Finish, GenerateRequest, Reply};
use forage_env::chat::hermes::ToolCall;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::answer::parse;
use super::super::error::RemoteFault;

/// Most tokens that a server may say it has read or written, beyond every model's window: they are added up.
const MOST_TOKENS: usize = 1 << 30;

/// The part of an answer that is read.
#[derive(Debug, Deserialize)]
struct Answer {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    /// Text of a completion.
    text: Option<String>,
    /// Message of a chat.
    message: Option<Message>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Message {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
}

/// Reads an answer. One that is cut short of the tokens that were wanted ends with the server's window.
pub(super) fn read(body: &[u8], request: &GenerateRequest) -> Result<Reply, RemoteFault> {
    let malformed = |what: &str| RemoteFault::Malformed(what.to_owned());
    let Answer { mut choices, usage } = parse(body)?;
    let (Some(choice), true) = (choices.pop(), choices.is_empty()) else {
        return Err(malformed("not one choice"));
    };
    let usage = usage.ok_or_else(|| malformed("no `usage`, by which tokens are counted"))?;
    if usage.prompt_tokens.max(usage.completion_tokens) > MOST_TOKENS {
        let (read, written) = (usage.prompt_tokens, usage.completion_tokens);
        return Err(RemoteFault::Counts(format!(
            "`usage` tells of {read} and {written} tokens, more than any model reads"
        )));
    }
    let (mut text, calls) = match (choice.message, choice.text) {
        (Some(message), _) => {
            let text = message.content.or(message.refusal).unwrap_or_default();
            (text, message.tool_calls.unwrap_or_default())
        }
        (None, Some(text)) => (text, Vec::new()),
        (None, None) => return Err(malformed("neither `message` nor `text`")),
    };
    let uncounted = usage.completion_tokens == 0;
    let nothing = text.is_empty() && calls.is_empty();
    if uncounted && !nothing {
        let fault = "`usage` counts no tokens of what was written";
        return Err(RemoteFault::Counts(fault.to_owned()));
    }
    let finish = match choice.finish_reason.as_deref() {
        // Even a model that ends at once has drawn its last token.
        Some("stop") if uncounted => {
            return Err(RemoteFault::Counts("no tokens at all".to_owned()));
        }
        Some("stop") => Finish::Eos,
        Some("tool_calls" | "function_call") => Finish::Stop,
        Some("length") if usage.completion_tokens < request.max_tokens => Finish::Context,
        // A filter cuts what was written, as a limit does: it is not a fault of the server, and comes again.
        Some("length" | "content_filter") => Finish::Length,
        Some("abort") => return Err(RemoteFault::Aborted("no reason given".to_owned())),
        other => {
            return Err(RemoteFault::Malformed(format!(
                "`finish_reason` is `{}`",
                other.unwrap_or("null")
            )));
        }
    };
    let mut stopped = cut(&mut text, &request.stop);
    let mut message = json!({"role": "assistant", "content": text});
    let (mut written, mut readable) = (Vec::new(), true);
    for call in calls {
        if stopped {
            break;
        }
        let (block, is_object) = hermes(&call)?;
        readable &= is_object;
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&block);
        stopped = cut(&mut text, &request.stop);
        written.push(call);
    }
    if !readable {
        // Servers refuse to be shown such a call again, and who wrote it may not end the conversation.
        message["content"] = text.as_str().into();
    } else if !written.is_empty() {
        message["tool_calls"] = written.into();
    }
    Ok(Reply {
        text,
        message,
        finish: if stopped { Finish::Stop } else { finish },
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        version: 0,
    })
}

/// Cuts a text behind the stop string that is completed first; returns whether there is one.
fn cut(text: &mut String, stops: &[String]) -> bool {
    let ends = stops
        .iter()
        .filter_map(|stop| Some(text.find(stop.as_str())? + stop.len()));
    let end = ends.min();
    text.truncate(end.unwrap_or(text.len()));
    end.is_some()
}

/// A call as Hermes models write it, and whether its arguments are an object, as they must be.
fn hermes(call: &Value) -> Result<(String, bool), RemoteFault> {
    let malformed = || RemoteFault::Malformed("a call of a tool without a name".to_owned());
    let function = &call["function"];
    let name = function["name"].as_str().ok_or_else(malformed)?;
    let arguments = match &function["arguments"] {
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        other => other.clone(),
    };
    let is_object = arguments.is_object();
    let [open, close] = ToolCall::TAGS;
    let block = json!({"name": name, "arguments": arguments}).to_string();
    // A closing tag in a text would end the call where it is read.
    let block = block.replace(close, &close.replacen('<', "\\u003c", 1));
    Ok((format!("{open}\n{block}\n{close}"), is_object))
}
