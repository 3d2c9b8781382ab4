//! The files beside the weights: what they say about ends, sampling and chats, and how they are kept for saving.

use std::path::Path;

use forage_net::FileBounds;
use serde_json::{Map, Value};

use super::WeightsError;
use super::disk::{pretty, read, write};
use crate::model::ModelConfig;

/// Sampling that a model's publisher recommends in `generation_config.json`; what it leaves out is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GenerationDefaults {
    /// Softmax temperature.
    pub temperature: Option<f32>,
    /// Nucleus: smallest probability mass kept.
    pub top_p: Option<f32>,
    /// Most tokens kept.
    pub top_k: Option<usize>,
    /// Least probability kept, relative to the best token's.
    pub min_p: Option<f32>,
    /// Factor against tokens that occurred, where it does anything. Kept to be told: no sampling here applies it.
    pub repetition_penalty: Option<f32>,
}

/// Files of a folder as they were read, so that saving changes nothing but what changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Companions {
    config: Option<Map<String, Value>>,
    generation: Option<Map<String, Value>>,
    tokenizer: Option<Map<String, Value>>,
    template: Option<String>,
}

const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";

impl Companions {
    pub(super) fn read(folder: &Path) -> Result<Self, WeightsError> {
        let template = folder.join(TEMPLATE);
        let template = if template.exists() {
            let bytes = read(&template, FileBounds::TEXT)?;
            Some(
                String::from_utf8(bytes)
                    .map_err(|_| fault(&template, "is not UTF-8; download it again"))?,
            )
        } else {
            None
        };
        Ok(Self {
            config: object(&folder.join(CONFIG))?,
            generation: object(&folder.join(GENERATION))?,
            tokenizer: object(&folder.join(TOKENIZER))?,
            template,
        })
    }

    /// The chat template: `chat_template.jinja`, else `chat_template` of `tokenizer_config.json`, of which a list of
    /// named ones counts by its `default`.
    pub(super) fn chat_template(&self) -> Option<String> {
        self.template.clone().or_else(|| self.inner_template())
    }

    fn inner_template(&self) -> Option<String> {
        let value = self.tokenizer.as_ref()?.get("chat_template")?;
        let named = |list: &Vec<Value>| {
            let default = list
                .iter()
                .find(|entry| entry.get("name").is_some_and(|name| name == "default"))?;
            default.get("template")?.as_str().map(str::to_owned)
        };
        value
            .as_str()
            .map(str::to_owned)
            .or_else(|| named(value.as_array()?))
    }

    pub(super) fn generation_defaults(&self) -> GenerationDefaults {
        let number = |key: &str| {
            self.generation
                .as_ref()?
                .get(key)?
                .as_f64()
                .map(|value| value as f32)
        };
        let greedy = self
            .generation
            .as_ref()
            .and_then(|map| map.get("do_sample"))
            == Some(&Value::Bool(false));
        GenerationDefaults {
            temperature: if greedy {
                Some(0.0)
            } else {
                number("temperature")
            },
            top_p: number("top_p"),
            top_k: number("top_k").map(|count| count as usize),
            min_p: number("min_p"),
            repetition_penalty: number("repetition_penalty")
                .filter(|&penalty| (penalty - 1.0).abs() > f32::EPSILON),
        }
    }

    /// Every id that ends a sequence, the tokenizer's `eos` first.
    pub(super) fn ends(&self, eos: u32) -> Vec<u32> {
        std::iter::once(eos)
            .chain(self.end_ids().into_iter().filter(|&id| id != eos))
            .collect()
    }

    /// The type of weights that `config.json` names, as it was read.
    pub(super) fn dtype(&self) -> Option<&str> {
        let config = self.config.as_ref()?;
        config
            .get("dtype")
            .or_else(|| config.get("torch_dtype"))?
            .as_str()
    }

    /// Drops what was read of the model's shape.
    pub(super) fn forget_config(&mut self) {
        self.config = None;
    }

    /// Ids that end a sequence besides the tokenizer's: those of `generation_config.json`, else of `config.json`, as
    /// transformers has it; each is one number or a list.
    fn end_ids(&self) -> Vec<u32> {
        let ids = |map: &Option<Map<String, Value>>| -> Vec<u32> {
            let value = map.as_ref().and_then(|map| map.get("eos_token_id"));
            let number = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
            match value {
                Some(Value::Array(list)) => list.iter().filter_map(number).collect(),
                Some(value) => number(value).into_iter().collect(),
                None => Vec::new(),
            }
        };
        let named = ids(&self.generation);
        if named.is_empty() {
            ids(&self.config)
        } else {
            named
        }
    }

