//! What the fake engine runs: a function of the tokens, or an oracle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forage_contracts::policy::{Completion, Finish, GenerateRequest, Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Tokenizer};

/// What a completion depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) prompt: Vec<u32>,
    pub(crate) max_tokens: usize,
    /// As sent: half of the request's.
    pub(crate) seed: u64,
    pub(crate) stop: Vec<String>,
    pub(crate) ignore_eos: bool,
    /// Name of the weights.
    pub(crate) weights: String,
}

pub(crate) enum Model {
    /// Letters by hash, an end of sequence now and then.
    Hash,
    /// Knows the answers. Conversations are found again by their tokens.
    Oracle(Arc<dyn Policy>, Mutex<Vec<(Vec<u32>, u64)>>, AtomicU64),
}

impl Model {
    pub(crate) fn oracle(oracle: Arc<dyn Policy>) -> Self {
        Self::Oracle(oracle, Mutex::default(), AtomicU64::new(0))
    }

    pub(crate) async fn complete(&self, order: &Order) -> Completion {
        match self {
            Self::Hash => by_hash(order),
            Self::Oracle(oracle, conversations, next) => {
                let known = {
                    let mut known = conversations.lock().unwrap();
                    let place = known
                        .iter()
                        .position(|(tokens, _)| order.prompt.starts_with(tokens));
                    place.map(|place| known.swap_remove(place).1)
                };
                let episode = known.unwrap_or_else(|| next.fetch_add(1, Ordering::Relaxed));
                let request = GenerateRequest {
                    episode,
                    tokens: order.prompt.clone(),
                    max_tokens: order.max_tokens,
                    stop: order.stop.clone(),
                    ignore_eos: order.ignore_eos,
                    sampling: Sampling::FULL,
                    seed: Seed(order.seed),
                };
                let completion = oracle.generate(request).await.unwrap();
                let tokens = [order.prompt.as_slice(), &completion.tokens].concat();
                conversations.lock().unwrap().push((tokens, episode));
                completion
            }
        }
    }
}

/// The completion that the engine must report: the reference of the tests too.
pub(crate) fn by_hash(order: &Order) -> Completion {
    let history: Vec<u64> = order.prompt.iter().map(|&token| u64::from(token)).collect();
    let stream = Seed(order.seed).child(&order.weights, &history);
    let (mut tokens, mut logprobs) = (Vec::new(), Vec::new());
    loop {
        let drawn = stream.child("token", &[tokens.len() as u64]).0;
        let eos = drawn.is_multiple_of(24) && !order.ignore_eos;
        tokens.push(if eos {
            ByteTokenizer.eos()
        } else {
            97 + (drawn >> 8) as u32 % 26
        });
        logprobs.push(-((drawn >> 40) as f32) / 4e6);
        let text = ByteTokenizer.decode(&tokens);
        let finish = if eos {
            Finish::Eos
        } else if order.stop.iter().any(|stop| text.ends_with(stop.as_str())) {
            Finish::Stop
        } else if tokens.len() == order.max_tokens {
            Finish::Length
        } else {
            continue;
        };
        return Completion {
            tokens,
            logprobs,
            finish,
            version: 0,
        };
    }
}
