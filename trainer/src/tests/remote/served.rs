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
    /// The same, once it has taken one.
    DeafAfterOne,
    /// It answers for the base whatever the adapter.
    NoAdapters,
    /// It draws a token more than it is asked for.
    TooMany,
    /// It names tokens beyond the vocabulary.
    Foreign,
}

/// Weights in memory.
pub(crate) struct Served {
    now: Checkpoint,
    flaw: Flaw,
    /// Pushes that it has taken.
    taken: usize,
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
            taken: 0,
        }
    }

    pub(crate) fn reload(&mut self, folder: &str) {
        if self.flaw == Flaw::Deaf || (self.flaw == Flaw::DeafAfterOne && self.taken > 0) {
            return;
        }
        self.taken += 1;
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

    /// Some tokens behind each text, with their log-probabilities.
    fn draw(&self, texts: &[Vec<u32>], count: usize, adapter: Option<&str>) -> Vec<Drawn> {
        let mut weights = self.now.clone();
        if let Some(folder) = adapter.filter(|_| self.flaw != Flaw::NoAdapters) {
            weights.load_adapter(Path::new(folder)).unwrap();
        }
        let rope = RopeTables::new(&weights.config, 64, &Device::flex());
        let vocabulary = weights.config.vocab_size as u32;
        let count = count + usize::from(self.flaw == Flaw::TooMany);
        let of = |text: &Vec<u32>| {
            let tokens: Vec<u32> = (0..count as u32)
                .map(|place| (text[0] + 7 * place) % vocabulary)
                .collect();
            let ids = [text.as_slice(), &tokens].concat();
            let sequence = Sequence {
                targets: (text.len()..ids.len()).collect(),
                ids,
                ..Sequence::default()
            };
            let (decoder, config) = (&weights.decoder, &weights.config);
            let found = token_logprobs(decoder, config, &rope, &[&sequence]).unwrap();
            let beyond = u32::from(self.flaw == Flaw::Foreign) * vocabulary;
            let named = tokens.iter().map(|token| token + beyond).collect();
            (named, found.scores().logprobs)
        };
        texts.iter().map(of).collect()
    }
}

/// Tokens and their log-probabilities.
type Drawn = (Vec<u32>, Vec<f32>);

/// Answers a request for what comes behind several texts.
pub(crate) fn draw(fake: &Fake, path: &str, body: &Value) -> Response {
    let vllm = path == "/v1/completions";
    let Some(served) = &fake.served else {
        return refusal(400, "no weights to draw with");
    };
    let (texts, settings, name) = if vllm {
        assert_eq!(body["logprobs"], 0);
        let name = body["model"].as_str().filter(|name| *name != "tiny");
        (&body["prompt"], body, name)
    } else {
        assert_eq!(body["return_logprob"], true);
        let name = body["lora_path"][0].as_str();
        (&body["input_ids"], &body["sampling_params"], name)
    };
    assert_eq!(settings["ignore_eos"], true);
    // A vLLM is asked for its likeliest tokens too, by which it is known again.
    assert!(settings["temperature"] == 1.0 || (vllm && settings["temperature"] == 0.0));
    let count = settings[if vllm { "max_tokens" } else { "max_new_tokens" }]
        .as_u64()
        .unwrap();
    let texts: Vec<Vec<u32>> = serde_json::from_value(texts.clone()).unwrap();
    let adapters = fake.adapters.lock().unwrap();
    let adapter = name.map(|name| adapters[name].as_str());
    let drawn = served.lock().unwrap().draw(&texts, count as usize, adapter);
    let answers = texts.iter().zip(&drawn);
    if vllm {
        let choices = answers.enumerate().map(|(index, (text, (tokens, logprobs)))| {
            let names: Vec<String> = tokens.iter().map(|id| format!("token_id:{id}")).collect();
            let mut choice = json!({
                "index": index, "text": "", "finish_reason": "length",
                "logprobs": {"tokens": names, "token_logprobs": logprobs, "top_logprobs": null, "text_offset": []},
            });
            if !fake.old {
                choice["token_ids"] = json!(tokens);
                choice["prompt_token_ids"] = json!(text);
            }
            choice
        });
        // In any order: what counts is the index.
        let choices: Vec<Value> = choices.rev().collect();
        return json!({"id": "cmpl-1", "object": "text_completion", "choices": choices})
            .to_string()
            .into_response();
    }
    let answers = answers.map(|(text, (tokens, logprobs))| {
        let pairs = tokens.iter().zip(logprobs);
        let entries: Vec<Value> = pairs.map(|(id, logprob)| json!([logprob, id, null])).collect();
        json!({"text": "", "output_ids": tokens, "meta_info": {
            "id": "1", "finish_reason": {"type": "length", "length": count}, "prompt_tokens": text.len(),
            "output_token_logprobs": entries,
        }})
    });
    Value::Array(answers.collect()).to_string().into_response()
}
