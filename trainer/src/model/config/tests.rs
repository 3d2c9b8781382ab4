//! Published shapes, and shapes that cannot be.

use super::*;

#[test]
fn published_shapes_have_the_published_sizes() {
    // Parameters in billions as the model cards state them, or the hub counts them.
    for (name, billions) in [
        ("Qwen2.5-0.5B", 0.49),
        ("Qwen2.5-1.5B", 1.54),
        ("Qwen2.5-3B", 3.09),
        ("Qwen2.5-7B", 7.61),
        ("Qwen2.5-14B", 14.77),
        ("Qwen2.5-32B", 32.76),
        ("Qwen3-0.6B", 0.6),
        ("Qwen3-1.7B", 1.7),
        ("Qwen3-4B", 4.0),
        ("Qwen3-8B", 8.19),
        ("Qwen3-14B", 14.77),
        ("Qwen3-32B", 32.76),
        ("Llama-3.1-8B", 8.03),
        ("Llama-3.2-1B", 1.24),
        ("Llama-3.2-3B", 3.21),
        ("OLMo-2-0425-1B", 1.48),
        ("OLMo-2-1124-7B", 7.3),
    ] {
        let config = ModelConfig::published(name).unwrap();
        config.validate().unwrap();
        let found = config.parameters() as f64 / 1e9;
        assert!((found - billions).abs() < 0.03, "{name}: {found}");
    }
    assert!(
        ModelConfig::published("Qwen3-5B")
            .unwrap_err()
            .to_string()
            .contains("Qwen3-4B")
    );
    assert_eq!(
        ModelConfig::published("Qwen2.5-7B:4")
            .unwrap()
            .num_hidden_layers,
        4
    );
    assert!(
        ModelConfig::published("Qwen2.5-7B:0")
            .unwrap_err()
            .to_string()
            .contains("number of layers")
    );
}

fn tiny() -> ModelConfig {
    ModelConfig {
        architecture: Architecture::named("qwen3").unwrap(),
        vocab_size: 64,
        hidden_size: 32,
        intermediate_size: 64,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 16,
        max_position_embeddings: 128,
        rope_theta: 1e6,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
    }
}

#[test]
fn json_round_trips() {
    let published = Architecture::all().flat_map(|each| each.family().published);
    for shape in published {
        let config = ModelConfig::published(shape.name).unwrap();
        let text = config.to_json(3).to_string();
        assert_eq!(ModelConfig::from_json(&text).unwrap(), config);
    }
}

#[test]
fn rope_theta_is_read_from_either_place() {
    let mut json = tiny().to_json(3);
    let object = json.as_object_mut().unwrap();
    object.remove("rope_theta");
    object.insert(
        "rope_parameters".into(),
        serde_json::json!({"rope_type": "default", "rope_theta": 5e6}),
    );
    assert_eq!(
        ModelConfig::from_json(&json.to_string())
            .unwrap()
            .rope_theta
            .to_bits(),
        5e6_f64.to_bits()
    );
}

#[test]
fn the_keys_of_published_configs_are_understood() {
    let instruct = r#"{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": [151645, 151643], "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21,
        "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "transformers_version": "4.43.1", "use_cache": true,
        "use_sliding_window": false, "vocab_size": 151936}"#;
    assert_eq!(
        ModelConfig::from_json(instruct).unwrap(),
        ModelConfig::published("Qwen2.5-0.5B").unwrap()
    );
    let qwen3 = r#"{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
        "layer_types": ["full_attention"], "max_position_embeddings": 32768, "max_window_layers": 28,
        "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
        "tie_word_embeddings": true, "use_sliding_window": null, "vocab_size": 151936}"#;
    assert_eq!(
        ModelConfig::from_json(qwen3).unwrap(),
        ModelConfig::published("Qwen3-0.6B").unwrap()
    );
    let llama = r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu",
        "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
        "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
        "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256}"#;
    assert_eq!(
        ModelConfig::from_json(llama).unwrap(),
        ModelConfig::published("Llama-3.2-1B").unwrap()
    );
    let olmo = r#"{"architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
        "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "olmo2",
        "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 16, "pad_token_id": 100277,
        "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
        "torch_dtype": "float32", "use_cache": false, "vocab_size": 100352}"#;
    assert_eq!(
        ModelConfig::from_json(olmo).unwrap(),
        ModelConfig::published("OLMo-2-0425-1B").unwrap()
    );
}

