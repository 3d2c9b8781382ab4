//! `forage compare`: two sets of recorded episodes on the same questions.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use forage_env::episode::Episode;
use forage_env::rollout::read_episodes;
use forage_eval::compare::Comparison;
use forage_eval::stats::Bootstrap;

use super::out;

/// Compares two policies on the same questions, from the episodes `forage eval --out` wrote.
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// Episodes of the first policy.
    a: PathBuf,
    /// Episodes of the second policy.
    b: PathBuf,
    /// Seed of the bootstrap.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub(crate) fn run(self) -> Result<()> {
        let comparison = Comparison::from_episodes(&read(&self.a)?, &read(&self.b)?, Bootstrap::new(self.seed))?;
        if self.json {
            out(&serde_json::to_string(&comparison)?);
            return Ok(());
        }
        for metric in comparison.metrics.keys() {
            out(&format!("{metric:20} {}", comparison.words(metric, "A", "B")));
        }
        Ok(())
    }
}

pub(super) fn read(path: &Path) -> Result<Vec<Episode>> {
    Ok(read_episodes(path)?.map(|record| record.map(|record| record.episode)).collect::<Result<_, _>>()?)
}
