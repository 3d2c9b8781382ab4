//! From a mode, model folders and addresses to something that searches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_retriever::dense::DenseRetriever;
use forage_retriever::remote::RemoteSpec;
use forage_retriever::server::Services;
use forage_retriever::{
    Bm25Retriever, BooleanRetriever, CachedRetriever, Encoder, Fusion, HybridRetriever, Index, Mode,
    RecordingRetriever, RerankedRetriever, Reranker, Retriever, TapeWriter,
};
use forage_trainer::bert::{BertEncoder, BertReranker, EncoderOptions, RerankerOptions};
use forage_trainer::device::DeviceSpec;
use serde::{Deserialize, Serialize};

use crate::config::BadConfig;
use crate::pipeline::runtime;

/// How passages are found: the same words in a config's `[retriever]` and on the command line.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetrieverConfig {
    /// bm25, boolean, dense or hybrid.
    #[arg(long, default_value = "bm25")]
    pub(crate) mode: Mode,
    /// Folder of the BERT encoder (E5, BGE, MiniLM) the index was embedded with; dense and hybrid need it.
    #[arg(long)]
    pub(crate) encoder: Option<PathBuf>,
    /// Folder of a BERT cross-encoder that orders the first hits anew.
    #[arg(long)]
    pub(crate) reranker: Option<PathBuf>,
    /// Hits the cross-encoder looks at.
    #[arg(long, default_value_t = RERANK_DEPTH)]
    pub(crate) rerank_depth: usize,
    /// Answers kept for queries that come again; 0 keeps none.
    #[arg(long, default_value_t = 0)]
    pub(crate) cache_entries: usize,
    /// Device of encoder and cross-encoder: cpu, cuda:0, ...
    #[arg(id = "model-device", long, default_value = "cpu")]
    pub(crate) device: DeviceSpec,
    /// A server that holds the passages, instead of an index folder.
    #[arg(skip)]
    pub(crate) remote: Option<RemoteSpec>,
}

const RERANK_DEPTH: usize = 50;
/// Passages of each list that hybrid search fuses.
const FUSED: usize = 100;

impl Default for RetrieverConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Bm25,
            encoder: None,
            reranker: None,
            rerank_depth: RERANK_DEPTH,
            cache_entries: 0,
            device: DeviceSpec::default(),
            remote: None,
        }
    }
}

impl RetrieverConfig {
    /// Refuses combinations that mean nothing.
    pub(crate) fn check(&self) -> Result<()> {
        let dense = matches!(self.mode, Mode::Dense | Mode::Hybrid);
        if dense && self.encoder.is_none() && self.remote.is_none() {
            bail!("mode {} needs an encoder: name the folder of the model the index was embedded with", self.mode);
        }
        if self.remote.is_some() && self.mode != Mode::Bm25 {
            bail!("mode {} is for an index folder; a remote retriever ranks as its server does", self.mode);
        }
        if self.reranker.is_some() && self.rerank_depth == 0 {
            bail!("rerank_depth is 0: the cross-encoder would see nothing");
        }
        Ok(())
    }

    /// The retriever of an index folder, or of a TOML file that names a remote one.
    pub(crate) fn open(&self, index: Option<&Path>, remote: Option<&Path>) -> Result<Arc<dyn Retriever>> {
        match (index, remote) {
            (Some(index), None) => self.over(&Arc::new(Index::open(index)?)),
            (None, Some(file)) => {
                let config = Self { remote: Some(read_remote(file)?), ..self.clone() };
                config.connect()?.context("no remote retriever")
            }
            _ => bail!("give an index folder or --remote FILE"),
        }
    }

    /// The retriever over a local index.
    pub(crate) fn over(&self, index: &Arc<Index>) -> Result<Arc<dyn Retriever>> {
        self.check()?;
        let encoder = self.open_encoder()?;
        let first = in_mode(self.mode, index, encoder.as_ref())?;
        self.finish(first)
    }

    /// The retriever a config names when it is a remote one.
    pub(crate) fn connect(&self) -> Result<Option<Arc<dyn Retriever>>> {
        self.check()?;
        let Some(spec) = &self.remote else { return Ok(None) };
        if spec.needs_encoder() && self.encoder.is_none() {
            bail!("this remote retriever searches by vectors: name an encoder, the model its vectors were made with");
        }
        let first = runtime()?.block_on(spec.clone().open(self.open_encoder()?))?;
        self.finish(first).map(Some)
    }

