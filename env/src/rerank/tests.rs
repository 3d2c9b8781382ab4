//! The environment over a real index: windows, what is read of turns, what scripts and careless policies earn.

mod reading;

use std::collections::{BTreeMap, BTreeSet};

use forage_contracts::policy::{Policy, Sampling};
use forage_contracts::retriever::{Fingerprint, RetrieverError};
use forage_contracts::scripted::{Cast, Haste, OracleStyle, ScriptEntry, Scripted};
use forage_contracts::{Boundary, ByteTokenizer, Ending, Episode, Passage};
use forage_retriever::Bm25Retriever;
use proptest::prelude::*;
use serde_json::json;

use super::form::Fault;
use super::*;
use crate::check::{CheckFailure, CheckPlan};
use crate::reward::RewardSet;
use crate::rollout::{Job, Presentation, Rollout};

/// Grades of passages, in the order in which BM25 finds them: the more often a passage says the word, the earlier.
const GRADES: [i32; 12] = [0, 1, 0, 0, 2, 0, 0, 1, 0, 0, 3, 0];

fn id(place: usize) -> String {
    format!("p{place:02}")
}

/// Passages that the question finds in the order of their ids.
fn index() -> Arc<dyn Retriever> {
    let passage = |place: usize| {
        let count = GRADES.len() - place;
        let text = ["tide ".repeat(count), "sand ".repeat(place)].concat();
        Passage::new(id(place), "", text)
    };
    let mut passages: Vec<Passage> = (0..GRADES.len()).map(passage).collect();
    passages.push(Passage::new("wind", "Wind", "The sun drives it."));
    Arc::new(Bm25Retriever::in_memory(passages).expect("an index"))
}

fn task() -> Task {
    let judged = (0..).zip(GRADES).map(|(place, grade)| (id(place), grade));
    Task {
        // One relevant passage is not found.
        qrels: judged.chain([("lost".to_owned(), 1)]).collect(),
        data_source: "sea".to_owned(),
        ..Task::new("t", "tide")
    }
}

fn settings(written: Value) -> RerankSettings {
    let Value::Object(written) = written else {
        panic!("settings are an object")
    };
    let settings = (ENTRY.for_bytes)(written);
    serde_json::from_value(Value::Object(settings)).expect("settings")
}

async fn play(policy: Arc<dyn Policy>, settings: RerankSettings, tasks: &[Task]) -> Vec<Episode> {
    let jobs = (0..).zip(tasks).map(|(group, task)| Job {
        task: Arc::new(task.clone()),
        group,
        member: 0,
        seed: Seed::root(3).child("job", &[group]),
        branches_from: None,
        hint: None,
        temperature: None,
    });
    Rollout {
        policy,
        tokenizer: Arc::new(ByteTokenizer),
        factory: Rerank::factory(settings, index()).expect("settings"),
        rewards: Arc::new(RewardSet::measure(Outcome::Ranking)),
        sampling: Sampling::FULL,
        presentation: Presentation::RAW,
    }
    .run(jobs.collect())
    .await
}

fn script(name: &str, haste: Haste) -> Arc<dyn Policy> {
    let cast = Cast::new(Arc::new(ByteTokenizer), [Arc::new(task())]);
    let cast = cast.in_style(OracleStyle::Terse).hasty(haste);
    ENTRY.script(name, cast).expect("a script")
}

fn writes(text: &str) -> Arc<dyn Policy> {
    let text = text.to_owned();
    Arc::new(Scripted::human(Arc::new(ByteTokenizer), move |_| {
        Some(text.clone())
    }))
}

async fn one(policy: Arc<dyn Policy>, written: Value) -> Episode {
    play(policy, settings(written), &[task()]).await.remove(0)
}

fn ranking(episode: &Episode) -> Vec<&str> {
    let ranking = episode.ranking().expect("a ranking");
    ranking.iter().map(String::as_str).collect()
}

fn part(episode: &Episode, name: &str) -> f32 {
    episode.score.as_ref().expect("scored").parts[name]
}

