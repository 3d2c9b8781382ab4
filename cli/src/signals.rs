//! SIGHUP, which tells that the terminal is closed: it ends nothing that was started to outlive its terminal, as by `nohup`.

use anyhow::{Context, Result};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Tells whether the signal is ignored, as it is for what is to outlive its terminal.
pub(crate) fn is_hangup_ignored() -> Result<bool> {
    let before = on_hangup(&ignored())?;
    on_hangup(&before)?;
    Ok(matches!(before.handler(), SigHandler::SigIgn))
}

/// Ignores the signal.
pub(crate) fn ignore_hangup() -> Result<()> {
    on_hangup(&ignored()).map(drop)
}

fn ignored() -> SigAction {
    SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty())
}

/// Has the signal do this; returns what it did before.
#[expect(
    unsafe_code,
    reason = "what a signal does is asked and told of the system alone"
)]
fn on_hangup(action: &SigAction) -> Result<SigAction> {
    // SAFETY: the signal is ignored from then on, or does what it has done before: no code is given to it here.
    let before = unsafe { sigaction(Signal::SIGHUP, action) };
    before.context("ask what SIGHUP does")
}
