//! The environment over real indexes: what is recorded, what is refused, what scripts earn.

use std::collections::BTreeMap;

use forage_contracts::policy::{Policy, Sampling};
use forage_contracts::retriever::RetrieverError;
use forage_contracts::scripted::{Cast, Haste, ScriptEntry, Scripted};
use forage_contracts::{Boundary, ByteTokenizer, Ending, Episode, Passage, Split};
use forage_retriever::Bm25Retriever;
use proptest::prelude::*;

use super::action::QueryFault;
use super::*;
use crate::check::CheckPlan;
use crate::query_writer::keywords::STOP_WORDS;
use crate::query_writer::settings::QueryPrompt;
use crate::registry::REWARDS;
use crate::reward::RewardSet;
use crate::rollout::{Job, Presentation, Rollout};
use crate::world::{World, WorldSpec};

fn settings() -> QueryWriterSettings {
    QueryWriterSettings {
        max_turn_tokens: 4000,
        max_episode_tokens: 40_000,
        ..QueryWriterSettings::default()
    }
}

fn passage(id: &str, title: &str, text: &str, corpus: &str) -> Passage {
    let fields = BTreeMap::from([("corpus".to_owned(), corpus.to_owned())]);
    Passage {
        fields,
        ..Passage::new(id, title, text)
    }
}

fn library() -> Arc<dyn BooleanSearch> {
    let passages = vec![
        passage(
            "tides",
            "Tides",
            "The moon raises tides twice a day.",
            "sea",
        ),
        passage(
            "moon",
            "Moon",
            "The moon is a stone without a spring.",
            "sky",
        ),
        passage(
            "spring",
            "Spring tide",
            "A spring tide comes at new moon.",
            "sea",
        ),
        passage("wind", "Wind", "The sun drives the wind.", "sky"),
    ];
    Arc::new(Bm25Retriever::in_memory(passages).expect("an index"))
}

fn task() -> Task {
    Task {
        qrels: [
            ("spring".to_owned(), 2),
            ("tides".to_owned(), 1),
            ("wind".to_owned(), 0),
        ]
        .into(),
        data_source: "sea".to_owned(),
        ..Task::new("t", "When does the spring tide come?")
    }
}

async fn step(settings: QueryWriterSettings, text: &str) -> TurnKind {
    let mut env = QueryWriter::factory(settings, library())
        .expect("settings")
        .make();
    env.reset(&task(), Seed::root(0)).await.expect("judged");
    let step = env.step(&Action::new(text)).await.expect("searched");
    assert!(step.terminated && step.observation.text.is_empty());
    step.kind
}

async fn turn(text: &str) -> QueryTurn {
    QueryTurn::read(&step(settings(), text).await.calls()[0]).expect("a query")
}

fn writes(text: &str) -> Arc<dyn Policy> {
    let text = text.to_owned();
    Arc::new(Scripted::human(Arc::new(ByteTokenizer), move |_| {
        Some(text.clone())
    }))
}

async fn play(
    policy: Arc<dyn Policy>,
    index: Arc<dyn BooleanSearch>,
    tasks: &[Arc<Task>],
    rewards: RewardSet,
) -> Vec<Episode> {
    let factory = QueryWriter::factory(settings(), index).expect("settings");
    let rewards = Arc::new(rewards);
    let (tokenizer, sampling, presentation) =
        (Arc::new(ByteTokenizer), Sampling::FULL, Presentation::RAW);
    let jobs = (0..).zip(tasks).map(|(group, task)| Job {
        task: Arc::clone(task),
        group,
        member: 0,
        seed: Seed::root(3).child("job", &[group]),
        branches_from: None,
        hint: None,
        temperature: None,
    });
    Rollout {
        policy,
        tokenizer,
        factory,
        rewards,
        sampling,
        presentation,
    }
    .run(jobs.collect())
    .await
}