/// Grades of a ranking, best first.
fn grades(episode: &Episode) -> Vec<i32> {
    let task = task();
    let ids = ranking(episode).into_iter();
    ids.map(|id| task.qrels[id]).collect()
}

#[tokio::test]
async fn the_prompt_shows_what_the_first_stage_found() {
    let written =
        json!({"candidates": 2, "passage_words": 11, "show_ids": true, "prompt": "short"});
    let mut env = Rerank::factory(settings(written), index())
        .expect("settings")
        .make();
    let prompt = env
        .reset(&task(), Seed::root(0))
        .await
        .expect("judged")
        .text;
    let words = "tide ".repeat(11);
    let request = Form::Listwise.request();
    let expected = format!(
        "Passages:\n[1] (p00) {words}...\n[2] (p01) {words}...\n{request}\nQuestion: tide\n"
    );
    assert_eq!(prompt, expected);
    let plain = RerankSettings::default();
    let mut env = Rerank::factory(plain, index()).expect("settings").make();
    let prompt = env
        .reset(&task(), Seed::root(0))
        .await
        .expect("judged")
        .text;
    assert!(
        prompt.contains("[12] tide sand") && !prompt.contains("p01"),
        "{prompt}"
    );
    assert!(
        prompt.contains("<think>") && prompt.ends_with("Question: tide\n"),
        "{prompt}"
    );
}

/// What a perfect judge gets from each form follows from how windows move: a pass of picks brings one passage to its place, a
/// pass of orders as many as two windows share, and scores all that the scale can tell apart.
#[tokio::test]
async fn a_perfect_judge_ranks_as_well_as_its_form_allows() {
    let mut ideal = GRADES.to_vec();
    ideal.sort_unstable_by(|a, b| b.cmp(a));
    for (written, exact, turns) in [
        (json!({"form": "pointwise"}), 12, 12),
        (json!({"form": "groupwise", "window": 5}), 12, 3),
        (json!({}), 12, 1),
        (json!({"window": 6, "step": 3}), 3, 3),
        (json!({"window": 6, "step": 3, "passes": 2}), 6, 6),
        (json!({"form": "setwise", "window": 12}), 1, 1),
        (json!({"form": "setwise", "window": 5}), 1, 3),
        (json!({"form": "setwise", "window": 5, "passes": 4}), 4, 11),
        (json!({"form": "pairwise", "passes": 3}), 3, 30),
    ] {
        let episode = one(script(ScriptEntry::ORACLE, Haste::NONE), written.clone()).await;
        assert_eq!(episode.ending, Ending::Answered, "{written}");
        assert_eq!(episode.turns.len(), turns, "{written}");
        assert_eq!(grades(&episode)[..exact], ideal[..exact], "{written}");
        let distinct: BTreeSet<&str> = ranking(&episode).into_iter().collect();
        assert_eq!(distinct.len(), 12, "{written}");
        assert!((part(&episode, "syntax") - 1.0).abs() < 1e-6 && part(&episode, "mrr") > 0.9);
        assert!(
            (part(&episode, "recall") - 0.8).abs() < 1e-6,
            "one passage is not found"
        );
        assert!(part(&episode, "gain") > 0.1, "{written}");
        let gained = part(&episode, "ndcg") - part(&episode, "gain");
        let first = one(script("first-stage", Haste::NONE), written.clone()).await;
        assert!((gained - part(&first, "ndcg")).abs() < 1e-6, "{written}");
        assert!(
            part(&first, "gain").abs() < 1e-6 && ranking(&first).is_sorted(),
            "{written}"
        );
    }
}

#[tokio::test]
async fn ties_and_passages_without_a_score_keep_their_order() {
    let written = json!({"form": "groupwise", "candidates": 5, "window": 5});
    let episode = one(writes("<answer>[4] 5, [2] 5, [5] 9</answer>"), written).await;
    assert_eq!(ranking(&episode), ["p04", "p01", "p03", "p00", "p02"]);
    let call = episode.calls().next().expect("a call");
    assert_eq!(call.arguments["scores"], json!([null, 5.0, null, 5.0, 9.0]));
    assert_eq!(call.payload["repairs"], json!(["missing", "missing"]));
}

