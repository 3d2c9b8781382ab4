//! Demonstrations from files: conversations, raw texts and recorded rollouts, as sequences to imitate.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use forage_contracts::policy::Finish;
use forage_contracts::{Episode, Tokenizer};
use forage_env::chat::{ChatError, Renderer};
use forage_retriever::RowReader;
use serde_json::{Map, Value};

use crate::lesson_error::{Fault, LessonError};
use crate::sample::{Line, Recorded};
use crate::sequence::Sequence;
use crate::vocabulary::{check_tokenizer, check_vocabulary};
use crate::weights::Checkpoint;

/// The demonstrations of a file that are learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Most tokens of a demonstration.
    pub context: usize,
    /// Leaves longer ones out instead of failing at them.
    pub skip_long: bool,
    /// Least reward of recorded rollouts; all of them without it.
    pub min_reward: Option<f32>,
}

/// The demonstrations of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demonstrations {
    /// Sequences in the order of the file; each has a target.
    pub sequences: Vec<Sequence>,
    /// Lines left out because they are too long.
    pub too_long: usize,
    /// Rollouts left out because they earned too little.
    pub low_reward: usize,
    /// Episodes left out because an infrastructure fault ended them.
    pub faults: usize,
}

impl Demonstrations {
    /// Reads JSON lines, or the rows of a `.parquet` file, each of one of three forms:
    ///
    /// - `{"messages": [{"role", "content", ...}, ...], "tools": [...]}`: a conversation in the chat template of `checkpoint`.
    ///   Learned is what the assistant wrote, with the text that ends its turns (the end-of-sequence token where a template has
    ///   none); a message with `"weight": 0` is read only. Arguments of tool calls may be objects or JSON as text.
    /// - `{"prompt": text, "completion": text}`: raw text. Learned are the completion and the end-of-sequence token after it.
    /// - A recorded rollout, an episode or its record, as [`crate::Sample::read_groups`] reads them. Learned are the policy's
    ///   tokens; neither reward nor log-probabilities are needed. An episode's tokens must be the text of its turns in the tokenizer
    ///   of `checkpoint`. One whose tokens nobody knows, which a server played, is read as the conversation or the raw text that it is.
    ///
    /// Further fields of the first two forms are not read.
    ///
    /// # Errors
    /// [`LessonError`], which names the line: one of no such form or with nothing to learn, a conversation whose turns the
    /// template writes otherwise once messages follow, tokens of another vocabulary or tokenizer, more tokens than
    /// [`Choice::context`]; a file of which nothing is left.
    pub fn read(
        path: &Path,
        checkpoint: &Checkpoint,
        choice: &Choice,
    ) -> Result<Self, LessonError> {
        let mut found = Self::default();
        let added = if path.extension().is_some_and(|end| end == "parquet") {
            found.add_rows(path, checkpoint, choice)
        } else {
            found.add_lines(path, checkpoint, choice)
        };
        added.map_err(|fault| fault.of(path))?;
        if found.sequences.is_empty() {
            let Self {
                too_long,
                low_reward,
                faults,
                ..
            } = found;
            let fault = format!(
                "leaves nothing to learn: {too_long} lines are too long, {low_reward} rollouts earned too little, {faults} \
             ended in faults"
            );
            return Err(Fault::from(fault).of(path));
        }
        Ok(found)
    }
}

/// The value without fields that are null.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let said = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                said.map(|(name, value)| (name, without_nulls(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

impl Demonstrations {
    fn add_lines(
        &mut self,
        path: &Path,
        checkpoint: &Checkpoint,
        choice: &Choice,
    ) -> Result<(), Fault> {
        let file = File::open(path).map_err(Fault::unread)?;
        for (number, line) in (1..).zip(BufReader::new(file).lines()) {
            self.add_line(line, checkpoint, choice)
                .map_err(|fault| fault.at("line", number))?;
        }
        Ok(())
    }

    fn add_line(
        &mut self,
        line: std::io::Result<String>,
        checkpoint: &Checkpoint,
        choice: &Choice,
    ) -> Result<(), Fault> {
        let line = line.map_err(Fault::unread)?;
        if line.trim().is_empty() {
            return Ok(());
        }
        let value =
            serde_json::from_str(&line).map_err(|error| Fault::because("is not JSON", error))?;
        self.add(value, checkpoint, choice)
    }

