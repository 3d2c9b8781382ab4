//! A finished conversation in pieces: the assistant's text, and the text around it.

use serde_json::Value as Json;

use super::error::ChatError;
use super::renderer::Renderer;

/// A piece of a rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its text.
    pub text: String,
    /// True when the assistant wrote it.
    pub written: bool,
}

impl Renderer {
    /// A finished conversation, cut around the assistant's messages at `turns`, ascending places among `messages`. The pieces
    /// together are what the template makes of all messages.
    ///
    /// The assistant's text begins where the template's beginning of a turn ends, and includes [`Self::end`].
    ///
    /// # Errors
    /// When the template fails on the messages, or writes a message otherwise once others follow it: what stands before a
    /// turn would then not be what the assistant read.
    ///
    /// # Panics
    /// When a turn is not a place among the messages.
    pub fn pieces(&self, messages: &[Json], turns: &[usize]) -> Result<Vec<Piece>, ChatError> {
        let whole = self.render(messages, false)?;
        let mut pieces = Vec::new();
        let mut done = 0;
        for &turn in turns {
            let before = self.render(&messages[..turn], true)?;
            let after = self.render(&messages[..=turn], false)?;
            let number = turn + 1;
            if before.len() < done || !after.starts_with(&before) {
                let message = format!(
                    "what stands before message {number} changes when that message follows"
                );
                return Err(self.not_appending(message));
            }
            if !whole.starts_with(&after) {
                let message =
                    format!("what it writes up to message {number} changes when messages follow");
                return Err(self.not_appending(message));
            }
            let Some(written) = after[before.len()..].strip_suffix(&self.closing) else {
                return Err(self.not_appending(format!(
                    "it ends message {number} otherwise than a short one"
                )));
            };
            let end = before.len() + written.len() + self.end().len();
            pieces.push(Piece {
                text: whole[done..before.len()].to_owned(),
                written: false,
            });
            pieces.push(Piece {
                text: whole[before.len()..end].to_owned(),
                written: true,
            });
            done = end;
        }
        pieces.push(Piece {
            text: whole[done..].to_owned(),
            written: false,
        });
        pieces.retain(|piece| !piece.text.is_empty());
        Ok(pieces)
    }
}