async fn parts(text: &str) -> BTreeMap<String, f32> {
    let tasks = [Arc::new(task())];
    let episode = play(
        writes(text),
        library(),
        &tasks,
        RewardSet::measure(Outcome::Ranking),
    )
    .await
    .remove(0);
    episode
        .score
        .unwrap_or_else(|| panic!("{text}: {:?}", episode.ending))
        .parts
}

#[test]
fn the_last_query_counts_and_the_first_as_searchlm_reads_it() {
    let both = |text: &str| {
        [Take::Last, Take::First].map(|take| parse(text, take).map(|written| written.query))
    };
    let query = |text: &str| Ok(text.to_owned());
    let cases = [
        ("<query> a\n</query>", query("a"), query("a")),
        (
            "<query>a</query> or <query>b</query>",
            query("b"),
            query("a"),
        ),
        ("<query>a</query> or <query>b", query("a"), query("a")),
        (
            "the <query> tag: <query>a</query>",
            query("a"),
            query("tag: <query>a"),
        ),
        ("<query>a</query></query>", query("a"), query("a")),
        ("</query><query>a</query>", query("a"), query("a")),
        (
            "<query>a</query><query> </query>",
            Err(QueryFault::Empty),
            query("a"),
        ),
        (
            "<query></query>",
            Err(QueryFault::Empty),
            Err(QueryFault::Empty),
        ),
        (
            "<query>a",
            Err(QueryFault::Unclosed),
            Err(QueryFault::Unclosed),
        ),
        (
            "</query> <query>a",
            Err(QueryFault::Unclosed),
            Err(QueryFault::Unclosed),
        ),
        (
            "a</query>",
            Err(QueryFault::NoQuery),
            Err(QueryFault::NoQuery),
        ),
        (
            "<QUERY>a</QUERY>",
            Err(QueryFault::NoQuery),
            Err(QueryFault::NoQuery),
        ),
        ("", Err(QueryFault::NoQuery), Err(QueryFault::NoQuery)),
    ];
    for (text, last, first) in cases {
        assert_eq!(both(text), [last, first], "{text}");
    }
    let words = |text: &str| parse(text, Take::Last).expect("a query").reasoning_words;
    assert_eq!(
        words("<reasoning>one two\nthree</reasoning><query>a</query>"),
        3
    );
    assert_eq!(words("<reasoning>never closed <query>a</query>"), 0);
}

proptest! {
    #[test]
    fn any_text_is_read(
        pieces in prop::collection::vec(prop_oneof![
            Just("<query>".to_owned()), Just("</query>".to_owned()), Just("<reasoning>".to_owned()), any::<String>(),
        ], 0..12)
    ) {
        let text = pieces.concat();
        for take in [Take::Last, Take::First] {
            if let Ok(written) = parse(&text, take) {
                prop_assert!(!written.query.is_empty() && text.contains(&written.query));
            }
        }
    }
}

#[test]
fn keywords_are_plain_words() {
    assert!(STOP_WORDS.is_sorted());
    assert_eq!(
        keyword_query("What is the U.S. NOT (doing) about \"O'Brien's\" AND kelp-forests?"),
        "brien kelp forests"
    );
    assert_eq!(
        keyword_query("Do Cholesterol Statin Drugs Cause Breast Cancer?"),
        "cholesterol statin drugs cause breast"
    );
    assert_eq!(keyword_query("Who is it?"), "");
    let shape = forage_retriever::QueryShape::of(&keyword_query(
        "+alpha AND -beta: title:gamma^2 delta* \"epsilon\"",
    ));
    assert_eq!(shape.complexity(), 0);
}