#[tokio::test]
async fn rewards_of_published_rerankers_read_what_is_recorded() {
    let paid = async |episode: &Episode, name: &str| {
        let weights = BTreeMap::from([(name.to_owned(), 1.0)]);
        let rewards = RewardSet::new(Outcome::Ranking, &weights, Seed::root(0)).expect("usable");
        let score = rewards.score(&episode.task, episode).await;
        score.map(|score| score.parts[name])
    };
    let near = |found: f32, expected: f64| (f64::from(found) - expected).abs() < 1e-6;
    let scored = json!({"form": "groupwise", "candidates": 3, "window": 2});
    // Grades 0, 1 and 0 of 3 at most; both turns say the same, and the second has one passage.
    let episode = one(writes("<answer>[1] 0, [2] 10</answer>"), scored.clone()).await;
    assert_eq!(ranking(&episode), ["p01", "p00", "p02"]);
    let found = paid(&episode, "score_distribution").await.expect("scored");
    assert!(near(found, 1.0 - (20.0 / 3.0) / 30.0), "{found}");
    // p10, p04, p01, two that are not found: the overlap of five depths.
    let found = paid(&episode, "rbo").await.expect("scored");
    assert!(
        near(found, (1.0 / 3.0 + 1.0 / 4.0 + 1.0 / 5.0) / 5.0),
        "{found}"
    );
    let silent = one(writes(""), scored).await;
    let found = paid(&silent, "score_distribution").await.expect("scored");
    assert!(near(found, 0.0), "{found}");
    let setwise = json!({"form": "setwise", "candidates": 5, "window": 5});
    for (text, expected) in [
        ("<answer>[5]</answer>", 1.0),
        ("<answer>[2]</answer>", 0.0),
        ("<answer>[5], [2]</answer>", 0.0),
        ("[5]", 0.0),
    ] {
        let episode = one(writes(text), setwise.clone()).await;
        let found = paid(&episode, "right_pick").await.expect("scored");
        assert!(near(found, expected), "{text}: {found}");
    }
    // Without scores the reward is wrong here, which is not the policy's doing; a config with it is refused.
    let unscored = one(writes("<answer>[5]</answer>"), setwise).await;
    let error = paid(&unscored, "score_distribution")
        .await
        .expect_err("a fault");
    assert!(error.to_string().contains("groupwise"), "{error}");
    for form in Form::ALL {
        let refused = |reward: &str| (ENTRY.refuses)(reward, &json!({"form": form})).is_some();
        assert_eq!(refused("score_distribution"), !form.is_scored(), "{form:?}");
        assert!(!refused("rbo"), "{form:?}");
    }
}

#[tokio::test]
async fn what_is_written_badly_is_a_ranking_if_it_names_a_passage() {
    for form in Form::ALL {
        let written = json!({"form": form, "candidates": 6, "window": if form == Form::Setwise { 3 } else { 6 }});
        let first = one(script("first-stage", Haste::NONE), written.clone()).await;
        for text in [
            "",
            "the second",
            "<answer>",
            "<answer>x</answer>",
            "</answer>",
            "<answer>11 > [1] 12, [1]</answer>",
        ] {
            let episode = one(writes(text), written.clone()).await;
            let named = text.contains("[1]");
            assert_eq!(episode.ending, Ending::Answered, "{form:?} {text}");
            let kept = if named { ranking(&first) } else { Vec::new() };
            assert_eq!(ranking(&episode), kept, "{form:?} {text}");
            assert!(part(&episode, "syntax").abs() < 1e-6, "{form:?} {text}");
            assert_eq!(part(&episode, "ndcg") > 0.0, named, "{form:?} {text}");
            assert!(part(&episode, "gain").abs() < 1e-6, "{form:?} {text}");
        }
    }
}

