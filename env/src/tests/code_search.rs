//! The code-search environment with real programs in the real sandbox.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use forage_contracts::environment::{Action, EnvFactory};
use forage_contracts::seed::Seed;
use forage_contracts::{Boundary, ByteTokenizer, Ending, Episode, RegistryError, Resources};

use super::common::{jobs, library, lines, pages, rollout, task};
use forage_env::Wiki;
use forage_env::code_search::observation::NOTHING_PRINTED;
use forage_env::code_search::{CodeTurn, REMINDER};
use forage_env::registry::make;
use forage_env::rollout::{EpisodeRecord, EpisodeWriter};
use forage_env::world::{World, WorldSpec};
use forage_retriever::{CancelFlag, Fingerprint, Hit, Query, Retriever, RetrieverError};
use forage_sandbox::Status;
use serde_json::{Value, json};

fn factory_over(settings: Value, retriever: Arc<dyn Retriever>) -> Arc<dyn EnvFactory> {
    let mut settings = settings;
    for (key, tokens) in [("max_turn_tokens", 4000), ("max_episode_tokens", 200_000)] {
        settings[key] = json!(tokens);
    }
    let wiki = Arc::new(Wiki::in_memory(&pages()).expect("a wiki"));
    let resources = Resources::new(retriever, Arc::new(ByteTokenizer)).with_open_wiki(wiki);
    make("code-search", settings, resources).expect("valid settings")
}

/// Plays programs, given without their tags, and then an answer.
async fn play(settings: Value, programs: &[&str]) -> Episode {
    let turns: Vec<String> = programs
        .iter()
        .map(|code| format!("<python>\n{code}\n</python>"))
        .collect();
    let mut turns: Vec<&str> = turns.iter().map(String::as_str).collect();
    turns.push("<answer>Velm</answer>");
    let mut settings = settings;
    settings["max_generations"] = json!(turns.len() + 1);
    let factory = factory_over(settings, library());
    rollout(lines(&turns), factory)
        .run(jobs(task(), 1))
        .await
        .remove(0)
}

fn code(episode: &Episode, turn: usize) -> CodeTurn {
    CodeTurn::of(&episode.turns[turn].kind).expect("a program")
}

/// What a program showed, without the tags.
fn shown(episode: &Episode, turn: usize) -> &str {
    let text = episode.turns[turn].observation.trim_end_matches(REMINDER);
    let text = text
        .trim_end()
        .strip_prefix("\n<python_output>\n")
        .expect("opened");
    text.strip_suffix("\n</python_output>").expect("closed")
}

#[tokio::test]
async fn a_program_searches_reads_and_prints() {
    let program = "hits = search_pages('mayor of Orlen')\nprint(hits[0]['page_id'])\n\
                   sections = view_sections(hits[0]['page_id'])\nprint([s['section_name'] for s in sections])\n\
                   text = read_section(sections[-1]['section_id'])";
    let next = "import re\nname = re.search(r'mayor is (.*?)\\.', text).group(1)\nprint(name)\n\
                print(read_section(search_pages(name)[0]['page_id'] + ':full'))";
    let episode = play(json!({}), &[program, next]).await;
    assert_eq!(episode.ending, Ending::Answered);
    assert_eq!(shown(&episode, 0), "orlen\n['Orlen', 'People']");
    assert!(
        shown(&episode, 1).starts_with("Ada Brandt\n# Ada Brandt"),
        "{}",
        shown(&episode, 1)
    );
    assert_eq!(episode.searches(), 2);
    assert_eq!(
        episode.queries().collect::<Vec<_>>(),
        ["mayor of Orlen", "Ada Brandt"]
    );
    assert_eq!(code(&episode, 0).calls[2].found, ["orlen:people"]);
    let score = episode.score.as_ref().expect("scored");
    assert_eq!((score.parts["em"], score.parts["retrieval"]), (1.0, 1.0));
}

#[tokio::test]
async fn what_was_not_read_from_a_page_earns_no_retrieval() {
    let episode = play(
        json!({}),
        &[
            "text = read_section('ada_brandt:full')",
            "print('Velm'.upper())",
        ],
    )
    .await;
    assert!((episode.score.expect("scored").parts["retrieval"] - 1.0).abs() < f32::EPSILON);
    let invented = play(json!({}), &["print('Velm')"]).await;
    assert!(invented.score.expect("scored").parts["retrieval"].abs() < f32::EPSILON);
    let unprinted = play(json!({}), &["text = read_section('ada_brandt:full')"]).await;
    assert!(code(&unprinted, 0).unprinted());
    assert_eq!(shown(&unprinted, 0), NOTHING_PRINTED);
    assert!(unprinted.score.expect("scored").parts["retrieval"].abs() < f32::EPSILON);
}

