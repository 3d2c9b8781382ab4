//! A tiny problem: a world of a hundred pages and a random decoder that searches it.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::Device;
use forage_contracts::seed::Seed;
use forage_contracts::{Resources, Split, Task};
use forage_env::reward::RewardSet;
use forage_env::{Presentation, World, WorldSpec, registry};
use forage_retriever::Bm25Retriever;
use forage_trainer::model::{Architecture, Decoder, ModelConfig};
use forage_trainer::run::Problem;
use forage_trainer::weights::Checkpoint;
use forage_trainer::{EngineConfig, Learner, UpdateConfig, Workers, train_tokenizer};
use serde_json::{Value, json};

pub(crate) fn world() -> World {
    World::new(WorldSpec::new(100, 3)).unwrap()
}

pub(crate) fn checkpoint(seed: u64) -> Checkpoint {
    let lines: Vec<String> = world().text(300).collect();
    let (tokenizer, tokenizer_json) = train_tokenizer(
        lines.into_iter(),
        400,
        registry::find("search-r1").unwrap().vocabulary,
    )
    .unwrap();
    let config = ModelConfig {
        architecture: Architecture::named("qwen3").unwrap(),
        vocab_size: 400,
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        max_position_embeddings: 256,
        rope_theta: 10_000.0,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
    };
    let decoder = Decoder::random(&config, Seed::root(seed), &Device::flex());
    Checkpoint::new(config, decoder, tokenizer, tokenizer_json)
}

/// A search problem; `rewards` weights parts. An untrained policy never answers, so `random` gives groups a direction.
pub(crate) fn problem(checkpoint: &Checkpoint, rewards: &[(&str, f32)]) -> Problem {
    problem_of(checkpoint, rewards, settings())
}

/// Short turns: an untrained policy has nothing to say.
pub(crate) fn settings() -> Value {
    json!({
        "prompt": "short",
        "top_k": 1,
        "max_generations": 3,
        "max_turn_tokens": 10,
        "max_episode_tokens": 200,
        "on_invalid": "notice",
    })
}

pub(crate) fn problem_of(
    checkpoint: &Checkpoint,
    rewards: &[(&str, f32)],
    settings: Value,
) -> Problem {
    let retriever = Arc::new(Bm25Retriever::in_memory(world().passages().collect()).unwrap());
    let resources = Resources::new(retriever, Arc::new(checkpoint.tokenizer.clone()));
    let factory = registry::make("search-r1", settings, resources).unwrap();
    let weights: BTreeMap<String, f32> = rewards
        .iter()
        .map(|(name, weight)| ((*name).to_owned(), *weight))
        .collect();
    let tasks = |split, count| -> Arc<[Arc<Task>]> {
        world()
            .questions(split, count)
            .unwrap()
            .map(Arc::new)
            .collect()
    };
    Problem {
        presentation: Presentation::RAW,
        rewards: Arc::new(RewardSet::new(factory.spec().outcome, &weights, Seed::root(9)).unwrap()),
        factory,
        train: tasks(Split::Train, 40),
        dev: tasks(Split::Dev, 8),
    }
}

pub(crate) const ENGINE: EngineConfig = EngineConfig {
    context: 220,
    cache_tokens: 6 * 224,
    step_tokens: 256,
    sequences: 6,
    bf16: false,
};

pub(crate) fn learner(checkpoint: Checkpoint, update: UpdateConfig) -> Learner {
    Learner::new(checkpoint, update, ENGINE, Workers::new(2))
}

/// The bytes of every weight.
pub(crate) fn weights(learner: &Learner) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    forage_trainer::weights::write::save_decoder(&path, &learner.checkpoint().decoder).unwrap();
    std::fs::read(path).unwrap()
}
