//! Every registered environment keeps the contract; scripted policies, and rewards work on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnKind,
};
use forage_contracts::policy::Policy;
use forage_contracts::scripted::{Cast, Haste, OracleStyle, ScriptEntry, Scripted};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, EnvEntry, Resources, Task};

use super::common::{factory, jobs, library, lines, resources, rollout, settings, task};
use async_trait::async_trait;
use forage_env::demonstrate::demonstrate;
use forage_env::registry::{self, ENVIRONMENTS, REWARDS, make};
use forage_env::reward::{RewardSet, RewardSetError};
use forage_env::{CheckFailure, CheckPlan, external, search_r1};

/// The environments but for the one that needs a server, which `external` puts through the same.
pub(super) fn of_this_process() -> impl Iterator<Item = &'static EnvEntry> {
    ENVIRONMENTS
        .iter()
        .filter(|entry| entry.id != external::ENTRY.id)
}

#[test]
fn a_prompt_that_does_not_ask_is_refused_where_settings_are_read() {
    for entry in of_this_process() {
        let resolve =
            |prompt: serde_json::Value| (entry.resolve)(serde_json::json!({ "prompt": prompt }));
        let error = resolve(serde_json::json!({"text": "Answer."})).expect_err(entry.id);
        assert!(format!("{error:?}").contains("NoQuestion"), "{error:?}");
        // A file that is not there is told with the other files of a config.
        let named = resolve(serde_json::json!({"path": "no-such.txt"})).expect(entry.id);
        assert_eq!((named.prompt, named.files.len()), (None, 1), "{}", entry.id);
    }
}

#[tokio::test]
async fn every_environment_keeps_the_contract() {
    for entry in of_this_process() {
        let fitting = REWARDS
            .iter()
            .filter(|reward| reward.always && reward.fits(entry.outcome));
        let weights = fitting
            .map(|reward| (reward.name.to_owned(), 1.0))
            .collect();
        let rewards = RewardSet::new(entry.outcome, &weights, Seed::root(0)).expect("registered");
        let factory = make(entry.id, serde_json::Value::Null, resources()).expect(entry.id);
        let plan = CheckPlan::of(entry);
        let all = plan
            .check(factory.as_ref(), &[task()], &rewards, Seed::root(0))
            .await;
        assert_eq!(all, Ok(()), "{}", entry.id);
        let mut rollout = rollout(lines(&[entry.probe]), Arc::clone(&factory));
        rollout.rewards = Arc::new(RewardSet::measure(entry.outcome));
        let probed = rollout.run(jobs(task(), 1)).await.remove(0);
        assert!(
            !matches!(probed.turns[0].kind, TurnKind::Invalid { .. }),
            "{}: {:?}",
            entry.id,
            probed.ending
        );
        let declared = |name: &str| {
            let known = entry.declares.iter().any(|metric| metric.name == name);
            assert!(known, "{} does not declare {name}", entry.id);
        };
        (entry.metrics)(&[&probed], &mut |name, _| declared(name));
        (entry.measures)(&probed, &mut |name, _| declared(name));
    }
}

#[test]
fn wrong_settings_are_refused() {
    let error = make(
        "search-r1",
        serde_json::json!({"max_turns": 4}),
        resources(),
    )
    .err()
    .expect("unknown key");
    assert!(
        std::error::Error::source(&error)
            .is_some_and(|cause| cause.to_string().contains("max_turns"))
    );
}

#[test]
fn an_environment_of_pages_says_when_there_are_none() {
    let resources = Resources::new(library(), Arc::new(ByteTokenizer));
    let error = make("code-search", serde_json::json!({}), resources)
        .err()
        .expect("no pages");
    assert!(
        error.to_string().contains("name a corpus of pages"),
        "{error}"
    );
}

#[test]
fn an_environment_of_queries_says_when_there_is_no_boolean_mode() {
    let resources = Resources::new(library(), Arc::new(ByteTokenizer));
    let error = make("query-writer", serde_json::json!({}), resources)
        .err()
        .expect("text only");
    assert!(error.to_string().contains("needs boolean mode"), "{error}");
}

/// Breaks every rule: ends both ways, never refuses a step.
struct Lawless(EnvSpec, u64);

#[async_trait]
impl Environment for Lawless {
    async fn reset(&mut self, _task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        self.1 += 1;
        Ok(Observation::default())
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let reward = if action.text == "x" {
            f32::NAN
        } else {
            self.1 as f32
        };
        Ok(Step {
            reward,
            ..Step::end(TurnKind::answer(""))
        })
    }

