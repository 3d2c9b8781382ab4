//! The checks of an engine: its greedy tokens, those that it samples, and its log-probabilities.

use std::sync::Arc;

use forage_contracts::policy::{GenerateRequest, Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Tokenizer};

use super::super::{Check, compared};
use super::{FORWARD, HALF, Model};
use crate::generate::{Engine, EngineConfig, EngineModel, EngineStats};
use crate::workers::Workers;

pub(super) const ROOMY: EngineConfig = EngineConfig {
    context: 128,
    cache_tokens: 4096,
    step_tokens: 64,
    sequences: 16,
    bf16: false,
};

impl Model {
    pub(super) fn engine(&self, sizes: EngineConfig) -> Arc<Engine> {
        let model = EngineModel {
            decoder: self.decoder.clone(),
            config: self.config.clone(),
            tokenizer: Arc::new(ByteTokenizer),
            eos: vec![ByteTokenizer.eos()],
        };
        Arc::new(Engine::of(model, sizes, Workers::new(2).kernel_pool()))
    }

    /// Two turns of six episodes in groups of two: tokens, log-probabilities, and what the engine did.
    fn episodes(
        &self,
        sizes: EngineConfig,
        sampling: Sampling,
    ) -> (Vec<u32>, Vec<f32>, EngineStats) {
        let engine = self.engine(sizes);
        let mut logs: Vec<Vec<u32>> = (0..6_u32)
            .map(|episode| {
                (0..20)
                    .map(|place| (place * 31 + episode / 2 * 7) % 250)
                    .collect()
            })
            .collect();
        let (mut tokens, mut logprobs) = (Vec::new(), Vec::new());
        for turn in 0..2 {
            let requests = logs
                .iter()
                .enumerate()
                .map(|(episode, log)| GenerateRequest {
                    episode: episode as u64,
                    tokens: log.clone(),
                    max_tokens: 6,
                    stop: Vec::new(),
                    ignore_eos: true,
                    sampling,
                    seed: Seed::root(episode as u64).child("turn", &[turn]),
                });
            let all =
                futures::future::try_join_all(requests.map(|request| engine.generate(request)));
            let completions = futures::executor::block_on(all).expect("the engine answers");
            for (episode, (log, completion)) in logs.iter_mut().zip(completions).enumerate() {
                log.extend(&completion.tokens);
                log.extend((0..9).map(|place| (place * 5 + episode as u32) % 250));
                tokens.extend(completion.tokens);
                logprobs.extend(completion.logprobs);
            }
        }
        (tokens, logprobs, engine.stats())
    }
}

pub(super) fn greedy(
    name: &'static str,
    there: &Model,
    here: &Model,
    sizes: EngineConfig,
) -> Check {
    let (found, _, stats) = there.episodes(sizes, Sampling::GREEDY);
    let (expected, _, _) = here.episodes(sizes, Sampling::GREEDY);
    let same = found
        .iter()
        .zip(&expected)
        .filter(|(found, expected)| found == expected)
        .count();
    let short = sizes.cache_tokens < ROOMY.cache_tokens;
    let holds = found == expected && (!short || stats.preemptions > 0);
    let preempted = if short {
        format!(", {} preemptions", stats.preemptions)
    } else {
        String::new()
    };
    Check {
        name,
        found: format!(
            "{same} of {} the same, all must be{preempted}",
            expected.len()
        ),
        holds,
        fix: None,
    }
}

/// Compares sampled tokens up to the first difference, since rounding may decide between two tokens.
pub(super) fn sampled(
    name: &'static str,
    there: &Model,
    here: &Model,
    sampling: Sampling,
) -> Check {
    let (found, logprobs, _) = there.episodes(ROOMY, sampling);
    let (expected, expected_logprobs, _) = here.episodes(ROOMY, sampling);
    let same = found
        .iter()
        .zip(&expected)
        .take_while(|(found, expected)| found == expected)
        .count();
    let mut check = compared(name, &logprobs[..same], &expected_logprobs[..same], FORWARD);
    check.holds = check.holds && same * 2 > found.len();
    check.found = format!("{same} of {} tokens alike, {}", found.len(), check.found);
    check
}

/// Compares an engine that computes in bf16.
pub(super) fn half(there: &Model, here: &Model) -> Check {
    let score = |model: &Model, bf16: bool| {
        let engine = model.engine(EngineConfig { bf16, ..ROOMY });
        let scores = engine.score(model.sequences[0].ids.clone(), 1.0);
        futures::executor::block_on(scores).expect("the engine answers")
    };
    compared(
        "log-probabilities of an engine in bf16",
        &score(there, true),
        &score(here, false),
        HALF,
    )
}
