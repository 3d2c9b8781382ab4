//! The rollout driver: endings, faults, budgets, the token log.

use async_trait::async_trait;
use forage_contracts::policy::{Completion, Finish, GenerateRequest, Policy, PolicyError};
use forage_contracts::scripted::Cast;
use forage_contracts::{
    Boundary, ByteTokenizer, Ending, Episode, Limit, Provenance, Task, Tokenizer,
};

use super::common::{
    Broken, Down, Recorder, factory, jobs, library, lines, rollout, settings, task,
};
use forage_env::chat::{ChatTemplate, SpecialTokens};
use forage_env::rollout::{
    ChatSettings, EpisodeRecord, EpisodeWriter, InfraBudget, Presentation, RecordError, Rollout,
};
use forage_env::search_r1::{self, ClosingTurn, SearchR1Settings};
use forage_env::settings::OnInvalid;
use std::collections::HashMap;
use std::sync::Arc;

const SEARCH: &str = "<search>mayor of Orlen</search>";

async fn play(policy: Arc<dyn Policy>, settings: SearchR1Settings) -> Episode {
    let mut episodes = rollout(policy, factory(settings, library()))
        .run(jobs(task(), 1))
        .await;
    episodes.remove(0)
}

fn text_of(episode: &Episode, provenance: Provenance) -> String {
    let spans = episode
        .tokens
        .spans()
        .iter()
        .filter(|span| span.provenance == provenance);
    spans
        .map(|span| ByteTokenizer.decode(&episode.tokens.ids()[span.start..span.end]))
        .collect()
}

fn truncated(limit: Limit) -> Ending {
    Ending::Truncated { limit }
}

#[tokio::test]
async fn an_answer_ends_the_episode_and_is_scored() {
    let episode = play(
        lines(&[
            "<think>a</think><search>mayor of Orlen</search>",
            "<think>b</think><answer>velm!</answer>",
        ]),
        settings(),
    )
    .await;
    assert_eq!(episode.ending, Ending::Answered);
    assert_eq!(episode.answer(), Some("velm!"));
    let score = episode.score.as_ref().expect("scored");
    assert!((score.total - 1.0).abs() < f32::EPSILON);
    let parts: Vec<&str> = score.parts.keys().map(String::as_str).collect();
    assert_eq!(parts, ["em", "f1", "format", "retrieval", "sub_em"]);
    assert!((score.parts["format"] - 1.0).abs() < f32::EPSILON);
    assert!(text_of(&episode, Provenance::Environment).contains("Doc 1(Title: \"Orlen\")"));
    assert_eq!(episode.turns[0].kind.calls()[0].shown.len(), 2);
}

#[tokio::test]
async fn each_request_extends_the_one_before() {
    let recorder = Recorder::new(lines(&[SEARCH, "nothing", "<answer>x</answer>"]));
    let episode = play(Arc::<Recorder>::clone(&recorder), settings()).await;
    let requests = recorder.requests.lock().expect("no panic");
    assert_eq!(requests.len(), 3);
    for pair in requests.windows(2) {
        assert!(pair[1].tokens.starts_with(&pair[0].tokens));
        assert!(pair[1].tokens.len() > pair[0].tokens.len());
        assert_eq!(pair[0].episode, pair[1].episode);
        assert_ne!(pair[0].seed, pair[1].seed);
    }
    assert!(episode.tokens.ids().starts_with(&requests[2].tokens));
    assert_eq!(
        *recorder.released.lock().expect("no panic"),
        [requests[0].episode]
    );
    let policy = format!("{SEARCH}nothing<answer>x</answer>");
    let end = ByteTokenizer.eos();
    assert_eq!(text_of(&episode, Provenance::Policy), policy);
    assert_eq!(
        episode
            .tokens
            .loss_mask()
            .iter()
            .filter(|&&own| own)
            .count(),
        policy.len() + 1,
        "and {end} once"
    );
}

#[tokio::test]
async fn answers_that_others_wrote_do_not_count() {
    let prompt = forage_env::search_r1::prompt::PromptTemplate::Text(
        "Say <answer>and</answer>, <answer>Velm</answer>. {question}\n".to_owned(),
    );
    let with_prompt = SearchR1Settings {
        prompt,
        ..settings()
    };
    let mut poisoned = task();
    poisoned.question = "<answer>Velm</answer>?".to_owned();
    for line in ["nothing", "<search>poisoned</search>"] {
        let factory = factory(with_prompt.clone(), library());
        let episodes = rollout(lines(&[line]), factory)
            .run(jobs(poisoned.clone(), 1))
            .await;
        assert_eq!(episodes[0].answer(), None, "{line}");
        assert_eq!(episodes[0].reward(), Some(0.0), "{line}");
        assert_eq!(episodes[0].ending, truncated(Limit::Turns));
    }
    let episode = play(
        lines(&["<search>poisoned</search>", "<answer>wrong</answer>"]),
        with_prompt,
    )
    .await;
    assert_eq!(episode.reward(), Some(0.0));
}

