//! A push counts when the server was seen to have the weights: those that a server does not take are pushed in another way, or end
//! the run.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use forage_contracts::policy::{Policy, PolicyError};
use forage_trainer::metrics::Row;
use forage_trainer::run::{Control, RunError, Source, run_grpo};
use forage_trainer::weights::{Checkpoint, FileType};
use forage_trainer::{LearnError, RemoteError, RemoteKind};
use serde_json::Value;

use super::served::Flaw;
use super::support::{KINDS, request};
use super::training::{adapted, grpo, is_push, learner, place};
use crate::tests::common::problem::{checkpoint, problem};

/// A run of three steps.
struct Ran {
    result: Result<(), RunError>,
    rows: Vec<Row>,
    /// What the server was asked for.
    calls: Vec<(String, Value)>,
    policy: Arc<dyn Policy>,
}

async fn run(kind: RemoteKind, start: Checkpoint, flaw: Flaw, folder: &Path) -> Ran {
    let mut config = grpo();
    (config.steps, config.lookahead) = (3, 0);
    let problem = problem(&start, &[("random", 1.0)]);
    let (fakes, learner) = learner(kind, start, &[flaw], folder, 20.0).await;
    let mut learner = Box::new(learner);
    let (source, place) = (Source::Play(&problem), place(folder));
    let ran = run_grpo(&mut learner, source, &config, &place, |_, _, _| {
        Control::Continue
    });
    let result = Box::pin(ran).await;
    Ran {
        result,
        // A run that ends before its first step has none.
        rows: Row::read_all(&folder.join("metrics.jsonl")).unwrap_or_default(),
        calls: fakes[0].take_calls(),
        policy: learner.policy(),
    }
}

impl Ran {
    /// The texts that the server was asked about, by request; those by which it is known again are left out.
    fn asked(&self) -> Vec<Vec<Vec<u32>>> {
        let asked = self
            .calls
            .iter()
            .filter_map(|(path, body)| match path.as_str() {
                "/v1/completions" if body["temperature"] == 1.0 => {
                    Some(&body["prompt"]).filter(|texts| texts[0].is_array())
                }
                "/generate" => Some(&body["input_ids"]).filter(|texts| texts[0].is_array()),
                _ => None,
            });
        asked
            .map(|texts| serde_json::from_value(texts.clone()).unwrap())
            .collect()
    }

    /// The last parts of the folders that were pushed, in order.
    fn pushed(&self) -> Vec<String> {
        let pushes = self.calls.iter().filter(|(path, _)| is_push(path));
        let folder = |(_, body): &(String, Value)| {
            let places = ["/lora_path", "/kwargs/weights_path", "/model_path"];
            let found = places.iter().find_map(|place| body.pointer(place)).unwrap();
            let name = found.as_str().unwrap().rsplit_once('/').unwrap().1;
            name.to_owned()
        };
        pushes.map(folder).collect()
    }

