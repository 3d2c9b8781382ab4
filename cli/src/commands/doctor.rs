//! `forage doctor`: what of this machine can be used, and what is missing.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use forage_trainer::device::{Adapter, DeviceSpec};
use forage_trainer::doctor::{self, Check};
use forage_trainer::memory;
use serde::Serialize;

use crate::terminal::{counted, hint, out};

/// Checks this machine and its devices.
///
/// Looks at processor, memory, disk, GPUs with drivers and compilers, whether each device computes
/// what the processor does, and how fast. Exit code 1 when something does not hold.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Look at this device alone, and fail when it cannot be used; otherwise at all that are found,
    /// without software drivers.
    #[arg(long)]
    device: Option<DeviceSpec>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// How a line of the report is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// Nothing that a run on another device needs.
    Missing,
    Failed,
}

#[derive(Debug, Serialize)]
struct Line {
    /// `machine`, or the name of a device.
    of: String,
    name: String,
    status: Status,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Default)]
struct Report(Vec<Line>);

impl Report {
    fn ok(&mut self, of: &str, name: &str, found: impl Into<String>) {
        self.line(of, name, Status::Ok, found, None);
    }

    fn line(
        &mut self,
        of: &str,
        name: &str,
        status: Status,
        found: impl Into<String>,
        fix: Option<&str>,
    ) {
        let fix = fix.map(str::to_owned);
        self.0.push(Line {
            of: of.to_owned(),
            name: name.to_owned(),
            status,
            found: found.into(),
            fix,
        });
    }

    /// Adds checks; what does not hold has the status `otherwise`, and what holds and has a fix is missing.
    fn checks(&mut self, of: &str, checks: Vec<Check>, otherwise: Status) {
        const UNTRUE: &str =
            "its numbers cannot be trusted: update the driver, or use another device";
        for check in checks {
            let (status, fix) = match (check.holds, check.fix) {
                (true, None) => (Status::Ok, None),
                (true, fix) => (Status::Missing, fix),
                (false, fix) => (otherwise, fix.or(Some(UNTRUE))),
            };
            self.line(of, check.name, status, check.found, fix);
        }
    }

    fn failures(&self) -> usize {
        self.0
            .iter()
            .filter(|line| line.status == Status::Failed)
            .count()
    }
}

const MACHINE: &str = "machine";

impl Doctor {
    pub(crate) fn run(self) -> Result<()> {
        let mut report = Report::default();
        machine(&mut report);
        #[cfg(feature = "cuda")]
        if matches!(self.device, None | Some(DeviceSpec::Cuda(_))) {
            report.checks("CUDA", doctor::cuda(), Status::Missing);
        }
        let devices = if let Some(device) = self.device {
            vec![device]
        } else {
            // A run takes a software driver only where it is named, so one that cannot compute does not fail the machine.
            let (software, found): (Vec<DeviceSpec>, Vec<DeviceSpec>) = DeviceSpec::found()
                .into_iter()
                .partition(|device| matches!(device, DeviceSpec::Wgpu(Adapter::Software)));
            for driver in software {
                let found = format!("examined only with `--device {driver}`");
                report.ok(&driver.to_string(), "software driver", found);
            }
            std::iter::once(DeviceSpec::Cpu).chain(found).collect()
        };
        for device in devices {
            examine(&mut report, device);
        }
        self.print(&report);
        match report.failures() {
            0 => {
                if !self.json {
                    hint("next: forage quickstart");
                }
                Ok(())
            }
            count => bail!(
                "{} failed; the lines above say what to do",
                counted(count, "check")
            ),
        }
    }

    fn print(&self, report: &Report) {
        if self.json {
            let holds = report.failures() == 0;
            out(&serde_json::json!({ "forage": env!("CARGO_PKG_VERSION"), "holds": holds, "checks": report.0 })
                .to_string());
            return;
        }
        let mut of = "";
        for line in &report.0 {
            if line.of != of {
                of = &line.of;
                out(of);
            }
            let mark = match line.status {
                Status::Ok => "ok     ",
                Status::Missing => "missing",
                Status::Failed => "FAILED ",
            };
            out(&format!("  {mark}  {}: {}", line.name, line.found));
            if let Some(fix) = &line.fix {
                out(&format!("           {fix}"));
            }
        }
    }
}

const GIB: f64 = (1_u64 << 30) as f64;
/// Available memory below which the quickstart may not run, in bytes.
const LITTLE_MEMORY: u64 = 2 << 30;
/// Free space below which a folder does not hold the checkpoints of a small run, in bytes.
const LITTLE_DISK: u64 = 1 << 30;