#[test]
fn a_hostile_config_is_refused_or_makes_a_decoder() {
    let values = [
        "null",
        "true",
        "0",
        "-0.0",
        "-1",
        "1",
        "2",
        "3",
        "1.5",
        "4000000000",
        "18446744073709551615",
        "18446744073709551616",
        "1e-400",
        "1e-300",
        "1e300",
        "1e999",
        "\"x\"",
        "\"\"",
        "[]",
        "[0]",
        "{}",
        "{\"rope_type\":\"llama3\",\"factor\":1e300,\"low_freq_factor\":1e-300,\"high_freq_factor\":1e300,\
         \"original_max_position_embeddings\":18446744073709551615}",
        "{\"rope_theta\":-1.0}",
    ];
    let whole = tiny().to_json(3);
    let keys: Vec<&String> = whole.as_object().unwrap().keys().collect();
    let extra = ["rope_scaling", "rope_parameters", "layer_types"].map(str::to_owned);
    let mut taken = 0;
    for key in keys.into_iter().chain(&extra) {
        for value in values {
            let mut json = whole.clone();
            json[key] = "@".into();
            let text = json.to_string().replace("\"@\"", value);
            let Ok(config) = ModelConfig::from_json(&text) else {
                continue;
            };
            taken += 1;
            assert!(config.parameters() < 1 << 62, "{key} {value}");
            crate::model::Decoder::new(&config, &burn::tensor::Device::flex());
        }
    }
    assert!(taken > 100, "{taken}");
    let sizes = [
        "num_hidden_layers",
        "vocab_size",
        "max_position_embeddings",
        "head_dim",
    ];
    let faults = sizes.map(|key| (key, "4000000000"));
    let faults = faults.into_iter().chain([
        ("rms_norm_eps", "-1"),
        ("rms_norm_eps", "0"),
        ("rope_theta", "0"),
        ("rope_theta", "-1e6"),
        ("rope_theta", "1e300"),
    ]);
    for (key, value) in faults {
        let mut json = whole.clone();
        json[key] = "@".into();
        let text = json.to_string().replace("\"@\"", value);
        let error = ModelConfig::from_json(&text).unwrap_err().to_string();
        assert!(error.contains(key), "{key} {value}: {error}");
    }
}

#[test]
fn what_is_not_implemented_is_refused_by_name() {
    for (key, value) in [
        ("model_type", serde_json::json!("mistral")),
        ("use_sliding_window", serde_json::json!(true)),
        ("rope_scaling", serde_json::json!({"type": "yarn"})),
        ("rope_scaling", serde_json::json!({"factor": 2.0})),
        (
            "rope_scaling",
            serde_json::json!({"rope_type": "llama3", "factor": 8.0}),
        ),
        (
            "rope_scaling",
            serde_json::json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
        ),
        (
            "rope_parameters",
            serde_json::json!({"rope_type": "linear"}),
        ),
        ("attention_bias", serde_json::json!(true)),
        ("mlp_bias", serde_json::json!(true)),
        (
            "layer_types",
            serde_json::json!(["full_attention", "sliding_attention"]),
        ),
        (
            "quantization_config",
            serde_json::json!({"quant_method": "fp8"}),
        ),
        ("num_key_value_heads", serde_json::json!(3)),
    ] {
        let mut json = tiny().to_json(3);
        json[key] = value;
        let error = ModelConfig::from_json(&json.to_string())
            .unwrap_err()
            .to_string();
        assert!(error.contains(key), "{key}: {error}");
    }
}
