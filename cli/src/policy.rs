//! Opens a policy to generate with: weights, tokenizer, chat template, engine; or names the server that has them.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use forage_contracts::seed::Seed;
use forage_lab::{EngineSection, Generation, Resolved, hub, open_policy};
use forage_trainer::device::DeviceSpec;
use forage_trainer::server::Model;
use forage_trainer::{Checkpoint, Precision, Workers};

/// Seed of random weights.
const WEIGHTS_SEED: u64 = 0;

/// The model and the token for a policy that is a server.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// Model to ask a server for, by a name that it lists; its only one by default.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// File with the access token (API key) of a server; it is sent over https, and to this machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The model and engine of a policy.
#[derive(Args, Debug)]
pub(crate) struct PolicyArgs {
    /// Random weights of a published shape, `Qwen2.5-0.5B` for instance, to measure with; of the model only the tokenizer
    /// is read, where one is given.
    #[arg(long, value_name = "SHAPE")]
    random_init: Option<String>,
    /// Keeps matrices in bf16, mapped from the file where it holds bf16.
    #[arg(long)]
    half: bool,
    /// Device of the model: cpu, cuda:0, ...
    #[arg(long, default_value = "cpu")]
    device: DeviceSpec,
    /// Threads of the model; one per core by default.
    #[arg(long)]
    threads: Option<usize>,
    /// Most tokens of a prompt and its completion; by default what the model was made for.
    #[arg(long)]
    context: Option<usize>,
    /// Memory of the key-value cache, MiB: what does not fit waits, or is run again later.
    #[arg(long, default_value_t = EngineSection::default().cache_mib)]
    cache_mib: usize,
    /// Completions that run at a time; more wait.
    #[arg(long, default_value_t = EngineSection::default().sequences)]
    sequences: usize,
}

impl PolicyArgs {
    /// Opens `model` (a folder, a name on the hub, or `builtin:NAME`) and starts its engine.
    pub(crate) fn start(&self, model: Option<&str>) -> Result<Model> {
        if self.context.is_some_and(|context| context < 2)
            || self.cache_mib == 0
            || self.sequences == 0
        {
            bail!("--context must be at least 2, --cache-mib and --sequences at least 1");
        }
        let (name, checkpoint) = self.open(model)?;
        if let Some(penalty) = checkpoint.repetition_penalty() {
            crate::terminal::note(&format!(
                "note: generation_config.json asks for a repetition_penalty of {penalty}; it is not applied, so that \
                 log-probabilities are those of the policy"
            ));
        }
        let shape = &checkpoint.config;
        let generation = Generation {
            sizes: EngineSection {
                sequences: self.sequences,
                context_tokens: self.context.unwrap_or(shape.max_position_embeddings),
                cache_mib: self.cache_mib,
                ..EngineSection::default()
            },
            device: self.device,
            bf16: self.half && !self.device.is_cpu(),
            threads: self.threads.unwrap_or_else(Resolved::all_threads),
        };
        let pool = Workers::new(generation.threads).kernel_pool();
        Ok(Model::start(
            name,
            &checkpoint,
            generation.engine(shape),
            pool,
        ))
    }

    /// Completions that run at a time.
    pub(crate) fn sequences(&self) -> usize {
        self.sequences
    }

    fn open(&self, model: Option<&str>) -> Result<(String, Checkpoint)> {
        let device = self.device.open()?;
        let precision = if self.half {
            Precision::Half
        } else {
            Precision::Full
        };
        match (model, &self.random_init) {
            (None, None) => {
                bail!("name a model: a folder, ORG/NAME on the hub, or builtin:quickstart")
            }
            (Some(name), None) if self.half && name.starts_with("builtin:") => {
                bail!("{name} is kept whole: leave --half out, or name a folder")
            }
            (Some(name), None) => Ok((
                served_name(name),
                open_policy(name, precision, &self.device)?,
            )),
            (tokenizer, Some(shape)) => {
                let folder = tokenizer.map(|name| hub().fetch_texts(name)).transpose()?;
                let seed = Seed::root(WEIGHTS_SEED);
                Ok((
                    shape.clone(),
                    Checkpoint::random(shape, folder.as_deref(), seed, precision, &device)?,
                ))
            }
        }
    }
}

/// A folder's own name, a builtin's without its prefix, a name on the hub as it is.
fn served_name(name: &str) -> String {
    let name = name.trim_start_matches("builtin:");
    let path = Path::new(name);
    let own = || {
        path.canonicalize()
            .ok()?
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    path.is_dir()
        .then(own)
        .flatten()
        .unwrap_or_else(|| name.to_owned())
}
