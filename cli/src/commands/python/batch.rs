//! Many programs, each in an interpreter of its own.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use forage_lab::Observer;
use forage_sandbox::{CallRecord, PyError, SandboxEngine, SandboxError, Status, TurnOutput};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::MakeFunctions;
use crate::jsonl::{self, Line, Output};
use crate::progress::Watch;

/// The settings that the programs of a file run under.
pub(super) struct Batch {
    pub(super) engine: SandboxEngine,
    pub(super) tools: MakeFunctions,
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
        let file = Output::create(out, &[input])?;
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
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.jobs.min(programs.len()))
            .build()
            .context("the threads of the programs cannot be started")?;
        let (watch, done) = (Watch::new(), AtomicU64::new(0));
        let run = |program: &Program| {
            let output = self.output(&program.code);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            watch.progress("programs", done, programs.len() as u64, "");
            output.with_context(|| format!("program {} could not be run", program.id))
        };
        pool.install(|| programs.par_iter().map(run).collect())
    }

    fn output(&self, code: &str) -> Result<TurnOutput, SandboxError> {
        self.engine
            .session((self.tools)(), self.seed)
            .run_blocking(code)
    }
}
