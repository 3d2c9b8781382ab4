//! `adapter_config.json` of PEFT.

use std::path::Path;

use forage_contracts::SettingError;
use forage_net::FileBounds;
use serde_json::{Map, Value, json};

use crate::file_error::FileError;
use crate::model::{HEAD, ModelConfig, Projection, projections};

/// The linear maps that are adapted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Those whose name is one of these or ends in `.` and one of these.
    Names(Vec<String>),
    /// All but the head.
    AllLinear,
    /// Those of the adapter's file; the regular expression is kept as it was read.
    Pattern(String),
}

/// Settings of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraConfig {
    /// Inner width.
    pub rank: usize,
    /// The change is scaled by `alpha / rank`, or by `alpha / sqrt(rank)` with [`Self::rank_stabilised`].
    pub alpha: f64,
    /// `use_rslora` (Kalajdzievski 2023).
    pub rank_stabilised: bool,
    /// Share of the numbers that the adapter reads which are dropped while it learns (`lora_dropout`), in [0, 1).
    pub dropout: f64,
    /// The maps that are adapted.
    pub targets: Targets,
    /// Folder or name of the model that is adapted, `NAME@REVISION` where a file has both.
    pub base: String,
}

impl LoraConfig {
    /// Scale of the change.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha
            / if self.rank_stabilised {
                rank.sqrt()
            } else {
                rank
            }
    }

    /// The key of a setting, among those that shape what an adapter computes, that another one has otherwise, if there is one.
    pub(crate) fn differing(&self, other: &Self) -> Option<&'static str> {
        // A file may hold another last digit of a number.
        let is_same = (self.alpha - other.alpha).abs() <= 1e-9 * self.alpha.abs();
        let keys = [
            ("rank", self.rank == other.rank),
            ("alpha", is_same),
            (
                "rank_stabilised",
                self.rank_stabilised == other.rank_stabilised,
            ),
            ("targets", self.targets == other.targets),
        ];
        let found = keys.into_iter().find(|(_, is_same)| !is_same);
        found.map(|(key, _)| key)
    }

    /// Tells whether the map of this name is adapted; `None` where only the file can tell.
    pub(crate) fn adapts(&self, module: &str) -> Option<bool> {
        let ends = |name: &String| {
            module == name
                || module
                    .strip_suffix(name.as_str())
                    .is_some_and(|rest| rest.ends_with('.'))
        };
        match &self.targets {
            Targets::Names(names) => Some(names.iter().any(ends)),
            Targets::AllLinear => Some(module != HEAD),
            Targets::Pattern(_) => None,
        }
    }

    /// Tells whether a map of a layer is adapted, or may be where only the file can tell.
    fn may_adapt(&self, layer: usize, map: &Projection) -> bool {
        let (part, name) = map.name;
        self.adapts(&format!("model.layers.{layer}.{part}.{name}"))
            .unwrap_or(true)
    }

    /// Tells whether the head of `model` is adapted, or may be where only the file can tell; one that is the embedding cannot be.
    pub(crate) fn adapts_head(&self, model: &ModelConfig) -> bool {
        !model.tie_word_embeddings && self.adapts(HEAD).unwrap_or(true)
    }

    /// Numbers of an adapter of the head of `model`; 0 where it is not adapted.
    pub(crate) fn of_head(&self, model: &ModelConfig) -> usize {
        let heads = usize::from(self.adapts_head(model));
        heads * self.rank * (model.hidden_size + model.vocab_size)
    }

    /// Inputs of the widest map of a layer of `model` that is adapted.
    pub(crate) fn widest_input(&self, model: &ModelConfig) -> usize {
        let maps = projections(model).into_iter();
        let adapted =
            maps.filter(|map| (0..model.num_hidden_layers).any(|layer| self.may_adapt(layer, map)));
        adapted.map(|map| map.inputs).max().unwrap_or(0)
    }

    /// Numbers of an adapter of `model`: two matrices for every map that is adapted.
    pub(crate) fn parameters(&self, model: &ModelConfig) -> usize {
        let adapted = |map: &Projection| {
            let layers = 0..model.num_hidden_layers;
            layers.filter(|&layer| self.may_adapt(layer, map)).count()
        };
        let maps = projections(model).map(|map| adapted(&map) * (map.inputs + map.outputs));
        self.rank * maps.iter().sum::<usize>() + self.of_head(model)
    }

    /// Ranks of the maps of a layer of `model` together, of one where most of them are adapted.
    pub(crate) fn ranks(&self, model: &ModelConfig) -> usize {
        let maps = projections(model);
        let adapted = |layer: usize| {
            let maps = maps.iter();
            maps.filter(|map| self.may_adapt(layer, map)).count()
        };
        let most = (0..model.num_hidden_layers).map(adapted).max();
        self.rank * most.unwrap_or(0)
    }

    /// Numbers of an adapter of `model` beside [`Self::parameters`] where maps with the same input are one: those of each B that stand
    /// in the rows of another map, zeros in it and of no use in its gradient.
    pub(crate) fn crossed(&self, model: &ModelConfig) -> usize {
        let of = |layer: usize, maps: &[Projection]| {
            let all: usize = maps.iter().map(|map| map.outputs).sum();
            let adapted = maps.iter().filter(|map| self.may_adapt(layer, map));
            adapted.map(|map| all - map.outputs).sum::<usize>()
        };
        let [queries, keys, values, _, gate, up, _] = projections(model);
        let (attention, gated) = ([queries, keys, values], [gate, up]);
        let layers = 0..model.num_hidden_layers;
        let crossed = layers.map(|layer| of(layer, &attention) + of(layer, &gated));
        self.rank * crossed.sum::<usize>()
    }

    /// Reads `adapter_config.json`.
    ///
    /// # Errors
    /// [`FileError`] that names the key that is missing, malformed or not supported: never silently ignored.
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        let fail = |message: String| FileError {
            path: path.to_owned(),
            message,
        };
        let text = FileBounds::JSON
            .read_text(path)
            .map_err(|error| fail(format!("cannot be read: {error}")))?;
        let map: Map<String, Value> = serde_json::from_str(&text)
            .map_err(|error| fail(format!("is not an adapter config: {error}")))?;
        Self::from_map(&map).map_err(|error| fail(error.to_string()))
    }

    fn from_map(map: &Map<String, Value>) -> Result<Self, SettingError> {
        refuse_unsupported(map)?;
        let rank = map
            .get("r")
            .and_then(Value::as_u64)
            .filter(|&rank| rank > 0);
        let no_rank = || SettingError::new("r", "must be a whole number above 0: the rank");
        let rank = rank.ok_or_else(no_rank)? as usize;
        let alpha = map
            .get("lora_alpha")
            .and_then(Value::as_f64)
            .filter(|alpha| alpha.is_finite());
        let targets = match map.get("target_modules") {
            Some(Value::String(text)) if text == "all-linear" => Targets::AllLinear,
            Some(Value::String(pattern)) => Targets::Pattern(pattern.clone()),
            Some(Value::Array(names)) if !names.is_empty() => Targets::Names(
                names
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
            ),
            _ => {
                let fault = "must be a list of names, a regular expression or `all-linear`";
                return Err(SettingError::new("target_modules", fault));
            }
        };
        let dropout = match map.get("lora_dropout") {
            None | Some(Value::Null) => 0.0,
            Some(value) => value
                .as_f64()
                .filter(|rate| (0.0..1.0).contains(rate))
                .ok_or_else(|| {
                    SettingError::new("lora_dropout", "must be a number from 0 to below 1")
                })?,
        };
        let text = |key: &str| map.get(key).and_then(Value::as_str);
        let base = text("base_model_name_or_path").unwrap_or_default();
        let base = match text("revision") {
            // A folder has none, whatever the file says.
            Some(revision) if !Path::new(base).is_dir() => format!("{base}@{revision}"),
            _ => base.to_owned(),
        };
        Ok(Self {
            rank,
            alpha: alpha.ok_or_else(|| SettingError::new("lora_alpha", "must be a number"))?,
            rank_stabilised: map
                .get("use_rslora")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            dropout,
            targets,
            base,
        })
    }

    /// The base and its revision as PEFT writes them: that of a name on the hub has a key of its own.
    fn base_and_revision(&self) -> (&str, Option<&str>) {
        match self.base.split_once('@') {
            Some((name, revision))
                if name.split('/').count() == 2 && !Path::new(&self.base).is_dir() =>
            {
                (name, Some(revision))
            }
            _ => (self.base.as_str(), None),
        }
    }

    /// The content of an `adapter_config.json` that PEFT and the usual servers read.
    pub fn to_json(&self) -> Value {
        let targets = match &self.targets {
            Targets::Names(names) => json!(names),
            Targets::AllLinear => json!("all-linear"),
            Targets::Pattern(pattern) => json!(pattern),
        };
        // A whole number stays one: vLLM wants an integer.
        let whole = self.alpha.fract() == 0.0;
        let (base, revision) = self.base_and_revision();
        json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "revision": revision,
            "r": self.rank,
            "lora_alpha": if whole { json!(self.alpha as i64) } else { json!(self.alpha) },
            "lora_dropout": self.dropout,
            "target_modules": targets,
            "use_rslora": self.rank_stabilised,
            "bias": "none",
            "fan_in_fan_out": false,
            "modules_to_save": null,
            "init_lora_weights": true,
            "inference_mode": true,
        })
    }
}