    /// The end-of-sequence token's text: `tokenizer_config.json` names it, else the first of [`Self::end_ids`] does.
    pub(super) fn eos_token(
        &self,
        folder: &Path,
        tokenizer_json: &[u8],
    ) -> Result<String, WeightsError> {
        let named = self.tokenizer.as_ref().and_then(|config| {
            let eos = config.get("eos_token")?;
            eos.as_str()
                .or_else(|| eos.get("content")?.as_str())
                .map(str::to_owned)
        });
        if let Some(eos) = named {
            return Ok(eos);
        }
        let id = self.end_ids().first().copied().map(u64::from);
        let tokenizer: Value = serde_json::from_slice(tokenizer_json).unwrap_or_default();
        let added = tokenizer
            .get("added_tokens")
            .and_then(|added| added.as_array());
        let same = |token: &&Value| id.is_some() && token.get("id").and_then(Value::as_u64) == id;
        let found = added.into_iter().flatten().find(same);
        found.and_then(|token| token.get("content")?.as_str()).map(str::to_owned).ok_or_else(|| {
            let fix = "names no eos_token; add `\"eos_token\": \"<|endoftext|>\"` or the one the model uses";
            fault(&folder.join(TOKENIZER), fix)
        })
    }

    /// Writes the files for a model of this shape; what was read comes back unchanged but for what differs now.
    pub(super) fn write(&self, folder: &Path, now: &Facts<'_>) -> Result<(), WeightsError> {
        put(folder, CONFIG, &self.config_now(now))?;
        let own = || {
            let generation = serde_json::json!({ "eos_token_id": now.ends[0], "do_sample": true });
            generation.as_object().cloned().unwrap_or_default()
        };
        put(
            folder,
            GENERATION,
            &self.generation.clone().unwrap_or_else(own),
        )?;
        self.write_tokenizer(folder, now)
    }

    /// Writes what is said of the tokenizer, and the chat template.
    pub(super) fn write_tokenizer(
        &self,
        folder: &Path,
        now: &Facts<'_>,
    ) -> Result<(), WeightsError> {
        let own = || {
            let tokenizer = serde_json::json!({
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": now.eos,
                "pad_token": now.eos,
                "model_max_length": now.config.max_position_embeddings,
                "clean_up_tokenization_spaces": false,
            });
            tokenizer.as_object().cloned().unwrap_or_default()
        };
        put(
            folder,
            TOKENIZER,
            &self.tokenizer.clone().unwrap_or_else(own),
        )?;
        // Transformers prefers the file to the key, so a template that changed goes there.
        match now.chat_template {
            Some(template)
                if self.template.is_some()
                    || self.inner_template().as_deref() != Some(template) =>
            {
                write(&folder.join(TEMPLATE), template.as_bytes())
            }
            _ => Ok(()),
        }
    }

    fn config_now(&self, now: &Facts<'_>) -> Map<String, Value> {
        let fresh = now.config.to_json(now.ends[0]);
        let fresh = fresh.as_object().cloned().unwrap_or_default();
        let Some(before) = &self.config else {
            return typed(fresh, now.dtype);
        };
        let mut config = before.clone();
        let unchanged = ModelConfig::from_json(&Value::Object(before.clone()).to_string());
        if unchanged.as_ref() != Ok(now.config) {
            for (key, value) in fresh {
                if key != "eos_token_id" {
                    config.insert(key, value);
                }
            }
            // They would give the rotary base and its scaling a second time.
            config.remove("rope_parameters");
        }
        typed(config, now.dtype)
    }
}

/// What a checkpoint is when it is written.
pub(super) struct Facts<'a> {
    pub(super) config: &'a ModelConfig,
    /// Text of the end-of-sequence token.
    pub(super) eos: &'a str,
    /// At least one id.
    pub(super) ends: &'a [u32],
    pub(super) chat_template: Option<&'a str>,
    /// Type of the weights as `config.json` calls it.
    pub(super) dtype: &'a str,
}

/// Says the type of the weights in `config.json`, by the key it has (older versions of transformers: `torch_dtype`).
fn typed(mut config: Map<String, Value>, dtype: &str) -> Map<String, Value> {
    if config.contains_key("dtype") {
        config.remove("torch_dtype");
        config.insert("dtype".to_owned(), dtype.into());
    } else {
        config.insert("torch_dtype".to_owned(), dtype.into());
    }
    config
}

fn put(folder: &Path, name: &str, map: &Map<String, Value>) -> Result<(), WeightsError> {
    write(
        &folder.join(name),
        pretty(&Value::Object(map.clone())).as_bytes(),
    )
}

/// A JSON object, if there is such a file.
pub(super) fn object(path: &Path) -> Result<Option<Map<String, Value>>, WeightsError> {
    if !path.exists() {
        return Ok(None);
    }
    match serde_json::from_slice(&read(path, FileBounds::JSON)?) {
        Ok(Value::Object(map)) => Ok(Some(map)),
        Ok(_) => Err(fault(path, "is not a JSON object; download it again")),
        Err(error) => Err(fault(
            path,
            &format!("is not JSON: {error}; download it again"),
        )),
    }
}

fn fault(path: &Path, message: &str) -> WeightsError {
    WeightsError::Tensors {
        path: path.to_owned(),
        message: message.to_owned(),
    }
}
