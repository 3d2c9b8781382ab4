//! Episodes of any kind, read without a fault.

use forage_contracts::environment::{Call, TurnKind};
use forage_contracts::policy::Finish;
use forage_contracts::{Ending, Episode, Turn};
use forage_eval::{Bootstrap, Course, StepTelemetry, Telemetry};
use proptest::prelude::*;
use serde_json::json;

use super::super::fixtures::{SETTINGS, task};
use super::{judged, played, ran, recorded};

/// Items that count something; the others are shares.
const COUNTS: [&str; 6] = [
    "reward",
    "policy_tokens",
    "turns",
    "searches",
    "answer_words",
    "query_words",
];

/// Text of the kind policies and environments write, cut anywhere.
fn text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "<think>",
        "</think>",
        "<search>",
        "</search>",
        "<information>",
        "</information>",
        "<answer>",
        "</answer>",
        "<python>",
        "</python>",
        "<tool_call>",
        "</tool_call>",
        "<query>",
        "\"a b\" AND ",
        "NOT (",
        "é the 𝒳 ",
        "word ",
        "\n",
        "",
    ]);
    prop::collection::vec(
        prop_oneof![3 => pieces.prop_map(str::to_owned), 1 => "\\PC{0,12}"],
        0..12,
    )
    .prop_map(|pieces| pieces.concat())
}

fn kind() -> impl Strategy<Value = TurnKind> {
    let ids = prop::collection::vec(prop_oneof!["p[0-9]", "poison:[a-z]{0,3}(#[0-9])?"], 0..3);
    let status = prop::option::of(prop::sample::select(vec!["ok", "code_size", "timeout"]));
    prop_oneof![
        (text(), text(), ids.clone()).prop_map(|(query, more, shown)| TurnKind::call(
            Call::search(vec![query, more], shown)
        )),
        text().prop_map(|answer| TurnKind::Answer { answer }),
        text().prop_map(|fault| TurnKind::Invalid { fault }),
        (text(), ids.clone()).prop_map(|(query, found)| judged(&query, found)),
        (status, any::<bool>(), any::<bool>(), 0_usize..3, ids).prop_map(
            |(status, printed, gold_read, size, redefined)| {
                let mut payload = ran(size);
                payload["status"] = json!(status);
                payload["printed"] = json!(printed);
                payload["redefined"] = json!(redefined);
                recorded(payload, gold_read)
            }
        ),
    ]
}

fn any_episode() -> impl Strategy<Value = Episode> {
    let finish = prop::sample::select(vec![
        Finish::Stop,
        Finish::Eos,
        Finish::Length,
        Finish::Context,
    ]);
    let turn =
        (text(), finish, kind(), text()).prop_map(|(policy, finish, kind, observation)| Turn {
            policy,
            finish,
            kind,
            observation,
            reward: 0.0,
        });
    let golds = prop::collection::vec(text(), 0..2);
    (
        prop::collection::vec(turn, 0..5),
        golds,
        text(),
        0_usize..4,
        any::<bool>(),
    )
        .prop_map(|(turns, golds, question, index, canary)| {
            let mut made = Episode {
                ending: Ending::Answered,
                ..played(index, turns)
            };
            made.task = forage_contracts::Task {
                golds,
                question,
                ..task(index)
            };
            if canary {
                made.task.data_source = "canary".into();
            }
            made
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_episode_is_too_odd(episodes in prop::collection::vec(any_episode(), 0..6)) {
        let settings = Bootstrap { resamples: 20, ..SETTINGS };
        let telemetry = Telemetry::from_episodes(&episodes, settings)?;
        for (name, item) in &telemetry.items {
            prop_assert!(item.interval.estimate.is_finite(), "{name}");
            let share = !COUNTS.contains(&name.as_str());
            prop_assert!(!share || (0.0..=1.0).contains(&item.interval.estimate), "{name}");
        }
        prop_assert!(telemetry.to_text().contains("episodes"));
        let steps: Vec<StepTelemetry> = (0..9).map(|step| StepTelemetry::of(step, &episodes)).collect();
        prop_assert!(Course::of(&steps, settings).is_ok());
    }
}
