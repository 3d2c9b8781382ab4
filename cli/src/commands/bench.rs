//! `forage bench`: what the scripts in `bench/` measure, hidden from the help. It is part of the program so that one file is
//! all that has to reach a borrowed machine.

mod attention;
mod counters;
mod generate;
mod load;
mod parity;
#[cfg(feature = "cuda")]
mod products;
mod train;

use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use forage_contracts::seed::Seed;
use forage_lab::open_policy;
use forage_trainer::device::DeviceSpec;
use forage_trainer::{Checkpoint, Precision};

/// Measures parts of this program for scripts in bench.
#[derive(Subcommand, Debug)]
pub(crate) enum Bench {
    Generate(generate::Generate),
    Train(train::Train),
    Load(load::Load),
    Parity(parity::Parity),
    Attention(attention::Attention),
    #[cfg(feature = "cuda")]
    Products(products::Products),
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Generate(command) => command.run(),
            Self::Train(command) => command.run(),
            Self::Load(command) => command.run(),
            Self::Parity(command) => command.run(),
            Self::Attention(command) => command.run(),
            #[cfg(feature = "cuda")]
            Self::Products(command) => command.run(),
        }
    }
}

/// The form of the weights of a measured model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Weights {
    F32,
    Bf16,
    Int8,
}

impl From<Weights> for Precision {
    fn from(weights: Weights) -> Self {
        match weights {
            Weights::F32 => Self::Full,
            Weights::Bf16 => Self::Half,
            Weights::Int8 => Self::Int8,
        }
    }
}

/// Prefix of models of a published shape with random weights.
const RANDOM: &str = "random:";

/// A checkpoint by its folder, or of random weights: `random:Qwen2.5-0.5B`, or with fewer layers `random:Qwen2.5-0.5B:4`.
fn open(model: &str, weights: Weights, device: DeviceSpec) -> Result<Checkpoint> {
    let Some(shape) = model.strip_prefix(RANDOM) else {
        return Ok(open_policy(model, weights.into(), &device)?);
    };
    Ok(Checkpoint::random(
        shape,
        None,
        Seed::root(1),
        weights.into(),
        &device.open()?,
    )?)
}
