//! `forage export`: a trained policy as a folder that other tools load.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use forage_trainer::checkpoint;
use forage_trainer::device::DeviceSpec;
use forage_trainer::weights::{FileType, Precision, SaveOptions};

use super::{note, out};
use crate::setup;

/// Writes a policy as a folder that transformers, PEFT and the usual servers load: the newest checkpoint of a run, one
/// step of it, or any checkpoint by its folder or name on the hub.
#[derive(Args, Debug)]
pub(crate) struct Export {
    /// A run's folder, a checkpoint's folder, a name like `Qwen/Qwen2.5-0.5B-Instruct`, or `builtin:quickstart`.
    source: String,
    #[command(flatten)]
    target: Target,
    /// Type of the weights of a merged folder.
    #[arg(long, value_enum, default_value_t = Type::F32)]
    r#type: Type,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Target {
    /// Folder for the whole model; an adapter is added to its base.
    #[arg(long)]
    merged: Option<PathBuf>,
    /// Folder for the adapter alone, in PEFT's format.
    #[arg(long)]
    adapter: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    /// 4 bytes per weight.
    F32,
    /// 2 bytes per weight, rounded.
    Bf16,
}

impl Export {
    pub(crate) fn run(self) -> Result<()> {
        let source = newest(&self.source)?;
        let target = self.target.merged.as_ref().or(self.target.adapter.as_ref()).context("clap asks for one")?;
        if target.exists() {
            bail!("{} exists; give another folder, or remove it", target.display());
        }
        note(&format!("reading {source}"));
        let checkpoint = setup::open(&source, Precision::Stored, &DeviceSpec::Cpu)?;
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        if self.target.adapter.is_some() {
            checkpoint.save_adapter(target)?;
            let base = checkpoint.lora.as_ref().map_or("", |adapter| &adapter.base);
            if base.starts_with("builtin:") {
                note(&format!("its base, {base}, is known to forage alone; other tools need --merged"));
            }
        } else {
            let file_type = if self.r#type == Type::F32 { FileType::F32 } else { FileType::Bf16 };
            checkpoint.save_as(target, SaveOptions { file_type, ..SaveOptions::default() })?;
        }
        out(&target.display().to_string());
        Ok(())
    }
}

/// The model's folder of a run, of one of its checkpoints or of a quickstart; other names stay as they are.
fn newest(source: &str) -> Result<String> {
    let folder = Path::new(source);
    let step = checkpoint::list(folder)?.pop();
    if step.is_none() && folder.join("checkpoints").exists() {
        bail!("{source} holds no complete checkpoint yet; let it train to its next one");
    }
    let step = step.unwrap_or_else(|| folder.to_owned());
    // A quickstart keeps its trained policy alone.
    let found = [step.join("model"), folder.join("policy")].into_iter().find(|model| model.is_dir());
    Ok(found.map_or_else(|| source.to_owned(), |model| model.to_string_lossy().into_owned()))
}
