//! The weights of a fake server: what it says of a text follows from them, and from what it does wrong when they are replaced.

use std::path::Path;

use axum::response::{IntoResponse, Response};
use burn::tensor::Device;
use forage_trainer::logprobs::token_logprobs;
use forage_trainer::model::RopeTables;
use forage_trainer::sequence::Sequence;
use forage_trainer::weights::Checkpoint;
use serde_json::{Value, json};

use super::fake::{Fake, refusal};

/// What a server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// A head for which a folder has no tensor stays as it was, though the embedding it is tied to is replaced.
    StaleHead,
    /// It answers every push with success, and keeps its weights.
    Deaf,
    /// It answers for the base whatever the adapter.
    NoAdapters,
}

/// Weights in memory.
pub(crate) struct Served {
    now: Checkpoint,
    flaw: Flaw,
}

impl Served {
    /// A server that was started with these weights.
    pub(crate) fn new(start: &Checkpoint, flaw: Flaw) -> Self {
        Self {
            now: Checkpoint {
                lora: None,
                decoder: start.decoder.clone().without_adapter(),
                ..start.clone()
            }
            .untied(),
            flaw,
        }
    }

    pub(crate) fn reload(&mut self, folder: &str) {
        if self.flaw == Flaw::Deaf {
            return;
        }
        let read = Checkpoint::load(Path::new(folder), &Device::flex()).unwrap();
        let has_head = !read.config.tie_word_embeddings;
        let mut new = read.untied();
        if self.flaw == Flaw::StaleHead && !has_head {
            let head = self.now.decoder.lm_head().unwrap().matrix();
            let mut linears = new.decoder.linears();
            let (_, linear) = linears
                .iter_mut()
                .find(|(name, _)| name == "lm_head")
                .unwrap();
            linear.set_matrix(head);
        }
        self.now = new;
    }

    /// Log-probabilities of all but the first token of each text.
    fn score(&self, texts: &[Vec<u32>], adapter: Option<&str>) -> Vec<Vec<f32>> {
        let mut weights = self.now.clone();
        if let Some(folder) = adapter.filter(|_| self.flaw != Flaw::NoAdapters) {
            weights.load_adapter(Path::new(folder)).unwrap();
        }
        let rope = RopeTables::new(&weights.config, 64, &Device::flex());
        let of = |ids: &Vec<u32>| {
            let sequence = Sequence {
                targets: (1..ids.len()).collect(),
                ids: ids.clone(),
                ..Sequence::default()
            };
            let (decoder, config) = (&weights.decoder, &weights.config);
            let found = token_logprobs(decoder, config, &rope, &[&sequence]).unwrap();
            found.scores().logprobs
        };
        texts.iter().map(of).collect()
    }
}

/// Answers a request for the log-probabilities of texts.
pub(crate) fn score(fake: &Fake, path: &str, body: &Value) -> Response {
    let vllm = path == "/v1/completions";
    let Some(served) = &fake.served else {
        return refusal(400, "no weights to score with");
    };
    let (texts, name) = if vllm {
        assert_eq!(
            (&body["max_tokens"], &body["logprobs"]),
            (&json!(0), &json!(0))
        );
        let name = body["model"].as_str().filter(|name| *name != "tiny");
        (&body["prompt"], name)
    } else {
        assert_eq!(body["sampling_params"]["max_new_tokens"], 0);
        assert_eq!(
            (&body["return_logprob"], &body["logprob_start_len"]),
            (&json!(true), &json!(0))
        );
        (&body["input_ids"], body["lora_path"][0].as_str())
    };
    let texts: Vec<Vec<u32>> = serde_json::from_value(texts.clone()).unwrap();
    let adapters = fake.adapters.lock().unwrap();
    let adapter = name.map(|name| adapters[name].as_str());
    let scores = served.lock().unwrap().score(&texts, adapter);
    let answers = texts.iter().zip(&scores);
    if vllm {
        let choices = answers.enumerate().map(|(index, (text, scores))| {
            let logprobs: Vec<Option<f32>> =
                std::iter::once(None).chain(scores.iter().copied().map(Some)).collect();
            json!({
                "index": index, "text": "", "finish_reason": "length", "prompt_token_ids": text,
                "logprobs": {"tokens": [], "token_logprobs": logprobs, "top_logprobs": null, "text_offset": []},
            })
        });
        // In any order: what counts is the index.
        let choices: Vec<Value> = choices.rev().collect();
        return json!({"id": "cmpl-1", "object": "text_completion", "choices": choices})
            .to_string()
            .into_response();
    }
    let answers = answers.map(|(text, scores)| {
        let first = json!([null, text[0], null]);
        let rest = text[1..].iter().zip(scores).map(|(id, score)| json!([score, id, null]));
        let entries: Vec<Value> = std::iter::once(first).chain(rest).collect();
        json!({"text": "", "output_ids": [], "meta_info": {
            "id": "1", "finish_reason": {"type": "length", "length": 0}, "prompt_tokens": text.len(),
            "input_token_logprobs": entries,
        }})
    });
    Value::Array(answers.collect()).to_string().into_response()
}
