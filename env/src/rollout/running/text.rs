//! An episode of a policy that reads text: a growing conversation, and a log of token counts.

use std::time::Instant;

use forage_contracts::environment::Step;
use forage_contracts::policy::Reply;
use forage_contracts::{Boundary, Ending, Limit, Provenance};
use serde_json::{Value, json};

use super::super::stage::{Fault, guarded};
use super::Running;

/// The fault of a window that is too small for the environment: it says nothing about the policy.
fn no_room() -> Fault {
    let message = "the opening prompt leaves no room for a turn in the policy's window; start its server with a longer context \
                   (`--max-model-len` of vLLM, `--context-length` of SGLang)";
    Fault {
        boundary: Boundary::Policy,
        message: message.to_owned(),
    }
}

impl Running<'_> {
    /// Plays to the end. Tokens that the policy reads are known only from its reply, so an observation beyond the episode's token budget
    /// ends the episode after the fact, as if the policy had not been asked.
    pub(super) async fn converse(&mut self, branches: bool) -> Result<Ending, Fault> {
        if branches {
            let fault = "episodes branch by their tokens, and this policy reads text";
            return Err(Fault::contract(Boundary::Policy, fault));
        }
        self.open_conversation();
        let spec = self.rollout.factory.spec();
        loop {
            let turn = self.stage.as_ref().map_or(0, |stage| stage.turns().len());
            let remaining = spec.max_episode_tokens.saturating_sub(self.log.len());
            if remaining == 0 {
                return Ok(self.cut(Limit::Tokens));
            }
            let request = self.request(turn, spec.max_turn_tokens.min(remaining));
            let begun = Instant::now();
            let reply = self.rollout.policy.reply(&self.conversation, request);
            let Some(reply) = guarded(Boundary::Policy, reply).await? else {
                if self.log.is_empty() {
                    return Err(no_room());
                }
                return Ok(self.cut(Limit::Context));
            };
            let (prompt, tokens) = (reply.prompt_tokens, reply.completion_tokens);
            let ms = begun.elapsed().as_millis() as u64;
            tracing::trace!(turn, prompt, tokens, ms, finish = ?reply.finish, "turn");
            let author = if self.log.is_empty() {
                Provenance::Prompt
            } else {
                Provenance::Environment
            };
            let read = prompt.saturating_sub(self.log.len());
            let is_over = self.log.len() + read >= spec.max_episode_tokens;
            if author == Provenance::Prompt || !is_over {
                self.log.push_counted(read, author, None);
            }
            if is_over {
                return Ok(self.cut(Limit::Tokens));
            }
            self.log
                .push_counted(tokens, Provenance::Policy, Some(reply.version));
            if let Some(ending) = self.react_to(reply).await? {
                return Ok(ending);
            }
        }
    }

    fn cut(&mut self, limit: Limit) -> Ending {
        match &mut self.stage {
            Some(stage) => stage.cut_last(limit),
            None => Ending::Truncated { limit },
        }
    }

    /// Opens the conversation with the environment's prompt.
    fn open_conversation(&mut self) {
        let prompt = self.stage.as_ref().map_or("", |stage| stage.prompt());
        let Some(chat) = self.rollout.presentation.as_chat() else {
            self.conversation.insert("prompt".to_owned(), prompt.into());
            return;
        };
        let fields = [
            ("messages", Value::from(chat.opening(prompt))),
            ("tools", Value::from(chat.tools.as_slice())),
            (
                "chat_template_kwargs",
                Value::from(chat.settings.options.clone()),
            ),
        ];
        let is_empty = |value: &Value| *value == json!([]) || *value == json!({});
        for (name, value) in fields.into_iter().filter(|(_, value)| !is_empty(value)) {
            self.conversation.insert(name.to_owned(), value);
        }
    }

    /// Lets the environment react to a reply; returns the ending if it was the last one.
    async fn react_to(&mut self, reply: Reply) -> Result<Option<Ending>, Fault> {
        let mut text = std::mem::take(&mut self.forced_prefix);
        text.push_str(&reply.text);
        let Some(mut stage) = self.stage.take() else {
            return Err(Fault::contract(
                Boundary::Environment,
                "a turn before the episode was opened",
            ));
        };
        let reaction = stage.react(text, reply.finish).await;
        let kept = reaction.and_then(|reaction| {
            self.append(&reply, reaction.ending.is_none().then_some(&reaction.step))?;
            Ok(stage.keep(reaction))
        });
        self.stage = Some(stage);
        kept
    }

    /// Appends a reply to the conversation and, unless it was the last, what the environment answered.
    fn append(&mut self, reply: &Reply, step: Option<&Step>) -> Result<(), Fault> {
        let forced = step.and_then(|step| step.forced_prefix.as_deref());
        if let Some(Value::String(prompt)) = self.conversation.get_mut("prompt") {
            prompt.push_str(&reply.text);
            if let Some(step) = step {
                prompt.push_str(&step.observation.text);
            }
            prompt.push_str(forced.unwrap_or_default());
            forced
                .unwrap_or_default()
                .clone_into(&mut self.forced_prefix);
            return Ok(());
        }
        if forced.is_some() {
            let fault = "the environment begins a turn for the policy, which a chat over a server has no place for: play running \
                         text, or set the environment to say it in words";
            return Err(Fault::contract(Boundary::Environment, fault));
        }
        let chat = self.rollout.presentation.as_chat();
        if let Some(Value::Array(messages)) = self.conversation.get_mut("messages") {
            messages.push(reply.message.clone());
            if let (Some(chat), Some(step)) = (chat, step) {
                messages.extend(chat.answering(&reply.message, &step.observation));
            }
        }
        Ok(())
    }
}
