//! `forage python`: model-written programs in the sandbox, one, many, or line by line.

mod batch;
mod prompt;

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_contracts::{ByteTokenizer, Resources};
use forage_env::Wiki;
use forage_env::registry::page_functions;
use forage_lab::RunError;
use forage_retriever::{Bm25Retriever, CorpusFormat, Index, IndexError};
use forage_sandbox::{EngineOptions, SandboxEngine, Session, Tools, TurnOutput};

use crate::jsonl::without_mark;
use crate::terminal::{note, notice};

/// Makes the functions that the programs of one session call.
type MakeFunctions = Box<dyn Fn() -> Arc<dyn Tools> + Send + Sync>;

/// Runs Python in the sandbox, as an agent's turn runs.
///
/// The program runs in a Wasm sandbox without files, network, clock or entropy, under limits, the same
/// every time. One file (`-` or a pipe for stdin), a file of many programs with --jsonl, or a prompt that keeps its
/// variables from line to line.
///
/// What the program prints goes to stdout, its traceback to stderr; the exit code is 0, 1 after an exception or a limit, or
/// what the program gave to `exit`.
#[derive(Args, Debug)]
pub(crate) struct Python {
    /// The program.
    #[arg(conflicts_with = "jsonl")]
    file: Option<PathBuf>,
    /// A wiki the program can search with `search_pages`, `view_sections` and `read_section`: wiki pages, any corpus that
    /// `forage index build` reads, or an index of whole pages.
    #[arg(long)]
    pages: Option<PathBuf>,
    /// A file of programs, one `{"id", "code"}` per line, each run in a fresh interpreter.
    #[arg(long, requires = "out")]
    jsonl: Option<PathBuf>,
    /// File for `{"id", "stdout", "error", "status", "wall_us", "calls"}` per program, in the order of the input.
    #[arg(long, requires = "jsonl")]
    out: Option<PathBuf>,
    /// Programs of --jsonl to run at a time; as many as there are processors by default.
    #[arg(long, requires = "jsonl")]
    jobs: Option<usize>,
    /// Most processor time of a turn, in seconds.
    #[arg(long, default_value_t = 5.0)]
    timeout_s: f64,
    /// Decides all randomness of the program.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Python {
    pub(crate) fn run(self) -> Result<()> {
        let engine = self.engine()?;
        let tools = self.tools()?;
        if let (Some(input), Some(out)) = (&self.jsonl, &self.out) {
            let jobs = self
                .jobs
                .or(std::thread::available_parallelism().ok().map(usize::from))
                .unwrap_or(1);
            if jobs == 0 {
                bail!(RunError::config("--jobs 0 runs nothing; give at least 1"));
            }
            return batch::Batch {
                engine,
                tools,
                seed: self.seed,
                jobs,
            }
            .run(input, out);
        }
        let mut session = engine.session(tools(), self.seed);
        if self.file.is_none() && std::io::stdin().is_terminal() {
            return prompt::run(&mut session);
        }
        let code = self.code()?;
        let output = run_bytes(&mut session, &code)?;
        show(&output)?;
        match exit_code(&output) {
            0 => Ok(()),
            code => std::process::exit(code),
        }
    }

    fn engine(&self) -> Result<SandboxEngine> {
        if !(self.timeout_s > 0.0 && self.timeout_s <= 86_400.0) {
            bail!(RunError::config(format!(
                "--timeout-s {} is not between 0 and 86400",
                self.timeout_s
            )));
        }
        let mut options = EngineOptions::default();
        options.limits.time = Duration::from_secs_f64(self.timeout_s);
        Ok(SandboxEngine::open_with(&options, &mut |told| {
            notice(&told.to_string());
        })?)
    }

    /// Makes the functions of a session.
    fn tools(&self) -> Result<MakeFunctions> {
        let Some(path) = &self.pages else {
            return Ok(Box::new(|| Arc::new(())));
        };
        let wiki = wiki(path).with_context(|| format!("--pages {}", path.display()))?;
        let wiki = Arc::new(wiki);
        let passages = Arc::new(Bm25Retriever::new(Arc::clone(wiki.index())));
        let resources = Resources::new(passages, Arc::new(ByteTokenizer)).with_open_wiki(wiki);
        Ok(Box::new(page_functions(&resources)?))
    }

    fn code(&self) -> Result<Vec<u8>> {
        let mut code = Vec::new();
        match self.file.as_deref().filter(|file| *file != "-") {
            Some(file) => {
                code = std::fs::read(file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
            }
            None => {
                std::io::stdin()
                    .read_to_end(&mut code)
                    .context("cannot read stdin")?;
            }
        }
        Ok(code)
    }
}

/// The pages of an index, or else of a corpus.
fn wiki(path: &Path) -> Result<Wiki> {
    match Index::open(path) {
        Err(IndexError::Missing { .. }) => Ok(Wiki::read(path, CorpusFormat::detect(path)?)?),
        opened => {
            let index = opened?;
            index.verify_whole_pages()?;
            Ok(Wiki::of_index(Arc::new(index)))
        }
    }
}

/// Runs code that may not be text, which Python refuses as CPython does.
fn run_bytes(session: &mut Session, code: &[u8]) -> Result<TurnOutput> {
    match std::str::from_utf8(code) {
        Ok(code) => Ok(session.run_blocking(without_mark(code))?),
        Err(error) => bail!(
            "the program is not UTF-8 from byte {} on",
            error.valid_up_to()
        ),
    }
}

/// Prints what a turn printed and why it ended.
fn show(output: &TurnOutput) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(output.stdout.as_bytes())
        .and_then(|()| stdout.flush())
        .context("cannot write to stdout")?;
    let mut stderr = std::io::stderr().lock();
    let traceback = output
        .error
        .as_ref()
        .filter(|error| error.kind != "SystemExit")
        .map(|error| error.traceback.as_str());
    let text = [output.stderr.as_str(), traceback.unwrap_or_default()];
    text.iter()
        .try_for_each(|text| stderr.write_all(text.as_bytes()))
        .context("cannot write to stderr")
}

/// The exit code CPython would end with.
fn exit_code(output: &TurnOutput) -> i32 {
    match &output.error {
        None => 0,
        Some(error) if error.kind == "SystemExit" => match error.message.as_str() {
            "" | "None" | "0" | "False" => 0,
            text => text.parse().unwrap_or_else(|_| {
                note(text);
                1
            }),
        },
        Some(_) => 1,
    }
}
