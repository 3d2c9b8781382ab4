//! The environment: which answers are one, what problems are made, what scripts and rewards earn on it.

use std::collections::{BTreeMap, HashSet};

use forage_contracts::policy::{Finish, Policy, Sampling};
use forage_contracts::scripted::{Cast, Haste, OracleStyle, ScriptEntry, Scripted};
use forage_contracts::{ByteTokenizer, Ending, Split, Turn};
use proptest::prelude::*;
use serde_json::json;

use super::answer::{form, recorded};
use super::*;
use crate::Labels;
use crate::check::CheckPlan;
use crate::reward::RewardSet;
use crate::reward::grading::exact_match;
use crate::rollout::{Job, Presentation, Rollout};

const SAME: [[&str; 2]; 57] = [
    ["x^\\frac12", "x^{1/2}"],
    ["\\frac{1}{2}", "0.5"],
    ["\\dfrac12", "1/2"],
    ["-\\frac{3}{4}", "\\frac{-3}{4}"],
    ["−3", "-3"],
    ["1,234", "1234"],
    ["1{,}234{,}567", "1234567"],
    ["11,\\! 111,\\! 111,\\! 100", "11,111,111,100"],
    ["(10, 100)", "(10,100)"],
    [
        "(-\\infty,100)\\cup(100,250]",
        "(-\\infty, 100) \\cup (100, 250]",
    ],
    ["\\left\\{ -0.5, 1 \\right\\}", "\\{-\\frac12,1\\}"],
    ["\\{100, 200\\}", "\\{100,200\\}"],
    ["\\{1,2\\}", "1, 2"],
    ["\\{\\}", "\\emptyset"],
    ["27.0", "27"],
    ["033", "33"],
    ["\\$5", "5"],
    ["50\\%", "50"],
    ["90^\\circ", "90"],
    ["120\\degree", "120"],
    ["5 \\pm 2", "5±2"],
    ["a_{10}", "a_10"],
    ["0.\\overline{3}", "0.\\overline3"],
    ["\\dbinom{n}{2}", "\\binom n2"],
    ["\\frac{1}{\\sqrt[3]{4}}", "1/\\sqrt[3]4"],
    ["12\\text{ cm}^2", "12"],
    ["5 inches", "5"],
    ["36\\pi\\,\\text{cm}^2", "36\\pi"],
    ["6 cm^2", "6"],
    ["x = 7", "7"],
    ["3\\frac{1}{2}", "3 1/2"],
    ["7/2", "3.5"],
    ["\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\pi/2)"],
    ["(1, 0.5]", "(1,\\frac12]"],
    ["\\text{(C)}", "C"],
    ["2\\sqrt{3}", "2\\cdot\\sqrt3"],
    ["\\frac{\\sqrt{3}}{2}", "\\sqrt3/2"],
    ["\\frac{-\\sqrt{3}}{2}", "-\\frac{\\sqrt{3}}{2}"],
    [
        "\\begin{pmatrix} \\frac{-1}{3} \\\\ \\frac{-2}{3} \\end{pmatrix}",
        "\\begin{pmatrix} -1/3 \\\\ -2/3 \\end{pmatrix}",
    ],
    ["1-\\frac{-x}{2}", "1-(-x)/2"],
    ["\\frac{\\sqrt{x+1}}{2}", "\\sqrt{x+1}/2"],
    ["\\frac{1}{2\\pi}", "1/(2\\pi)"],
    ["\\frac{n!}{|x|^{2}}", "n!/|x|^2"],
    ["\\frac{1}{x^{2}}", "1/x^2"],
    ["2^{n+1}", "2^(n+1)"],
    ["x^{10}", "x^10"],
    ["x^{-1}", "x^-1"],
    ["2 \\times x", "2x"],
    ["\\displaystyle \\frac{1}{2}", "\\frac12"],
    ["\\frac\\pi2", "\\pi/2"],
    ["x \\leq 5", "x≤5"],
    ["[0,∞)", "[0, \\infty)"],
    ["\\text{Evelyn}", "evelyn"],
    ["1, 2", "1 and 2"],
    ["1 \\text{ or } 2", "1, 2"],
    ["5.", "５"],
    ["$x^2$", "x^2"],
];

