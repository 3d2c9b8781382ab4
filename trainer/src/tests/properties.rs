//! What must hold of every update and every rollout.

use std::sync::Arc;

use forage_contracts::policy::{Completion, GenerateRequest, Policy, Sampling};
use forage_contracts::scripted::{Cast, OracleStyle, ScriptEntry, Scripted};
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Tokenizer};

use super::common::problem::{ENGINE, checkpoint, learner, problem, problem_of, settings, weights};
use super::reference::tiny;
use crate::backward;
use crate::generate::{Engine, EngineConfig};
use crate::grads::NamedGrads;
use crate::learner::{Learner, UpdateConfig};
use crate::logprobs::{ScoreGrads, Scores, token_logprobs};
use crate::lora::{LoraConfig, Targets};
use crate::model::Decoder;
use crate::objective::{Algorithm, Credit, EntropyTerms, Recipe};
use crate::optim::AdamWConfig;
use crate::run::{Problem, group_jobs, rollout};
use crate::sample::Sample;
use crate::sequence::Sequence;
use crate::update::{Readings, Scored, loss, score};
use crate::workers::{KEPT_BYTES, Workers};
use burn::tensor::{Device, Tensor};
use forage_env::{Rollout, registry};
use serde_json::json;

fn update(learning_rate: f64) -> UpdateConfig {
    let optimizer = AdamWConfig {
        learning_rate,
        warmup_steps: 0,
        ..AdamWConfig::default()
    };
    UpdateConfig {
        optimizer,
        micro_batch_tokens: 300,
        ..UpdateConfig::default()
    }
}

async fn episodes(learner: &Learner, problem: &Problem, seed: u64) -> Vec<Episode> {
    let jobs = group_jobs(&problem.train[..3], 4, Seed::root(seed));
    rollout(learner, problem, Sampling::FULL).run(jobs).await
}

/// Four episodes each.
fn groups(episodes: &[Episode]) -> Vec<Vec<Sample>> {
    episodes
        .chunks(4)
        .map(|group| group.iter().filter_map(Sample::of).collect())
        .collect()
}

#[tokio::test]
async fn the_ratio_of_the_first_update_is_one() {
    let start = checkpoint(1);
    let problem = problem(&start, &[("random", 1.0)]);
    let mut learner = learner(start, update(1e-3));
    let episodes = episodes(&learner, &problem, 1).await;
    assert!(
        episodes.iter().any(|episode| episode.turns.len() > 1),
        "several turns, so that cached values are used"
    );
    let stats = learner.improve(groups(&episodes)).unwrap();
    assert!(stats.updates == 1 && stats.tokens > 100, "{stats:?}");
    assert!(stats.ratio_deviation_max < 1e-5, "{stats:?}");
    let again = learner.improve(groups(&episodes)).unwrap();
    assert!(
        again.ratio_deviation_max > 1e-4,
        "the second update sees changed weights: {again:?}"
    );
}

/// As the driver draws them, the engine uses them and the update computes at them: for the same jobs the same ones, one each.
#[tokio::test]
async fn the_ratio_is_one_at_temperatures_of_the_episodes_own() {
    let start = checkpoint(1);
    let problem = problem(&start, &[("random", 1.0)]);
    let update = UpdateConfig {
        temperature: [0.7, 1.15],
        ..update(1e-3)
    };
    let mut jobs = group_jobs(&problem.train[..3], 4, Seed::root(1));
    update.temper(&mut jobs);
    let drawn: Vec<f32> = jobs.iter().filter_map(|job| job.temperature).collect();
    assert!(drawn.len() == jobs.len() && drawn.iter().all(|at| (0.7..=1.15).contains(at)));
    assert!(drawn.iter().any(|&at| at < 0.85) && drawn.iter().any(|&at| at > 1.0));
    let mut again = group_jobs(&problem.train[..3], 4, Seed::root(1));
    update.temper(&mut again);
    assert!(
        again
            .iter()
            .map(|job| job.temperature.unwrap())
            .eq(drawn.iter().copied())
    );

    let mut learner = learner(start, update);
    let episodes = rollout(&learner, &problem, Sampling::FULL).run(jobs).await;
    for (episode, at) in episodes.iter().zip(&drawn) {
        let spans = episode.tokens.spans().iter();
        let said: Vec<f32> = spans
            .filter_map(|span| Some(span.sampling?.temperature))
            .collect();
        assert!(
            !said.is_empty() && said.iter().all(|said| said.to_bits() == at.to_bits()),
            "{said:?} {at}"
        );
    }
    let mut forgotten = groups(&episodes);
    for sample in forgotten.iter_mut().flatten() {
        let Sequence {
            targets,
            temperatures,
            ..
        } = &mut sample.sequence;
        assert_eq!(targets.len(), temperatures.len());
        temperatures.clear();
    }
    let stats = learner.improve(groups(&episodes)).unwrap();
    assert!(stats.updates == 1 && stats.tokens > 100, "{stats:?}");
    assert!(stats.ratio_deviation_max < 1e-5, "{stats:?}");
    let stats = learner.improve(forgotten).unwrap();
    assert!(stats.ratio_deviation_max > 0.1, "{stats:?}");
}

