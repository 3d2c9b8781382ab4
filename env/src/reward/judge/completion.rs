//! Chat completions, as a judge's server answers with them.

use forage_net::Fault;
use serde::Deserialize;
use serde_json::Value;

/// The part of a chat completion that is read.
#[derive(Deserialize)]
pub(super) struct Completion {
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
    /// What is told in place of choices where a server or a proxy fails with status 200.
    error: Option<Value>,
}

impl Completion {
    /// The failure that is told in place of choices.
    pub(super) fn failure(&self) -> Option<Fault> {
        let none = self.choices.as_ref().is_none_or(Vec::is_empty);
        let what = match &self.error {
            Some(error) if none => format!("a failure is reported: {error}"),
            _ if self.choices.is_none() => "no `choices`".to_owned(),
            _ => return None,
        };
        Some(Fault::Unusable(what))
    }

    /// Tokens read and written, where the server counts them.
    pub(super) fn tokens(&self) -> Option<u64> {
        self.usage.as_ref().map(|usage| usage.total_tokens)
    }

    /// The text of its one choice.
    pub(super) fn reply(self) -> Result<String, Fault> {
        let choices = self.choices.unwrap_or_default();
        let [choice] = <[Choice; 1]>::try_from(choices).map_err(|choices| {
            Fault::Protocol(format!("{} choices, one was asked for", choices.len()))
        })?;
        if let Some(what) = choice.cut() {
            return Err(Fault::Unusable(what.to_owned()));
        }
        let reply = choice.message.content.filter(|reply| !reply.is_empty());
        reply.ok_or_else(|| Fault::Unusable("the message has no content".to_owned()))
    }
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
}

impl Choice {
    /// How its length, which `max_tokens` bounds, kept the judge from a verdict; none where the reply is complete.
    fn cut(&self) -> Option<&'static str> {
        if self.finish_reason.as_deref() == Some("length") {
            return Some("the reply was cut off; raise max_tokens");
        }
        let has = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
        let Message {
            content,
            reasoning,
            reasoning_content,
        } = &self.message;
        let thought = has(reasoning.as_deref()) || has(reasoning_content.as_deref());
        (thought && !has(content.as_deref())).then_some(
            "the message has reasoning and no content; raise max_tokens, or switch thinking off by extra_body",
        )
    }
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    /// What a server with a parser for reasoning took out of the reply, by the two names in use; some send both.
    reasoning: Option<String>,
    reasoning_content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: u64,
}
