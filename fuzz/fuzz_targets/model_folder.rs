//! Any bytes are a file of a checkpoint folder that is whole otherwise: `config.json`, `model.safetensors`, its index or `tokenizer.json`,
//! of a decoder or of a BERT, as the first byte decides. The folder is read or refused, and no size in it decides how much memory is taken.

#![no_main]

use std::path::Path;
use std::sync::Once;

use forage_retriever::{Encoder, Reranker, TextKind};
use forage_trainer::device::DeviceSpec;
use forage_trainer::{BertEncoder, BertReranker, Checkpoint, Decoder, ModelConfig};
use libfuzzer_sys::fuzz_target;

/// Seeds that are whole files: the first byte says which.
const CONFIGS: [&[u8]; 2] = [
    include_bytes!("../seeds/model_folder/qwen3-config"),
    include_bytes!("../seeds/model_folder/bert-config"),
];
const WEIGHTS: [&[u8]; 2] = [
    include_bytes!("../seeds/model_folder/qwen3-safetensors"),
    include_bytes!("../seeds/model_folder/bert-safetensors"),
];
const TOKENIZER: &[u8] = include_bytes!("../seeds/model_folder/tokenizer");
const FILES: [&str; 4] = [
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
];

/// Reads a folder as the program does, as far as it can be read.
#[derive(Debug, PartialEq)]
struct Found {
    decoder: bool,
    tokenizer: bool,
    vectors: bool,
    scores: bool,
}

fn read(folder: &Path) -> Found {
    let decoder = ModelConfig::from_file(&folder.join("config.json")).map(|config| {
        config.parameters();
        let device = DeviceSpec::default().open().expect("the processor");
        Decoder::load(folder, &config, &device).is_ok()
    });
    let vectors = BertEncoder::open(folder, DeviceSpec::default(), Some(1)).map(|encoder| {
        let vectors = encoder.encode(TextKind::Query, &["a", "a b a"]);
        if let Ok(vectors) = &vectors {
            assert_eq!(vectors.len(), 2 * encoder.dimension());
            assert!(vectors.iter().all(|number| number.is_finite()));
        }
        vectors.is_ok()
    });
    let scores = BertReranker::open(folder, DeviceSpec::default()).map(|reranker| {
        let scores = reranker.score("a", &["a", "b a"]);
        if let Ok(scores) = &scores {
            assert!(scores.len() == 2 && scores.iter().all(|score| score.is_finite()));
        }
        scores.is_ok()
    });
    Found {
        decoder: decoder.unwrap_or(false),
        tokenizer: Checkpoint::tokenizer_of(folder).is_ok(),
        vectors: vectors.unwrap_or(false),
        scores: scores.unwrap_or(false),
    }
}

/// Folders that nobody changed are read: else every input would end at the same error.
fn check_seeds() {
    for (kind, is_bert) in [(0, false), (FILES.len(), true)] {
        let expected = Found {
            decoder: !is_bert,
            tokenizer: true,
            vectors: is_bert,
            scores: is_bert,
        };
        assert_eq!(read(folder(kind, None).path()), expected);
    }
}

/// A folder of this kind, of which one file may hold other bytes.
fn folder(kind: usize, changed: Option<&[u8]>) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("room for a small file")
    };
    let family = kind / FILES.len() % CONFIGS.len();
    write("config.json", &CONFIGS[family][1..]);
    write("model.safetensors", &WEIGHTS[family][1..]);
    write("tokenizer.json", &TOKENIZER[1..]);
    write("tokenizer_config.json", br#"{"eos_token":"[SEP]"}"#);
    if let Some(bytes) = changed {
        write(FILES[kind % FILES.len()], bytes);
    }
    folder
}

/// Panics of the tokenizers crate are caught by the readers. libFuzzer's hook would abort at them before that; a panic that nobody
/// catches still ends the run.
fn quiet() {
    std::panic::set_hook(Box::new(|info| {
        let is_tokenizer = info
            .location()
            .is_some_and(|at| at.file().contains("tokenizers"));
        if !is_tokenizer {
            eprintln!("{info}");
        }
    }));
}

fuzz_target!(init: quiet(), |data: &[u8]| {
    static CHECKED: Once = Once::new();
    CHECKED.call_once(check_seeds);
    let Some((&kind, bytes)) = data.split_first() else {
        return;
    };
    read(folder(usize::from(kind), Some(bytes)).path());
});