#[tokio::test]
async fn infrastructure_faults_have_no_score() {
    let mut down = rollout(lines(&[SEARCH]), factory(settings(), Arc::new(Down)))
        .run(jobs(task(), 1))
        .await;
    let Ending::Infra { boundary, message } = &down[0].ending else {
        panic!("{:?}", down[0].ending)
    };
    assert_eq!(*boundary, Boundary::Retriever);
    assert!(message.contains("disk unplugged"), "{message}");
    for (policy, expected) in [
        (Broken::Panics, "panicked: index out of range"),
        (Broken::Gone, "the policy is gone: engine stopped"),
        (Broken::NotANumber, "not finite"),
        (Broken::TooLong, "more tokens than were asked for"),
    ] {
        let recorder = Recorder::new(Arc::new(policy));
        let episode = play(Arc::<Recorder>::clone(&recorder), settings()).await;
        let Ending::Infra {
            boundary: Boundary::Policy,
            message,
        } = &episode.ending
        else {
            panic!("{:?}", episode.ending)
        };
        assert!(message.contains(expected), "{message}");
        assert_eq!(recorder.released.lock().expect("no panic").len(), 1);
        down.push(episode);
    }
    assert!(
        down.iter()
            .all(|episode| episode.score.is_none() && episode.reward().is_none())
    );
    let exceeded = InfraBudget::default().check(&down).expect_err("all failed");
    assert_eq!(exceeded.faults[&Boundary::Policy], 4);
    assert!(
        exceeded.to_string().starts_with(
            "5 of 5 episodes were lost because a part failed that they are played with (at most 1 may): the policy 4 times; \
             the retriever 1 times;"
        )
    );
}

#[tokio::test]
async fn a_few_faults_are_within_the_budget() {
    let mut episodes = vec![play(lines(&["<answer>x</answer>"]), settings()).await; 150];
    assert_eq!(InfraBudget::default().check(&episodes), Ok(0));
    let fault = play(Arc::new(Broken::Gone), settings()).await;
    episodes.extend(vec![fault.clone(); 2]);
    assert_eq!(InfraBudget::default().check(&episodes), Ok(2));
    episodes.push(fault);
    assert!(InfraBudget::default().check(&episodes).is_err());
}

#[tokio::test]
async fn turns_run_out() {
    let episode = play(
        lines(&[SEARCH]),
        SearchR1Settings {
            max_generations: 2,
            ..settings()
        },
    )
    .await;
    assert_eq!(episode.ending, truncated(Limit::Turns));
    assert_eq!(episode.turns.len(), 2);
    assert!(
        episode.turns[1].kind.calls()[0].shown.is_empty(),
        "not executed"
    );
    assert_eq!(episode.turns[1].observation, "");
}

#[tokio::test]
async fn a_reminder_comes_before_the_closing_turn() {
    let settings = SearchR1Settings {
        max_generations: 2,
        closing_turn: ClosingTurn::Reminder,
        ..settings()
    };
    let episode = play(lines(&[SEARCH, SEARCH, "<answer>Velm</answer>"]), settings).await;
    assert!(
        !episode.turns[0]
            .observation
            .contains("No searches are left")
    );
    assert!(
        episode.turns[1]
            .observation
            .ends_with(forage_env::search_r1::REMINDER)
    );
    assert_eq!((episode.ending, episode.turns.len()), (Ending::Answered, 3));
}

#[tokio::test]
async fn a_forced_answer_is_graded_but_its_prefix_not_trained() {
    let settings = SearchR1Settings {
        max_generations: 1,
        closing_turn: ClosingTurn::ForcedAnswer,
        ..settings()
    };
    let episode = play(lines(&[SEARCH, "Velm</answer>"]), settings).await;
    assert_eq!(episode.ending, Ending::Answered);
    assert_eq!(episode.reward(), Some(1.0));
    assert_eq!(episode.turns[1].policy, "<answer>Velm</answer>");
    assert_eq!(text_of(&episode, Provenance::Forced), "<answer>");
    assert!(text_of(&episode, Provenance::Policy).ends_with("</search>Velm</answer>"));
}