/// The first four are one text after the normalisation of answers.
const OTHER: [[&str; 2]; 29] = [
    ["x^\\frac12", "x^1/2"],
    ["3", "-3"],
    ["1.5", "15"],
    ["12", "1/2"],
    ["(1,2)", "12"],
    ["1/2", "2/4"],
    ["2", "4/2"],
    ["(1,2)", "[1,2]"],
    ["(1,2)", "(2,1)"],
    ["2*3", "23"],
    ["\\frac{1}{23}", "\\frac{12}{3}"],
    ["\\frac{x+1}{2}", "x+\\frac12"],
    ["1+x", "x+1"],
    ["x^2", "x2"],
    ["2^{n+1}", "2^n+1"],
    ["x^{2y}", "x^2y"],
    ["a_{n+1}", "a_n+1"],
    ["\\sqrt[3]{x+1}", "\\sqrt[3]{x}+1"],
    ["0.\\overline{31}", "0.\\overline{3}1"],
    ["\\binom{12}{3}", "\\binom{1}{23}"],
    ["\\frac{1}{2\\pi}", "\\frac{1}{2}\\pi"],
    ["\\sqrt{5}", "5"],
    ["3 cm", "3 cats"],
    ["1 \\text{ and } 2", "1"],
    ["100 or 200", "100200"],
    ["(10, 100)", "10100"],
    ["(10,100)", "10100"],
    ["\\{1,2\\}", "(1,2)"],
    ["a-1", "-1"],
];

#[test]
fn exact_match_of_what_is_recorded_is_equality_of_answers() {
    let pairs = SAME.iter().map(|pair| (pair, true));
    for ([left, right], same) in pairs.chain(OTHER.iter().map(|pair| (pair, false))) {
        for (answer, gold) in [(left, right), (right, left)] {
            assert_eq!(form(answer) == form(gold), same, "{answer} {gold}");
            let golds = [(*gold).to_owned()];
            let kept = recorded(answer, &golds);
            assert_eq!(exact_match(&kept, &golds), same, "{answer} {gold}: {kept}");
            // A recorded answer may be the label of a later run.
            assert_eq!(form(&kept), form(answer), "{answer} {gold}: {kept}");
            // Votes compare answers that no gold is equal to.
            let [one, other] = [answer, gold].map(|text| recorded(text, &[]));
            assert_eq!(exact_match(&one, &[other.as_str()]), same, "{one} {other}");
        }
    }
    assert_eq!(recorded("15", &["1.5".to_owned()]), "15 ≢ 1.5");
    assert_eq!(recorded("-1/2", &["3".to_owned()]), "－1／2");
}

fn answer_of(text: &str) -> Option<String> {
    match read(text, &["7".to_owned()]) {
        TurnKind::Answer { answer } => Some(answer),
        _ => None,
    }
}

