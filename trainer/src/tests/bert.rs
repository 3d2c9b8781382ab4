//! BERT encoders and cross-encoders: numbers equal transformers and `PyTorch` on tiny random checkpoints.

use std::path::{Path, PathBuf};

use crate::bert::{BertEncoder, BertReranker};
use crate::device::DeviceSpec;
use crate::tests::common::{assert_bounded, fixtures, floats, json};
use forage_retriever::{Encoder, Reranker, TextKind};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::Value;

const TOLERANCE: f64 = 1e-5;

fn open(folder: &Path) -> BertEncoder {
    BertEncoder::open(folder, DeviceSpec::Cpu, Some(2)).unwrap()
}

/// Opens a folder that is made to pool by this mode and to leave vectors as long as they are.
fn encoder(folder: &Path, pooling: &str) -> BertEncoder {
    let mode = serde_json::json!({"pooling_mode": pooling});
    std::fs::write(folder.join("1_Pooling/config.json"), mode.to_string()).unwrap();
    std::fs::write(folder.join("modules.json"), "[]").unwrap();
    open(folder)
}

fn load_error(folder: &Path) -> String {
    BertEncoder::open(folder, DeviceSpec::Cpu, None)
        .unwrap_err()
        .to_string()
}

fn texts(reference: &Value) -> Vec<&str> {
    reference["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["text"].as_str().unwrap())
        .collect()
}

/// A copy of a fixture folder under a name of one's own.
fn copy(fixture: &str, name: &str) -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join(name);
    std::fs::create_dir_all(folder.join("1_Pooling")).unwrap();
    for file in [
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "1_Pooling/config.json",
        "modules.json",
    ] {
        if fixtures().join(fixture).join(file).exists() {
            std::fs::copy(fixtures().join(fixture).join(file), folder.join(file)).unwrap();
        }
    }
    (place, folder)
}

/// A copy of the encoder, whose texts have 24 tokens at most.
fn tiny_bert() -> (tempfile::TempDir, PathBuf) {
    let (place, folder) = copy("tiny_bert", "model");
    let lengths = "sentence_bert_config.json";
    std::fs::copy(
        fixtures().join("tiny_bert").join(lengths),
        folder.join(lengths),
    )
    .unwrap();
    (place, folder)
}

/// Leaves a model so many positions.
fn keep_positions(folder: &Path, count: usize) {
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let kept = stored.tensors().into_iter().map(|(name, view)| {
        let (mut shape, mut data) = (view.shape().to_vec(), view.data());
        if name.ends_with("position_embeddings.weight") {
            data = &data[..data.len() / shape[0] * count];
            shape[0] = count;
        }
        (name, TensorView::new(view.dtype(), shape, data).unwrap())
    });
    let kept = safetensors::serialize(kept, None).unwrap();
    std::fs::write(path, kept).unwrap();
    edit_config(folder, "max_position_embeddings", count.into());
}

fn edit_config(folder: &Path, key: &str, value: Value) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    config[key] = value;
    std::fs::write(path, config.to_string()).unwrap();
}

