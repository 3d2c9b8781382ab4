//! Episodes that begin with turns that another wrote.

use std::sync::Arc;

use forage_contracts::{Boundary, Ending, Episode, Provenance};

use super::common::{factory, jobs, library, lines, rollout, settings, task};
use forage_env::reward::RewardSet;
use forage_env::rollout::{Job, replay};

/// An episode of three turns, the last of which answers.
async fn shown() -> Arc<Episode> {
    let turns = [
        "<think>First the mayor.</think><search>mayor of Orlen</search>",
        "<search>Ada Brandt born</search>",
        "<answer>Velm</answer>",
    ];
    let played = rollout(lines(&turns), factory(settings(), library()));
    let mut episodes = played.run(jobs(task(), 1)).await;
    assert_eq!(episodes[0].turns.len(), 3);
    Arc::new(episodes.remove(0))
}

/// Episodes that begin with none, one, ... of the turns of `shown`, and then answer.
async fn hinted(shown: &Arc<Episode>, count: u64) -> Vec<Episode> {
    let job = |(turns, job): (usize, Job)| Job {
        hint: Some((Arc::clone(shown), turns)),
        ..job
    };
    let jobs = jobs(task(), count + 1).into_iter().skip(1);
    let policy = lines(&["<answer>Velm</answer>"]);
    rollout(policy, factory(settings(), library()))
        .run(jobs.enumerate().map(job).collect())
        .await
}

#[tokio::test]
async fn a_hint_is_read_and_not_learned() {
    let shown = shown().await;
    let policy = |episode: &Episode| {
        let spans = episode.tokens.spans().iter();
        let written = spans.filter(|span| span.provenance == Provenance::Policy);
        written.map(|span| span.start).collect::<Vec<_>>()
    };
    let starts = policy(&shown);
    for (turns, episode) in hinted(&shown, 3).await.iter().enumerate() {
        assert_eq!((episode.hinted, episode.turns.len()), (turns, turns + 1));
        assert_eq!(episode.turns[..turns], shown.turns[..turns]);
        assert_eq!(episode.ending, Ending::Answered);
        assert_eq!(episode.reward(), Some(1.0));
        // The policy wrote the one turn that follows what both have in common.
        assert_eq!(policy(episode), [starts[turns]]);
        let common = ..starts[turns];
        assert_eq!(episode.tokens.ids()[common], shown.tokens.ids()[common]);
        assert!(!episode.tokens.loss_mask()[common].contains(&true));
        let forced = episode.tokens.count(Provenance::Forced);
        let written: usize = shown.turns[..turns]
            .iter()
            .map(|turn| turn.policy.len())
            .sum();
        assert!(forced >= written, "a token per byte, and ends of turns");
        assert_eq!(episode.seed == shown.seed, turns > 0);
        // Its record plays again like any other.
        let (factory, rewards) = (factory(settings(), library()), RewardSet::exact_match());
        let (_, differences) = replay(factory.as_ref(), &rewards, episode).await.unwrap();
        assert!(differences.is_empty(), "{differences:?}");
        let written = serde_json::to_string(episode).unwrap();
        assert_eq!(serde_json::from_str::<Episode>(&written).unwrap(), *episode);
    }
}

#[tokio::test]
async fn a_hint_that_leaves_nothing_to_write_is_a_fault_of_whoever_gave_it() {
    let shown = shown().await;
    let episode = hinted(&shown, 4).await.remove(3);
    let Ending::Infra { boundary, message } = episode.ending else {
        panic!("{:?}", episode.ending);
    };
    assert_eq!(boundary, Boundary::Policy);
    assert!(message.contains("leaves a turn to write"), "{message}");
}