#[tokio::test]
async fn metrics_say_what_was_mended() {
    let written = json!({"form": "setwise", "candidates": 5, "window": 3});
    let mut episodes = Vec::new();
    for text in [
        "<answer>[1]</answer>",
        "none",
        "<answer>[2], [1], [x]</answer>",
    ] {
        episodes.push(one(writes(text), written.clone()).await);
    }
    let scores = json!({"form": "groupwise", "candidates": 4, "window": 2});
    episodes.push(one(writes("<answer>[1] 70</answer>"), scores).await);
    let mut row = BTreeMap::new();
    describe(&episodes, &mut row);
    // Two turns each. The second passage of every window is picked once.
    for (name, expected) in [
        ("sound_frac", 2.0 / 8.0),
        ("unanswered_frac", 2.0 / 8.0),
        ("extra_mean", 2.0 / 8.0),
        ("unknown_mean", 2.0 / 8.0),
        ("missing_mean", 2.0 / 8.0),
        ("out_of_range_mean", 2.0 / 8.0),
        // The first, not the third; of the scored one the first of each pair comes before the second. The second has no ranking.
        ("kept_frac", 1.0 / 3.0),
    ] {
        let found = row[&format!("rank/{name}")];
        assert!(
            (found - expected).abs() < 1e-12,
            "{name}: {found} is not {expected}"
        );
    }
    let declared = turn::DECLARED.iter().map(|metric| metric.name);
    let declared: BTreeSet<&str> = declared.filter(|name| name.contains('/')).collect();
    assert_eq!(
        row.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        declared
    );
    let mut measures = BTreeMap::new();
    turn::measures(&episodes[3], &mut |name, value| {
        measures.insert(name, value);
    });
    assert_eq!(
        measures,
        BTreeMap::from([("rank_repairs", 4.0), ("rank_kept", 0.0)])
    );
    let answered = Episode::new(task());
    describe(&[answered], &mut row);
    assert_eq!(row.len(), declared.len());
}

fn describe(episodes: &[Episode], row: &mut BTreeMap<String, f64>) {
    let episodes: Vec<&Episode> = episodes.iter().collect();
    turn::describe(&episodes, &mut |name, value| {
        row.insert(name.to_owned(), value);
    });
}

#[tokio::test]
async fn hasty_oracles_show_each_way_to_fail() {
    let all = |name: &str| -> Haste { serde_json::from_value(json!({name: 1.0})).expect("haste") };
    for form in Form::ALL {
        let written = json!({"form": form, "candidates": 8, "window": 4});
        let sound = async |haste| {
            let episode = one(script(ScriptEntry::ORACLE, haste), written.clone()).await;
            assert_eq!(episode.ending, Ending::Answered, "{form:?}");
            part(&episode, "syntax") > 0.5
        };
        assert!(
            sound(Haste::NONE).await && sound(all("guess")).await,
            "{form:?}"
        );
        let best_alone = !matches!(form, Form::Listwise | Form::Groupwise);
        assert_eq!(sound(all("skim")).await, best_alone, "{form:?}");
        assert!(
            !sound(all("silent")).await && !sound(all("broken")).await,
            "{form:?}"
        );
    }
}

#[tokio::test]
async fn random_rankings_follow_from_the_seed() {
    let tasks = vec![task(); 40];
    let sampled = play(script("random", Haste::NONE), settings(json!({})), &tasks).await;
    let again = play(script("random", Haste::NONE), settings(json!({})), &tasks).await;
    let rankings = |episodes: &[Episode]| -> Vec<Vec<String>> {
        episodes
            .iter()
            .map(|episode| episode.ranking().expect("a ranking").to_vec())
            .collect()
    };
    assert_eq!(rankings(&sampled), rankings(&again));
    let first: BTreeSet<String> = rankings(&sampled)
        .into_iter()
        .map(|ids| ids[0].clone())
        .collect();
    assert!(first.len() > 6, "{first:?}");
    let oracle = one(script(ScriptEntry::ORACLE, Haste::NONE), json!({})).await;
    let mean = sampled
        .iter()
        .map(|episode| part(episode, "ndcg"))
        .sum::<f32>()
        / 40.0;
    assert!(mean < 0.8 * part(&oracle, "ndcg"), "{mean}");
}

