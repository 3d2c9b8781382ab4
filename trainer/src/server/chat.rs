//! `POST /v1/chat/completions`.

mod message;
mod request;
mod write;

use std::sync::Arc;

use forage_contracts::Tokenizer;
use forage_env::chat::{ChatTemplate, Conversation};
use forage_net::Ticket;

use super::answer::{Head, streamed};
use super::app::{Answer, App, now};
use super::choice::{self, Order};
use super::fault::Fault;
use super::request::Common;
use request::ChatRequest;
use write::Pieces;

/// A request ready to run.
#[derive(Debug)]
pub(super) struct Job {
    common: Common,
    order: Order,
    /// Whether the text is read for tool calls.
    tools: bool,
    logprobs: bool,
}

pub(super) fn prepare(app: &App, body: &[u8]) -> Result<Job, Fault> {
    let mut request = ChatRequest::parse(body, app.model.sampling)?;
    app.check(&request.common, 1)?;
    let Some(template) = &app.model.chat else {
        let message = "the model has no chat template; use /v1/completions, or serve a folder with chat_template.jinja";
        return Err(Fault::Invalid {
            message: message.to_owned(),
            param: None,
            code: Some("no_chat_template"),
        });
    };
    let text = render(template, &request)?;
    app.check_text(&text, "messages")?;
    let tokens = app.model.tokenizer.encode(&text);
    app.check_prompt(&tokens, "messages", false)?;
    if let Some((end, text)) = app.turn_end.as_ref().filter(|_| !request.common.ignore_eos) {
        request.common.end = Some(*end);
        request.common.stop.push(text.clone());
    }
    let room = app.model.context - tokens.len();
    let max_tokens = request.max_tokens.unwrap_or(room);
    let order = Order {
        tokens: tokens.into(),
        max_tokens,
        top: request.logprobs.unwrap_or(0),
    };
    let logprobs = request.logprobs.is_some();
    Ok(Job {
        common: request.common,
        order,
        tools: !request.conversation.tools.is_empty(),
        logprobs,
    })
}

pub(super) async fn answer(app: &Arc<App>, place: Ticket, job: Job) -> Result<Answer, Fault> {
    let object = if job.common.stream {
        "chat.completion.chunk"
    } else {
        "chat.completion"
    };
    let head = Head {
        id: app.name("chatcmpl-"),
        object,
        created: now(),
        model: app.model.name.clone(),
    };
    let room = app.room.beside();
    let choices = choice::start(app, std::slice::from_ref(&job.order), &job.common, &room)?;
    let stream = job.common.stream;
    let told = choice::told_bytes(job.logprobs.then_some(job.order.top));
    let mut writer = Pieces::new(Arc::clone(app), head, job, Arc::clone(&room));
    if stream {
        return streamed(place, choice::merge(choices), writer).await;
    }
    let wholes = choice::collect(choices, &room, told).await?;
    app.written(place, room, move || writer.whole(wholes)).await
}

fn render(template: &ChatTemplate, request: &ChatRequest) -> Result<String, Fault> {
    let refused =
        |error: forage_env::chat::ChatError| Fault::invalid("messages", error.to_string());
    // Templates that tell the date are given today's.
    let sentinel = request
        .continue_final
        .then(|| marked(&request.conversation))
        .transpose()?;
    let conversation = sentinel.as_ref().unwrap_or(&request.conversation);
    let text = if template.source().contains("strftime_now") {
        template
            .clone()
            .with_time(now().cast_signed())
            .render(conversation)
    } else {
        template.render(conversation)
    };
    let text = text.map_err(refused)?;
    if request.continue_final {
        continued(text)
    } else {
        Ok(text)
    }
}

/// Marks the end of a last message to continue; the blank behind it tells whether a template trims the message.
const END: &str = "\u{1}continued here\u{1} ";

/// The conversation with [`END`] behind its last message.
fn marked(conversation: &Conversation) -> Result<Conversation, Fault> {
    let mut marked = conversation.clone();
    let last = marked
        .messages
        .last_mut()
        .and_then(|message| message.get_mut("content"));
    let Some(serde_json::Value::String(content)) = last else {
        return Err(Fault::invalid("continue_final_message", NOT_CONTINUED));
    };
    content.push_str(END);
    Ok(marked)
}

const NOT_CONTINUED: &str =
    "`continue_final_message` needs a last message whose content the chat template repeats";

/// The text up to [`END`], as transformers cuts it for `continue_final_message`: where the template trims messages, the
/// blanks at the end of this one go too.
fn continued(mut text: String) -> Result<String, Fault> {
    let Some(place) = text.rfind(END.trim_end()) else {
        return Err(Fault::invalid("continue_final_message", NOT_CONTINUED));
    };
    let trims = !text[place..].starts_with(END);
    text.truncate(place);
    if trims {
        text.truncate(text.trim_end().len());
    }
    Ok(text)
}
