//! `forage bench parity`: the device path against the processor.

use anyhow::{Result, bail};
use clap::Args;
use forage_trainer::device::DeviceSpec;
use forage_trainer::doctor::parity;

use crate::terminal::out;

/// Compares all that runs on a device with the processor.
#[derive(Args, Debug)]
pub(crate) struct Parity {
    /// The device to compare.
    #[arg(long)]
    device: DeviceSpec,
}

impl Parity {
    pub(super) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let (mut passed, mut failed) = (0, 0);
        parity(&device, |check| {
            *(if check.holds {
                &mut passed
            } else {
                &mut failed
            }) += 1;
            out(&format!(
                "{} {}: {}",
                if check.holds { "ok    " } else { "FAILED" },
                check.name,
                check.found
            ));
        });
        out(&format!("{passed} passed, {failed} failed"));
        if failed > 0 {
            bail!("{} does not compute what the processor does", self.device);
        }
        Ok(())
    }
}
