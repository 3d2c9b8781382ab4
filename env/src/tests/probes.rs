//! Scripted policies on a generated world, plain and under probes: what is known to rest on passages falls without them.

use std::collections::BTreeSet;
use std::sync::Arc;

use forage_contracts::environment::{Action, EnvFactory};
use forage_contracts::policy::Policy;
use forage_contracts::retriever::{Query, Retriever};
use forage_contracts::scripted::{Cast, ScriptEntry, Scripted};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Episode, Passage, Resources, Split, Task};

use super::common::rollout;
use forage_env::Wiki;
use forage_env::probe::{PassageProbe, Probe, ProbeError};
use forage_env::registry::{find, make};
use forage_env::reward::grading::exact_match;
use forage_env::rollout::Job;
use forage_env::world::{World, WorldSpec};
use forage_retriever::Bm25Retriever;
use serde_json::{Map, Value, json};

const QUESTIONS: u64 = 40;

/// A world, its questions and what environments over it stand on.
struct Stage {
    tasks: Vec<Arc<Task>>,
    resources: Resources,
}

impl Stage {
    fn new() -> Self {
        let world = World::new(WorldSpec::new(300, 5)).unwrap();
        let tasks = world
            .questions(Split::Test, QUESTIONS)
            .unwrap()
            .map(Arc::new)
            .collect();
        let retriever = Arc::new(Bm25Retriever::in_memory(world.passages().collect()).unwrap());
        let wiki = Arc::new(Wiki::of_world(&world).unwrap());
        Self {
            tasks,
            resources: Resources::new(retriever, Arc::new(ByteTokenizer)).with_open_wiki(wiki),
        }
    }

    fn probe(&self, probe: Probe) -> Result<Arc<PassageProbe>, ProbeError> {
        Ok(Arc::new(
            PassageProbe::new(probe, &self.tasks, Seed::root(1))?.expect("a probe of passages"),
        ))
    }

    fn under(
        &self,
        probe: Probe,
        id: &str,
        settings: Value,
    ) -> Result<Arc<dyn EnvFactory>, ProbeError> {
        self.probe(probe)?
            .factory(id, settings, self.resources.clone())
    }

    fn oracle(&self, id: &str) -> Arc<dyn Policy> {
        let cast = Cast::new(Arc::new(ByteTokenizer), self.tasks.iter().cloned());
        find(id).unwrap().script(ScriptEntry::ORACLE, cast).unwrap()
    }

    async fn play(&self, policy: Arc<dyn Policy>, factory: Arc<dyn EnvFactory>) -> Vec<Episode> {
        let job = |(group, task): (u64, &Arc<Task>)| Job {
            task: Arc::clone(task),
            group,
            member: 0,
            seed: Seed::root(2).child("job", &[group]),
            branches_from: None,
            hint: None,
            temperature: None,
        };
        let episodes = rollout(policy, factory)
            .run((0..).zip(&self.tasks).map(job).collect())
            .await;
        assert!(
            episodes.iter().all(|episode| !episode.ending.is_infra()),
            "{:?}",
            episodes[0].ending
        );
        episodes
    }
}

/// Believes the first title it is shown.
fn search_title() -> Arc<dyn Policy> {
    find("search-r1")
        .unwrap()
        .script("search-title", Cast::new(Arc::new(ByteTokenizer), []))
        .unwrap()
}

/// Settings with room for a token per byte.
fn settings(id: &str, written: Value) -> Value {
    let Value::Object(written) = written else {
        panic!("settings are a table")
    };
    Value::Object((find(id).unwrap().for_bytes)(written))
}

/// With turns enough for four hops and the answer.
fn search_r1() -> Value {
    let mut settings = settings("search-r1", Value::Object(Map::new()));
    settings["max_generations"] = json!(6);
    settings
}

fn right(episodes: &[Episode]) -> f64 {
    episodes
        .iter()
        .filter_map(Episode::reward)
        .map(f64::from)
        .sum::<f64>()
        / episodes.len() as f64
}

fn shown(episode: &Episode) -> Vec<&str> {
    let shown = episode.calls().flat_map(|call| &call.shown);
    shown.map(String::as_str).collect()
}

