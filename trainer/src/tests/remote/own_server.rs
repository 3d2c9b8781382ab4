//! The policy server of this crate speaks enough of vLLM's form: what it serves is what its engine generates.

use std::path::Path;

use burn::tensor::Device;
use forage_contracts::Tokenizer;
use forage_contracts::policy::{Finish, GenerateRequest, Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_trainer::remote::{Probe, Under};
use forage_trainer::server::{Model, ServerConfig};
use forage_trainer::weights::Checkpoint;
use forage_trainer::{EngineConfig, RemoteConfig, RemoteError, RemoteKind, RemotePolicy, Workers};
use tokio::net::TcpListener;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_engine_answers_the_same_through_a_socket() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart");
    let checkpoint = Checkpoint::load(&folder, &Device::flex()).unwrap();
    let engine = EngineConfig {
        context: 256,
        cache_tokens: 2048,
        step_tokens: 256,
        sequences: 8,
        bf16: false,
    };
    let model = Model::start(
        "quickstart",
        &checkpoint,
        engine,
        Workers::new(2).kernel_pool(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(
        model
            .clone()
            .serve(listener, ServerConfig::default(), std::future::pending()),
    );

    let config = RemoteConfig {
        model: Some("quickstart".to_owned()),
        ..RemoteConfig::new(RemoteKind::Vllm, url, 256)
    };
    let policy = RemotePolicy::connect(&config).await.unwrap();
    let mut stopped = 0;
    let questions = [
        "Who founded",
        "the",
        "Question: which",
        "Question: Who is the mentor of Banoru Kelbi?\n",
    ];
    for (number, question) in questions.into_iter().enumerate() {
        let request = GenerateRequest {
            episode: number as u64,
            tokens: checkpoint.tokenizer.encode(question),
            max_tokens: 48,
            stop: vec!["</search>".to_owned(), "</answer>".to_owned()],
            ignore_eos: false,
            sampling: Sampling::GREEDY,
            seed: Seed::root(3),
        };
        let local = model.engine.generate(request.clone()).await.unwrap();
        assert_eq!(policy.generate(request).await.unwrap(), local, "{question}");
        stopped += usize::from(local.finish == Finish::Stop);
    }
    assert!(stopped > 0, "some end at a stop string");

    // It takes no weights, but says which it has.
    let texts: Vec<Vec<u32>> = [
        "Who founded the city of the old bridge?",
        "Where was the founder born? <search>founder",
    ]
    .map(|text| checkpoint.tokenizer.encode(text))
    .to_vec();
    // What it draws is known when it is asked, so the engine here scores it then.
    let own = |ids: &[u32], first: usize| -> Vec<f32> {
        let scores = futures::executor::block_on(model.engine.score(ids.to_vec(), 1.0)).unwrap();
        scores[first - 1..].to_vec()
    };
    let probe = Probe {
        texts: &texts,
        drawn: 6,
        own: &own,
        bound: 1e-6,
    };
    let under = Under {
        version: 0,
        adapter: None,
    };
    let gap = policy.servers()[0].verify(&probe, &under).await.unwrap();
    assert!(gap.tokens == 12 && gap.max < 1e-6, "{gap:?}");
    let shifted = |ids: &[u32], first: usize| -> Vec<f32> {
        own(ids, first)
            .iter()
            .map(|logprob| logprob - 0.5)
            .collect()
    };
    let wrong = Probe {
        own: &shifted,
        ..probe
    };
    let error = policy.servers()[0]
        .verify(&wrong, &under)
        .await
        .unwrap_err();
    assert!(matches!(error, RemoteError::Unverified { .. }), "{error}");
    assert!(error.to_string().contains("5.0e-1 at most"), "{error}");
}