/// Old log-probabilities of the trainer's have the masks of the batch; how it is cut changes nothing.
#[tokio::test]
async fn with_dropout_the_ratio_to_the_trainers_own_is_one() {
    let start = |dropout: f64| {
        let mut start = checkpoint(1);
        let config = LoraConfig {
            rank: 4,
            alpha: 8.0,
            rank_stabilised: false,
            dropout,
            targets: Targets::AllLinear,
            base: "base".to_owned(),
        };
        start.adapt(config, Seed::root(2)).unwrap();
        start
    };
    let problem = problem(&start(0.0), &[("random", 1.0)]);
    let played = episodes(&learner(start(0.0), update(1e-2)), &problem, 1).await;
    let learned = |dropout, budget, seed| {
        let update = UpdateConfig {
            micro_batch_tokens: budget,
            ..update(1e-2)
        };
        let mut learner = learner(start(dropout), update);
        learner.set_seed(Seed::root(seed));
        // The second step is the first whose adapter changes anything.
        let steps = [(); 2].map(|()| learner.improve(groups(&played)).unwrap());
        (steps[1], adapter_of(&learner))
    };
    let (stats, whole) = learned(0.3, 10_000, 1);
    assert!(
        stats.approx_kl_old.abs() < 1e-6 && stats.mismatch > 1e-3,
        "{stats:?}"
    );
    let (_, cut) = learned(0.3, 100, 1);
    let most = whole
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    let apart = |other: &[f32]| {
        let pairs = whole.iter().zip(other);
        pairs.fold(0.0_f32, |most, (a, b)| most.max((a - b).abs())) / most
    };
    assert!(apart(&cut) < 1e-2, "{}", apart(&cut));
    let (_, other) = learned(0.3, 10_000, 2);
    let (_, none) = learned(0.0, 10_000, 1);
    assert!(
        apart(&other) > 5e-2 && apart(&none) > 5e-2,
        "{} {}",
        apart(&other),
        apart(&none)
    );
}

fn adapter_of(learner: &Learner) -> Vec<f32> {
    let mut decoder = learner.checkpoint().decoder;
    let maps = decoder.linears().into_iter();
    let low_ranks = maps.filter_map(|(_, map)| map.low_rank.as_ref());
    let parts = low_ranks.flat_map(|low_rank| [low_rank.a.val(), low_rank.b.val()]);
    let numbers = |part: Tensor<2>| part.into_data().try_into_vec::<f32>().unwrap();
    parts.flat_map(numbers).collect()
}

#[tokio::test]
async fn learning_rate_zero_changes_nothing() {
    let start = checkpoint(1);
    let problem = problem(&start, &[("random", 1.0)]);
    let mut learner = learner(start, update(0.0));
    let before = weights(&learner);
    for step in 0..3 {
        let episodes = episodes(&learner, &problem, step).await;
        assert_eq!(learner.improve(groups(&episodes)).unwrap().updates, 1);
    }
    assert_eq!(weights(&learner), before);
}