    fn metric(&self, name: &str) -> Vec<Option<f64>> {
        self.rows.iter().map(|row| row.get(name)).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_server_is_asked_once_per_push_about_texts_it_never_saw() {
    for kind in KINDS {
        for start in [checkpoint(1), checkpoint(1).untied(), adapted()] {
            let folder = tempfile::tempdir().unwrap();
            let ran = Box::pin(run(kind, start, Flaw::None, folder.path())).await;
            ran.result.as_ref().unwrap();
            let asked = ran.asked();
            assert_eq!((ran.pushed().len(), asked.len()), (5, 5), "{kind:?}");
            assert!(ran.pushed()[0].starts_with("changed"), "{kind:?}");
            assert_eq!(ran.metric("push/verified"), [Some(1.0); 3], "{kind:?}");
            let gaps = ran.metric("push/logprob_abs_diff");
            assert!(
                gaps.iter().all(|gap| gap.is_some_and(|gap| gap < 1e-5)),
                "{kind:?}: {gaps:?}"
            );
            // What a server kept of a text under other weights begins otherwise.
            let texts: Vec<&Vec<u32>> = asked.iter().flatten().collect();
            assert!(texts.iter().all(|text| text.len() > 16));
            let begins: BTreeSet<&[u32]> = asked.iter().map(|texts| &texts[0][..6]).collect();
            assert_eq!(begins.len(), asked.len(), "{begins:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_head_is_found_before_the_first_step_and_mended_for_good() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let ran = Box::pin(run(kind, checkpoint(1), Flaw::StaleHead, folder.path())).await;
        ran.result.as_ref().unwrap();
        let expected = [
            "changed-whole",
            "changed-untied",
            "version-000000-untied",
            "version-000001-untied",
            "version-000002-untied",
            "version-000003-untied",
        ];
        assert_eq!(ran.pushed(), expected, "{kind:?}");
        assert_eq!(ran.asked().len(), expected.len(), "{kind:?}");
        assert_eq!(ran.metric("push/verified"), [Some(1.0); 3], "{kind:?}");
        let gaps = ran.metric("push/logprob_abs_diff");
        assert!(
            gaps.iter().all(|gap| gap.is_some_and(|gap| gap < 1e-5)),
            "{kind:?}: {gaps:?}"
        );
        assert_eq!(ran.policy.version(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_rounding_could_hide_is_sent_from_the_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let published = folder.path().join("published");
    checkpoint(1).save_as(&published, FileType::Bf16).unwrap();
    for kind in KINDS {
        let start = Checkpoint::load(&published, &Device::flex()).unwrap();
        let place = folder.path().join(format!("{kind:?}"));
        let ran = Box::pin(run(kind, start, Flaw::StaleHead, &place)).await;
        ran.result.as_ref().unwrap();
        let versions = [0, 1, 2, 3].map(|version| format!("version-{version:06}-untied"));
        assert_eq!(ran.pushed()[0], "changed-untied", "{kind:?}");
        assert_eq!(ran.pushed()[1..], versions, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adapters_that_a_server_does_not_apply_are_merged_and_pushed_whole() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let ran = Box::pin(run(kind, adapted(), Flaw::NoAdapters, folder.path())).await;
        ran.result.as_ref().unwrap();
        let expected = [
            "changed",
            "changed-whole",
            "version-000000-whole",
            "version-000001-whole",
            "version-000002-whole",
            "version-000003-whole",
        ];
        assert_eq!(ran.pushed(), expected, "{kind:?}");
        assert_eq!(ran.metric("push/verified"), [Some(1.0); 3], "{kind:?}");
    }
}

/// The message of a run that ended before its first step because weights did not arrive.
fn unverified(ran: &Ran) -> String {
    let Err(RunError::Learn {
        step: 0,
        source: LearnError::Push(error @ RemoteError::Unverified { .. }),
    }) = &ran.result
    else {
        panic!("{:?}", ran.result)
    };
    assert!(ran.rows.is_empty());
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_weights_ends_the_run_with_the_figures() {
    for kind in KINDS {
        for (start, ways) in [(checkpoint(1), 2), (checkpoint(1).untied(), 1)] {
            let folder = tempfile::tempdir().unwrap();
            let ran = Box::pin(run(kind, start, Flaw::Deaf, folder.path())).await;
            let message = unverified(&ran);
            assert_eq!(
                message.matches("nats on average").count(),
                ways,
                "{message}"
            );
            for word in [
                "http://127.0.0.1",
                "changed on purpose",
                "restart the server",
                "--resume",
                "1e-4",
            ] {
                assert!(message.contains(word), "{word}: {message}");
            }
            // The model to restart it with is there, and no other.
            let there = std::fs::read_dir(folder.path().join("pushed")).unwrap();
            let there: Vec<String> = there
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            let last = if ways == 2 {
                "version-000000-untied"
            } else {
                "version-000000-whole"
            };
            assert_eq!(there, [last], "{kind:?}");
            assert!(message.contains(last), "{message}");
            assert_eq!(ran.pushed().len(), ways, "{kind:?}");
            // Nobody samples from it any more.
            let refused = ran.policy.generate(request(1)).await;
            assert!(matches!(refused, Err(PolicyError::Gone(_))), "{refused:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_were_not_asked_for_or_do_not_exist_end_the_run() {
    for kind in KINDS {
        for (flaw, expected) in [
            (Flaw::TooMany, "17 tokens where at most 16"),
            (Flaw::Foreign, "the policy's vocabulary ends at 400"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let ran = Box::pin(run(kind, checkpoint(1), flaw, folder.path())).await;
            let Err(RunError::Learn {
                source: LearnError::Push(error),
                ..
            }) = &ran.result
            else {
                panic!("{:?}", ran.result)
            };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_16_bits_a_server_that_takes_no_weights_ends_the_run_before_its_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let published = folder.path().join("published");
    checkpoint(1).save_as(&published, FileType::Bf16).unwrap();
    for kind in KINDS {
        let start = Checkpoint::load(&published, &Device::flex()).unwrap();
        let place = folder.path().join(format!("{kind:?}"));
        let ran = Box::pin(run(kind, start, Flaw::Deaf, &place)).await;
        let message = unverified(&ran);
        assert!(message.contains("1e-1 on average is rounding"), "{message}");
        assert_eq!(ran.pushed(), ["changed-untied", "changed-whole"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_true_weights_must_return_after_those_changed_on_purpose() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let start = checkpoint(1).untied();
        let ran = Box::pin(run(kind, start, Flaw::DeafAfterOne, folder.path())).await;
        let message = unverified(&ran);
        assert!(message.contains("5e-5"), "{message}");
        assert!(!message.contains("changed on purpose"), "{message}");
        assert_eq!(ran.pushed(), ["changed-whole", "version-000000-whole"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_whose_change_would_not_show_are_pushed_without_a_proof() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let mut start = checkpoint(1);
        // Every token is as likely as any other, whatever the factor.
        start.decoder = start.decoder.scaled(0.0);
        let (fakes, mut learner) = learner(kind, start, &[Flaw::None], folder.path(), 20.0).await;
        learner.announce().await.unwrap();
        let calls = fakes[0].take_calls();
        let pushes = calls.iter().filter(|(path, _)| is_push(path)).count();
        assert_eq!(pushes, 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_of_an_earlier_process_do_not_displace_those_of_this_one() {
    for (start, pushed) in [
        (checkpoint(1), "version-000000-whole"),
        (adapted(), "version-000000"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("pushed");
        // One that was killed after its twelfth update, and goes on before the first.
        for old in [
            ".partial-version-000013",
            "changed-whole",
            "version-000010",
            "version-000011",
            "version-000012-whole",
            "version-000012-untied",
        ] {
            std::fs::create_dir_all(place.join(old)).unwrap();
        }
        let kind = RemoteKind::Vllm;
        let (_fakes, mut learner) = learner(kind, start, &[Flaw::None], folder.path(), 20.0).await;
        learner.announce().await.unwrap();
        let there = std::fs::read_dir(place).unwrap();
        let there: Vec<String> = there
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(there, [pushed]);
    }
}
