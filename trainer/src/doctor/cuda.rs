//! The parts of CUDA, as `forage doctor` shows them.

use super::Check;
use crate::device::cuda::{
    Card, CudaFault, Installation, NCCL_FIX, VERSIONS_FIX, Version, nccl_version, too_new,
};

/// Looks for the parts of CUDA that a run on NVIDIA GPUs needs: driver, compiler, headers, NCCL for several GPUs, and the GPUs. A check
/// that fails is a missing part.
pub fn cuda() -> Vec<Check> {
    let installed = Installation::find();
    let place = installed
        .headers
        .as_ref()
        .map_or("CUDA_PATH names no folder".to_owned(), |path| {
            path.display().to_string()
        });
    let lacking = installed.missing_headers.join(", ");
    let headers = if lacking.is_empty() {
        place
    } else {
        format!("{place}, lacking: {lacking}")
    };
    let mut checks = vec![
        versioned(
            "driver",
            &installed.driver,
            "serves",
            "install the NVIDIA driver; nvidia-smi must list the card",
        ),
        versioned(
            "NVRTC",
            &installed.nvrtc,
            "of",
            "install the CUDA toolkit, or the wheel nvidia-cuda-nvrtc, and put its lib folder on LD_LIBRARY_PATH",
        ),
        check(
            "headers",
            lacking.is_empty(),
            headers,
            "install the toolkit, or the wheels nvidia-cuda-runtime, -crt and -cccl, and name their folder in CUDA_PATH",
        ),
    ];
    checks.push(match nccl_version() {
        Ok(version) => check("NCCL", true, version.to_string(), NCCL_FIX),
        Err(fault) => check("NCCL", false, fault.to_string(), NCCL_FIX),
    });
    for (index, card) in installed.cards.iter().enumerate() {
        let Card {
            name,
            capability: Version { major, minor },
            memory,
        } = card;
        let gib = *memory as f64 / (1_u64 << 30) as f64;
        let found = format!("cuda:{index}, {name}, sm_{major}{minor}, {gib:.1} GiB");
        checks.push(check("card", true, found, ""));
    }
    if let (Ok(driver), Ok(nvrtc)) = (&installed.driver, &installed.nvrtc)
        && too_new(*nvrtc, *driver)
    {
        let found = format!("the driver serves CUDA {driver}, NVRTC is of {nvrtc}");
        checks.push(check("versions", false, found, VERSIONS_FIX));
    }
    checks
}

fn versioned(
    name: &'static str,
    found: &Result<Version, CudaFault>,
    of: &str,
    fix: &'static str,
) -> Check {
    match found {
        Ok(version) => check(name, true, format!("{of} CUDA {version}"), fix),
        Err(fault) => check(name, false, fault.to_string(), fix),
    }
}

fn check(name: &'static str, holds: bool, found: String, fix: &'static str) -> Check {
    Check {
        name,
        found,
        holds,
        fix: (!holds).then_some(fix),
    }
}
