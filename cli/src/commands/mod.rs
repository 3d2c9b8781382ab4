//! One file per command.

mod audit;
mod bench;
mod cli;
mod collect;
mod compare;
mod config;
mod data;
mod doctor;
mod envs;
mod eval;
mod export;
mod index;
mod judge;
mod licenses;
mod play;
mod policy;
mod python;
mod quickstart;
pub(crate) mod recipes;
mod replay;
mod runs;
mod search;
mod serve;
mod sft;
mod shell;
mod telemetry;
mod train;
mod world;

#[cfg(test)]
#[path = "../../tests/it/guide/blocks.rs"]
mod blocks;

pub(crate) use cli::Cli;