#[tokio::test]
async fn the_contract_is_kept_in_every_form() {
    for form in Form::ALL {
        // Two turns, so that the checker's second one ends the episode.
        let candidates = if form == Form::Pointwise { 2 } else { 3 };
        let step = (form == Form::Listwise).then_some(1);
        let settings = RerankSettings {
            form,
            candidates,
            window: 2,
            step,
            ..settings(json!({}))
        };
        let factory = Rerank::factory(settings, index()).expect("settings");
        let rewards = RewardSet::measure(Outcome::Ranking);
        let plan = CheckPlan::of(&ENTRY);
        let tasks = [task()];
        let checked = plan.check(factory.as_ref(), &tasks, &rewards, Seed::root(1));
        let failures = checked.await.err().unwrap_or_default();
        // The entry's gold names passages and gives no scores; of one passage alone, the number in its name is read as its score.
        let scores = |failure: &CheckFailure| matches!(failure, CheckFailure::Scores { .. });
        let expected = failures.len() == usize::from(form == Form::Groupwise);
        assert!(
            expected && failures.iter().all(scores),
            "{form:?}: {failures:?}"
        );
    }
}

/// A server that is down, or knows nothing.
struct Bare {
    is_down: bool,
}

#[async_trait]
impl Retriever for Bare {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint("bare".to_owned())
    }

    async fn search(&self, queries: &[Query], _k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if self.is_down {
            return Err(RetrieverError::Stopped);
        }
        Ok(vec![Vec::new(); queries.len()])
    }
}

#[tokio::test]
async fn a_failed_search_is_a_fault_and_an_empty_one_an_empty_ranking() {
    for (is_down, form) in [true, false]
        .into_iter()
        .flat_map(|down| Form::ALL.map(|form| (down, form)))
    {
        let policy = script(ScriptEntry::ORACLE, Haste::NONE);
        let rollout = Rollout {
            policy,
            tokenizer: Arc::new(ByteTokenizer),
            factory: Rerank::factory(settings(json!({"form": form})), Arc::new(Bare { is_down }))
                .expect("settings"),
            rewards: Arc::new(RewardSet::measure(Outcome::Ranking)),
            sampling: Sampling::FULL,
            presentation: Presentation::RAW,
        };
        let job = Job::alone(Arc::new(task()), Seed::root(1));
        let episode = rollout.run(vec![job]).await.remove(0);
        if is_down {
            let retriever = |ending: &Ending| {
                matches!(
                    ending,
                    Ending::Infra {
                        boundary: Boundary::Retriever,
                        ..
                    }
                )
            };
            assert!(
                retriever(&episode.ending) && episode.score.is_none(),
                "{:?}",
                episode.ending
            );
        } else {
            assert_eq!(
                (ranking(&episode).len(), episode.reward()),
                (0, Some(0.0)),
                "{form:?}"
            );
        }
    }
    let unjudged = Task::new("u", "tide");
    let mut env = Rerank::factory(settings(json!({})), index())
        .expect("settings")
        .make();
    let error = env
        .reset(&unjudged, Seed::root(0))
        .await
        .expect_err("no judgment");
    assert!(error.to_string().contains("no judged passage"), "{error}");
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    for (written, words) in [
        (json!({"candidates": 0}), "`candidates` is 0"),
        (json!({"step": 0}), "`step` is 0"),
        (json!({"window": 1}), "form = \"pointwise\""),
        (json!({"form": "pairwise", "step": 1}), "leave `step` out"),
        (
            json!({"form": "setwise", "window": 4, "step": 4}),
            "not below `window`",
        ),
        (json!({"window": 4, "step": 5}), "never be shown"),
        (json!({"form": "groupwise", "passes": 2}), "scored once"),
    ] {
        let error = settings(written.clone())
            .check()
            .expect_err("refused")
            .to_string();
        assert!(error.contains(words), "{written}: {error}");
    }
    for (text, words) in [("{question}", "{passages}"), ("{passages}", "{question}")] {
        let prompt = settings::RerankPrompt::Text(text.to_owned());
        let error = prompt.read().expect_err("incomplete").to_string();
        assert!(error.contains(words), "{error}");
    }
    for form in Form::ALL {
        let written = json!({"form": form, "window": 2});
        settings(written)
            .check()
            .expect("the defaults fit every form");
    }
}
