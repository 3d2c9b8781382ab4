//! Bounds of the server's memory: what answers take until they are sent, and what sessions keep between their turns.

use std::sync::Arc;

use axum::response::Response;
use forage_net::{Room, count_values};
use serde::Serialize;
use serde_json::Value;

use super::ServerConfig;
use super::fault::Fault;

/// Bytes of an answer that are taken before the work it tells of. Most answers need no more, so that one for which there is no
/// room is refused before a turn is taken.
pub(super) const FIRST: usize = 64 * 1024;
/// Bytes that all sessions may keep together at least, as many as all bodies may take.
const KEPT: usize = 64 * 1024 * 1024;
/// Times that a turn's text is kept at most: in the episode, as the answer it holds, in the last reply, and where the environment
/// copies it.
const COPIES: usize = 4;
/// Bytes set aside for what an environment writes, before it is known.
pub(super) const WRITTEN: usize = 16 * 1024;
/// Bytes of a value in a tree of JSON, beside its text.
const VALUE: usize = 64;

/// Most bytes that all sessions keep together: enough for each to take one of the largest turns.
pub(super) fn most_kept(config: &ServerConfig) -> usize {
    let turn = config.max_action_bytes.saturating_mul(COPIES);
    turn.saturating_mul(config.max_sessions).max(KEPT)
}

/// Bytes that a turn may add to what its session keeps, set aside before it is taken.
pub(super) fn of_turn(text: &str) -> usize {
    text.len().saturating_mul(COPIES).saturating_add(WRITTEN)
}

/// Bytes that a value takes, about: as text in JSON, and what a tree of it takes beside that.
pub(super) fn weight<T: Serialize + ?Sized>(value: &T) -> usize {
    let text = serde_json::to_vec(value).unwrap_or_default();
    text.len() + count_values(&text) * VALUE
}

/// An answer, which keeps its memory until it is sent.
pub(super) fn answer(room: Arc<Room>, body: &Value) -> Result<Response, Fault> {
    answer_text(room, body.to_string())
}

/// As [`answer`], of JSON that is written already.
pub(super) fn answer_text(room: Arc<Room>, json: String) -> Result<Response, Fault> {
    room.settle(json.len())?;
    Ok(room.answer(vec![json.into()]))
}
