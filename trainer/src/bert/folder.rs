//! The files that sentence-transformers adds to a model folder.

use std::path::{Path, PathBuf};

use forage_net::FileBounds;
use serde_json::Value;

use super::family::Pooling;
use crate::file_error::FileError;

/// What a folder says about itself; `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FolderSettings {
    /// From `1_Pooling/config.json`.
    pub(super) pooling: Option<Pooling>,
    /// Whether `modules.json` lists `Normalize`.
    pub(super) normalise: Option<bool>,
    /// From `sentence_bert_config.json`.
    pub(super) max_tokens: Option<usize>,
    /// From `sentence_bert_config.json`: lower-case the text before the tokenizer sees it.
    pub(super) lowercase: bool,
}

impl FolderSettings {
    pub(super) fn read(folder: &Path) -> Result<Self, FileError> {
        let (max_tokens, lowercase) = lengths(&folder.join("sentence_bert_config.json"))?;
        Ok(Self {
            pooling: pooling(&folder.join("1_Pooling").join("config.json"))?,
            normalise: normalise(&folder.join("modules.json"))?,
            max_tokens,
            lowercase,
        })
    }
}

/// The name of a model by its folder: the last component of the path, links resolved no further than the path itself says. In the cache
/// of the hub, where `models--ORG--NAME/snapshots` holds folders named by commits, the repository's name.
pub(super) fn folder_name(folder: &Path) -> String {
    let absolute: PathBuf = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let name = |path: Option<&Path>| {
        path.and_then(Path::file_name)
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    };
    let snapshots = absolute.parent();
    let repository = name(snapshots.and_then(Path::parent));
    match repository.strip_prefix("models--") {
        Some(id) if name(snapshots) == "snapshots" => {
            let last = id.rsplit_once("--").map_or(id, |(_, last)| last);
            last.to_owned()
        }
        _ => name(Some(&absolute)),
    }
}

fn fault(path: &Path, message: String) -> FileError {
    FileError {
        path: path.to_owned(),
        message,
    }
}

/// The content of an optional JSON file.
fn json(path: &Path) -> Result<Option<Value>, FileError> {
    let text = match FileBounds::JSON.read_text(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(path, format!("cannot be read: {error}"))),
    };
    let value = serde_json::from_str(&text)
        .map_err(|error| fault(path, format!("is not JSON: {error}")))?;
    Ok(Some(value))
}

fn pooling(path: &Path) -> Result<Option<Pooling>, FileError> {
    let Some(value) = json(path)? else {
        return Ok(None);
    };
    // Old files have one flag per mode, newer ones a name.
    let flags = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, set)| **set == Value::Bool(true));
    let mut modes: Vec<&str> = flags
        .filter_map(|(key, _)| key.strip_prefix("pooling_mode_"))
        .collect();
    modes.extend(value.get("pooling_mode").and_then(Value::as_str));
    match modes.as_slice() {
        ["mean_tokens" | "mean"] => Ok(Some(Pooling::Mean)),
        ["cls_token" | "cls"] => Ok(Some(Pooling::Cls)),
        [] => Err(fault(
            path,
            "sets no pooling_mode; set pooling_mode_mean_tokens or pooling_mode_cls_token"
                .to_owned(),
        )),
        other => {
            let message = format!(
                "pooling_mode {} is not supported; use a model with mean_tokens or cls_token",
                other.join(" with ")
            );
            Err(fault(path, message))
        }
    }
}

fn normalise(path: &Path) -> Result<Option<bool>, FileError> {
    let Some(value) = json(path)? else {
        return Ok(None);
    };
    let modules = value.as_array().ok_or_else(|| {
        fault(
            path,
            "is not a list of modules; download it again".to_owned(),
        )
    })?;
    let mut found = false;
    for module in modules {
        let kind = module
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" | "Pooling" => {}
            "Normalize" => found = true,
            _ => {
                let message = format!(
                    "module type `{kind}` is not supported; use a model of Transformer, Pooling, Normalize"
                );
                return Err(fault(path, message));
            }
        }
    }
    Ok(Some(found))
}

fn lengths(path: &Path) -> Result<(Option<usize>, bool), FileError> {
    let Some(value) = json(path)? else {
        return Ok((None, false));
    };
    let lowercase = value
        .get("do_lower_case")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let limit = match value.get("max_seq_length") {
        None | Some(Value::Null) => None,
        Some(limit) => {
            let limit = limit.as_u64().filter(|&limit| limit >= 3);
            Some(limit.ok_or_else(|| {
                fault(
                    path,
                    "max_seq_length must be a number of at least 3".to_owned(),
                )
            })? as usize)
        }
    };
    Ok((limit, lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, content: &str) -> Result<FolderSettings, FileError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        FolderSettings::read(folder.path())
    }

    #[test]
    fn pooling_is_read_from_flags_and_names() {
        let flags = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false, "include_prompt": true}"#;
        assert_eq!(
            read("1_Pooling/config.json", flags).unwrap().pooling,
            Some(Pooling::Cls)
        );
        let name = r#"{"embedding_dimension": 4, "pooling_mode": "mean"}"#;
        assert_eq!(
            read("1_Pooling/config.json", name).unwrap().pooling,
            Some(Pooling::Mean)
        );
    }

    #[test]
    fn what_is_not_implemented_is_refused_with_its_file_and_key() {
        for (name, content, needle) in [
            (
                "1_Pooling/config.json",
                r#"{"pooling_mode_max_tokens": true}"#,
                "max_tokens is not supported",
            ),
            (
                "1_Pooling/config.json",
                r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#,
                "cls_token with mean_tokens",
            ),
            ("1_Pooling/config.json", "{}", "sets no pooling_mode"),
            (
                "modules.json",
                r#"[{"type": "sentence_transformers.models.Dense"}]"#,
                "models.Dense",
            ),
            ("modules.json", "{}", "not a list"),
            (
                "sentence_bert_config.json",
                r#"{"max_seq_length": 0}"#,
                "max_seq_length",
            ),
            ("sentence_bert_config.json", "{", "is not JSON"),
        ] {
            let error = read(name, content).unwrap_err();
            assert!(
                error.path.ends_with(name) && error.message.contains(needle),
                "{error}"
            );
        }
    }

    #[test]
    fn an_empty_folder_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            FolderSettings::read(folder.path()).unwrap(),
            FolderSettings::default()
        );
    }
}