fn assert_vectors(found: &[f32], reference: &Value, precision: &str, pooling: &str) {
    let rows = reference["texts"].as_array().unwrap();
    let width = found.len() / rows.len();
    for (row, found) in rows.iter().zip(found.chunks_exact(width)) {
        let expected = floats(&row[precision][pooling]);
        assert_eq!(expected.len(), width);
        for (&found, expected) in found.iter().zip(expected) {
            let what = format!(
                "{precision} {pooling} {}: {found} is not {expected}",
                row["text"]
            );
            assert!((f64::from(found) - expected).abs() <= TOLERANCE, "{what}");
        }
    }
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

#[test]
fn vectors_equal_transformers() {
    let reference = json("bert.json");
    let (_place, folder) = tiny_bert();
    for name in ["mean", "cls"] {
        let encoder = encoder(&folder, name);
        assert_eq!(encoder.dimension(), 32);
        assert_vectors(
            &encoder
                .encode(TextKind::Passage, &texts(&reference))
                .unwrap(),
            &reference,
            "f32",
            name,
        );
    }
}

#[test]
fn weights_in_half_precision_are_read() {
    let reference = json("bert.json");
    for precision in ["f16", "bf16"] {
        let (_place, folder) = tiny_bert();
        let stored = fixtures().join(format!("tiny_bert/model_{precision}.safetensors"));
        std::fs::copy(stored, folder.join("model.safetensors")).unwrap();
        let vectors = encoder(&folder, "mean")
            .encode(TextKind::Query, &texts(&reference))
            .unwrap();
        assert_vectors(&vectors, &reference, precision, "mean");
    }
}

#[test]
fn logits_of_pairs_equal_transformers() {
    let reference = json("bert.json");
    // Longer pairs than the model has positions lose the end of the longer text.
    let (_place, folder) = copy("tiny_cross_encoder", "model");
    keep_positions(&folder, 48);
    let reranker = BertReranker::open(&folder, DeviceSpec::Cpu).unwrap();
    let pairs = reference["pairs"].as_array().unwrap();
    let texts = texts(&reference);
    for pairs in pairs.chunks_exact(texts.len()) {
        let found = reranker
            .score(pairs[0]["query"].as_str().unwrap(), &texts)
            .unwrap();
        for (pair, found) in pairs.iter().zip(found) {
            let expected = pair["logit"].as_f64().unwrap();
            assert!(
                (f64::from(found) - expected).abs() <= TOLERANCE,
                "{pair}: {found}"
            );
        }
    }
}

#[test]
fn a_vector_depends_neither_on_its_neighbours_nor_on_threads() {
    let reference = json("bert.json");
    let texts = texts(&reference);
    let (_place, folder) = tiny_bert();
    let encoder = encoder(&folder, "mean");
    let together = encoder.encode(TextKind::Query, &texts).unwrap();
    let alone: Vec<f32> = texts
        .iter()
        .flat_map(|text| encoder.encode(TextKind::Query, &[text]).unwrap())
        .collect();
    assert!(largest_difference(&together, &alone) <= 1e-6);

    // Many copies make several batches on two threads.
    let many: Vec<&str> = texts
        .iter()
        .copied()
        .cycle()
        .take(texts.len() * 40)
        .collect();
    for copy in encoder
        .encode(TextKind::Query, &many)
        .unwrap()
        .chunks_exact(together.len())
    {
        assert!(largest_difference(&together, copy) <= 1e-6);
    }
    assert!(encoder.encode(TextKind::Query, &[]).unwrap().is_empty());
}

#[test]
fn the_folder_decides_what_a_vector_is() {
    let found = open(&fixtures().join("tiny_bert"));
    let identity = found.identity();
    assert!(!identity.contains('\n'));
    for part in [
        "pooling=mean",
        "query=\"\"",
        "max_tokens=24",
        "normalise=true",
    ] {
        assert!(identity.contains(part), "{identity}");
    }
    let vector = found.encode(TextKind::Query, &["hello world"]).unwrap();
    assert!((vector.iter().map(|number| number * number).sum::<f32>() - 1.0).abs() < 1e-6);
    let (_place, folder) = tiny_bert();
    let raw = encoder(&folder, "mean")
        .encode(TextKind::Query, &["hello world"])
        .unwrap();
    let length = raw.iter().map(|number| number * number).sum::<f32>().sqrt();
    let scaled: Vec<f32> = raw.iter().map(|number| number / length).collect();
    assert!(largest_difference(&vector, &scaled) < 1e-6);
}

#[test]
fn names_decide_prefixes_pooling_and_normalisation() {
    let identity = |name: &str, path: Option<&str>| {
        let (_place, folder) = copy("tiny_cross_encoder", name);
        if let Some(path) = path {
            edit_config(&folder, "_name_or_path", path.into());
        }
        open(&folder).identity()
    };
    let assert_parts = |identity: String, parts: [&str; 3]| {
        assert!(
            parts.iter().all(|part| identity.contains(part)),
            "{identity}"
        );
    };
    assert_parts(
        identity("e5-base-v2", None),
        [
            "query=\"query: \" passage=\"passage: \"",
            "mean",
            "normalise=true",
        ],
    );
    let instruction =
        "query=\"Represent this sentence for searching relevant passages: \" passage=\"\"";
    assert_parts(
        identity("model", Some("BAAI/bge-base-en")),
        [instruction, "pooling=cls", "normalise=true"],
    );
    // In the hub's cache a folder is named by its commit, in which `e5` may stand by chance.
    assert_parts(
        identity("models--BAAI--bge-base-en/snapshots/a7e5", None),
        [instruction, "pooling=cls", "normalise=true"],
    );
    assert_parts(
        identity("models--org--plain/snapshots/a7e5", None),
        ["query=\"\" passage=\"\"", "pooling=mean", "normalise=true"],
    );
    assert_parts(
        identity("dpr-question", None),
        ["query=\"\" passage=\"\"", "pooling=mean", "normalise=false"],
    );
    // The folder names no length: 256, cut to the 64 positions of the fixture.
    assert_parts(
        identity("model", None),
        ["query=\"\" passage=\"\"", "max_tokens=64", "normalise=true"],
    );
}

#[test]
fn prefixes_are_written_before_texts() {
    let named = |name: &str| {
        let (place, folder) = copy("tiny_bert", name);
        (place, open(&folder))
    };
    let (_place, plain) = named("plain");
    let question = "Represent this sentence for searching relevant passages: ";
    for (name, prefixes) in [("e5", ["query: ", "passage: "]), ("bge", [question, ""])] {
        let (_place, encoder) = named(name);
        assert_ne!(encoder.identity(), plain.identity());
        for (kind, prefix) in [TextKind::Query, TextKind::Passage]
            .into_iter()
            .zip(prefixes)
        {
            let written = format!("{prefix}moon");
            let expected = plain.encode(kind, &[&written]).unwrap();
            assert_eq!(encoder.encode(kind, &["moon"]).unwrap(), expected);
        }
    }
}

#[test]
fn identity_follows_the_weights() {
    let (_place, folder) = copy("tiny_bert", "model");
    let first = encoder(&folder, "mean").identity();
    let path = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_ne!(encoder(&folder, "mean").identity(), first);
}

#[test]
fn sizes_of_a_config_take_no_memory_that_the_files_do_not_have() {
    // Within the bounds of a config, and 2 TiB of word embeddings. Of the projections the biases fit, and no weight.
    let (_place, folder) = copy("tiny_bert", "model");
    edit_config(&folder, "vocab_size", (1 << 22).into());
    edit_config(&folder, "hidden_size", (1 << 17).into());
    edit_config(&folder, "num_hidden_layers", 64.into());
    let error = load_error(&folder);
    for part in [
        "word_embeddings.weight is [110, 32] instead of [4194304, 131072]",
        "encoder.layer.10.attention.output.LayerNorm.bias",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn texts_that_are_no_files_or_too_long_are_not_read() {
    let (_place, folder) = copy("tiny_bert", "model");
    for (name, most) in [
        ("config.json", 16),
        ("1_Pooling/config.json", 16),
        ("modules.json", 16),
        ("sentence_bert_config.json", 16),
        ("tokenizer.json", 64),
    ] {
        assert_bounded(&folder.join(name), most, || load_error(&folder));
    }
}

#[test]
fn a_tokenizer_that_panics_or_gives_ids_without_a_row_is_refused() {
    let processor = |special: Value| {
        let (_place, folder) = copy("tiny_bert", "model");
        let path = folder.join("tokenizer.json");
        let mut file: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        file["post_processor"]["special_tokens"] = special;
        std::fs::write(path, file.to_string()).unwrap();
        load_error(&folder)
    };
    let token =
        |name: &str, id: u32| serde_json::json!({"id": name, "ids": [id], "tokens": [name]});
    for (special, told) in [
        (serde_json::json!({}), "reading it panics"),
        (
            serde_json::json!({"[CLS]": token("[CLS]", 110), "[SEP]": token("[SEP]", 3)}),
            "ids that the embeddings have no row for",
        ),
        (
            serde_json::json!({"[CLS]": token("[CLS]", u32::MAX), "[SEP]": token("[SEP]", 3)}),
            "ids that the embeddings have no row for",
        ),
    ] {
        let error = processor(special);
        assert!(
            error.contains("tokenizer.json") && error.contains(told),
            "{error}"
        );
    }
}

#[test]
fn faults_name_file_and_tensor() {
    let (_place, folder) = copy("tiny_bert", "model");
    edit_config(&folder, "num_hidden_layers", 3.into());
    edit_config(&folder, "max_position_embeddings", 65.into());
    let error = load_error(&folder);
    for part in [
        "encoder.layer.2.attention.output.LayerNorm.bias",
        "position_embeddings.weight is [64, 32]",
    ] {
        assert!(error.contains(part), "{error}");
    }
    edit_config(&folder, "model_type", "mpnet".into());
    let error = load_error(&folder);
    assert!(
        error.contains("config.json") && error.contains("model_type `mpnet`"),
        "{error}"
    );

    let (_place, folder) = copy("tiny_bert", "model");
    edit_config(&folder, "vocab_size", 50.into());
    assert!(load_error(&folder).contains("tokenizer.json"));
    std::fs::remove_file(folder.join("tokenizer.json")).unwrap();
    assert!(load_error(&folder).contains("tokenizer.json"));

    let (_place, folder) = copy("tiny_bert", "model");
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(load_error(&folder).contains("truncated"));

    let error = BertReranker::open(&fixtures().join("tiny_bert"), DeviceSpec::Cpu)
        .unwrap_err()
        .to_string();
    for part in [
        "classifier.weight",
        "classifier.bias",
        "pooler.dense.weight",
    ] {
        assert!(error.contains(part), "{error}");
    }
}
