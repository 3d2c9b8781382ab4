//! Many programs, each in an interpreter of its own.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, Result};
use forage_sandbox::{CallRecord, PyError, SandboxEngine, SandboxError, Status, TurnOutput};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::MakeTools;
use crate::jsonl::{self, Line, Output};
use crate::progress::Progress;

/// How the programs of a file are run.
pub(super) struct Batch {
    pub(super) engine: SandboxEngine,
    pub(super) tools: MakeTools,
    pub(super) seed: u64,
    pub(super) jobs: usize,
}

#[derive(Deserialize)]
struct Program {
    id: Value,
    code: String,
}

#[derive(Serialize)]
struct Row<'a> {
    id: &'a Value,
    stdout: &'a str,
    error: &'a Option<PyError>,
    status: Status,
    wall_us: u64,
    calls: &'a [CallRecord],
}

impl Batch {
    /// Runs the programs of `input` and writes a row for each to `out`, all or nothing.
    pub(super) fn run(&self, input: &Path, out: &Path) -> Result<()> {
        let lines: Vec<Line<Program>> = jsonl::read(input, "{\"id\", \"code\"}")?;
        let programs: Vec<Program> = lines.into_iter().map(|line| line.value).collect();
        let file = Output::create(out)?;
        let outputs = self.outputs(&programs)?;
        let rows = programs.iter().zip(&outputs).map(|(program, output)| Row {
            id: &program.id,
            stdout: &output.stdout,
            error: &output.error,
            status: output.status,
            wall_us: output.wall_us,
            calls: &output.calls,
        });
        file.write(rows)
    }

    fn outputs(&self, programs: &[Program]) -> Result<Vec<TurnOutput>> {
        let next = AtomicUsize::new(0);
        let done: Vec<OnceLock<Result<TurnOutput, SandboxError>>> = programs.iter().map(|_| OnceLock::new()).collect();
        let progress = Progress::new();
        let bar = Mutex::new(progress.bar("programs", programs.len() as u64));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.min(programs.len()) {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let (Some(program), Some(slot)) = (programs.get(place), done.get(place)) else { break };
                        let _ = slot.set(self.output(&program.code));
                        if let Ok(mut bar) = bar.lock() {
                            bar.set(place as u64 + 1, "");
                        }
                    }
                });
            }
        });
        let outputs = done.into_iter().zip(programs).map(|(slot, program)| {
            let output = slot.into_inner().context("a worker ended early")?;
            output.with_context(|| format!("program {} could not be run", program.id))
        });
        outputs.collect()
    }

    fn output(&self, code: &str) -> Result<TurnOutput, SandboxError> {
        self.engine.session((self.tools)(), self.seed)?.run_blocking(code)
    }
}