#[tokio::test]
async fn faults_of_three_kinds_are_three_records() {
    let fault = |text: &'static str| async move {
        match step(settings(), text).await {
            TurnKind::Invalid { fault } => fault,
            kind => panic!("{text}: {kind:?}"),
        }
    };
    assert_eq!(fault("tides").await, "no query");
    assert_eq!(fault("<query>tides").await, "the query tag is not closed");
    assert_eq!(fault("<query> </query>").await, "the query is empty");

    let repaired = turn("<query>(tide AND</query>").await;
    assert!(
        !repaired.is_valid() && repaired.repairs.len() == 2,
        "{:?}",
        repaired.repairs
    );
    assert_eq!(repaired.found.len(), 2);

    let useless = turn("<query>wind AND sun</query>").await;
    assert!(useless.is_valid());
    assert_eq!(useless.found, ["wind"]);

    let good =
        turn("<reasoning>two words</reasoning><query>\"spring tide\" AND moon</query>").await;
    assert_eq!(
        (good.found.as_slice(), good.reasoning_words),
        (&["spring".to_owned()][..], 2)
    );
    assert_eq!(
        good.keywords_found.first().map(String::as_str),
        Some("spring")
    );
    assert_eq!((good.shape().ands, good.shape().phrases), (1, 1));
}

#[tokio::test]
async fn parts_say_what_was_earned_for_what() {
    let close = |parts: &BTreeMap<String, f32>, name: &str, expected: f32| {
        assert!(
            (parts[name] - expected).abs() < 1e-6,
            "{name}: {} is not {expected}",
            parts[name]
        );
    };
    let none = parts("no tag").await;
    assert!(none.values().all(|value| *value == 0.0), "{none:?}");
    assert!(
        !none.contains_key("em") && none.contains_key("ndcg_searchlm"),
        "{none:?}"
    );

    let repaired = parts("<query>\"spring tide\" AND moon)</query>").await;
    close(&repaired, "syntax", 0.0);
    close(&repaired, "mrr", 1.0);

    let useless = parts("<query>wind</query>").await;
    for (name, expected) in [
        ("syntax", 1.0),
        ("ndcg", 0.0),
        ("mrr", 0.0),
        ("retrieved", 0.0),
        ("recall", 0.0),
    ] {
        close(&useless, name, expected);
    }

    // Grade 2 at rank 1 of an ideal 2, 1.
    let half = parts("<query>\"spring tide\"</query>").await;
    let ndcg = 2.0 / (2.0 + 1.0 / 3.0_f32.log2());
    for (name, expected) in [
        ("syntax", 1.0),
        ("ndcg", ndcg),
        ("recall", 0.5),
        ("retrieved", 1.0),
        ("ndcg_searchlm", 1.0),
    ] {
        close(&half, name, expected);
    }
    let best = parts("<query>\"spring tide\"^3 OR tides</query>").await;
    close(&best, "ndcg", 1.0);
}

#[tokio::test]
async fn the_contract_is_kept_and_registered() {
    let rewards = RewardSet::new(
        Outcome::Ranking,
        &crate::reward::RewardSet::default_weights(Outcome::Ranking),
        Seed::root(0),
    );
    let factory = QueryWriter::factory(settings(), library()).expect("settings");
    let plan = CheckPlan::of(&ENTRY);
    let checked = plan
        .check(
            factory.as_ref(),
            &[task()],
            &rewards.expect("fit"),
            Seed::root(0),
        )
        .await;
    assert_eq!(checked, Ok(()));
    assert_eq!(
        crate::registry::find("query-writer")
            .expect("registered")
            .id,
        ENTRY.id
    );
    let few = QueryWriterSettings {
        limit: 9,
        ..settings()
    };
    assert!(
        few.check()
            .is_err_and(|error| error.to_string().contains("at least 10"))
    );
    let prompt = QueryPrompt::Full
        .read(&QueryWriterSettings::default())
        .expect("embedded");
    assert!(
        prompt.ends_with("Question: {question}\n") && prompt.contains("<query> and </query>"),
        "{prompt}"
    );
}

/// Its disk is unplugged.
struct Down;

#[async_trait]
impl BooleanSearch for Down {
    async fn answer(&self, _query: &Query, _k: usize) -> Result<BooleanAnswer, RetrieverError> {
        let source = std::io::Error::other("disk unplugged");
        Err(RetrieverError::Postings {
            path: "index".into(),
            source,
        })
    }
}

