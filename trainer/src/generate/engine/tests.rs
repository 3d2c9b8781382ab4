//! The engine as its users see it: a request's answer does not depend on company, memory, chunks or earlier turns.

use std::sync::Arc;
use std::time::Duration;

use super::{Engine, EngineConfig, EngineModel};
use crate::generate::{Event, StreamOptions};
use crate::model::{Architecture, Decoder, ModelConfig};
use crate::workers::Workers;
use burn::tensor::Device;
use forage_contracts::policy::{
    Completion, Finish, GenerateRequest, Policy, PolicyError, Sampling,
};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Tokenizer};
use tokio::sync::Semaphore;

/// Wide enough for the arrangement of weights that only large models get; the other one is not.
fn shape(wide: bool) -> ModelConfig {
    ModelConfig {
        architecture: Architecture::named(if wide { "qwen2" } else { "qwen3" }).unwrap(),
        vocab_size: 257,
        hidden_size: if wide { 800 } else { 48 },
        intermediate_size: if wide { 1100 } else { 96 },
        num_hidden_layers: 2,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        head_dim: 16,
        max_position_embeddings: 512,
        rope_theta: 1e4,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: !wide,
    }
}

const ROOMY: EngineConfig = EngineConfig {
    context: 300,
    cache_tokens: 32 * 1024,
    step_tokens: 256,
    sequences: 64,
    bf16: false,
};

fn decoder(wide: bool, seed: u64) -> Decoder {
    Decoder::random(&shape(wide), Seed::root(seed), &Device::flex())
}

fn engine(wide: bool, config: EngineConfig) -> Arc<Engine> {
    let tokenizer = Arc::new(ByteTokenizer);
    let model = EngineModel {
        decoder: decoder(wide, 3),
        config: shape(wide),
        tokenizer,
        eos: vec![ByteTokenizer.eos()],
    };
    Arc::new(Engine::of(model, config, Workers::new(2).kernel_pool()))
}

fn request(episode: u64, tokens: Vec<u32>, max_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        episode,
        tokens,
        max_tokens,
        stop: Vec::new(),
        ignore_eos: true,
        sampling: Sampling::FULL,
        seed: Seed::root(episode),
    }
}

/// Groups of eight with one prompt of their own length each.
fn prompt(episode: u64) -> Vec<u32> {
    let group = episode / 8;
    (0..20 + 9 * group as usize)
        .map(|place| ((place * 31 + group as usize * 7) % 250) as u32)
        .collect()
}

/// A turn, an observation, another turn.
async fn episode(engine: &Engine, episode: u64) -> Vec<Completion> {
    let first = engine
        .generate(request(episode, prompt(episode), 12))
        .await
        .unwrap();
    let mut log = prompt(episode);
    log.extend(&first.tokens);
    log.extend((0..30).map(|place| (place * 5 + episode as u32) % 250));
    let second = engine.generate(request(episode, log, 12)).await.unwrap();
    engine.release(episode);
    vec![first, second]
}

async fn crowd(engine: &Arc<Engine>) -> Vec<Vec<Completion>> {
    let run = |number| {
        let engine = Arc::clone(engine);
        tokio::spawn(async move { episode(&engine, number).await })
    };
    let handles: Vec<_> = (0..64).map(run).collect();
    let mut completions = Vec::new();
    for handle in handles {
        completions.push(handle.await.unwrap());
    }
    completions
}