    /// Rows of a parquet file, in which every message has every field: a null says nothing.
    fn add_rows(
        &mut self,
        path: &Path,
        checkpoint: &Checkpoint,
        choice: &Choice,
    ) -> Result<(), Fault> {
        let mut rows = RowReader::open(path).map_err(Fault::unread)?;
        while let Some(row) = rows.next_row().map_err(Fault::unread)? {
            let value = without_nulls(Value::Object(row.into_json()));
            self.add(value, checkpoint, choice)
                .map_err(|fault| fault.at("row", rows.number()))?;
        }
        Ok(())
    }

    fn add(&mut self, value: Value, checkpoint: &Checkpoint, choice: &Choice) -> Result<(), Fault> {
        let Some(sequence) = self.sequence(value, checkpoint, choice)? else {
            return Ok(());
        };
        check_vocabulary(&sequence, checkpoint.config.vocab_size)?;
        if sequence.targets.is_empty() {
            return Err("has no token of the policy to learn; remove it".into());
        }
        let (length, context) = (sequence.ids.len(), choice.context);
        if length <= context {
            self.sequences.push(sequence);
        } else if choice.skip_long {
            self.too_long += 1;
        } else {
            return Err(format!(
                "has {length} tokens, more than the context of {context}; skip long lines or cut it"
            )
            .into());
        }
        Ok(())
    }

    fn sequence(
        &mut self,
        value: Value,
        checkpoint: &Checkpoint,
        choice: &Choice,
    ) -> Result<Option<Sequence>, Fault> {
        let has = |name: &str| value.get(name).is_some();
        match (has("messages"), has("completion"), has("ids") || has("tokens") || has("episode")) {
            (true, false, false) => conversation(&value, checkpoint).map(Some),
            (false, true, false) => completion(&value, checkpoint).map(Some),
            (false, false, true) => match Line::of(value)? {
                Line::Episode(episode) => self.episode(&episode, checkpoint, choice),
                Line::Recorded(recorded) => self.recorded(&recorded, choice),
            },
            (false, false, false) => {
                Err("is not a demonstration; give it messages, prompt and completion, or make it a recorded rollout".into())
            }
            _ => Err("is of several forms; give it messages, or prompt and completion, or the tokens of a rollout".into()),
        }
    }

    fn episode(
        &mut self,
        episode: &Episode,
        checkpoint: &Checkpoint,
        choice: &Choice,
    ) -> Result<Option<Sequence>, Fault> {
        let Some(reward) = episode.reward() else {
            self.faults += 1;
            return Ok(None);
        };
        if !self.earned(reward, choice) {
            return Ok(None);
        }
        match &episode.conversation {
            _ if episode.tokens.has_ids() => {
                check_tokenizer(episode, &checkpoint.tokenizer)?;
                Ok(Sequence::from_log(&episode.tokens))
            }
            Some(said) => conversation(&Value::Object(said.clone()), checkpoint),
            None => Ok(running_text(episode, checkpoint)),
        }
        .map(Some)
    }

    fn recorded(
        &mut self,
        recorded: &Recorded,
        choice: &Choice,
    ) -> Result<Option<Sequence>, Fault> {
        let sequence = recorded.sequence()?;
        if choice.min_reward.is_none() || self.earned(recorded.finite_reward()?, choice) {
            return Ok(Some(sequence));
        }
        Ok(None)
    }

    /// Returns whether a rollout earned enough, and counts it where not.
    fn earned(&mut self, reward: f32, choice: &Choice) -> bool {
        let enough = choice.min_reward.is_none_or(|least| reward >= least);
        self.low_reward += usize::from(!enough);
        enough
    }
}