/// Takes no query with a wildcard.
struct Strict(Arc<dyn BooleanSearch>);

#[async_trait]
impl BooleanSearch for Strict {
    async fn answer(&self, query: &Query, k: usize) -> Result<BooleanAnswer, RetrieverError> {
        if query.text.contains('*') {
            return Err(RetrieverError::Refused {
                query: query.text.clone(),
                refusal: "no wildcards".into(),
            });
        }
        self.0.answer(query, k).await
    }
}

#[tokio::test]
async fn a_query_that_is_refused_for_what_it_is_is_its_writers_doing() {
    let mut played = play(
        writes("<query>tid*</query>"),
        Arc::new(Strict(library())),
        &[Arc::new(task())],
        RewardSet::measure(Outcome::Ranking),
    )
    .await;
    let refused = played.remove(0);
    let Ending::Malformed { fault } = &refused.ending else {
        panic!("{:?}", refused.ending)
    };
    assert!(fault.contains("no wildcards"), "{fault}");
    assert!(refused.score.is_some());
}

#[tokio::test]
async fn faults_of_ours_have_no_score() {
    let rewards = || RewardSet::measure(Outcome::Ranking);
    let policy = || writes("<query>tides</query>");
    let down = play(policy(), Arc::new(Down), &[Arc::new(task())], rewards())
        .await
        .remove(0);
    assert!(down.score.is_none());
    assert!(
        matches!(
            down.ending,
            Ending::Infra {
                boundary: Boundary::Retriever,
                ..
            }
        ),
        "{:?}",
        down.ending
    );

    let unjudged = Task {
        qrels: BTreeMap::new(),
        ..task()
    };
    let unjudged = play(policy(), library(), &[Arc::new(unjudged)], rewards())
        .await
        .remove(0);
    let Ending::Infra {
        boundary: Boundary::Environment,
        message,
    } = &unjudged.ending
    else {
        panic!("{:?}", unjudged.ending)
    };
    assert!(
        message.contains("`sea/t`")
            && message.contains("spring tide come?")
            && unjudged.score.is_none(),
        "{message}"
    );
}

#[tokio::test]
async fn a_shared_index_is_searched_one_corpus_at_a_time() {
    let shared = QueryWriterSettings {
        corpus_field: Some("corpus".to_owned()),
        ..settings()
    };
    let found = |kind: TurnKind| {
        let turn = QueryTurn::read(&kind.calls()[0]).expect("a query");
        [turn.found, turn.keywords_found]
    };
    let [all, _] = found(step(settings(), "<query>moon</query>").await);
    let [sea, keywords] = found(step(shared, "<query>moon</query>").await);
    assert_eq!((all.len(), sea.len()), (3, 2));
    assert!(
        !sea.contains(&"moon".to_owned()) && !keywords.contains(&"moon".to_owned()),
        "{sea:?} {keywords:?}"
    );
}

#[tokio::test]
async fn a_data_set_that_no_passage_is_of_is_told() {
    for (field, query, is_known) in [
        ("dataset", "<query>moon</query>", false),
        ("corpus", "<query>zebra</query>", true),
    ] {
        let shared = QueryWriterSettings {
            corpus_field: Some(field.to_owned()),
            ..settings()
        };
        let mut env = QueryWriter::factory(shared, library())
            .expect("settings")
            .make();
        let task = Task {
            question: "Zebras?".to_owned(),
            ..task()
        };
        env.reset(&task, Seed::root(0)).await.expect("judged");
        let told = env.step(&Action::new(query)).await.err();
        let told = told.map(|error| error.to_string());
        assert_eq!(told.is_none(), is_known, "{told:?}");
        assert!(told.is_none_or(|told| told.contains("`sea/t`") && told.contains("`dataset`")));
    }
}