    fn spec(&self) -> &EnvSpec {
        &self.0
    }
}

struct LawlessFactory(EnvSpec);

impl EnvFactory for LawlessFactory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(Lawless(self.0.clone(), 0))
    }

    fn spec(&self) -> &EnvSpec {
        &self.0
    }
}

#[tokio::test]
async fn the_checker_finds_broken_rules() {
    let lawless: Arc<dyn EnvFactory> = Arc::new(LawlessFactory(
        factory(settings(), library()).spec().clone(),
    ));
    let failures = CheckPlan::of(registry::find("search-r1").expect("registered"))
        .check(
            lawless.as_ref(),
            &[task()],
            &RewardSet::exact_match(),
            Seed::root(0),
        )
        .await
        .expect_err("broken");
    let found = |failure: &CheckFailure| matches!(failure, CheckFailure::ResetKeeps { .. });
    assert!(failures.iter().any(found), "{failures:?}");
    let episode = rollout(lines(&["x"]), lawless)
        .run(jobs(task(), 1))
        .await
        .remove(0);
    assert!(episode.ending.is_infra() && episode.score.is_none());
}

async fn reward_of(policy: Arc<dyn Policy>, task: Task) -> (Option<f32>, Vec<String>) {
    let episode = rollout(policy, factory(settings(), library()))
        .run(jobs(task, 1))
        .await
        .remove(0);
    assert!(!episode.ending.is_infra(), "{:?}", episode.ending);
    (
        episode.reward(),
        episode.turns.into_iter().map(|turn| turn.policy).collect(),
    )
}

#[tokio::test]
async fn the_oracle_answers_from_what_it_reads() {
    let oracle = |task: &Task, style| {
        let cast = Cast::new(Arc::new(ByteTokenizer), [Arc::new(task.clone())]).in_style(style);
        search_r1::ENTRY
            .script(ScriptEntry::ORACLE, cast)
            .expect("an oracle")
    };
    let (reward, turns) = reward_of(oracle(&task(), OracleStyle::Plain), task()).await;
    assert_eq!(reward, Some(1.0));
    assert_eq!(
        turns[1],
        "<think>Ada Brandt. Next.</think><search>Ada Brandt born</search>"
    );
    assert_eq!(turns[2], "<think>It is Velm.</think><answer>Velm</answer>");
    let (_, turns) = reward_of(oracle(&task(), OracleStyle::Terse), task()).await;
    assert_eq!(
        turns,
        [
            "<search>mayor of Orlen</search>",
            "<search>Ada Brandt born</search>",
            "<answer>Velm</answer>"
        ]
    );

    let mut misled = task();
    misled.oracle[1].query = "river Tay".to_owned();
    misled.oracle[1].finding = "Nowhere".to_owned();
    misled.golds = vec!["Nowhere".to_owned()];
    let (reward, turns) = reward_of(oracle(&misled, OracleStyle::Terse), misled.clone()).await;
    assert_eq!(reward, Some(0.0));
    assert_eq!(turns[2], "<answer>Orlen</answer>");

    let mut unguided = task();
    unguided.oracle.clear();
    unguided.golds = vec!["Ada Brandt".to_owned()];
    assert_eq!(
        reward_of(oracle(&unguided, OracleStyle::Plain), unguided.clone())
            .await
            .0,
        Some(1.0)
    );
}

#[tokio::test]
async fn an_oracle_can_set_what_it_writes_apart_from_tags_and_answer_too_early() {
    let spaced = |haste| {
        let cast = Cast::new(Arc::new(ByteTokenizer), [Arc::new(task())])
            .in_style(OracleStyle::Spaced)
            .hasty(haste);
        let oracle = search_r1::ENTRY.script(ScriptEntry::ORACLE, cast);
        reward_of(oracle.expect("an oracle"), task())
    };
    let (reward, turns) = spaced(Haste::NONE).await;
    assert_eq!(reward, Some(1.0));
    assert_eq!(
        turns,
        [
            "<search> mayor of Orlen</search>",
            "<search> Ada Brandt born</search>",
            "<answer> Velm</answer>"
        ]
    );
    let early = Haste {
        early: 1.0,
        ..Haste::NONE
    };
    let (reward, turns) = spaced(early).await;
    assert_eq!(reward, Some(0.0));
    assert_eq!(
        turns,
        [
            "<search> mayor of Orlen</search>",
            "<answer> Ada Brandt</answer>"
        ]
    );
    let mut one_hop = task();
    one_hop.oracle.truncate(1);
    one_hop.golds = vec!["Ada Brandt".to_owned()];
    let cast = Cast::new(Arc::new(ByteTokenizer), [Arc::new(one_hop.clone())]).hasty(early);
    let oracle = search_r1::ENTRY.script(ScriptEntry::ORACLE, cast);
    let (reward, _) = reward_of(oracle.expect("an oracle"), one_hop).await;
    assert_eq!(reward, Some(1.0), "with one hop there is nothing to miss");
}