fn machine(report: &mut Report) {
    // Too little of something is not a failure: a run on another device, or a small one, may not need it.
    let mut judged = |name: &str, enough: bool, found: String, fix: &str| {
        let (status, fix) = if enough {
            (Status::Ok, None)
        } else {
            (Status::Missing, Some(fix))
        };
        report.line(MACHINE, name, status, found, fix);
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (fast, instructions) = instructions();
    judged(
        "processor",
        fast,
        format!("{threads} threads, {instructions}"),
        "use a processor with AVX2; a virtual machine must pass it through (QEMU: `-cpu host`)",
    );
    if let Some(free) = memory::available() {
        judged(
            "memory",
            free >= LITTLE_MEMORY,
            format!("{:.1} GiB available", free as f64 / GIB),
            "end other programs: the quickstart needs 2 GiB, `--dry-run` says what another run needs",
        );
    }
    for (name, place) in [
        ("runs", PathBuf::from(".")),
        ("scratch", std::env::temp_dir()),
    ] {
        if let Ok(free) = fs4::available_space(existing(&place)) {
            judged(
                &format!("disk, {name}"),
                free >= LITTLE_DISK,
                format!("{:.1} GiB free in {}", free as f64 / GIB, place.display()),
                "make room, or name another folder with `--out` (scratch: TMPDIR)",
            );
        }
    }
    let mut backends = vec!["cpu"];
    backends.extend(cfg!(feature = "cuda").then_some("cuda"));
    backends.extend(cfg!(feature = "rocm").then_some("rocm"));
    backends.extend(cfg!(feature = "wgpu").then_some("wgpu"));
    backends.extend(cfg!(feature = "vulkan").then_some("vulkan"));
    backends.extend(cfg!(feature = "metal").then_some("metal"));
    report.ok(MACHINE, "compiled in", backends.join(", "));
    if !cfg!(feature = "cuda") && Path::new("/proc/driver/nvidia/version").exists() {
        let fix = "build with `--features cuda` to use it";
        report.line(
            MACHINE,
            "NVIDIA driver",
            Status::Missing,
            "a card is there, and this build cannot reach it",
            Some(fix),
        );
    }
}

/// The nearest folder above that exists.
fn existing(place: &Path) -> &Path {
    place
        .ancestors()
        .find(|folder| folder.exists())
        .unwrap_or(Path::new("."))
}

/// Returns whether the processor has AVX2 and FMA, which the kernels are written for, and names its instruction sets.
fn instructions() -> (bool, String) {
    #[cfg(target_arch = "x86_64")]
    {
        let found = [
            ("AVX2", std::is_x86_feature_detected!("avx2")),
            ("FMA", std::is_x86_feature_detected!("fma")),
            ("AVX-512", std::is_x86_feature_detected!("avx512f")),
            ("AVX-512 BF16", std::is_x86_feature_detected!("avx512bf16")),
        ];
        let fast = found[0].1 && found[1].1;
        let named: Vec<&str> = found
            .iter()
            .filter(|(_, there)| *there)
            .map(|(name, _)| *name)
            .collect();
        if fast {
            (true, named.join(", "))
        } else {
            (
                false,
                "without AVX2 and FMA: several times slower".to_owned(),
            )
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    (true, std::env::consts::ARCH.to_owned())
}

fn examine(report: &mut Report, spec: DeviceSpec) {
    let name = spec.to_string();
    let opened = match spec.open() {
        Ok(opened) => opened,
        Err(error) => {
            report.line(&name, "open", Status::Failed, error.to_string(), None);
            return;
        }
    };
    report.ok(&name, "open", DeviceSpec::describe(&opened));
    // The runtimes of devices panic where they cannot go on.
    let Ok(checks) = std::thread::spawn(move || doctor::examine(&opened)).join() else {
        let fix = "the message above says where; update the driver, or use another device";
        report.line(
            &name,
            "computing",
            Status::Failed,
            "the device's runtime panicked",
            Some(fix),
        );
        return;
    };
    report.checks(&name, checks, Status::Failed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_and_has_a_fix_is_shown_and_is_no_failure() {
        let check = |holds, fix| Check {
            name: "a part",
            found: "it is so".to_owned(),
            holds,
            fix,
        };
        let mut report = Report::default();
        let checks = vec![
            check(true, None),
            check(true, Some("do this")),
            check(false, Some("do that")),
            check(false, None),
        ];
        report.checks("cuda:0", checks, Status::Failed);
        let lines = report.0.iter();
        let found: Vec<(Status, Option<&str>)> = lines
            .map(|line| (line.status, line.fix.as_deref()))
            .collect();
        assert_eq!(
            found[..3],
            [
                (Status::Ok, None),
                (Status::Missing, Some("do this")),
                (Status::Failed, Some("do that")),
            ]
        );
        assert!(
            found[3]
                .1
                .is_some_and(|fix| fix.contains("cannot be trusted"))
        );
        assert_eq!(report.failures(), 2);
    }
}