#[tokio::test]
async fn exceptions_are_shown_as_python_shows_them() {
    let programs = [
        "print('before')\nread_section('orlen')",
        "read_section('nowhere:x')",
        "try:\n    view_sections('nowhere')\nexcept ValueError as error:\n    print('caught', error)",
        "search_pages()",
        "print(1",
        "search_pages = 3",
    ];
    let episode = play(json!({}), &programs).await;
    let first = shown(&episode, 0);
    assert!(
        first.starts_with("before\nTraceback (most recent call last):\n"),
        "{first}"
    );
    assert!(first.contains("line 2"), "{first}");
    assert!(
        first.ends_with("ValueError: Invalid section_id format. Expected: page_id:section_name"),
        "{first}"
    );
    assert!(shown(&episode, 1).ends_with("ValueError: Page not found: nowhere"));
    assert_eq!(shown(&episode, 2), "caught Page not found: nowhere");
    assert!(
        shown(&episode, 3).contains("TypeError"),
        "{}",
        shown(&episode, 3)
    );
    assert!(
        shown(&episode, 4).contains("SyntaxError"),
        "{}",
        shown(&episode, 4)
    );
    assert_eq!(code(&episode, 4).error.as_deref(), Some("SyntaxError"));
    assert_eq!(code(&episode, 5).redefined, ["search_pages"]);
    assert_eq!(
        code(&episode, 0).calls[0]
            .error
            .as_deref()
            .map(|error| &error[..10]),
        Some("ValueError")
    );
}

#[tokio::test]
async fn state_lives_or_not_and_limits_undo() {
    let kept = play(
        json!({"limits": {"time_ms": 200}}),
        &["x = 1", "x = 2\nwhile True: pass", "print(x)"],
    )
    .await;
    assert_eq!(code(&kept, 1).status, Some(Status::Timeout));
    assert_eq!(
        shown(&kept, 1),
        "The program was stopped: it ran for more than 0.2 s. What it did to variables is undone."
    );
    assert_eq!(shown(&kept, 2), "1");
    let fresh = play(
        json!({"profile": "slm"}),
        &[
            "x = 1\nprint(Counter('aab')['a'])",
            "print('lost')\nprint(x)",
        ],
    )
    .await;
    assert_eq!(shown(&fresh, 0), "2");
    assert_eq!(
        shown(&fresh, 1),
        "Error: NameError: name 'x' is not defined"
    );
}

#[tokio::test]
async fn every_limit_is_survived() {
    let limits =
        json!({"limits": {"time_ms": 2000, "memory_mib": 64, "calls": 2, "code_bytes": 2000}});
    let long = format!("x = '{}'", "a".repeat(2000));
    let programs = [
        "for _ in range(3): search_pages('Orlen')",
        "x = 'a' * (1 << 29)",
        "print('y' * (3 << 20))",
        long.as_str(),
        "def f(n):\n    return f(n + 1)\nf(0)",
        "print(6 * 7)",
    ];
    let episode = play(limits, &programs).await;
    assert_eq!(episode.ending, Ending::Answered);
    let statuses: Vec<_> = (0..6)
        .map(|turn| code(&episode, turn).status.expect("run"))
        .collect();
    assert_eq!(statuses[0], Status::Calls);
    assert!(
        shown(&episode, 0).contains("called the functions more than 2 times"),
        "{}",
        shown(&episode, 0)
    );
    assert_ne!(statuses[1], Status::Ok);
    assert!(
        shown(&episode, 2).chars().count() < 6200,
        "{}",
        shown(&episode, 2).len()
    );
    assert_eq!(statuses[3], Status::CodeSize);
    assert!(shown(&episode, 3).contains("longer than 2000 bytes"));
    assert_ne!(statuses[4], Status::Ok);
    assert_eq!(shown(&episode, 5), "42");
}

#[tokio::test]
async fn the_name_of_an_exception_is_recorded_in_a_kilobyte() {
    // The second is described by its class alone, which the interpreter does not shorten.
    let programs = [
        "raise type('x' * 1_500_000, (Exception,), {})",
        "def text(error):\n    raise SystemExit\nraise type('x' * 1_500_000, (Exception,), {'__str__': text})",
        "raise KeyError('x')",
    ];
    let episode = play(json!({}), &programs).await;
    for turn in 0..2 {
        let name = code(&episode, turn).error.expect("raised");
        assert!(
            name.starts_with("xxx") && name.contains(" bytes, blake3 ") && name.len() < 1200,
            "{} bytes",
            name.len()
        );
        let text = serde_json::to_string(&episode.turns[turn]).expect("serializes");
        assert!(text.len() < 32 << 10, "{} bytes of a turn", text.len());
    }
    assert_eq!(code(&episode, 2).error.as_deref(), Some("KeyError"));
}

#[tokio::test]
async fn a_search_that_fails_is_a_fault_of_the_retriever() {
    let factory = factory_over(
        json!({"functions": {"search": "passages"}}),
        Arc::new(super::common::Down),
    );
    let programs = [
        "<python>\ntry:\n    search_pages('x')\nexcept BaseException:\n    print('hidden')\n</python>",
    ];
    let episode = rollout(lines(&programs), factory)
        .run(jobs(task(), 1))
        .await
        .remove(0);
    assert!(episode.score.is_none());
    assert!(
        matches!(
            episode.ending,
            Ending::Infra {
                boundary: Boundary::Retriever,
                ..
            }
        ),
        "{:?}",
        episode.ending
    );
}

