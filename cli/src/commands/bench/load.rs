//! `forage bench load`: time and memory of making, saving and loading a checkpoint.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use forage_trainer::device::DeviceSpec;
use forage_trainer::{Checkpoint, FileType, Precision};

use super::{Weights, open};
use crate::commands::export::check_absent;
use crate::terminal::out;

/// Measures making or loading a checkpoint, and saving it.
#[derive(Args, Debug)]
pub(crate) struct Load {
    /// A checkpoint folder, or random:SHAPE.
    model: String,
    /// How the weights are kept; those of a folder stay as they are stored by default.
    #[arg(long, value_enum)]
    weights: Option<Weights>,
    /// Folder that receives the weights in bf16.
    #[arg(long)]
    save: Option<PathBuf>,
}

impl Load {
    pub(super) fn run(self) -> Result<()> {
        if let Some(place) = &self.save {
            check_absent(place)?;
        }
        let start = Instant::now();
        let folder = PathBuf::from(&self.model);
        let checkpoint = match self.weights {
            None if folder.is_dir() => {
                Checkpoint::load_as(&folder, Precision::Stored, &DeviceSpec::Cpu.open()?)?
            }
            weights => open(
                &self.model,
                weights.unwrap_or(Weights::F32),
                DeviceSpec::Cpu,
            )?,
        };
        report("open", start);
        if let Some(place) = &self.save {
            let start = Instant::now();
            checkpoint.save_as(place, FileType::Bf16)?;
            report("save bf16", start);
        }
        Ok(())
    }
}

fn report(what: &str, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory: Vec<String> = ["VmHWM", "VmRSS", "RssAnon", "RssFile"]
        .iter()
        .filter_map(|key| status.lines().find(|line| line.starts_with(key)))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    out(&format!("{what}: {seconds:.2} s; {}", memory.join(", ")));
}