#[tokio::test]
async fn groups_without_variance_are_counted_and_change_nothing() {
    let start = checkpoint(1);
    let problem = problem(&start, &[("em", 1.0)]);
    let mut learner = learner(start, update(1e-3));
    let before = weights(&learner);
    let episodes = episodes(&learner, &problem, 0).await;
    let stats = learner.improve(groups(&episodes)).unwrap();
    assert_eq!(
        (
            stats.groups.groups,
            stats.groups.zero_variance,
            stats.updates
        ),
        (3, 3, 0)
    );
    assert_eq!(weights(&learner), before);
}

#[tokio::test]
async fn an_update_raises_what_was_rewarded_and_lowers_what_was_not() {
    let start = checkpoint(2);
    let problem = problem(&start, &[("random", 1.0)]);
    let mut learner = learner(start, update(1e-3));
    let rewarded = |episodes: &[Episode], learner: &Learner| -> f64 {
        let model = learner.checkpoint();
        let rope = crate::model::RopeTables::new(&model.config, 256, &Device::flex());
        let mean = |sign: bool| {
            let chosen = episodes
                .iter()
                .filter(|episode| (episode.reward().unwrap() > 0.5) == sign);
            let sequences: Vec<Sequence> = chosen
                .map(|episode| Sequence::from_log(&episode.tokens))
                .collect();
            let rows: Vec<&Sequence> = sequences.iter().collect();
            let scored = token_logprobs(&model.decoder, &model.config, &rope, &rows).unwrap();
            f64::from(scored.logprobs.mean().into_scalar::<f32>())
        };
        mean(true) - mean(false)
    };
    let jobs = group_jobs(&problem.train[..1], 8, Seed::root(4));
    let episodes = rollout(&learner, &problem, Sampling::FULL).run(jobs).await;
    let before = rewarded(&episodes, &learner);
    let group = episodes.iter().filter_map(Sample::of).collect();
    assert_eq!(learner.improve(vec![group]).unwrap().updates, 1);
    let after = rewarded(&episodes, &learner);
    assert!(after > before, "{before} -> {after}");
}

#[tokio::test]
async fn what_a_turn_earned_reaches_the_tokens_of_its_sample() {
    let start = checkpoint(1);
    let mut paid = settings();
    paid["gold_shown_reward"] = json!(0.5);
    paid["max_turn_tokens"] = json!(200);
    paid["max_episode_tokens"] = json!(2000);
    let problem = problem_of(&start, &[("em", 1.0)], paid);
    let tokenizer = Arc::new(start.tokenizer.clone());
    let play = async |policy: Arc<dyn Policy>| {
        let rollout = Rollout {
            policy,
            tokenizer: tokenizer.clone(),
            factory: Arc::clone(&problem.factory),
            rewards: Arc::clone(&problem.rewards),
            sampling: Sampling::FULL,
            presentation: problem.presentation.clone(),
        };
        rollout
            .run(group_jobs(&problem.train, 1, Seed::root(1)))
            .await
    };
    let oracle = registry::find("search-r1")
        .unwrap()
        .script(
            ScriptEntry::ORACLE,
            Cast::new(tokenizer.clone(), problem.train.iter().cloned())
                .in_style(OracleStyle::Terse),
        )
        .unwrap();
    let (found, guessed) = (
        play(oracle).await,
        play(Arc::new(Scripted::constant(
            tokenizer.clone(),
            "<answer>x</answer>",
        )))
        .await,
    );
    let mut searched = 0;
    for (found, guessed) in found.iter().zip(&guessed) {
        let mut group: Vec<Sample> = [found, guessed]
            .into_iter()
            .filter_map(Sample::of)
            .collect();
        assert_eq!(
            group[0].turn_rewards,
            found
                .turns
                .iter()
                .map(|turn| turn.reward)
                .collect::<Vec<_>>()
        );
        assert_eq!(group[1].turn_rewards, [0.0]);
        let Some(last) = group[0]
            .turn_rewards
            .iter()
            .position(|&reward| reward > 0.0)
        else {
            continue;
        };
        searched += 1;
        // The same score, so that nothing but the search tells them apart.
        for sample in &mut group {
            sample.reward = 0.0;
        }
        let outcome = serde_json::from_str::<Algorithm>("\"dr_grpo\"")
            .unwrap()
            .recipe(9);
        assert_eq!(
            score(vec![group.clone()], &outcome, &Readings::default(), &[])
                .1
                .zero_variance,
            1
        );
        let process = Recipe {
            credit: Credit::ProcessSupervision,
            ..outcome
        };
        let turns = group[0].turns.clone();
        let (scored, counts) = score(vec![group], &process, &Readings::default(), &[]);
        assert_eq!(counts.directed, 1);
        let before: usize = turns[..=last].iter().sum();
        let (earned, rest) = scored[0].advantages.split_at(before);
        assert!(
            earned.iter().all(|&advantage| advantage > 0.0)
                && rest.iter().all(|&advantage| advantage < 0.0)
        );
        assert!(
            scored[1]
                .advantages
                .iter()
                .all(|&advantage| advantage < 0.0)
        );
    }
    assert!(searched > 10, "{searched} of {} showed a gold", found.len());
}