#[tokio::test]
async fn the_oracle_falls_without_its_passages() {
    let stage = Stage::new();
    let oracle = stage.oracle("search-r1");
    let plain = make("search-r1", search_r1(), stage.resources.clone()).unwrap();
    let plain = right(&stage.play(Arc::clone(&oracle), plain).await);
    assert!(plain > 0.9, "{plain}");
    for probe in [
        Probe::NoSearch,
        Probe::ShuffledPassages,
        Probe::MissingPassages,
    ] {
        let factory = stage.under(probe, "search-r1", search_r1()).unwrap();
        let episodes = stage.play(Arc::clone(&oracle), factory).await;
        assert!(right(&episodes) < 0.2, "{probe:?}: {}", right(&episodes));
        for episode in &episodes {
            let evidence = &episode.task.evidence;
            assert!(
                !shown(episode)
                    .iter()
                    .any(|id| evidence.iter().any(|gold| gold == id)),
                "{probe:?}"
            );
            assert_eq!(
                shown(episode).is_empty(),
                probe == Probe::NoSearch,
                "{probe:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_poisoned_passage_earns_nothing_and_is_marked() {
    let stage = Stage::new();
    // One that believes the first title it is shown, one that knows better, one that does not read.
    let believer = search_title();
    let constant: Arc<dyn Policy> = Arc::new(Scripted::constant(
        Arc::new(ByteTokenizer),
        "<answer>nothing of the kind</answer>",
    ));
    for (policy, expected) in [
        (believer, 0.0),
        (stage.oracle("search-r1"), 0.9),
        (constant, 0.0),
    ] {
        let factory = stage
            .under(Probe::PoisonedPassages, "search-r1", search_r1())
            .unwrap();
        let episodes = stage.play(policy, factory).await;
        let right = right(&episodes);
        assert!(
            right >= expected && (expected > 0.0 || right.abs() < 1e-9),
            "{expected}: {right}"
        );
        for episode in episodes.iter().filter(|episode| episode.searches() > 0) {
            let poison = shown(episode)
                .into_iter()
                .find_map(PassageProbe::asserted)
                .expect("the first hit is poisoned");
            assert!(!exact_match(poison, &episode.task.golds), "{poison}");
            assert!(
                episode.turns[0]
                    .observation
                    .contains(&format!("<answer>{poison}</answer>"))
            );
        }
    }
}

#[tokio::test]
async fn programs_search_probed_passages() {
    let stage = Stage::new();
    let passages = settings("code-search", json!({"functions": {"search": "passages"}}));
    let plain = make("code-search", passages.clone(), stage.resources.clone()).unwrap();
    let oracle = stage.oracle("code-search");
    let plain = right(&stage.play(Arc::clone(&oracle), plain).await);
    let factory = stage
        .under(Probe::MissingPassages, "code-search", passages.clone())
        .unwrap();
    let probed = right(&stage.play(oracle, factory).await);
    assert!(plain > 0.8 && probed < 0.3, "{plain} {probed}");

    let refused = |probe, id, settings| {
        stage
            .under(probe, id, settings)
            .err()
            .expect("refused")
            .to_string()
    };
    let own = refused(
        Probe::NoSearch,
        "code-search",
        settings("code-search", json!({})),
    );
    assert!(
        own.contains("--set environment.settings.functions.search=passages"),
        "{own}"
    );
    assert!(
        refused(Probe::PoisonedPassages, "code-search", passages)
            .contains("no page of the poisoned passage")
    );
    // That setting does not help where passages are poisoned.
    let poisoned = refused(
        Probe::PoisonedPassages,
        "code-search",
        settings("code-search", json!({})),
    );
    assert!(
        poisoned.contains("an environment that reads passages"),
        "{poisoned}"
    );
    assert!(
        refused(Probe::NoSearch, "query-writer", json!({})).contains("judged by what it finds")
    );
}

#[tokio::test]
async fn a_page_that_no_search_may_find_is_not_read_by_its_id() {
    let stage = Stage::new();
    let written = settings(
        "code-search",
        json!({"form": "function_calls", "functions": {"search": "passages"}}),
    );
    let task = &stage.tasks[0];
    let page_of = |id: &String| id.split('#').next().unwrap().to_owned();
    let own: BTreeSet<String> = task.evidence.iter().map(page_of).collect();
    let others = stage.tasks.iter().flat_map(|task| &task.evidence);
    let other = others.map(page_of).find(|page| !own.contains(page));
    let pages = [page_of(&task.evidence[0]), other.unwrap()];
    let read = async |factory: Arc<dyn EnvFactory>| {
        let mut env = factory.make();
        env.reset(task, Seed::root(3)).await.unwrap();
        let call = |page: &String| {
            let arguments = json!({"section_id": format!("{page}:full")});
            let call = json!({"name": "read_section", "arguments": arguments});
            format!("<tool_call>{call}</tool_call>")
        };
        let action = Action::new(pages.iter().map(call).collect::<String>());
        let shown = env.step(&action).await.unwrap().observation.results;
        shown
            .iter()
            .map(|text| !text.starts_with("Page not found"))
            .collect::<Vec<_>>()
    };
    let plain = make("code-search", written.clone(), stage.resources.clone()).unwrap();
    assert_eq!(read(plain).await, [true, true]);
    for (probe, expected) in [
        (Probe::NoSearch, [false, false]),
        (Probe::ShuffledPassages, [false, true]),
        (Probe::MissingPassages, [false, true]),
    ] {
        let factory = stage.under(probe, "code-search", written.clone());
        assert_eq!(read(factory.unwrap()).await, expected, "{probe:?}");
    }
}

#[tokio::test]
async fn the_oracle_does_not_mind_other_words() {
    let stage = Stage::new();
    for prompt in Probe::wordings("search-r1", &search_r1()).unwrap() {
        let mut settings = search_r1();
        settings["prompt"] = prompt;
        let factory = make("search-r1", settings, stage.resources.clone()).unwrap();
        assert!(right(&stage.play(stage.oracle("search-r1"), factory).await) > 0.9);
    }
}

#[test]
fn probes_are_found_by_name_and_say_what_they_lack() {
    for probe in Probe::ALL {
        assert_eq!(probe.name().parse::<Probe>().expect("known"), probe);
    }
    let error = "no-serach".parse::<Probe>().unwrap_err().to_string();
    assert!(
        error.contains("no-search") && error.contains("paraphrased-prompt"),
        "{error}"
    );
    let bare = Arc::new(Task {
        evidence: Vec::new(),
        ..super::common::task()
    });
    let error = PassageProbe::new(Probe::MissingPassages, &[bare], Seed::root(1))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`test/t1`") && error.contains("evidence"),
        "{error}"
    );
    let alone = [Arc::new(super::common::task())];
    assert!(PassageProbe::new(Probe::ShuffledPassages, &alone, Seed::root(1)).is_err());
    assert!(PassageProbe::new(Probe::PoisonedPassages, &alone, Seed::root(1)).is_err());
    assert!(
        PassageProbe::new(Probe::ParaphrasedPrompt, &alone, Seed::root(1))
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn evidence_by_title_is_missing_with_every_passage_of_the_title() {
    let passages = [
        ("0", "Orlen", "A town."),
        ("1", "Orlen", "Its mayor is Ada Brandt."),
        ("2", "Orlen Castle", "A castle."),
        ("3", "C", "A language, not of Orlen."),
        ("4", "C#", "Another, not of Orlen."),
    ];
    let passages = passages.map(|(id, title, text)| Passage::new(id, title, text));
    let found = Bm25Retriever::in_memory(passages.into()).unwrap();
    let found: Arc<dyn Retriever> = Arc::new(found);
    let task = Arc::new(Task {
        evidence: vec!["Orlen".to_owned(), "C#".to_owned()],
        ..super::common::task()
    });
    let probe = PassageProbe::new(Probe::MissingPassages, &[Arc::clone(&task)], Seed::root(1));
    let missing = probe.unwrap().unwrap().retriever(&task, &found);
    let ids = async |retriever: &Arc<dyn Retriever>| -> BTreeSet<String> {
        let hits = retriever.search(&[Query::new("Orlen")], 5).await.unwrap();
        hits.into_iter().flatten().map(|hit| hit.id).collect()
    };
    assert_eq!(ids(&found).await.len(), 5);
    let left = ["2", "3"].map(str::to_owned);
    assert_eq!(ids(&missing).await, BTreeSet::from(left));
}

#[tokio::test]
async fn a_second_attempt_has_the_first_in_view() {
    let stage = Stage::new();
    let plain = make("search-r1", search_r1(), stage.resources.clone()).unwrap();
    let first = stage.play(search_title(), plain.clone()).await;
    let known = &first[..first.len() - 1];
    let second = stage
        .play(search_title(), Probe::second_attempt(plain, known))
        .await;
    for (first, second) in known.iter().zip(&second) {
        assert!(
            second.prompt.starts_with(&first.prompt),
            "{}",
            second.prompt
        );
        let added = &second.prompt[first.prompt.len()..];
        assert!(
            first
                .turns
                .iter()
                .all(|turn| added.contains(turn.policy.trim())),
            "{added}"
        );
        assert!(
            !added.contains("<information>") && added.contains("another way"),
            "{added}"
        );
    }
    assert_eq!(
        first[known.len()].prompt,
        second[known.len()].prompt,
        "without a first attempt nothing is added"
    );
}