fn bits(completions: &[Completion]) -> Vec<(Vec<u32>, Vec<u32>)> {
    let bits = |completion: &Completion| {
        completion
            .logprobs
            .iter()
            .map(|value| value.to_bits())
            .collect()
    };
    completions
        .iter()
        .map(|completion| (completion.tokens.clone(), bits(completion)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn alone_and_among_sixty_three_others_the_bits_are_the_same() {
    for wide in [false, true] {
        let together = crowd(&engine(wide, ROOMY)).await;
        for number in [0, 7, 13, 42, 63] {
            let alone = engine(
                wide,
                EngineConfig {
                    sequences: 1,
                    step_tokens: 5,
                    ..ROOMY
                },
            );
            let alone = episode(&alone, number).await;
            assert_eq!(
                bits(&alone),
                bits(&together[number as usize]),
                "episode {number}, wide {wide}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_little_memory_costs_time_only() {
    let roomy = engine(false, ROOMY);
    let tight = engine(
        false,
        EngineConfig {
            cache_tokens: 600,
            ..ROOMY
        },
    );
    let (expected, found) = (crowd(&roomy).await, crowd(&tight).await);
    for (number, (expected, found)) in expected.iter().zip(&found).enumerate() {
        assert_eq!(bits(expected), bits(found), "episode {number}");
    }
    assert!(
        tight.stats().preemptions > 0,
        "600 tokens are too few for 64 episodes at once"
    );
    assert_eq!(
        (roomy.stats().preemptions, roomy.stats().generated_tokens),
        (0, 64 * 24)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_shares_its_prompt_and_a_turn_costs_its_new_tokens() {
    let engine = engine(false, ROOMY);
    crowd(&engine).await;
    let stats = engine.stats();
    // Per group of eight, the full blocks of the prompt once; per second turn, all but the observation and a token.
    let shared: u64 = (0..8).map(|group| 7 * ((20 + 9 * group) / 16 * 16)).sum();
    let kept: u64 = (0..64).map(|number| prompt(number).len() as u64 + 11).sum();
    assert!(
        stats.cached_prompt_tokens >= shared + kept,
        "{stats:?}, at least {shared} and {kept}"
    );
    let wanted: u64 = (0..64)
        .map(|number| 2 * prompt(number).len() as u64 + 42)
        .sum();
    assert_eq!(stats.prompt_tokens, wanted);
}

#[tokio::test]
async fn scores_are_the_logprobs_of_what_was_drawn() {
    for wide in [false, true] {
        let engine = engine(
            wide,
            EngineConfig {
                step_tokens: 16,
                ..ROOMY
            },
        );
        let completion = engine.generate(request(1, prompt(9), 40)).await.unwrap();
        let mut log = prompt(9);
        log.extend(&completion.tokens);
        let scores = engine.score(log.clone(), 1.0).await.unwrap();
        assert_eq!(scores.len(), log.len() - 1);
        let bits = |values: &[f32]| {
            values
                .iter()
                .map(|value| value.to_bits())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            bits(&scores[prompt(9).len() - 1..]),
            bits(&completion.logprobs)
        );
        assert!(engine.score(vec![5], 1.0).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_score_that_gave_way_begins_anew() {
    let log = prompt(100);
    let expected = engine(false, ROOMY).score(log.clone(), 1.0).await.unwrap();
    // The score is let in while those before it are short, and has to leave when they grow.
    let engine = engine(
        false,
        EngineConfig {
            cache_tokens: 12 * 16,
            step_tokens: 12,
            ..ROOMY
        },
    );
    let options = StreamOptions { top_logprobs: 1 };
    let older = |episode: u64| {
        engine
            .stream(
                vec![episode as u32; 12].into(),
                request(episode, Vec::new(), 40),
                options,
            )
            .unwrap()
    };
    let _older: Vec<_> = (1..5).map(older).collect();
    let scored = engine
        .score_with(log[..120].to_vec(), 1.0, options)
        .await
        .unwrap();
    assert!(engine.stats().preemptions > 0, "{:?}", engine.stats());
    let found: Vec<u32> = scored.iter().map(|event| event.logprob.to_bits()).collect();
    let expected: Vec<u32> = expected[..119]
        .iter()
        .map(|logprob| logprob.to_bits())
        .collect();
    assert_eq!(found, expected);
    assert!(
        scored
            .iter()
            .zip(&log[1..])
            .all(|(event, &token)| event.token == token)
    );
    assert!(scored.iter().all(|event| event.top[0].1 >= event.logprob));
}

#[tokio::test]
async fn new_weights_take_over_between_turns_and_stale_memory_is_not_used() {
    let engine = engine(false, ROOMY);
    let before = engine.generate(request(1, prompt(1), 8)).await.unwrap();
    engine.swap(decoder(false, 4), 1).await.unwrap();
    let after = engine.generate(request(1, prompt(1), 8)).await.unwrap();
    assert_eq!((before.version, after.version), (0, 1));
    assert_ne!(bits(std::slice::from_ref(&before)), bits(&[after]));
    engine.swap(decoder(false, 3), 2).await.unwrap();
    let again = engine.generate(request(2, prompt(1), 8)).await.unwrap();
    let seeded = engine
        .generate(GenerateRequest {
            episode: 3,
            ..request(1, prompt(1), 8)
        })
        .await
        .unwrap();
    assert_eq!(bits(&[before]), bits(&[seeded]));
    assert_eq!(again.version, 2);
}

#[tokio::test]
async fn a_stream_that_is_dropped_frees_its_memory() {
    let engine = engine(false, ROOMY);
    let mut stream = engine
        .stream(
            prompt(1).into(),
            request(1, Vec::new(), 250),
            StreamOptions { top_logprobs: 3 },
        )
        .unwrap();
    let Some(Ok(Event::Token(token))) = stream.next().await else {
        panic!("a token comes first")
    };
    assert_eq!(token.top.len(), 3);
    assert!(token.top.windows(2).all(|pair| pair[0].1 >= pair[1].1));
    drop(stream);
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let stats = engine.stats();
        if stats.cancelled == 1 && stats.running == 0 && stats.cache_tokens_used == 0 {
            return;
        }
    }
    panic!("{:?}", engine.stats());
}

#[tokio::test]
async fn a_stream_that_nobody_reads_ends_and_says_so() {
    let mut engine = engine(false, ROOMY);
    let places = Arc::new(Semaphore::new(4));
    Arc::get_mut(&mut engine).unwrap().unread = Arc::clone(&places);
    let mut stream = engine
        .stream(
            prompt(1).into(),
            request(1, Vec::new(), 250),
            StreamOptions::default(),
        )
        .unwrap();
    let begun = std::time::Instant::now();
    while engine.stats().cancelled == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            engine.stats()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(places.available_permits(), 0);
    let (mut tokens, mut last) = (0, None);
    while let Some(event) = stream.next().await {
        match event.unwrap() {
            Event::Token(_) => tokens += 1,
            other => last = Some(other),
        }
    }
    // Sixteen of its own, and four of all streams.
    assert_eq!((tokens, last), (20, Some(Event::Behind)));
    assert_eq!(places.available_permits(), 4);
    assert_eq!(engine.stats().cache_tokens_used, 0);
}

#[tokio::test]
async fn a_stream_says_what_a_completion_says() {
    let engine = engine(false, ROOMY);
    let whole = engine.generate(request(1, prompt(3), 20)).await.unwrap();
    let again = GenerateRequest {
        episode: 2,
        ..request(1, Vec::new(), 20)
    };
    let mut stream = engine
        .stream(prompt(3).into(), again, StreamOptions::default())
        .unwrap();
    let (mut tokens, mut logprobs) = (Vec::new(), Vec::new());
    while let Some(event) = stream.next().await {
        match event.unwrap() {
            Event::Token(token) => {
                tokens.push(token.token);
                logprobs.push(token.logprob);
            }
            Event::Done(done) => assert_eq!(bits(&[done]), bits(std::slice::from_ref(&whole))),
            Event::Behind => panic!("everything is read at once"),
        }
    }
    assert_eq!((tokens, logprobs), (whole.tokens, whole.logprobs));
}

#[tokio::test]
async fn completions_end_where_they_must() {
    let engine = engine(
        false,
        EngineConfig {
            context: 64,
            ..ROOMY
        },
    );
    let full = engine.generate(request(1, prompt(1), 400)).await.unwrap();
    assert_eq!(
        (full.finish, full.tokens.len()),
        (Finish::Context, 64 - prompt(1).len())
    );
    let drawn = ByteTokenizer.decode(&full.tokens);
    let stop = drawn.chars().skip(3).take(2).collect::<String>();
    let stopped = GenerateRequest {
        episode: 2,
        stop: vec![stop.clone()],
        ..request(1, prompt(1), 400)
    };
    let stopped = engine.generate(stopped).await.unwrap();
    assert_eq!(stopped.finish, Finish::Stop);
    assert!(
        full.tokens.starts_with(&stopped.tokens)
            && ByteTokenizer.decode(&stopped.tokens).contains(&stop)
    );
    let limited = engine
        .generate(GenerateRequest {
            episode: 3,
            ..request(1, prompt(1), 5)
        })
        .await
        .unwrap();
    assert_eq!((limited.finish, limited.tokens.len()), (Finish::Length, 5));
}

#[tokio::test]
async fn bad_requests_are_refused_by_name() {
    let engine = engine(
        false,
        EngineConfig {
            context: 64,
            ..ROOMY
        },
    );
    let cases = [
        (request(1, Vec::new(), 5), "empty"),
        (request(1, vec![1; 64], 5), "context of 64"),
        (request(1, vec![257], 5), "token id 257"),
        (request(1, vec![1], 0), "max_tokens"),
        (
            GenerateRequest {
                sampling: Sampling {
                    top_p: 0.0,
                    ..Sampling::FULL
                },
                ..request(1, vec![1], 5)
            },
            "top_p",
        ),
    ];
    for (request, word) in cases {
        let Err(PolicyError::BadRequest(message)) = engine.generate(request).await else {
            panic!("{word} is refused")
        };
        assert!(message.contains(word), "{message}");
    }
    let Err(PolicyError::BadRequest(message)) = engine.score(Vec::new(), 1.0).await else {
        panic!("refused")
    };
    assert!(message.contains("empty"));
}
