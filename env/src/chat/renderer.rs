//! A conversation written in pieces that are only ever appended.
//!
//! Rendering the whole history anew for each turn would write the policy's turns differently from what it sampled:
//! templates strip thoughts from the history, trim text and lay out tool calls anew. So an episode opens with one
//! rendered text, the policy's turns stay exactly as sampled, and what follows a turn is a `Delta`: the end of that
//! turn, the new messages, and the beginning of the next turn.

use serde_json::{Map, Value as Json, json};

use super::error::ChatError;
use super::template::{ChatTemplate, Conversation};

/// Stands for an assistant turn when a template is probed. Without white space, which templates may trim.
const TURN: &str = "ASSISTANT-TURN-4f1d7c";

/// Renders a conversation piece by piece.
///
/// Deltas come from the template itself: a short conversation is rendered with and without the new messages, and what
/// follows the assistant's turn in the one must continue what follows it in the other.
#[derive(Clone, Debug)]
pub struct Renderer {
    template: ChatTemplate,
    tools: Vec<Json>,
    options: Map<String, Json>,
    /// The text after an assistant turn when nothing comes after it.
    pub(super) closing: String,
    /// The occurrence of [`TURN`] in a probe that is the turn: tools may quote it too.
    turns: usize,
}

/// The text between two assistant turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    /// The end of the assistant turn, for instance `<|im_end|>`; missing from the episode when the turn was cut or ended
    /// at a stop string.
    pub end: String,
    /// The rest: a line break, the new messages, and the beginning of the next assistant turn.
    pub rest: String,
}

impl Renderer {
    /// Probes `template` with a short conversation. `tools` and `options` hold for the whole episode.
    ///
    /// # Errors
    /// When the template fails, or does not keep what it wrote when messages are appended; when an option is one of
    /// [`ChatTemplate::RESERVED`].
    pub fn new(
        template: ChatTemplate,
        tools: Vec<Json>,
        options: Map<String, Json>,
    ) -> Result<Self, ChatError> {
        if let Some(name) = options
            .keys()
            .find(|name| ChatTemplate::RESERVED.contains(&name.as_str()))
        {
            return Err(ChatError::Option(name.clone()));
        }
        let mut renderer = Self {
            template,
            tools,
            options,
            closing: String::new(),
            turns: 0,
        };
        let alone = renderer.render(&probe(&[]), false)?;
        renderer.turns = alone.matches(TURN).count();
        renderer.closing = renderer.tail(&alone)?.into();
        renderer.delta(&[json!({"role": "user", "content": "probe"})])?;
        Ok(renderer)
    }

    /// The beginning of an episode: the messages and the beginning of the first assistant turn.
    ///
    /// # Errors
    /// When the template fails on the messages.
    pub fn opening(&self, messages: &[Json]) -> Result<String, ChatError> {
        self.render(messages, true)
    }

    /// The text between an assistant turn and the next one: `messages` are those in between, of tools or of the user.
    ///
    /// # Errors
    /// When the template fails on the messages, or does not append them.
    pub(crate) fn delta(&self, messages: &[Json]) -> Result<Delta, ChatError> {
        let text = self.render(&probe(messages), true)?;
        let tail = self.tail(&text)?;
        if !tail.starts_with(&self.closing) {
            let message =
                format!("what it writes after a turn changes when messages follow: {tail:?}");
            return Err(self.not_appending(message));
        }
        let (end, rest) = tail.split_at(self.closing.trim_end().len());
        Ok(Delta {
            end: end.to_owned(),
            rest: rest.to_owned(),
        })
    }

    /// The template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// The end of an assistant turn, for instance `<|im_end|>`; empty where the template has no such text.
    pub fn end(&self) -> &str {
        self.closing.trim_end()
    }

    pub(super) fn render(
        &self,
        messages: &[Json],
        add_generation_prompt: bool,
    ) -> Result<String, ChatError> {
        self.template.render(&Conversation {
            messages: messages.to_vec(),
            tools: self.tools.clone(),
            add_generation_prompt,
            options: self.options.clone(),
        })
    }

    /// The text after the turn of a rendered probe. Counted from the beginning: the messages after it may quote it.
    fn tail<'a>(&self, text: &'a str) -> Result<&'a str, ChatError> {
        let found = text.match_indices(TURN).nth(self.turns.saturating_sub(1));
        let start = found.map(|(start, _)| start + TURN.len());
        start
            .map(|start| &text[start..])
            .ok_or_else(|| self.not_appending("drops an assistant turn".to_owned()))
    }

    pub(super) fn not_appending(&self, message: String) -> ChatError {
        ChatError::NotAppending {
            name: self.template.name().to_owned(),
            message,
        }
    }
}

/// A conversation whose assistant turn is [`TURN`], with `messages` after it.
fn probe(messages: &[Json]) -> Vec<Json> {
    let mut probe = vec![
        json!({"role": "user", "content": "probe"}),
        json!({"role": "assistant", "content": TURN}),
    ];
    probe.extend_from_slice(messages);
    probe
}
