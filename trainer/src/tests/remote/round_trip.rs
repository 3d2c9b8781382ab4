//! What a healthy server answers arrives as it is.

use forage_contracts::policy::{Finish, Policy, PolicyError, Sampling};
use forage_contracts::seed::Seed;
use forage_trainer::{RemoteKind, RemotePolicy};
use serde_json::Value;

use super::fake::Fake;
use super::model::Model;
use super::support::{KINDS, config, connected, expected, request};

#[tokio::test]
async fn completions_are_the_servers_to_the_token() {
    for kind in KINDS {
        let (_fake, policy) = connected(kind).await;
        let (mut ends, mut tokens) = (Vec::new(), 0);
        for number in 0..40 {
            let mut request = request(number);
            match number % 4 {
                0 => {}
                1 => request.sampling = Sampling::FULL,
                2 => {
                    request.sampling = Sampling {
                        temperature: 1e-6,
                        ..Sampling::GREEDY
                    }
                }
                _ => (request.ignore_eos, request.max_tokens) = (true, 3),
            }
            let completion = policy.generate(request.clone()).await.unwrap();
            assert_eq!(completion, expected(&request, "base"), "{kind:?} {number}");
            ends.push(completion.finish);
            tokens += completion.tokens.len() as u64;
        }
        for end in [Finish::Stop, Finish::Eos, Finish::Length] {
            assert!(ends.contains(&end), "{kind:?}: {end:?} occurs");
        }
        let stats = policy.servers()[0].stats();
        assert_eq!(
            (stats.requests, stats.completed, stats.generated_tokens),
            (40, 40, tokens),
            "{kind:?}"
        );
        assert_eq!((stats.retries, stats.failed), (0, 0), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_at_once_get_their_own_answers() {
    for kind in KINDS {
        let (_fake, policy) = connected(kind).await;
        let one = |number| {
            let (policy, request) = (policy.clone(), request(number));
            tokio::spawn(async move { (policy.generate(request.clone()).await.unwrap(), request) })
        };
        for task in (0..100).map(one).collect::<Vec<_>>() {
            let (completion, request) = task.await.unwrap();
            assert_eq!(completion, expected(&request, "base"), "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_server_without_lists_of_ids_is_asked_for_names() {
    let (fake, url) = Fake {
        old: true,
        ..Fake::new(Model::Hash)
    }
    .serve()
    .await;
    let policy = RemotePolicy::connect(&config(RemoteKind::Vllm, &url))
        .await
        .unwrap();
    fake.take_calls();
    for number in 0..20 {
        let request = request(number);
        assert_eq!(
            policy.generate(request.clone()).await.unwrap(),
            expected(&request, "base"),
            "{number}"
        );
    }
    let named = |body: &Value| body.get("return_tokens_as_token_ids").is_some();
    let asked: Vec<bool> = fake
        .take_calls()
        .iter()
        .map(|(_, body)| named(body))
        .collect();
    assert_eq!(
        (asked.len(), asked[0]),
        (21, false),
        "one question more, once"
    );
    assert!(asked[1..].iter().all(|&named| named));
}

#[tokio::test]
async fn the_context_window_bounds_prompt_and_completion() {
    for kind in KINDS {
        let (fake, policy) = connected(kind).await;
        let mut request = request(0);
        (request.tokens, request.max_tokens) = (vec![65; 508], 40);
        (request.stop, request.ignore_eos) = (Vec::new(), true);
        let completion = policy.generate(request.clone()).await.unwrap();
        assert_eq!(
            (completion.tokens.len(), completion.finish),
            (4, Finish::Context),
            "{kind:?}"
        );
        request.max_tokens = 4;
        assert_eq!(
            policy.generate(request).await.unwrap().finish,
            Finish::Length,
            "{kind:?}"
        );
        assert_eq!(fake.take_calls().len(), 2);
    }
}

#[tokio::test]
async fn requests_that_break_the_contract_are_not_sent() {
    for kind in KINDS {
        let (fake, policy) = connected(kind).await;
        let bad = |number: u64| {
            let mut request = request(number);
            match number {
                0 => request.tokens.clear(),
                1 => request.tokens = vec![65; 512],
                2 => request.max_tokens = 0,
                _ => request.sampling.top_p = 0.0,
            }
            request
        };
        for (number, word) in ["empty", "context of 512", "max_tokens", "top_p"]
            .into_iter()
            .enumerate()
        {
            let Err(PolicyError::BadRequest(message)) = policy.generate(bad(number as u64)).await
            else {
                panic!("{word} is refused")
            };
            assert!(message.contains(word), "{message}");
        }
        assert_eq!(fake.take_calls().len(), 0);
        // Nor do they say anything of the server.
        let request = request(9);
        assert_eq!(
            policy.generate(request.clone()).await.unwrap(),
            expected(&request, "base")
        );
    }
}

#[tokio::test]
async fn seeds_reach_the_server() {
    for kind in KINDS {
        let (_fake, policy) = connected(kind).await;
        let mut request = request(1);
        (request.stop, request.ignore_eos) = (Vec::new(), true);
        let first = policy.generate(request.clone()).await.unwrap();
        assert_eq!(
            policy.generate(request.clone()).await.unwrap(),
            first,
            "{kind:?}"
        );
        request.seed = Seed(u64::MAX);
        assert_ne!(policy.generate(request).await.unwrap(), first, "{kind:?}");
    }
}