/// Searches that never end, as over a server that does not answer, and the flags of their queries.
#[derive(Default)]
struct Endless(Mutex<Vec<CancelFlag>>);

impl Endless {
    fn flags(&self) -> Vec<CancelFlag> {
        self.0.lock().expect("whole").clone()
    }
}

#[async_trait]
impl Retriever for Endless {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint("endless".to_owned())
    }

    async fn search(&self, queries: &[Query], _k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let flags = queries.iter().map(|query| query.cancel.clone());
        self.0.lock().expect("whole").extend(flags);
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_search_of_a_program_ends_with_the_step() {
    let endless = Arc::new(Endless::default());
    let settings = json!({"functions": {"search": "passages"}});
    let mut env = factory_over(settings, endless.clone()).make();
    env.reset(&task(), Seed::root(0)).await.expect("reset");
    let action = Action::new("<python>\nsearch_pages('Orlen')\n</python>");
    let tick = Duration::from_millis(5);
    let mut step = env.step(&action);
    while endless.flags().is_empty() {
        let waited = tokio::time::timeout(tick, step.as_mut()).await;
        assert!(waited.is_err(), "the search never ends");
    }
    assert!(!endless.flags()[0].is_cancelled());
    drop(step);
    assert!(endless.flags()[0].is_cancelled());
    drop(env);
    // The call that the program waits for holds the retriever until it ends.
    let begun = Instant::now();
    while Arc::strong_count(&endless) > 1 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it goes on");
        tokio::time::sleep(tick).await;
    }
}

#[tokio::test]
async fn programs_come_in_tool_calls_too() {
    let factory = factory_over(json!({"form": "python_calls"}), library());
    let call =
        json!({"name": "python", "arguments": {"code": "print(len(search_pages('Orlen')))"}});
    let turn = format!("<tool_call>\n{call}\n</tool_call>");
    let episode = rollout(lines(&[&turn, "<answer>x</answer>"]), factory)
        .run(jobs(task(), 1))
        .await
        .remove(0);
    assert_eq!(
        episode.turns[0].observation,
        "\n<tool_response>\n1\n</tool_response>\n"
    );
}

#[tokio::test]
async fn the_same_episode_is_the_same_again_and_survives_the_disk() {
    let program =
        "import random, time\nprint(random.random(), time.time(), id(random) > 0, hash('x'))";
    let (first, second) = (
        play(json!({}), &[program]).await,
        play(json!({}), &[program]).await,
    );
    assert_eq!(first, second);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("episodes.jsonl");
    let mut writer = EpisodeWriter::create(&path).expect("created");
    writer.write(first.clone()).expect("written");
    writer.finish().expect("finished");
    let read: Vec<_> = EpisodeRecord::read_all(&path)
        .expect("opened")
        .collect::<Result<_, _>>()
        .expect("read");
    assert_eq!(read[0].episode, first);
    assert_eq!(read[0].searches, 0);
}

#[tokio::test]
async fn more_episodes_than_sandboxes_wait_for_one_another() {
    let factory = factory_over(json!({"max_generations": 3}), library());
    let turns = [
        "<python>print(len(search_pages('Orlen')))</python>",
        "<answer>Velm</answer>",
    ];
    let episodes = rollout(lines(&turns), factory)
        .run(jobs(task(), 1500))
        .await;
    assert!(
        episodes
            .iter()
            .all(|episode| episode.ending == Ending::Answered)
    );
}

#[tokio::test]
async fn a_world_of_two_thousand_pages_is_ready_at_once() {
    let world = World::new(WorldSpec::new(2000, 5)).expect("a world");
    let begun = Instant::now();
    let wiki = Arc::new(Wiki::of_world(&world).expect("a wiki"));
    let ready = begun.elapsed();
    let page = world.page(11);
    let resources = Resources::new(library(), Arc::new(ByteTokenizer)).with_open_wiki(wiki);
    let settings = json!({"max_turn_tokens": 4000, "max_episode_tokens": 200_000});
    let factory = make("code-search", settings, resources).expect("valid settings");
    let program = format!(
        "<python>print(search_pages({:?})[0]['page_id'])</python>",
        page.title
    );
    let episode = rollout(lines(&[&program, "<answer>x</answer>"]), factory)
        .run(jobs(task(), 1))
        .await
        .remove(0);
    assert_eq!(shown(&episode, 0), page.id);
    assert!(
        ready.as_secs_f64() < 5.0,
        "{ready:?}: seconds even on a busy machine"
    );
}

#[tokio::test]
async fn pages_that_cannot_be_opened_are_an_error_and_other_environments_open_none() {
    let resources = Resources::new(library(), Arc::new(ByteTokenizer))
        .with_wiki(Arc::new(|| Err("gone".into())));
    assert!(make("search-r1", Value::Null, resources.clone()).is_ok());
    assert!(matches!(
        make("code-search", Value::Null, resources),
        Err(RegistryError::Pages(_))
    ));
}