#[test]
fn the_last_box_that_closes_holds_the_answer() {
    for (text, found) in [
        ("\\boxed{3} or rather \\boxed{ 7.0 }.", Some("7")),
        ("\\boxed{\\frac{1}{2}} \\boxed", Some("1／2")),
        ("\\boxed{7} and \\boxed{8", None),
        ("\\boxed{ } 7", None),
        ("<answer>7</answer>", None),
    ] {
        assert_eq!(answer_of(text).as_deref(), found, "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_an_answer_or_a_fault(
        parts in prop::collection::vec(
            prop::sample::select(vec!["\\frac", "\\sqrt", "\\text{", "{", "}", "(", ")", ",", "/", "-", ".", "12", "é", " ", "x", "="]),
            0..40,
        )
    ) {
        let text = parts.concat();
        let _ = form(&text);
        read(&in_box(&text), &[text.clone(), "7".to_owned()]);
    }
}

#[test]
fn long_answers_are_compared_as_they_are() {
    let nested = "\\sqrt{".repeat(100_000);
    assert_eq!(form(&nested), nested);
}

fn questions(difficulty: usize, split: Split, count: usize, seed: u64) -> Vec<Task> {
    let make = ENTRY.questions.expect("its own");
    let settings = json!({ "difficulty": difficulty });
    make(settings, split, count, Seed::root(seed)).expect("enough")
}

#[test]
fn problems_follow_from_the_seed_and_no_two_splits_share_one() {
    for difficulty in 1..=5 {
        let train = questions(difficulty, Split::Train, 120, 1);
        assert_eq!(train[..50], questions(difficulty, Split::Train, 50, 1));
        assert_ne!(train, questions(difficulty, Split::Train, 120, 2));
        let texts: HashSet<&str> = train.iter().map(|task| task.question.as_str()).collect();
        assert_eq!(texts.len(), 120);
        for split in [Split::Dev, Split::Test] {
            let held_out = questions(difficulty, split, 40, 2);
            assert!(held_out.iter().all(|task| task.split == split));
            assert!(
                held_out
                    .iter()
                    .all(|task| !texts.contains(task.question.as_str()))
            );
        }
        let steps = train.iter().map(|task| usize::from(task.hops)).max();
        assert_eq!(steps, Some(difficulty));
    }
    let make = ENTRY.questions.expect("its own");
    let none = make(json!({}), Split::Test, 100_000, Seed::root(1));
    assert!(none.is_err(), "more than there are");
}

#[test]
fn the_steps_of_a_problem_lead_to_its_answer() {
    for task in (1..=5).flat_map(|difficulty| questions(difficulty, Split::Train, 100, 3)) {
        for hop in &task.oracle {
            let parts: Vec<&str> = hop.query.split(' ').collect();
            let [left, sign, right] = parts[..] else {
                panic!("{}", hop.query);
            };
            let number = |text: &str| text.parse::<i64>().expect("a whole number");
            let (left, right) = (number(left), number(right));
            let found = match sign {
                "+" => left + right,
                "-" => left - right,
                "*" => left * right,
                _ => {
                    let value = f64::from(u32::try_from(left.abs()).expect("small")) / right as f64;
                    let said = form(&hop.finding);
                    let (top, bottom) = said.split_once('/').unwrap_or((&said, "1"));
                    let said = number(top) as f64 / number(bottom) as f64;
                    assert!((said.abs() - value).abs() < 1e-9, "{hop:?}");
                    continue;
                }
            };
            assert_eq!(hop.finding, found.to_string(), "{hop:?}");
        }
        let last = task.oracle.last().expect("a step");
        assert_eq!(last.finding, task.golds[0]);
    }
}

fn factory(settings: Value) -> Arc<dyn EnvFactory> {
    let settings: MathSettings = serde_json::from_value(settings).expect("settings");
    Math::factory(&settings).expect("a prompt")
}

async fn play(policy: Arc<dyn Policy>, tasks: &[Task]) -> Vec<Episode> {
    let rollout = Rollout {
        policy,
        tokenizer: Arc::new(ByteTokenizer),
        factory: factory((ENTRY.for_bytes)(Map::new()).into()),
        rewards: Arc::new(RewardSet::measure(ENTRY.outcome)),
        sampling: Sampling::FULL,
        presentation: Presentation::RAW,
    };
    let job = |task: &Task| Job::alone(Arc::new(task.clone()), Seed::root(1));
    rollout.run(tasks.iter().map(job).collect()).await
}

async fn script(name: &str, tasks: &[Task], style: OracleStyle, haste: Haste) -> Vec<Episode> {
    let known = tasks.iter().cloned().map(Arc::new);
    let cast = Cast::new(Arc::new(ByteTokenizer), known);
    let cast = cast.in_style(style).hasty(haste);
    play(ENTRY.script(name, cast).expect("a script"), tasks).await
}

fn metrics(episodes: &[Episode]) -> BTreeMap<String, f64> {
    let mut row = BTreeMap::new();
    let episodes: Vec<&Episode> = episodes.iter().collect();
    describe(&episodes, &mut |name, value| {
        row.insert(name.to_owned(), value);
    });
    row
}

fn measured(episode: &Episode) -> BTreeMap<&'static str, f64> {
    let mut found = BTreeMap::new();
    measures(episode, &mut |name, value| {
        found.insert(name, value);
    });
    found
}