/// Text that ends with a completion.
fn completion(value: &Value, checkpoint: &Checkpoint) -> Result<Sequence, Fault> {
    let text = |name: &str| match value.get(name).and_then(Value::as_str) {
        Some("") => Err(Fault::from(format!("has an empty {name}; give it text"))),
        Some(text) => Ok(text),
        None => Err(Fault::from(format!(
            "has no text as its {name}; conversations go under messages"
        ))),
    };
    let mut sequence = Sequence::default();
    append(
        &mut sequence,
        checkpoint.tokenizer.encode(text("prompt")?),
        false,
    );
    append(
        &mut sequence,
        checkpoint.tokenizer.encode(text("completion")?),
        true,
    );
    if !sequence
        .ids
        .last()
        .is_some_and(|last| checkpoint.ends.contains(last))
    {
        append(&mut sequence, vec![checkpoint.tokenizer.eos()], true);
    }
    Ok(sequence)
}

/// The turns of an episode that was played as running text, after what came before each.
fn running_text(episode: &Episode, checkpoint: &Checkpoint) -> Sequence {
    let tokenizer = &checkpoint.tokenizer;
    let mut sequence = Sequence::default();
    append(&mut sequence, tokenizer.encode(&episode.prompt), false);
    for turn in &episode.turns {
        append(&mut sequence, tokenizer.encode(&turn.policy), true);
        if turn.finish == Finish::Eos {
            append(&mut sequence, vec![tokenizer.eos()], true);
        }
        append(&mut sequence, tokenizer.encode(&turn.observation), false);
    }
    sequence
}

/// A conversation in the checkpoint's template. Its pieces become tokens each by itself, as in an episode.
fn conversation(value: &Value, checkpoint: &Checkpoint) -> Result<Sequence, Fault> {
    let template = checkpoint
        .chat
        .as_ref()
        .ok_or("has messages, and the policy has no chat template; give raw text")?;
    let list = |name: &str| match value.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list.clone()),
        Some(_) => Err(Fault::from(format!("has {name} that are not a list"))),
    };
    let mut messages = list("messages")?;
    let turns = learned(&mut messages)?;
    let advice = |error: ChatError| {
        let fix = match error {
            ChatError::NotAppending { .. } => {
                "; give each answer a line of its own, with \"weight\": 0 on the answers before it"
            }
            _ => "",
        };
        Fault::because(format!("cannot be written{fix}"), error)
    };
    let renderer = Renderer::new(template.clone(), list("tools")?, Map::new()).map_err(advice)?;
    let mut sequence = Sequence::default();
    for piece in renderer.pieces(&messages, &turns).map_err(advice)? {
        append(
            &mut sequence,
            checkpoint.tokenizer.encode(&piece.text),
            piece.written,
        );
        if piece.written && renderer.end().is_empty() {
            append(&mut sequence, vec![checkpoint.tokenizer.eos()], true);
        }
    }
    Ok(sequence)
}

/// Places of the messages to learn. Arguments of calls that are text become the objects that templates read.
fn learned(messages: &mut [Value]) -> Result<Vec<usize>, Fault> {
    let mut turns = Vec::new();
    for (place, message) in messages.iter_mut().enumerate() {
        let number = place + 1;
        let Some(role) = message.get("role").and_then(Value::as_str) else {
            return Err(format!("has a message {number} without a role").into());
        };
        let written = role == "assistant";
        let weight = match message.get("weight") {
            None | Some(Value::Null) => true,
            Some(weight) if weight.as_f64() == Some(1.0) => true,
            Some(weight) if weight.as_f64() == Some(0.0) => false,
            Some(weight) => {
                return Err(format!(
                    "has a message {number} of weight {weight}; 0 and 1 are known"
                )
                .into());
            }
        };
        if written && weight {
            turns.push(place);
        }
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let Some(arguments) = call.pointer_mut("/function/arguments") else {
                continue;
            };
            if let Value::String(text) = arguments {
                let parsed = serde_json::from_str(text).map(Value::Object);
                *arguments = parsed.map_err(|error| {
                    let fault =
                        format!("has a call in message {number} whose arguments are not an object");
                    Fault::because(fault, error)
                })?;
            }
        }
    }
    if turns.is_empty() {
        return Err("has no message of the assistant to learn; remove it".into());
    }
    Ok(turns)
}

/// Appends tokens; `written` ones are learned, where anything precedes them.
fn append(sequence: &mut Sequence, ids: Vec<u32>, written: bool) {
    let start = sequence.ids.len();
    sequence.ids.extend(ids);
    if written {
        sequence.targets.extend(start.max(1)..sequence.ids.len());
    }
}