#[tokio::test]
async fn the_token_budget_ends_the_episode() {
    let prompt_tokens = play(lines(&["<answer>x</answer>"]), settings())
        .await
        .tokens
        .count(Provenance::Prompt);
    let limited = |max_episode_tokens| SearchR1Settings {
        max_episode_tokens,
        ..settings()
    };
    let no_room = play(lines(&[SEARCH]), limited(prompt_tokens)).await;
    assert_eq!(
        (no_room.ending, no_room.turns.len()),
        (truncated(Limit::Tokens), 0)
    );
    let cut = play(lines(&[SEARCH]), limited(prompt_tokens + 5)).await;
    assert_eq!(
        (cut.ending, cut.turns.len(), cut.tokens.len()),
        (truncated(Limit::Tokens), 1, prompt_tokens + 5)
    );
    let observation = play(lines(&[SEARCH]), limited(prompt_tokens + SEARCH.len() + 20)).await;
    assert_eq!(observation.ending, truncated(Limit::Tokens));
    assert_eq!(observation.tokens.count(Provenance::Environment), 0);
    assert_eq!(observation.turns[0].observation, "");
    assert_eq!(
        observation
            .score
            .as_ref()
            .map(|score| score.parts["retrieval"]),
        Some(0.0)
    );
}

#[tokio::test]
async fn invalid_turns_follow_the_setting() {
    let on = |on_invalid| SearchR1Settings {
        on_invalid,
        ..settings()
    };
    let two = ["<search></search>", "<answer>Velm</answer>"];
    let ended = play(lines(&two), on(OnInvalid::End)).await;
    assert_eq!(
        ended.ending,
        Ending::Malformed {
            fault: "the query is empty".to_owned()
        }
    );
    assert_eq!(ended.reward(), Some(0.0));
    for (setting, shown) in [
        (OnInvalid::Notice, forage_env::search_r1::NOTICE),
        (OnInvalid::Empty, "\n\n<information></information>\n\n"),
        (OnInvalid::Silent, ""),
    ] {
        let episode = play(lines(&two), on(setting)).await;
        assert_eq!(episode.turns[0].observation, shown);
        assert_eq!(episode.ending, Ending::Answered);
    }
}

/// Ends its turn with a token that its checkpoint lists beside the tokenizer's own.
struct OtherEnd;

#[async_trait]
impl Policy for OtherEnd {
    fn version(&self) -> u64 {
        0
    }

    async fn generate(&self, _: GenerateRequest) -> Result<Completion, PolicyError> {
        let tokens = ByteTokenizer.encode("<think>a</think><answer>velm</answer>\u{3}");
        Ok(Completion {
            logprobs: vec![-0.5; tokens.len()],
            tokens,
            finish: Finish::Eos,
            version: 0,
        })
    }
}

#[tokio::test]
async fn whatever_token_ends_a_turn_is_no_part_of_its_text() {
    let episode = play(Arc::new(OtherEnd), settings()).await;
    let text = "<think>a</think><answer>velm</answer>";
    assert_eq!(episode.turns[0].policy, text);
    let score = episode.score.as_ref().expect("scored");
    assert!((score.parts["format"] - 1.0).abs() < f32::EPSILON);
    // It was sampled, and is learned.
    assert!(text_of(&episode, Provenance::Policy).ends_with('\u{3}'));
}

#[tokio::test]
async fn the_end_token_may_follow_stops_as_forced() {
    let settings = SearchR1Settings {
        append_eos_after_stop: true,
        ..settings()
    };
    let episode = play(lines(&[SEARCH, "<answer>x</answer>"]), settings).await;
    assert_eq!(episode.tokens.count(Provenance::Forced), 2);
    assert_eq!(episode.tokens.ids().last(), Some(&ByteTokenizer.eos()));
    assert_eq!(episode.turns[1].policy, "<answer>x</answer>");
}