#[tokio::test]
async fn scripts_are_right_in_words_and_in_code_and_the_share_of_code_is_told() {
    let tasks: Vec<Task> = (1..=5)
        .flat_map(|difficulty| questions(difficulty, Split::Dev, 8, 5))
        .collect();
    for (name, style, code) in [
        (ScriptEntry::ORACLE, OracleStyle::Plain, 0.0),
        (ScriptEntry::ORACLE, OracleStyle::Terse, 0.0),
        ("coder", OracleStyle::Plain, 1.0),
    ] {
        let episodes = script(name, &tasks, style, Haste::NONE).await;
        let right = |episode: &&Episode| episode.reward() == Some(1.0);
        assert_eq!(episodes.iter().filter(right).count(), tasks.len(), "{name}");
        let row = metrics(&episodes);
        let expected = [("math/boxed_frac", 1.0), ("math/code_frac", code)];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(row, BTreeMap::from(expected), "{name}");
        let em = if code > 0.0 { "code_em" } else { "words_em" };
        let expected = BTreeMap::from([("code_reasoning", code), (em, 1.0)]);
        assert_eq!(measured(&episodes[0]), expected);
    }
    let silent = serde_json::from_value(json!({"silent": 1.0})).expect("haste");
    let silent = script(ScriptEntry::ORACLE, &tasks[..2], OracleStyle::Plain, silent).await;
    assert!(
        silent
            .iter()
            .all(|episode| matches!(episode.ending, Ending::Malformed { .. }))
    );
    assert!(metrics(&silent)["math/boxed_frac"] < 1e-9);
    // Episodes of other environments have neither.
    let tags = Scripted::constant(Arc::new(ByteTokenizer), "<answer>7</answer>");
    let mut other = play(Arc::new(tags), &tasks[..1]).await.remove(0);
    other.turns[0].kind = TurnKind::answer("7");
    assert!(measured(&other).is_empty() && metrics(&[other]).is_empty());
}

#[tokio::test]
async fn a_habit_has_its_shares_and_is_right_whatever_ends_badly() {
    let tasks = questions(2, Split::Train, 400, 8);
    let haste = |shares: Value| -> Haste { serde_json::from_value(shares).expect("haste") };
    let play = async |shares| {
        script(
            ScriptEntry::ORACLE,
            &tasks,
            OracleStyle::Plain,
            haste(shares),
        )
        .await
    };
    let share = |episodes: &[Episode], holds: fn(&str) -> bool| {
        let found = episodes
            .iter()
            .filter(|episode| holds(&episode.turns[0].policy));
        found.count() as f64 / episodes.len() as f64
    };
    let in_code: fn(&str) -> bool = |text| text.contains("```python\nprint(");
    let episodes = play(json!({"direct": 0.3, "code": 0.5})).await;
    assert!(episodes.iter().all(|episode| episode.reward() == Some(1.0)));
    for (found, expected) in [
        (share(&episodes, in_code), 0.5),
        (share(&episodes, |text| text.starts_with(BOX)), 0.3),
        (share(&episodes, |text| text.contains(" = ")), 0.2),
    ] {
        assert!((found - expected).abs() < 0.1, "{found} {expected}");
    }
    // How a solution ends is drawn apart from how it is written.
    let hasty = play(json!({"code": 0.5, "silent": 0.5})).await;
    let (silent, boxed): (Vec<Episode>, Vec<Episode>) = hasty
        .into_iter()
        .partition(|episode| episode.answer().is_none());
    for part in [silent, boxed] {
        let found = share(&part, in_code);
        assert!((found - 0.5).abs() < 0.15, "{found}");
    }
}

