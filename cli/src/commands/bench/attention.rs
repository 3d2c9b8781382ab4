//! `forage bench attention`: attention of training, for comparison with another implementation.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;
use forage_trainer::device::DeviceSpec;
use forage_trainer::write_attention;

use crate::terminal::out;

/// Writes what attention makes of random projections.
///
/// Projections, results and derivatives go into a safetensors file; the rows of each sequence are printed as a line of JSON.
#[derive(Args, Debug)]
pub(crate) struct Attention {
    /// The file to write.
    file: PathBuf,
    #[arg(long, default_value = "cpu")]
    device: DeviceSpec,
    #[arg(long, default_value_t = 4)]
    heads: usize,
    #[arg(long, default_value_t = 2)]
    kv_heads: usize,
    #[arg(long, default_value_t = 64)]
    head_dim: usize,
    /// Tokens that all sequences begin with.
    #[arg(long, default_value_t = 0)]
    shared: usize,
    /// Tokens of each sequence after these.
    #[arg(long, value_delimiter = ',', required = true)]
    own: Vec<usize>,
}

impl Attention {
    pub(super) fn run(self) -> Result<()> {
        ensure!(
            self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads),
            "--heads is not a multiple of --kv-heads"
        );
        ensure!(
            self.own.iter().all(|&own| own + self.shared > 0),
            "a sequence has no tokens"
        );
        let device = self.device.open()?;
        let shape = [self.heads, self.kv_heads, self.head_dim];
        let start = Instant::now();
        let rows = write_attention(&self.file, &device, shape, self.shared, &self.own)?;
        let seconds = start.elapsed().as_secs_f64();
        out(&serde_json::json!({"rows": rows, "seconds": seconds}).to_string());
        Ok(())
    }
}
