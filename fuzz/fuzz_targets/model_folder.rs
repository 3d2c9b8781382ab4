//! Any bytes are a file of a checkpoint folder: `config.json`, `model.safetensors`, its index or `tokenizer.json`, of a decoder or of a
//! BERT, as the first byte decides. The folder is read or refused, and no size in it decides how much memory is taken.

#![no_main]

use forage_trainer::device::DeviceSpec;
use forage_trainer::{BertEncoder, BertReranker, Checkpoint, Decoder, ModelConfig};
use libfuzzer_sys::fuzz_target;

const CONFIGS: [&str; 2] = [
    r#"{"model_type":"qwen3","vocab_size":4,"hidden_size":2,"intermediate_size":2,"num_hidden_layers":1,
    "num_attention_heads":1,"num_key_value_heads":1,"head_dim":2,"max_position_embeddings":8,"rms_norm_eps":1e-6,
    "tie_word_embeddings":true}"#,
    r#"{"model_type":"bert","vocab_size":4,"hidden_size":2,"intermediate_size":2,"num_hidden_layers":1,
    "num_attention_heads":1,"max_position_embeddings":8,"hidden_act":"gelu"}"#,
];
const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":{"type":"BertProcessing","sep":["[SEP]",1],"cls":["[CLS]",0]},
    "decoder":null,"model":{"type":"WordLevel","vocab":{"[CLS]":0,"[SEP]":1,"[UNK]":2,"a":3},"unk_token":"[UNK]"}}"#;
const FILES: [&str; 4] = [
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
];

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else {
        return;
    };
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("room for a small file")
    };
    let kind = usize::from(kind);
    let config = CONFIGS[kind / FILES.len() % CONFIGS.len()];
    write("config.json", config.as_bytes());
    write("tokenizer.json", TOKENIZER.as_bytes());
    write(FILES[kind % FILES.len()], bytes);
    if let Ok(config) = ModelConfig::from_file(&folder.path().join("config.json")) {
        config.parameters();
        let device = DeviceSpec::default().open().expect("the processor");
        let _ = Decoder::load(folder.path(), &config, &device);
    }
    let _ = Checkpoint::tokenizer_of(folder.path());
    let _ = BertEncoder::open(folder.path(), DeviceSpec::default(), Some(1));
    let _ = BertReranker::open(folder.path(), DeviceSpec::default());
});