    /// What a server of this index answers with: every mode it has the means for.
    pub(crate) fn services(&self, index: &Arc<Index>) -> Result<Services> {
        self.check()?;
        let encoder = self.open_encoder()?;
        let mut services = Services::of_index(Arc::new(Bm25Retriever::new(Arc::clone(index))));
        let mut modes = vec![Mode::Bm25];
        if encoder.is_some() {
            modes.extend([Mode::Dense, Mode::Hybrid]);
        }
        for mode in modes {
            let retriever = self.cached(in_mode(mode, index, encoder.as_ref())?, &mut services.caches);
            services.retrievers.insert(mode, retriever);
        }
        services.default_mode = self.mode;
        services.reranker = self.open_reranker()?;
        Ok(services)
    }

    /// What a front of a remote retriever answers with.
    pub(crate) fn front(&self, retriever: Arc<dyn Retriever>) -> Result<Services> {
        let mut caches = Vec::new();
        let retriever = self.cached(retriever, &mut caches);
        let mut services = Services::of_retriever(Mode::Bm25, retriever);
        services.caches = caches;
        services.reranker = self.open_reranker()?;
        Ok(services)
    }

    fn cached(&self, retriever: Arc<dyn Retriever>, caches: &mut Vec<Arc<CachedRetriever>>) -> Arc<dyn Retriever> {
        if self.cache_entries == 0 {
            return retriever;
        }
        let cached = Arc::new(CachedRetriever::new(retriever, self.cache_entries));
        caches.push(Arc::clone(&cached));
        cached
    }

    /// Encoder of queries, when one is named.
    pub(crate) fn open_encoder(&self) -> Result<Option<Arc<dyn Encoder>>> {
        self.encoder.as_deref().map(|folder| open_encoder(folder, self.device)).transpose()
    }

    fn open_reranker(&self) -> Result<Option<Arc<dyn Reranker>>> {
        let Some(folder) = &self.reranker else { return Ok(None) };
        let options = RerankerOptions { device: self.device, ..RerankerOptions::default() };
        let model = BertReranker::load(folder, &options)
            .with_context(|| format!("cross-encoder {} cannot be used", folder.display()))?;
        Ok(Some(Arc::new(model)))
    }

    /// Reranking and the cache, around whatever finds the first hits.
    fn finish(&self, first: Arc<dyn Retriever>) -> Result<Arc<dyn Retriever>> {
        let mut retriever = first;
        if let Some(reranker) = self.open_reranker()? {
            retriever = Arc::new(RerankedRetriever::new(retriever, reranker, self.rerank_depth));
        }
        Ok(self.cached(retriever, &mut Vec::new()))
    }
}

fn read_remote(file: &Path) -> Result<RemoteSpec> {
    let text = std::fs::read_to_string(file)
        .with_context(|| BadConfig(format!("cannot read remote retriever {}", file.display())))?;
    toml::from_str(&text).with_context(|| BadConfig(format!("remote retriever {} is not usable", file.display())))
}

/// The same retriever, with a tape of what it answers where one is asked for.
pub(crate) fn recorded(retriever: Arc<dyn Retriever>, tape: Option<&Path>) -> Result<Arc<dyn Retriever>> {
    let Some(path) = tape else { return Ok(retriever) };
    let tape = TapeWriter::open(path, &retriever).with_context(|| BadConfig("--record-tools".to_owned()))?;
    Ok(Arc::new(RecordingRetriever::new(retriever, Arc::new(tape))))
}

/// Opens a BERT encoder folder.
pub(crate) fn open_encoder(folder: &Path, device: DeviceSpec) -> Result<Arc<dyn Encoder>> {
    let options = EncoderOptions { device, ..EncoderOptions::default() };
    let encoder =
        BertEncoder::load(folder, &options).with_context(|| format!("encoder {} cannot be used", folder.display()))?;
    Ok(Arc::new(encoder))
}

fn in_mode(mode: Mode, index: &Arc<Index>, encoder: Option<&Arc<dyn Encoder>>) -> Result<Arc<dyn Retriever>> {
    let bm25 = || Arc::new(Bm25Retriever::new(Arc::clone(index)));
    let dense = || -> Result<Arc<dyn Retriever>> {
        let encoder = encoder.context("dense search needs --encoder, the model the index was embedded with")?;
        Ok(Arc::new(DenseRetriever::open(Arc::clone(index), Arc::clone(encoder))?))
    };
    Ok(match mode {
        Mode::Bm25 => bm25(),
        Mode::Boolean => Arc::new(BooleanRetriever::new(bm25())),
        Mode::Dense => dense()?,
        Mode::Hybrid => Arc::new(HybridRetriever::new(vec![bm25(), dense()?], Fusion::default(), FUSED)?),
    })
}