fn world() -> (Arc<dyn BooleanSearch>, Vec<Arc<Task>>) {
    let mut spec = WorldSpec::new(300, 5);
    spec.difficulty.hops = [1.0, 0.0, 0.0, 0.0];
    let world = World::new(spec).expect("a world");
    let index = Bm25Retriever::in_memory(world.passages().collect()).expect("an index");
    let tasks = world
        .questions(Split::Train, 120)
        .expect("enough")
        .map(Arc::new)
        .collect();
    (Arc::new(index), tasks)
}

fn mean(episodes: &[Episode], part: &str) -> f64 {
    let parts: Vec<f64> = episodes
        .iter()
        .map(|episode| f64::from(episode.score.as_ref().expect("scored").parts[part]))
        .collect();
    parts.iter().sum::<f64>() / parts.len() as f64
}

#[tokio::test]
async fn scripts_earn_what_they_should() {
    let (index, tasks) = world();
    let bytes = || Arc::new(ByteTokenizer);
    let run = |policy: Arc<dyn Policy>| {
        let (index, tasks) = (Arc::clone(&index), &tasks);
        async move { play(policy, index, tasks, RewardSet::measure(Outcome::Ranking)).await }
    };
    let oracle = |haste| {
        let cast = Cast::new(bytes(), tasks.iter().cloned()).hasty(haste);
        ENTRY.script(ScriptEntry::ORACLE, cast).unwrap()
    };
    let careful = run(oracle(Haste::NONE)).await;
    let keywords = run(ENTRY.script("keywords", Cast::new(bytes(), [])).unwrap()).await;
    let broken = run(ENTRY
        .script("broken-query", Cast::new(bytes(), []))
        .unwrap())
    .await;
    let hasty = run(oracle(Haste {
        guess: 0.25,
        skim: 0.25,
        silent: 0.25,
        broken: 0.25,
        ..Haste::NONE
    }))
    .await;
    assert!(mean(&careful, "ndcg") > 0.95, "{}", mean(&careful, "ndcg"));
    assert!((mean(&careful, "syntax") - 1.0).abs() < 1e-9);
    assert!(
        mean(&keywords, "ndcg") < mean(&careful, "ndcg"),
        "{}",
        mean(&keywords, "ndcg")
    );
    // The baseline is what the keyword writer writes.
    assert!(mean(&keywords, "gain").abs() < 1e-9);
    let repaired = mean(&broken, "syntax");
    assert!(repaired.abs() < 1e-9, "{repaired}");
    let malformed = broken
        .iter()
        .filter(|episode| matches!(episode.ending, Ending::Malformed { .. }))
        .count();
    assert!((40..=100).contains(&malformed), "{malformed}");
    assert!(
        mean(&hasty, "ndcg") < 0.7 && mean(&hasty, "ndcg") > 0.05,
        "{}",
        mean(&hasty, "ndcg")
    );
    assert!(mean(&hasty, "syntax") < 0.7, "{}", mean(&hasty, "syntax"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn scores_lie_in_the_declared_range(query in prop_oneof![
        "[a-z \"()]{0,30}", r#"(tides|moon|spring tide|"spring tide"|wind|NOT|AND|OR|\(|\)|title:|id:tides|\^9| ){1,9}"#,
    ], reasoning in "[a-z ]{0,400}") {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let text = format!("<reasoning>{reasoning}</reasoning><query>{query}</query>");
        // Queries give no scores, which that reward refuses.
        let scored = |entry: &&forage_contracts::reward::RewardEntry| entry.name == "score_distribution";
        for entry in REWARDS.iter().filter(|entry| entry.fits(Outcome::Ranking) && !scored(entry)) {
            let rewards = RewardSet::new(Outcome::Ranking, &[(entry.name.to_owned(), 1.0)].into(), Seed::root(0));
            let episodes = runtime.block_on(play(writes(&text), library(), &[Arc::new(task())], rewards.expect("fits")));
            let total = episodes[0].reward().expect("scored");
            let [low, high] = entry.range;
            prop_assert!((low..=high + 1e-6).contains(&total), "{}: {total}", entry.name);
        }
    }
}