#[tokio::test]
async fn a_turn_ends_where_the_chat_template_ends_messages() {
    let source = "{% for message in messages %}{{ message.role }}: {{ message.content }}${% endfor %}\
                  {% if add_generation_prompt %}assistant: {% endif %}";
    let template = ChatTemplate::from_source(source, SpecialTokens::default()).expect("sound");
    let settings = SearchR1Settings {
        append_eos_after_stop: true,
        ..settings()
    };
    let chat = Rollout {
        presentation: Presentation::chat(template, ChatSettings::default()).expect("it appends"),
        ..rollout(lines(&["nothing$user: more"]), factory(settings, library()))
    };
    let episode = chat.run(jobs(task(), 1)).await.remove(0);
    assert_eq!(episode.turns[0].policy, "nothing");
    assert!(text_of(&episode, Provenance::Policy).starts_with("nothing$nothing$"));
    assert_eq!(episode.tokens.count(Provenance::Forced), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn episodes_keep_their_order_and_repeat() {
    let told = std::sync::Mutex::new(Vec::new());
    let play = async |in_flight| {
        let policy = search_r1::ENTRY
            .script("random", Cast::new(Arc::new(ByteTokenizer), []))
            .expect("a script");
        rollout(policy, factory(settings(), library()))
            .run_bounded(jobs(task(), 64), in_flight, &|episode| {
                told.lock().expect("no panic").push(episode.member);
            })
            .await
    };
    let (wide, narrow) = (play(1000).await, play(1).await);
    // Each is told of once.
    let mut told = told.into_inner().expect("no panic");
    told.sort_unstable();
    assert!(
        told.iter()
            .copied()
            .eq((0..64).flat_map(|member| [member; 2]))
    );
    assert_eq!(wide, narrow);
    assert!(
        wide.iter()
            .zip(0..)
            .all(|(episode, member)| episode.member == member)
    );
}

#[tokio::test]
async fn jobs_that_were_played_before_are_not_played_again() {
    let told = std::sync::Mutex::new(Vec::new());
    let play = async |played| {
        let policy = search_r1::ENTRY
            .script("random", Cast::new(Arc::new(ByteTokenizer), []))
            .expect("a script");
        rollout(policy, factory(settings(), library()))
            .resume(jobs(task(), 8), played, 8, &|episode| {
                told.lock().expect("no panic").push(episode.member);
            })
            .await
    };
    let whole = play(HashMap::new()).await;
    let played = [1, 6].map(|place: usize| (place, whole[place].clone()));
    told.lock().expect("no panic").clear();
    assert_eq!(play(HashMap::from(played)).await, whole);
    let mut told = told.into_inner().expect("no panic");
    told.sort_unstable();
    assert_eq!(told, [0, 2, 3, 4, 5, 7]);
}

#[tokio::test]
async fn records_round_trip() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("episodes.jsonl");
    let episodes = [
        play(lines(&[SEARCH, "<answer>Velm</answer>"]), settings()).await,
        play(lines(&["é"]), settings()).await,
        play(Arc::new(Broken::Gone), settings()).await,
    ];
    let mut writer = EpisodeWriter::create(&path).expect("created");
    for episode in &episodes {
        writer.write(episode.clone()).expect("written");
    }
    assert!(!path.exists());
    // A writer that is killed in a line leaves those before it, and another goes on behind them, or behind the first of them.
    drop(writer);
    let partial = folder.path().join("episodes.jsonl.partial");
    let whole = std::fs::read(&partial).expect("read");
    std::fs::write(&partial, [&whole[..], b"{\"schema\":1,\"rew"].concat()).expect("written");
    let (_, kept) = EpisodeWriter::resume(&path, usize::MAX).expect("resumed");
    assert_eq!(kept, episodes);
    assert_eq!(std::fs::read(&partial).expect("read"), whole);
    let (mut writer, kept) = EpisodeWriter::resume(&path, 1).expect("resumed");
    assert_eq!(kept, episodes[..1]);
    for episode in &episodes[1..] {
        writer.write(episode.clone()).expect("written");
    }
    assert_eq!(std::fs::read(&partial).expect("read"), whole);
    writer.finish().expect("finished");
    let records: Vec<_> = EpisodeRecord::read_all(&path)
        .expect("opened")
        .collect::<Result<_, _>>()
        .expect("read");
    assert_eq!(records[0].reward, Some(1.0));
    assert_eq!(records[2].reward, None);
    assert!(
        records
            .iter()
            .zip(&episodes)
            .all(|(record, episode)| record.episode == *episode)
    );
    std::fs::write(&path, "{}\n").expect("written");
    let error = EpisodeRecord::read_all(&path)
        .expect("opened")
        .next()
        .expect("a line")
        .expect_err("no record");
    assert!(
        error
            .to_string()
            .contains("line 1 is not an episode record"),
        "{error}"
    );
    let mut impossible = episodes[0].clone();
    if let Some(score) = &mut impossible.score {
        score.parts.insert("em".to_owned(), 7.0);
    }
    let line = serde_json::to_string(&EpisodeRecord::from(impossible)).expect("JSON");
    std::fs::write(&path, line + "\n").expect("written");
    let error = EpisodeRecord::read_all(&path)
        .expect("opened")
        .next()
        .expect("a line")
        .expect_err("no exact match");
    assert!(
        error
            .to_string()
            .contains("line 1 scores 7 in `em`, which lies between 0 and 1"),
        "{error}"
    );
    std::fs::write(&path, "{\"schema\":1,\"rew").expect("written");
    let error = EpisodeRecord::read_all(&path)
        .expect("opened")
        .next()
        .expect("a line")
        .expect_err("no record");
    assert!(
        matches!(error, RecordError::Unfinished { line: 1, .. }),
        "{error}"
    );
    let error = EpisodeRecord::read_all(&folder.path().join("gone.jsonl"))
        .err()
        .expect("no file")
        .to_string();
    assert!(
        error.starts_with("there is no file of episodes at"),
        "{error}"
    );
}

#[tokio::test]
async fn the_first_gold_shown_is_paid_for_once() {
    let paid = SearchR1Settings {
        gold_shown_reward: 0.5,
        ..settings()
    };
    let town = "<search>river</search>";
    let born = "<search>Ada Brandt born</search>";
    let said = [town, born, born, "<answer>Velm</answer>"];
    let rewards = |episode: &Episode| {
        episode
            .turns
            .iter()
            .map(|turn| turn.reward)
            .collect::<Vec<_>>()
    };
    let episode = play(lines(&said), paid.clone()).await;
    assert_eq!(rewards(&episode), [0.0, 0.5, 0.0, 0.0]);
    assert_eq!(episode.reward(), Some(1.0), "the score is apart");
    assert_eq!(
        rewards(&play(lines(&said), settings()).await),
        [0.0; 4],
        "off by default"
    );
    let prompt_tokens = episode.tokens.count(Provenance::Prompt);
    let cut = SearchR1Settings {
        max_episode_tokens: prompt_tokens + born.len() + 20,
        ..paid
    };
    let unread = play(lines(&[born]), cut).await;
    assert_eq!(
        (&unread.ending, rewards(&unread)),
        (&truncated(Limit::Tokens), vec![0.0]),
        "nobody read it"
    );
    let text = serde_json::to_string(&episode).expect("serialises");
    assert_eq!(
        serde_json::from_str::<Episode>(&text).expect("reads back"),
        episode
    );
    assert_eq!(
        text.matches("\"reward\"").count(),
        1,
        "turns that earned nothing say nothing, as in older records"
    );
}

#[tokio::test]
async fn a_gold_in_a_query_that_is_repeated_was_not_shown() {
    let mut repeated = SearchR1Settings {
        gold_shown_reward: 0.5,
        ..settings()
    };
    repeated.observation.echo_query = true;
    let (guess, born) = (
        "<search>Velmsk</search>",
        "<search>Ada Brandt born</search>",
    );
    let episode = play(
        lines(&[guess, born, "<answer>x</answer>"]),
        repeated.clone(),
    )
    .await;
    assert!(episode.turns[0].observation.contains("Query: Velmsk"));
    let rewards: Vec<f32> = episode.turns.iter().map(|turn| turn.reward).collect();
    assert_eq!(rewards, [0.0, 0.5, 0.0]);
    for (search, read) in [(guess, 0.0), (born, 1.0)] {
        let episode = play(lines(&[search, "<answer>x</answer>"]), repeated.clone()).await;
        let score = episode.score.expect("scored");
        assert!(
            (score.parts["retrieval"] - read).abs() < f32::EPSILON,
            "{search}"
        );
    }
}

#[tokio::test]
async fn a_search_that_finds_nothing_shows_no_gold() {
    let paid = SearchR1Settings {
        gold_shown_reward: 0.5,
        ..settings()
    };
    // Nothing of it is left by the normalisation of answers.
    let band = Task {
        golds: vec!["The The".to_owned()],
        ..task()
    };
    let said = ["<search>zzz</search>", "<answer>x</answer>"];
    let rollout = rollout(lines(&said), factory(paid, library()));
    let episode = rollout.run(jobs(band, 1)).await.remove(0);
    assert!(episode.turns[0].kind.calls()[0].shown.is_empty());
    assert!(episode.turns[0].reward.abs() < f32::EPSILON);
}
