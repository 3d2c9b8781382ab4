//! `forage index build` and `forage index info`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use forage_retriever::{Bm25Params, BuildRequest, BuildStage, CorpusFormat, Existing, Index as RetrieverIndex};

use super::out;
use crate::progress::Progress;

/// Builds an index of a corpus, or describes one.
#[derive(Subcommand, Debug)]
pub(crate) enum Index {
    Build(Build),
    Info(Info),
}

/// Builds an index folder; it appears only when it is complete.
#[derive(Args, Debug)]
pub(crate) struct Build {
    /// Corpus file (JSON lines, .gz too) or BEIR folder.
    #[arg(long)]
    corpus: PathBuf,
    /// beir, search-r1 or pages.
    #[arg(long)]
    format: CorpusFormat,
    /// Index folder to create.
    #[arg(long)]
    out: PathBuf,
    /// BM25 term saturation.
    #[arg(long, default_value_t = Bm25Params::default().k1)]
    k1: f32,
    /// BM25 length normalisation.
    #[arg(long, default_value_t = Bm25Params::default().b)]
    b: f32,
    /// Replace an index that is already there.
    #[arg(long)]
    replace: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// Describes an index folder.
#[derive(Args, Debug)]
pub(crate) struct Info {
    /// Index folder.
    index: PathBuf,
}

impl Index {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Build(build) => build.run(),
            Self::Info(info) => {
                out(&serde_json::to_string_pretty(RetrieverIndex::open(&info.index)?.manifest())?);
                Ok(())
            }
        }
    }
}

impl Build {
    fn run(self) -> Result<()> {
        let existing = if self.replace { Existing::Replace } else { Existing::Keep };
        let bm25 = Bm25Params { k1: self.k1, b: self.b };
        let request = BuildRequest { bm25, existing, ..BuildRequest::new(&self.corpus, self.format, &self.out) };
        let progress = Progress::new();
        let mut bar = None;
        let summary = RetrieverIndex::build(&request, &mut |step| {
            if step.stage == BuildStage::Indexing
                && let Some(total) = step.total
            {
                bar.get_or_insert_with(|| progress.bar("passages", total)).set(step.done, "");
            }
        })?;
        if self.json {
            out(&serde_json::to_string(&serde_json::json!({
                "index": summary.path,
                "passages": summary.counts.passages,
                "terms": summary.counts.terms,
                "tokens": summary.counts.tokens,
                "bytes": summary.bytes,
                "corpus_digest": summary.corpus_digest,
                "fingerprint": summary.fingerprint,
            }))?);
        } else {
            out(&format!(
                "{}: {} passages, {} terms, {:.1} MB",
                summary.path.display(),
                summary.counts.passages,
                summary.counts.terms,
                summary.bytes as f64 / 1e6
            ));
        }
        Ok(())
    }
}