/// Central differences along the gradient itself: d loss / d step = |gradient|.
#[test]
fn the_gradient_is_that_of_the_loss() {
    let model = tiny("tiny_qwen3", &Device::flex().autodiff());
    let sequence = Sequence {
        ids: vec![5, 9, 200, 31, 77, 8, 120],
        targets: vec![2, 3, 6],
        ..Sequence::default()
    };
    let of = |decoder: &Decoder| {
        token_logprobs(decoder, &model.config, &model.rope, &[&sequence])
            .unwrap()
            .scores()
    };
    let old = of(&model.decoder).logprobs;
    let row = Scored {
        group: 0,
        sampler: old.clone(),
        proximal: old,
        advantages: vec![1.5, -0.5, 1.5],
        weight: 1.0 / 3.0,
        sequence: sequence.clone(),
        ..Scored::default()
    };
    let recipe = Recipe {
        entropy: EntropyTerms {
            bonus: 0.05,
            ..EntropyTerms::default()
        },
        ..Algorithm::default().recipe(1)
    };
    let (gradients, _) = backward::gradients(
        &model.decoder,
        &model.config,
        &model.rope,
        &[&sequence],
        KEPT_BYTES,
        |scores| loss(&[&row], &recipe, scores, None),
    )
    .unwrap();
    let norm = gradients.global_norm();
    let moved = |step: f64| {
        loss(
            &[&row],
            &recipe,
            &of(&shift(&model.decoder, &gradients, step / norm)),
            None,
        )
        .1
        .loss
    };
    let step = 2e-3;
    let grad = (moved(step) - moved(-step)) / (2.0 * step);
    assert!(
        (grad - norm).abs() < 0.01 * norm,
        "grad {grad}, norm {norm}"
    );
}

/// The decoder moved by `scale` times the gradient.
fn shift(decoder: &Decoder, gradients: &NamedGrads, scale: f64) -> Decoder {
    use burn::module::{Module, ModuleMapper, Param};
    struct Shift<'a>(&'a NamedGrads, f64, Vec<String>);
    impl ModuleMapper for Shift<'_> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.2.push(name.to_owned());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.2.pop();
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let gradient = self.0.0[&self.2.join(".")].clone();
            let (id, value, mapper) = param.consume();
            let shape = value.shape();
            let value = value + gradient.reshape(shape) * self.1;
            Param::from_mapped_value(id, value, mapper)
        }
    }
    decoder
        .clone()
        .map(&mut Shift(gradients, scale, Vec::new()))
}

