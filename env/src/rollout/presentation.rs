//! How the environment's text reaches the policy: as it is, or as messages of a chat.

use std::sync::Arc;

use forage_contracts::environment::Observation;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::chat::{ChatError, ChatTemplate, Delta, Renderer};

/// The form in which the environment's text reaches the policy.
///
/// As one running text: the opening prompt, the policy's turns and the observations, each appended as it is. Or as a
/// conversation: the opening prompt is a user message, every observation a further message, and the chat template writes what
/// stands between the policy's turns. Passages are not cleaned of control tokens, see [`ChatTemplate`].
#[derive(Clone, Debug, Default)]
pub struct Presentation(Option<Arc<Chat>>);

/// Settings of [`Presentation::chat`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChatSettings {
    /// A system message before the opening prompt; none leaves it to the template.
    pub system: Option<String>,
    /// The author of the message that an observation is.
    pub(crate) observations: ObservationRole,
    /// Variables of the template, for instance `enable_thinking`.
    pub options: Map<String, Value>,
}

/// The author of the message that an observation is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ObservationRole {
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

/// The settings of episodes that are chats.
#[derive(Debug)]
pub(super) struct Chat {
    /// None where a server renders the messages.
    renderer: Option<Renderer>,
    pub(super) settings: ChatSettings,
    /// JSON schemas of what is shown as tools.
    pub(super) tools: Vec<Value>,
}

/// The message with which templates are tested.
const PROBE: &str = "probe-51c0e2";

impl Chat {
    /// An observation as messages: each result of a call is a tool's, and what answers no call is the user's where there
    /// are tools.
    fn messages(&self, observation: &Observation) -> Vec<Value> {
        let message =
            |role: ObservationRole, content: &str| json!({"role": role.name(), "content": content});
        let role = self.settings.observations;
        if !observation.results.is_empty() && (self.has_tools() || role == ObservationRole::Tool) {
            return observation
                .results
                .iter()
                .map(|result| message(ObservationRole::Tool, result))
                .collect();
        }
        let role = if self.has_tools() {
            ObservationRole::User
        } else {
            role
        };
        if observation.text.is_empty() {
            Vec::new()
        } else {
            vec![message(role, &observation.text)]
        }
    }

    fn renderer(&self) -> Result<&Renderer, ChatError> {
        self.renderer.as_ref().ok_or(ChatError::NoTemplate)
    }

    fn has_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// What follows a message of the assistant, for a server: the result of each of its calls, else the observation as a message.
    pub(super) fn answering(&self, message: &Value, observation: &Observation) -> Vec<Value> {
        let calls = message.get("tool_calls").and_then(Value::as_array);
        let Some(calls) = calls.filter(|calls| !calls.is_empty()) else {
            let whole = Observation::new(observation.text.as_str());
            return self.messages(&whole);
        };
        let result = |(place, call): (usize, &Value)| {
            let content = observation.results.get(place).unwrap_or(&observation.text);
            json!({"role": "tool", "tool_call_id": call["id"], "content": content})
        };
        calls.iter().enumerate().map(result).collect()
    }

    /// Refuses a template that renders the same without tools, or leaves out what they return.
    fn check_tools(&self, renderer: &Renderer, opening: &str) -> Result<(), ChatError> {
        let name = || renderer.template().name().to_owned();
        let bare = Renderer::new(
            renderer.template().clone(),
            Vec::new(),
            self.settings.options.clone(),
        )?;
        if bare.opening(&self.opening(PROBE))? == opening {
            return Err(ChatError::NoTools {
                name: name(),
                message: "it shows nothing of the environment's tools",
            });
        }
        let results = Observation {
            results: vec![PROBE.to_owned()],
            ..Observation::default()
        };
        if !renderer
            .delta(&self.messages(&results))?
            .rest
            .contains(PROBE)
        {
            return Err(ChatError::NoTools {
                name: name(),
                message: "it leaves out what a tool returns",
            });
        }
        Ok(())
    }

    pub(super) fn opening(&self, prompt: &str) -> Vec<Value> {
        let system = self
            .settings
            .system
            .iter()
            .map(|text| json!({"role": "system", "content": text}));
        system
            .chain([json!({"role": "user", "content": prompt})])
            .collect()
    }
}

impl Presentation {
    /// One running text.
    pub const RAW: Self = Self(None);

    /// Presents episodes as a chat in `template`.
    ///
    /// # Errors
    /// When the template fails on the system message or on messages of the role of observations, or cannot append.
    pub fn chat(template: ChatTemplate, settings: ChatSettings) -> Result<Self, ChatError> {
        Self::of_tools(template, settings, &[])
    }

    /// Presents episodes as a chat with a server, which renders the messages.
    pub fn served(settings: ChatSettings) -> Self {
        Self(Some(Arc::new(Chat {
            renderer: None,
            settings,
            tools: Vec::new(),
        })))
    }

    /// Adds the tools of an environment, which the template shows: `forage_contracts::environment::EnvSpec::tools`.
    ///
    /// # Errors
    /// When there are tools and episodes are plain text, or the template shows nothing of tools or of their results.
    pub fn with_tools(self, tools: &[Value]) -> Result<Self, ChatError> {
        if tools.is_empty() {
            return Ok(self);
        }
        let chat = self.0.ok_or(ChatError::NoTemplate)?;
        let settings = chat.settings.clone();
        match &chat.renderer {
            Some(renderer) => Self::of_tools(renderer.template().clone(), settings, tools),
            None => Ok(Self(Some(Arc::new(Chat {
                renderer: None,
                settings,
                tools: tools.to_vec(),
            })))),
        }
    }

    fn of_tools(
        template: ChatTemplate,
        settings: ChatSettings,
        tools: &[Value],
    ) -> Result<Self, ChatError> {
        let renderer = Renderer::new(template, tools.to_vec(), settings.options.clone())?;
        let presentation = Self(Some(Arc::new(Chat {
            renderer: Some(renderer.clone()),
            settings,
            tools: tools.to_vec(),
        })));
        // A template that refuses a role is a wrong setting; found here, no episode is lost to it.
        let opening = presentation.opening(PROBE)?;
        presentation.following(&Observation::new(PROBE))?;
        if let (false, Some(chat)) = (tools.is_empty(), &presentation.0) {
            chat.check_tools(&renderer, &opening)?;
        }
        Ok(presentation)
    }

    /// The text an episode opens with, from the environment's opening prompt.
    pub(super) fn opening(&self, prompt: &str) -> Result<String, ChatError> {
        let Some(chat) = &self.0 else {
            return Ok(prompt.to_owned());
        };
        chat.renderer()?.opening(&chat.opening(prompt))
    }

    /// The chat; `None` of running text.
    pub(super) fn as_chat(&self) -> Option<&Chat> {
        self.0.as_deref()
    }

    /// What is written between two turns, from the environment's observation. An empty one adds no message: in a chat
    /// the next turn begins anew, in running text the policy goes on where it stopped.
    pub(super) fn following(&self, observation: &Observation) -> Result<Delta, ChatError> {
        match &self.0 {
            None => Ok(Delta {
                end: String::new(),
                rest: observation.text.clone(),
            }),
            Some(chat) => chat.renderer()?.delta(&chat.messages(observation)),
        }
    }

    /// What ends a turn of the policy besides the end-of-sequence token; empty where nothing does.
    pub(super) fn end(&self) -> &str {
        let renderer = self.0.as_ref().and_then(|chat| chat.renderer.as_ref());
        renderer.map_or("", Renderer::end)
    }
}
