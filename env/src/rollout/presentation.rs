//! How the environment's text reaches the policy: as it is, or as messages of a chat.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::chat::{ChatError, ChatTemplate, Delta, Renderer};

/// How the environment's text reaches the policy.
#[derive(Clone, Debug, Default)]
pub enum Presentation {
    /// One running text: the opening prompt, the policy's turns and the observations, each appended as it is.
    #[default]
    Raw,
    /// A conversation: the opening prompt is a user message, every observation a further message, and the chat template
    /// writes what stands between the policy's turns. Passages are not cleaned of control tokens, see [`ChatTemplate`].
    Chat(Arc<Chat>),
}

/// Settings of [`Presentation::Chat`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChatSettings {
    /// A system message before the opening prompt; none leaves it to the template.
    pub system: Option<String>,
    /// Whose message an observation is.
    pub observations: ObservationRole,
    /// Variables of the template, for instance `enable_thinking`.
    pub options: Map<String, Value>,
}

/// Whose message an observation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObservationRole {
    /// The user's.
    #[default]
    User,
    /// A tool's result.
    Tool,
}

impl ObservationRole {
    fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Tool => "tool",
        }
    }
}

/// A chat template with the settings of its episodes.
#[derive(Debug)]
pub struct Chat {
    renderer: Renderer,
    settings: ChatSettings,
}

impl Presentation {
    /// Presents episodes as a chat in `template`.
    ///
    /// # Errors
    /// When the template fails on the system message or on messages of the role of observations, or cannot append.
    pub fn chat(template: ChatTemplate, settings: ChatSettings) -> Result<Self, ChatError> {
        let renderer = Renderer::new(template, Vec::new(), settings.options.clone())?;
        let presentation = Self::Chat(Arc::new(Chat { renderer, settings }));
        // A template that refuses a role is a wrong setting; found here, no episode is lost to it.
        presentation.opening("probe")?;
        presentation.following("probe")?;
        Ok(presentation)
    }

    /// The text an episode opens with, from the environment's opening prompt.
    pub(super) fn opening(&self, prompt: &str) -> Result<String, ChatError> {
        let Self::Chat(chat) = self else { return Ok(prompt.to_owned()) };
        let system = chat.settings.system.iter().map(|text| json!({"role": "system", "content": text}));
        let messages: Vec<Value> = system.chain([json!({"role": "user", "content": prompt})]).collect();
        chat.renderer.opening(&messages)
    }

    /// What is written between two turns, from the environment's observation. An empty one adds no message: in a chat
    /// the next turn begins anew, in running text the policy goes on where it stopped.
    pub(super) fn following(&self, observation: &str) -> Result<Delta, ChatError> {
        let Self::Chat(chat) = self else {
            return Ok(Delta { end: String::new(), rest: observation.to_owned() });
        };
        let message = json!({"role": chat.settings.observations.name(), "content": observation});
        chat.renderer.delta(if observation.is_empty() { &[] } else { std::slice::from_ref(&message) })
    }

    /// What ends a turn of the policy besides the end-of-sequence token; empty where nothing does.
    pub(super) fn end(&self) -> &str {
        match self {
            Self::Raw => "",
            Self::Chat(chat) => chat.renderer.end(),
        }
    }
}