/// Keys that change what an adapter computes and are not implemented.
fn refuse_unsupported(map: &Map<String, Value>) -> Result<(), SettingError> {
    let refused = |key: &str, fault: String| Err(SettingError::new(key, fault));
    if let Some(other) = map
        .get("peft_type")
        .and_then(Value::as_str)
        .filter(|kind| *kind != "LORA")
    {
        let fault = format!("`{other}` is not supported; only LORA is");
        return refused("peft_type", fault);
    }
    if let Some(other) = map
        .get("bias")
        .and_then(Value::as_str)
        .filter(|bias| *bias != "none")
    {
        let fault = format!("`{other}` is not supported; only `none` is");
        return refused("bias", fault);
    }
    let set = |key: &str| match map.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(entries)) => !entries.is_empty(),
        Some(_) => true,
    };
    let keys = [
        "modules_to_save",
        "use_dora",
        "lora_bias",
        "fan_in_fan_out",
        "rank_pattern",
        "alpha_pattern",
        "layers_to_transform",
        "exclude_modules",
        "target_parameters",
        "trainable_token_indices",
        "layer_replication",
        "alora_invocation_tokens",
        "arrow_config",
        "kasa_config",
        "monteclora_config",
        "use_bdlora",
        "use_qalora",
        "velora_config",
    ];
    // These start from a base whose weights they change.
    let start = map
        .get("init_lora_weights")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if ["pissa", "olora", "corda", "lora_ga", "loftq"]
        .iter()
        .any(|kind| start.starts_with(kind))
    {
        let fault =
            format!("`{start}` is not supported; convert the adapter to plain LoRA with PEFT");
        return refused("init_lora_weights", fault);
    }
    let named = keys.iter().find(|key| set(key));
    named.map_or(Ok(()), |key| {
        let fault = "is not supported; train or convert the adapter without it";
        refused(key, fault.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> LoraConfig {
        LoraConfig {
            rank: 8,
            alpha: 16.0,
            rank_stabilised: false,
            dropout: 0.05,
            targets: Targets::Names(vec!["q_proj".into(), "self_attn.v_proj".into()]),
            base: "Qwen/Qwen3-0.6B".into(),
        }
    }

    #[test]
    fn configs_round_trip() {
        for targets in [
            plain().targets,
            Targets::AllLinear,
            Targets::Pattern(r".*\.(q|k)_proj".into()),
        ] {
            for rank_stabilised in [false, true] {
                let config = LoraConfig {
                    targets: targets.clone(),
                    rank_stabilised,
                    ..plain()
                };
                assert_eq!(
                    LoraConfig::from_map(config.to_json().as_object().unwrap()).unwrap(),
                    config
                );
            }
        }
    }

    #[test]
    fn revisions_of_names_on_the_hub_have_a_key_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a@b");
        std::fs::create_dir(&place).unwrap();
        let place = place.to_str().unwrap();
        for (base, name, revision) in [
            ("Qwen/Qwen3-0.6B@1a2b", "Qwen/Qwen3-0.6B", json!("1a2b")),
            ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", Value::Null),
            ("builtin:one@2", "builtin:one@2", Value::Null),
            (place, place, Value::Null),
        ] {
            let config = LoraConfig {
                base: base.to_owned(),
                ..plain()
            };
            let written = config.to_json();
            assert_eq!(written["base_model_name_or_path"], name);
            assert_eq!(written["revision"], revision);
            let read = LoraConfig::from_map(written.as_object().unwrap()).unwrap();
            assert_eq!(read.base, base);
        }
        let mut of_folder = plain().to_json();
        of_folder["base_model_name_or_path"] = json!(place);
        of_folder["revision"] = json!("main");
        let read = LoraConfig::from_map(of_folder.as_object().unwrap()).unwrap();
        assert_eq!(read.base, place);
    }

    #[test]
    fn targets_match_whole_names_at_the_end() {
        let config = plain();
        for (module, expected) in [
            ("model.layers.0.self_attn.q_proj", true),
            ("model.layers.0.self_attn.v_proj", true),
            ("model.layers.0.self_attn.xq_proj", false),
            ("model.layers.0.mlp.v_proj", false),
            ("q_proj", true),
        ] {
            assert_eq!(config.adapts(module), Some(expected), "{module}");
        }
        let all = LoraConfig {
            targets: Targets::AllLinear,
            ..plain()
        };
        assert_eq!(
            (all.adapts("lm_head"), all.adapts("a.up_proj")),
            (Some(false), Some(true))
        );
    }

    #[test]
    fn joined_maps_have_the_ranks_of_all_and_numbers_of_no_use() {
        let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
        let all = LoraConfig {
            targets: Targets::AllLinear,
            ..plain()
        };
        assert_eq!(all.ranks(&model), 7 * 8);
        // Queries are 896 wide, keys and values 128, gate and up 4,864: each B has the others' columns too.
        let others = 2 * (896 + 128 + 128) + (4864 + 4864);
        assert_eq!(all.crossed(&model), 24 * 8 * others);
        // Queries and values alone: keys' columns are in both.
        assert_eq!(plain().ranks(&model), 2 * 8);
        assert_eq!(plain().crossed(&model), 24 * 8 * (896 + 128 + 2 * 128));
    }

    #[test]
    fn what_is_not_implemented_is_refused_by_name() {
        for (key, value) in [
            ("bias", json!("all")),
            ("modules_to_save", json!(["embed_tokens"])),
            ("use_dora", json!(true)),
            ("rank_pattern", json!({"q_proj": 4})),
            ("peft_type", json!("IA3")),
            ("layers_to_transform", json!([0])),
            ("target_modules", json!([])),
            ("r", json!(0)),
            ("lora_dropout", json!(1.0)),
        ] {
            let mut map = plain().to_json();
            map[key] = value;
            let error = LoraConfig::from_map(map.as_object().unwrap()).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(key), "{key}: {error}");
        }
    }
}
