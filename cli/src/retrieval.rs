//! The search for passages, as arguments.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use forage_lab::{EnvironmentConfig, RetrieverConfig, RunError, fetch_file};
use forage_retriever::{CorpusFormat, Mode};
use forage_trainer::device::DeviceSpec;

/// The format of a corpus, read off its first record where none is given, as the environment reads it.
pub(crate) fn format_of(
    environment: &str,
    corpus: Option<&Path>,
    given: Option<CorpusFormat>,
) -> Result<Option<CorpusFormat>> {
    match (corpus, given) {
        (Some(corpus), None) => {
            let environment = EnvironmentConfig::plain(environment)?;
            Ok(Some(environment.format_of(&fetch_file(corpus)?)?))
        }
        _ => Ok(given),
    }
}

/// The same words as in a config's `[retriever]`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RetrievalArgs {
    /// The way to search an index.
    #[arg(long, default_value = "bm25", help = Mode::help())]
    pub(crate) mode: Mode,
    /// Folder of the BERT encoder (E5, BGE, MiniLM) the index was embedded with; dense and hybrid need it.
    #[arg(long)]
    encoder: Option<PathBuf>,
    /// Folder of a BERT cross-encoder that orders the first hits anew.
    #[arg(long)]
    pub(crate) reranker: Option<PathBuf>,
    /// Hits the cross-encoder looks at.
    #[arg(long, default_value_t = RetrieverConfig::default().rerank_depth, requires = "reranker")]
    rerank_depth: usize,
    /// Answers kept for queries that come again; 0 keeps none.
    #[arg(long, default_value_t = 0)]
    cache_entries: usize,
    /// Device of encoder and cross-encoder: cpu, cuda:0, ...
    #[arg(id = "model-device", long, default_value = "cpu")]
    device: DeviceSpec,
}

impl RetrievalArgs {
    /// The ids of these arguments, for arguments that conflict with them.
    pub(crate) const IDS: [&str; 6] = [
        "mode",
        "encoder",
        "reranker",
        "rerank_depth",
        "cache_entries",
        "model-device",
    ];

    /// The settings for an index that is searched by this mode alone.
    ///
    /// # Errors
    /// For an encoder beside a mode that looks for words.
    pub(crate) fn one_mode(&self) -> Result<RetrieverConfig> {
        if self.encoder.is_some() && [Mode::BM25, Mode::BOOLEAN].contains(&self.mode) {
            let what = format!(
                "--encoder: mode {} does without; add --mode dense or --mode hybrid, or leave the encoder out",
                self.mode
            );
            return Err(RunError::config(what).into());
        }
        Ok(self.config())
    }

    pub(crate) fn config(&self) -> RetrieverConfig {
        RetrieverConfig {
            mode: self.mode,
            encoder: self.encoder.clone(),
            reranker: self.reranker.clone(),
            rerank_depth: self.rerank_depth,
            cache_entries: self.cache_entries,
            device: self.device,
            remote: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_has_its_id() {
        let command = RetrievalArgs::augment_args(clap::Command::new("search"));
        let ids: Vec<&str> = command
            .get_arguments()
            .map(|argument| argument.get_id().as_str())
            .collect();
        assert_eq!(ids, RetrievalArgs::IDS);
    }
}
