//! `forage export`: a trained policy as a folder that other tools load.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use forage_lab::{RunLayout, open_policy};
use forage_trainer::device::DeviceSpec;
use forage_trainer::{FileType, Precision};

use crate::terminal::{hint, note, out, word};

/// Writes a policy as a folder that other tools load.
///
/// The folder is for transformers, PEFT and the usual servers; the policy is the newest checkpoint of a run, one step of it, or any checkpoint by its folder or name on the hub.
#[derive(Args, Debug)]
pub(crate) struct Export {
    /// A run's folder, a checkpoint's folder, a name like `Qwen/Qwen2.5-0.5B-Instruct`, or `builtin:quickstart`.
    source: String,
    #[command(flatten)]
    target: Target,
    /// Type of the weights of a merged folder.
    #[arg(long, value_enum, default_value_t = Type::F32, conflicts_with = "adapter")]
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

/// Refuses a folder that is there: what it holds would be lost.
pub(crate) fn check_absent(target: &Path) -> Result<()> {
    if target.exists() {
        bail!(
            "{} exists; give another folder, or remove it",
            target.display()
        );
    }
    Ok(())
}

impl Export {
    pub(crate) fn run(self) -> Result<()> {
        let newest = RunLayout::new(&self.source).newest_policy()?;
        let source = newest.map_or(self.source, |folder| folder.to_string_lossy().into_owned());
        let target = self
            .target
            .merged
            .as_ref()
            .or(self.target.adapter.as_ref())
            .context("clap asks for one")?;
        check_absent(target)?;
        hint(&format!("reading {source}"));
        let checkpoint = open_policy(&source, Precision::Stored, &DeviceSpec::Cpu)?;
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
        }
        if self.target.adapter.is_some() {
            checkpoint.save_adapter(target)?;
            let base = checkpoint.lora.as_ref().map_or("", |adapter| &adapter.base);
            if base.starts_with("builtin:") {
                note(&format!(
                    "its base, {base}, is known to forage alone; other tools need --merged"
                ));
            }
        } else {
            let file_type = if self.r#type == Type::F32 {
                FileType::F32
            } else {
                FileType::Bf16
            };
            checkpoint.save_as(target, file_type)?;
        }
        out(&target.display().to_string());
        hint(&format!(
            "next: forage eval CONFIG --policy {}",
            word(target)
        ));
        Ok(())
    }
}
