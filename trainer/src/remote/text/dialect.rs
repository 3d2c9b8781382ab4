//! What a server knows of the protocol, as its refusals tell, and the requests that it therefore takes.

use forage_contracts::policy::GenerateRequest;
use serde_json::{Map, Value};

/// Fields beyond `OpenAI`'s, which servers of open models take and others refuse by name. What is left out they take from a model's
/// `generation_config.json`.
const BEYOND: [&str; 4] = [
    "include_stop_str_in_output",
    "min_p",
    "repetition_penalty",
    "top_k",
];

/// What a server was found to know of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that are found one by one"
)]
pub(super) struct Dialect {
    /// Whether the server refuses the fields [`BEYOND`] `OpenAI`'s.
    pub(super) plain: bool,
    /// Whether it was seen to keep a stop string in its text, as it was asked to.
    pub(super) keeps_stops: bool,
    /// Whether it cuts stop strings off, or refuses them: completions then run on, and are cut here.
    pub(super) cut_here: bool,
    /// Whether it refuses seeds.
    seedless: bool,
    /// Whether it takes `max_completion_tokens` instead of `max_tokens`.
    renamed: bool,
    /// Whether it refuses a temperature, as reasoning models do.
    own_temperature: bool,
    /// Whether it refuses a nucleus, or one beside a temperature.
    own_top_p: bool,
}

/// Words by which servers refuse a field whatever its value; else the value was wrong.
const UNKNOWN: [&str; 5] = [
    "support",
    "unrecognized",
    "unknown",
    "permitted",
    "deprecated",
];

impl Dialect {
    /// What follows from the words of a refusal.
    pub(super) fn after(self, said: &str) -> Self {
        let plain = self.plain || BEYOND.iter().any(|field| said.contains(field));
        let words = said.to_lowercase();
        let unknown = UNKNOWN.iter().any(|word| words.contains(word));
        // "`temperature` and `top_p` cannot both be specified": one of them is enough.
        let both = words.contains("both");
        Self {
            plain,
            keeps_stops: self.keeps_stops,
            cut_here: self.cut_here || plain || said.contains("stop"),
            seedless: self.seedless || said.contains("seed"),
            renamed: self.renamed || said.contains("max_completion_tokens"),
            own_temperature: self.own_temperature
                || (said.contains("temperature") && unknown && !both),
            own_top_p: self.own_top_p || (said.contains("top_p") && (unknown || both)),
        }
    }

    /// The fields of sampling that it does not take.
    pub(super) fn own_sampling(self) -> Option<&'static str> {
        match (self.own_temperature, self.own_top_p) {
            (false, false) => None,
            (true, false) => Some("temperature"),
            (false, true) => Some("top_p"),
            (true, true) => Some("temperature and top_p"),
        }
    }

    /// Whether stop strings are sent. What is read for calls of tools must not be cut by the server.
    pub(super) fn sends_stops(self, conversation: &Map<String, Value>, stops: &[String]) -> bool {
        !self.cut_here && !stops.is_empty() && !conversation.contains_key("tools")
    }

    pub(super) fn body(
        self,
        model: &str,
        conversation: &Map<String, Value>,
        request: &GenerateRequest,
        granted: usize,
    ) -> Vec<u8> {
        let sampling = request.sampling;
        let mut body = conversation.clone();
        let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
        set("model", model.into());
        if !self.own_temperature {
            set("temperature", sampling.temperature.into());
        }
        if !self.own_top_p {
            set("top_p", sampling.top_p.into());
        }
        let limit = if self.renamed {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        set(limit, granted.into());
        if !self.seedless {
            // Signed there.
            set("seed", (request.seed.0 >> 1).into());
        }
        let stops = self.sends_stops(conversation, &request.stop);
        if stops {
            set("stop", request.stop.as_slice().into());
        }
        if !self.plain {
            // No cut is -1 to vLLM and SGLang; the latter refuses 0.
            let cut = i64::try_from(sampling.top_k).ok().filter(|&cut| cut > 0);
            set("top_k", cut.unwrap_or(-1).into());
            set("min_p", sampling.min_p.into());
            set("repetition_penalty", 1.0.into());
        }
        if !self.plain && stops {
            set("include_stop_str_in_output", true.into());
        }
        Value::Object(body).to_string().into_bytes()
    }
}
