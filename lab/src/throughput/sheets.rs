//! Numbers of cards by their data sheets, and what no data sheet says: `cards.json`.

use forage_trainer::device::ComputeType;
use serde::Deserialize;
use serde_json::Value;

use crate::error::Result;

/// The numbers of `cards.json`.
#[derive(Deserialize)]
pub(super) struct Sheets {
    pub(super) assumed: Assumed,
    pub(super) cards: Vec<Card>,
}

/// Numbers that no data sheet has.
#[derive(Deserialize)]
pub(super) struct Assumed {
    pub(super) prompt_tokens: f64,
    /// Turns of an episode; all but the last one search.
    pub(super) turns: f64,
    pub(super) turn_tokens: f64,
    pub(super) observation_tokens: f64,
    /// Passages of an observation.
    pub(super) passages: f64,
    /// Tokens of the turn that all wait for at the end.
    pub(super) longest_turn: f64,
    pub(super) bandwidth_share: f64,
    pub(super) rate_share: f64,
    pub(super) launch_us: f64,
    /// Launches of a layer in a decode step.
    pub(super) decode_launches: f64,
    /// Launches of a layer in a micro-batch.
    pub(super) training_launches: f64,
    /// Between machines, GB/s.
    pub(super) network_gb: f64,
    /// Of a TCP connection between ranks, with the sums and copies at its ends, GB/s.
    pub(super) connection_gb: f64,
}

impl Assumed {
    /// What is assumed of episodes under these settings of an environment, which may leave them fewer turns, or shorter ones.
    pub(super) fn within(mut self, settings: &Value) -> Self {
        let number = |path: &str| settings.pointer(path).and_then(Value::as_f64);
        let most = |path: &str| {
            let limit = number(path).filter(|limit| *limit > 0.0);
            limit.unwrap_or(f64::INFINITY)
        };
        // A policy that answers its own searches writes them all in one turn.
        if settings["searcher"] != "policy" {
            self.turns = self.turns.min(most("/max_generations"));
        }
        self.turn_tokens = self.turn_tokens.min(most("/max_turn_tokens"));
        self.longest_turn = self.longest_turn.min(most("/max_turn_tokens"));
        if let Some(passages) = number("/top_k") {
            self.observation_tokens *= passages / self.passages;
        }
        let shown = most("/observation/limit_tokens");
        self.observation_tokens = self.observation_tokens.min(shown);
        self
    }

    pub(super) fn written(&self) -> f64 {
        self.turns * self.turn_tokens
    }

    pub(super) fn read(&self) -> f64 {
        (self.turns - 1.0) * self.observation_tokens
    }

    /// Tokens of an episode that no limit cuts.
    pub(super) fn usual(&self) -> f64 {
        self.prompt_tokens + self.written() + self.read()
    }

    /// Says where the tokens of an episode are from.
    pub(super) fn origin(&self, length: f64) -> String {
        if length < self.usual() {
            return "all that the config's limits allow".to_owned();
        }
        format!(
            "{} of the prompt, {} turns of {}, {} after each search",
            self.prompt_tokens, self.turns, self.turn_tokens, self.observation_tokens
        )
    }
}

/// A card by its data sheet.
#[derive(Deserialize)]
pub(super) struct Card {
    pub(super) name: String,
    pub(super) memory_gb: u64,
    pub(super) bandwidth_tb: f64,
    /// Rates of dense products, Tflop/s; those of f32 are not rounded to TF32.
    pub(super) bf16_tflops: f64,
    pub(super) f32_tflops: f64,
    /// To the other cards of a machine, GB/s.
    pub(super) link_gb: f64,
}

impl Card {
    /// Operations per second in products of a type.
    pub(super) fn rate(&self, of: ComputeType) -> f64 {
        let tflops = match of {
            ComputeType::F32 => self.f32_tflops,
            ComputeType::Bf16 => self.bf16_tflops,
        };
        tflops * 1e12
    }
}

/// What `cards.json` says.
pub(super) fn sheets() -> Result<Sheets> {
    Ok(serde_json::from_str(include_str!("../cards.json"))?)
}