#[tokio::test]
async fn demonstrations_mark_what_the_oracle_wrote() {
    let rewards = Arc::new(RewardSet::exact_match());
    let tasks = [Arc::new(task())];
    let factory = factory(settings(), library());
    let tokenizer = Arc::new(ByteTokenizer);
    let episodes = demonstrate(
        &tasks,
        OracleStyle::Terse,
        Haste::NONE,
        factory,
        tokenizer,
        rewards,
        Seed::root(3),
    )
    .await
    .expect("an oracle");
    let written: usize = episodes[0].turns.iter().map(|turn| turn.policy.len()).sum();
    assert_eq!(
        episodes[0]
            .tokens
            .loss_mask()
            .into_iter()
            .filter(|&own| own)
            .count(),
        written
    );
}

#[tokio::test]
async fn controls_play() {
    let tokenizer = || Arc::new(ByteTokenizer);
    assert_eq!(
        reward_of(
            Arc::new(Scripted::constant(tokenizer(), "<answer>Velm</answer>")),
            task()
        )
        .await
        .0,
        Some(1.0)
    );
    let (_, turns) = reward_of(
        search_r1::ENTRY
            .script("search-title", Cast::new(tokenizer(), []))
            .expect("a script"),
        task(),
    )
    .await;
    assert_eq!(
        turns,
        [
            "<search>Where was the mayor of Orlen born?</search>",
            "<answer>Orlen</answer>"
        ]
    );
}

#[tokio::test]
async fn the_random_reward_is_a_fair_seeded_coin() {
    let weights = BTreeMap::from([("random".to_owned(), 2.0), ("em".to_owned(), 0.0)]);
    let mut totals = Vec::new();
    for seed in [1, 1, 2] {
        let rewards = Arc::new(
            RewardSet::new(Outcome::Answer, &weights, Seed::root(seed)).expect("registered"),
        );
        let policy = Arc::new(Scripted::constant(
            Arc::new(ByteTokenizer),
            "<answer>Velm</answer>",
        ));
        let mut rollout = rollout(policy, factory(settings(), library()));
        rollout.rewards = rewards;
        let episodes = rollout.run(jobs(task(), 400)).await;
        totals.push(
            episodes
                .iter()
                .map(|episode| episode.reward().expect("scored"))
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(totals[0], totals[1]);
    assert_ne!(totals[0], totals[2]);
    let heads = totals[0].iter().filter(|&&total| total > 1.0).count();
    assert!((160..=240).contains(&heads), "{heads}");
}

#[test]
fn unknown_rewards_name_the_nearest() {
    let weights = BTreeMap::from([("fromat".to_owned(), 1.0)]);
    let error = RewardSet::new(Outcome::Answer, &weights, Seed::root(0)).expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "unknown reward `fromat`; did you mean `format`?"
    );
    let weights = BTreeMap::from([("em".to_owned(), f32::NAN)]);
    let refused = RewardSet::new(Outcome::Answer, &weights, Seed::root(0));
    assert!(matches!(refused, Err(RewardSetError::NotFinite { .. })));
    for (outcome, name) in [(Outcome::Answer, "ndcg"), (Outcome::Ranking, "em")] {
        let weights = BTreeMap::from([(name.to_owned(), 1.0)]);
        let error = RewardSet::new(outcome, &weights, Seed::root(0))
            .expect_err("judges other episodes")
            .to_string();
        assert!(
            error.contains(&format!("reward `{name}` cannot judge")),
            "{error}"
        );
        RewardSet::new(outcome, &RewardSet::default_weights(outcome), Seed::root(0))
            .expect("the defaults fit");
    }
}