fn episode(task: &Task, text: &str) -> Episode {
    let turn = Turn {
        policy: text.to_owned(),
        finish: Finish::Eos,
        kind: read(text, &task.golds),
        observation: String::new(),
        reward: 0.0,
    };
    Episode {
        turns: vec![turn],
        ..Episode::new(task.clone())
    }
}

#[tokio::test]
async fn the_rewards_of_spurious_rewards_judge_it() {
    let task = Task {
        golds: vec!["\\frac{3}{4}".to_owned()],
        ..Task::new("q", "What is three quarters?")
    };
    let texts = [
        "\\boxed{\\frac12}",
        "```python\nprint(1/2)\n```\n\\boxed{0.5}",
        "\\boxed{0.75}",
        "three quarters",
    ];
    for (reward, expected) in [
        (json!({"em": 1.0}), [0.0, 0.0, 1.0, 0.0]),
        (json!({"majority": 1.0}), [1.0, 1.0, 0.0, 0.0]),
        (
            json!({"format_only": {"weight": 1.0, "form": "boxed"}}),
            [1.0, 1.0, 1.0, 0.0],
        ),
        (json!({"contains": 1.0}), [0.0, 1.0, 0.0, 0.0]),
        (json!({"random": {"weight": 1.0, "p": 1.0}}), [1.0; 4]),
    ] {
        let weights = serde_json::from_value(reward.clone()).expect("weights");
        let rewards = RewardSet::configured(ENTRY.outcome, &weights, Seed::root(1));
        let rewards = rewards.expect("registered");
        let mut members = texts.map(|text| episode(&task, text));
        for member in &mut members {
            let score = rewards.score(&task, member).await;
            member.score = Some(score.expect("a score"));
        }
        let members: Vec<&Episode> = members.iter().collect();
        let scores = rewards.score_group(&task, &members).await.expect("scores");
        for (score, expected) in scores.iter().zip(expected) {
            assert!(
                (score.total - expected).abs() < 1e-6,
                "{reward}: {scores:?}"
            );
        }
    }
    let tasks = questions(4, Split::Train, 60, 7);
    let wrong = Labels::Wrong.relabel(tasks.clone(), Seed::root(1));
    for (task, own) in wrong.expect("others").iter().zip(&tasks) {
        assert_ne!(
            form(&task.golds[0]),
            form(&own.golds[0]),
            "{}",
            own.question
        );
    }
}

#[tokio::test]
async fn the_contract_is_kept_under_every_prompt() {
    let tasks = questions(2, Split::Test, 2, 1);
    let rewards = RewardSet::measure(ENTRY.outcome);
    for (prompt, words) in [
        ("math", "step by step"),
        ("spurious", "Lorem ipsum"),
        ("short", ""),
    ] {
        let factory = factory(json!({ "prompt": prompt }));
        let mut env = factory.make();
        let opening = env
            .reset(&tasks[0], Seed::root(1))
            .await
            .expect("a prompt")
            .text;
        assert!(
            opening.contains(&tasks[0].question) && opening.contains(words),
            "{opening}"
        );
        let plan = CheckPlan::of(&ENTRY);
        let checked = plan.check(factory.as_ref(), &tasks, &rewards, Seed::root(1));
        assert_eq!(checked.await, Ok(()), "{prompt}");
    }
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    for reward in OF_SEARCHES {
        assert!((ENTRY.refuses)(reward, &json!({})).is_some(), "{reward}");
        let known = crate::registry::rewards().any(|entry| entry.name == reward);
        assert!(known, "{reward}");
    }
    assert!((ENTRY.refuses)("format_only", &json!({})).is_none());
    for (written, words) in [
        (json!({"difficulty": 0}), "`difficulty` is 0"),
        (json!({"difficulty": 6}), "write 1 to 5"),
    ] {
        let settings: MathSettings = serde_json::from_value(written).expect("numbers");
        let error = settings.check().expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
}
