//! Credit by information gain: what a turn told of the gold answer is paid to it.

use std::sync::Arc;

use forage_contracts::objective::GroupOutcome;
use forage_contracts::policy::Sampling;
use forage_contracts::scripted::{Cast, OracleStyle, ScriptEntry};
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Tokenizer, Treatment};
use forage_env::{Rollout, registry};
use serde_json::json;

use super::common::problem::{ENGINE, checkpoint, problem_of, settings};
use crate::generate::EngineConfig;
use crate::learner::{Learner, UpdateConfig};
use crate::logprobs::token_logprobs;
use crate::lora::{self, LoraConfig, Targets};
use crate::model::RopeTables;
use crate::run::{Problem, group_jobs};
use crate::sample::Sample;
use crate::sequence::Sequence;
use crate::weights::Checkpoint;
use crate::workers::Workers;

/// Episodes of the oracle over the questions of `problem`.
async fn shown(problem: &Problem, tokenizer: Arc<dyn Tokenizer>) -> Vec<Episode> {
    let cast = Cast::new(Arc::clone(&tokenizer), problem.train.iter().cloned());
    let policy = registry::find("search-r1")
        .unwrap()
        .script(ScriptEntry::ORACLE, cast.in_style(OracleStyle::Terse))
        .unwrap();
    let rollout = Rollout {
        policy,
        tokenizer,
        factory: Arc::clone(&problem.factory),
        rewards: Arc::clone(&problem.rewards),
        sampling: Sampling::FULL,
        presentation: problem.presentation.clone(),
    };
    let jobs = group_jobs(&problem.train[..4], 1, Seed::root(1));
    rollout.run(jobs).await
}

/// Episodes of the oracle, and who learns from them by information gain, from `start` on.
async fn taught(start: Checkpoint) -> (Vec<Episode>, Learner) {
    let mut long = settings();
    long["max_turn_tokens"] = json!(200);
    long["max_episode_tokens"] = json!(2000);
    let problem = problem_of(&start, &[("em", 1.0)], long);
    let episodes = shown(&problem, Arc::new(start.tokenizer.clone())).await;
    let objective = json!({"algorithm": "grpo", "credit": {"information_gain": {"gamma": 1.0}}});
    let update = UpdateConfig {
        answer_lead: Some("<answer> ".to_owned()),
        objective: serde_json::from_value(objective).unwrap(),
        ..UpdateConfig::default()
    };
    // Demonstrations are longer than what the tiny engine holds.
    let engine = EngineConfig {
        context: 2048,
        cache_tokens: 4096,
        ..ENGINE
    };
    let learner = Learner::new(start, update, engine, Workers::new(2));
    (episodes, learner)
}

#[tokio::test]
async fn a_turn_is_paid_what_it_told_of_the_gold_answer() {
    let start = checkpoint(1);
    let tokenizer: Arc<dyn Tokenizer> = Arc::new(start.tokenizer.clone());
    let (episodes, learner) = taught(start).await;
    let plain: Vec<Sample> = episodes.iter().filter_map(Sample::of).collect();
    let mut groups = vec![plain.clone()];
    learner.prepare(&mut groups).unwrap();
    let weights = learner.checkpoint();
    let lead = tokenizer.encode("<answer>");
    let belief = |sample: &Sample, read: usize| {
        let gold = tokenizer.encode(&format!(" {}", sample.gold));
        let ids = [&sample.sequence.ids[..read], &lead[..], &gold[..]].concat();
        let asked = Sequence {
            targets: (ids.len() - gold.len()..ids.len()).collect(),
            ids,
            ..Sequence::default()
        };
        let rope = RopeTables::new(&weights.config, asked.ids.len(), &weights.decoder.device());
        let found = token_logprobs(&weights.decoder, &weights.config, &rope, &[&asked]);
        let logprobs = found.unwrap().scores().logprobs;
        (logprobs.iter().sum::<f32>() / logprobs.len() as f32).exp()
    };
    let mut searched = 0;
    for (paid, before) in groups[0].iter().zip(&plain) {
        let turns = paid.turns.len();
        assert!(turns > 0 && paid.turn_rewards[turns - 1].abs() == 0.0);
        let mut first = 0;
        let mut starts = Vec::new();
        for tokens in &before.turns {
            starts.push(before.sequence.targets[first]);
            first += tokens;
        }
        for (turn, pair) in starts.windows(2).enumerate() {
            let gain = belief(before, pair[1]) - belief(before, pair[0]);
            let found = paid.turn_rewards[turn];
            assert!((found - gain).abs() < 1e-5, "{found} is not {gain}");
            searched += usize::from(gain.abs() > 0.0);
        }
    }
    assert!(searched > 0, "no turn told anything");
    // Whoever asks for advantages is given those of turns that were paid.
    let (scored, ..) = learner.advantages(vec![plain]).unwrap();
    let members: Vec<_> = groups[0].iter().map(Sample::member).collect();
    let found = learner.recipe.advantages(&[members]).remove(0);
    let GroupOutcome::Learn(expected) = found else {
        panic!("the group has no direction")
    };
    for (scored, expected) in scored.iter().zip(expected) {
        assert_eq!(scored.advantages, expected);
    }
    let mut zeroed = episodes;
    for episode in &mut zeroed {
        episode.tokens.treat(Treatment::Zero);
    }
    let zeroed: Vec<Sample> = zeroed.iter().filter_map(Sample::of).collect();
    let mut groups = vec![zeroed];
    learner.prepare(&mut groups).unwrap();
    for sample in &groups[0] {
        let is_nothing = |reward: &f32| reward.abs() == 0.0;
        assert!(sample.turn_rewards.iter().all(is_nothing), "{sample:?}");
    }
}

#[tokio::test]
async fn what_a_turn_told_is_asked_without_dropout() {
    let mut start = checkpoint(1);
    let adapter = LoraConfig {
        rank: 2,
        alpha: 4.0,
        rank_stabilised: false,
        dropout: 0.5,
        targets: Targets::AllLinear,
        base: "base".to_owned(),
    };
    start.adapt(adapter, Seed::root(2)).unwrap();
    lora::shift(&mut start.decoder, 0.1);
    let (episodes, mut learner) = taught(start).await;
    let paid = |learner: &Learner| -> Vec<Vec<f32>> {
        let mut groups: Vec<Vec<Sample>> = vec![episodes.iter().filter_map(Sample::of).collect()];
        learner.prepare(&mut groups).unwrap();
        let samples = groups.remove(0).into_iter();
        samples.map(|sample| sample.turn_rewards).collect()
    };
    let without = paid(&learner);
    assert!(learner.draw_masks());
    assert_eq!(paid(&learner), without);
}