#[test]
fn masked_tokens_have_no_gradient() {
    let model = tiny("tiny_qwen2", &Device::flex());
    let gradient = |sequences: &[Sequence]| {
        let rows: Vec<&Sequence> = sequences.iter().collect();
        let grads = |scores: &Scores| ScoreGrads {
            logprobs: vec![1.0; scores.logprobs.len()],
            entropies: Vec::new(),
        };
        let (decoder, config, rope) = (&model.decoder, &model.config, &model.rope);
        let loss = |scores: &Scores| (grads(scores), ());
        let found = backward::gradients(decoder, config, rope, &rows, KEPT_BYTES, loss);
        found.unwrap().0
    };
    let bytes = |gradients: &NamedGrads| -> Vec<u32> {
        let flat = |tensor: &Tensor<1>| tensor.to_data().try_to_vec::<f32>().unwrap();
        gradients
            .0
            .values()
            .flat_map(flat)
            .map(f32::to_bits)
            .collect()
    };
    let first = Sequence {
        ids: vec![3, 14, 15, 92, 65],
        targets: vec![2, 3],
        ..Sequence::default()
    };
    let changed = Sequence {
        ids: vec![3, 14, 15, 92, 200],
        targets: vec![2, 3],
        ..Sequence::default()
    };
    assert_eq!(
        bytes(&gradient(std::slice::from_ref(&first))),
        bytes(&gradient(&[changed])),
        "a masked token that nothing trained follows leaves the gradient as it is, bit for bit"
    );
    let silent = Sequence {
        ids: vec![7, 7, 7, 7, 7],
        targets: vec![],
        ..Sequence::default()
    };
    let (alone, accompanied) = (
        gradient(std::slice::from_ref(&first)),
        gradient(&[first, silent]),
    );
    for (name, expected) in &alone.0 {
        let difference = (accompanied.0[name].clone() - expected.clone())
            .abs()
            .max()
            .into_scalar::<f32>();
        assert!(difference < 1e-5, "{name}: {difference}");
    }
}

/// Two turns of one episode, with neighbours or alone.
async fn two_turns(engine: &Engine, episode: u64, prompt: &[u32]) -> (Completion, Completion) {
    let request = |tokens: Vec<u32>, turn| GenerateRequest {
        episode,
        tokens,
        max_tokens: 24,
        ignore_eos: false,
        stop: vec!["</search>".to_owned()],
        sampling: Sampling::FULL,
        seed: Seed::root(episode).child("turn", &[turn]),
    };
    let first = engine.generate(request(prompt.to_vec(), 0)).await.unwrap();
    let mut tokens = [prompt, &first.tokens].concat();
    tokens.extend([17, 18, 19, 20, 21]);
    let second = engine.generate(request(tokens, 1)).await.unwrap();
    engine.release(episode);
    (first, second)
}

#[tokio::test]
async fn an_episode_does_not_depend_on_its_neighbours() {
    let start = checkpoint(5);
    let make = |config: EngineConfig| {
        let pool = Workers::new(2).kernel_pool();
        Arc::new(Engine::start(&start, config, pool))
    };
    let prompts: Vec<Vec<u32>> = (0..9)
        .map(|index| {
            start
                .tokenizer
                .encode(&"Who is the mentor of Talo Brenic?".repeat(1 + index % 4))
        })
        .collect();
    let crowd = make(ENGINE);
    let together = prompts.iter().enumerate().map(|(index, prompt)| {
        let (engine, prompt) = (Arc::clone(&crowd), prompt.clone());
        tokio::spawn(async move { two_turns(&engine, index as u64, &prompt).await })
    });
    let together: Vec<_> = together.collect();
    for (index, handle) in together.into_iter().enumerate() {
        let (first, second) = handle.await.unwrap();
        let alone = make(EngineConfig {
            sequences: 1,
            step_tokens: 7,
            ..ENGINE
        });
        let (lone_first, lone_second) = two_turns(&alone, index as u64, &prompts[index]).await;
        assert_eq!(
            (&first.tokens, &second.tokens),
            (&lone_first.tokens, &lone_second.tokens),
            "episode {index}"
        );
        let bits = |completion: &Completion| {
            completion
                .logprobs
                .iter()
                .map(|value| value.to_bits())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (bits(&first), bits(&second)),
            (bits(&lone_first), bits(&lone_second)),
            "episode {index}, bits"
        );
    }
}
