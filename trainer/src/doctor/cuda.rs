//! The parts of CUDA, as `forage doctor` shows them.

use super::Check;
use crate::device::cuda::{Card, CudaFault, Installation, Version};

/// The parts of CUDA that a run on an NVIDIA GPU needs: driver, compiler, headers and cards. What does not hold is missing.
pub fn cuda() -> Vec<Check> {
    let installed = Installation::find();
    let check = |name, found: Result<String, String>, fix| Check {
        name,
        holds: found.is_ok(),
        fix: found.is_err().then_some(fix),
        found: found.unwrap_or_else(|fault| fault),
    };
    let place = installed
        .headers
        .as_ref()
        .map_or("CUDA_PATH names no folder".to_owned(), |path| {
            path.display().to_string()
        });
    let headers = if installed.missing_headers.is_empty() {
        Ok(place)
    } else {
        Err(format!(
            "{place}, lacking: {}",
            installed.missing_headers.join(", ")
        ))
    };
    let version = |found: &Result<Version, CudaFault>, of: &str| match found {
        Ok(version) => Ok(format!("{of} CUDA {version}")),
        Err(fault) => Err(fault.to_string()),
    };
    let mut checks = vec![
        check(
            "driver",
            version(&installed.driver, "serves"),
            "install the NVIDIA driver; nvidia-smi must list the card",
        ),
        check(
            "NVRTC",
            version(&installed.nvrtc, "of"),
            "install the CUDA toolkit, or the wheel nvidia-cuda-nvrtc, and put its lib folder on LD_LIBRARY_PATH",
        ),
        check(
            "headers",
            headers,
            "install the toolkit, or the wheels nvidia-cuda-runtime, -crt and -cccl, and name their folder in CUDA_PATH",
        ),
    ];
    for (index, card) in installed.cards.iter().enumerate() {
        let Card {
            name,
            capability: Version { major, minor },
            memory,
        } = card;
        let gib = *memory as f64 / (1_u64 << 30) as f64;
        let found = format!("cuda:{index}, {name}, sm_{major}{minor}, {gib:.1} GiB");
        checks.push(check("card", Ok(found), ""));
    }
    if let (Ok(driver), Ok(nvrtc)) = (&installed.driver, &installed.nvrtc)
        && driver.major < nvrtc.major
    {
        let fault = format!("the driver serves CUDA {driver}, NVRTC is of {nvrtc}");
        let fix = "install a newer driver, or an NVRTC of the driver's version";
        checks.push(check("versions", Err(fault), fix));
    }
    checks
}
