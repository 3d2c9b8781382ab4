//! Opens retrievers from modes, model folders and addresses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forage_retriever::server::Services;
use forage_retriever::{
    Bm25Retriever, CachedRetriever, Encoder, Index, Mode, RemoteSpec, RerankedRetriever, Reranker,
    Retriever, Searched, Tape,
};
use forage_trainer::device::DeviceSpec;
use forage_trainer::{BertEncoder, BertReranker};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Context, Result, bail, refuse};
use crate::hub::hub;
use crate::runtime::runtime;

/// `[retriever]`: how passages are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetrieverConfig {
    /// The way to search an index: bm25, boolean, dense, hybrid, or one from outside.
    pub mode: Mode,
    /// Folder of the BERT encoder (E5, BGE, MiniLM) the index was embedded with, or `hf://ORG/NAME` on the hub; dense and hybrid need
    /// it.
    pub encoder: Option<PathBuf>,
    /// Folder of a BERT cross-encoder that orders the first hits anew, or `hf://ORG/NAME` on the hub.
    pub reranker: Option<PathBuf>,
    /// Hits the cross-encoder looks at.
    pub rerank_depth: usize,
    /// Answers kept for queries that come again; 0 keeps none.
    pub cache_entries: usize,
    /// Device of encoder and cross-encoder: cpu, cuda:0, ...
    pub device: DeviceSpec,
    /// A server that holds the passages, instead of an index folder.
    pub remote: Option<RemoteSpec>,
}

const RERANK_DEPTH: usize = 50;

impl Default for RetrieverConfig {
    fn default() -> Self {
        Self {
            mode: Mode::BM25,
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
        if self.mode.needs_encoder && self.encoder.is_none() && self.remote.is_none() {
            refuse!(
                "mode {} needs an encoder: name the folder of the model the index was embedded with",
                self.mode
            );
        }
        if self.remote.is_some() && self.mode != Mode::BM25 {
            refuse!(
                "mode {} is for an index folder; a remote retriever ranks as its server does",
                self.mode
            );
        }
        if self.reranker.is_some() && self.rerank_depth == 0 {
            refuse!("rerank_depth is 0: the cross-encoder would see nothing");
        }
        Ok(())
    }

    /// The memory that an estimate of a run leaves out, as a line of a dry run; `None` where passages are searched by their words alone.
    pub(crate) fn uncounted(&self) -> Option<String> {
        let parts = [
            ("encoder", &self.encoder),
            ("cross-encoder", &self.reranker),
        ];
        let named: Vec<&str> = parts
            .iter()
            .filter(|(_, model)| model.is_some())
            .map(|(name, _)| *name)
            .collect();
        (!named.is_empty()).then(|| {
            format!(
                "# not counted: the weights of the search's {} on {}, and the vectors of the index, which are mapped or held in the memory of \
                 this machine",
                named.join(" and "),
                self.device
            )
        })
    }

    /// A copy without the settings that change no ranking: the size of the cache, and the address of a server and how it is asked. Its
    /// fingerprint tells whether a server has the same passages at another address; only forage's own servers have one without it.
    pub(crate) fn without_address(&self) -> Self {
        Self {
            cache_entries: 0,
            remote: self.remote.as_ref().map(without_address),
            ..self.clone()
        }
    }

    /// The retriever of an index folder, or of a TOML file that names a remote one; without either the remote one of these settings.
    ///
    /// # Errors
    /// When nothing or both are given, or it cannot be opened.
    pub fn open(&self, index: Option<&Path>, remote: Option<&Path>) -> Result<Arc<dyn Retriever>> {
        match (index, remote) {
            (Some(index), None) => self.over(&Arc::new(Index::open(index)?)),
            (None, Some(file)) => {
                let config = self.at(file)?;
                config.connect()?.context("no remote retriever")
            }
            (None, None) if self.remote.is_some() => self.connect()?.context("no remote retriever"),
            _ => bail!("give an index folder or --remote FILE"),
        }
    }

    /// The retriever over a local index.
    pub(crate) fn over(&self, index: &Arc<Index>) -> Result<Arc<dyn Retriever>> {
        self.check()?;
        let encoder = self.open_encoder()?;
        let searched = Searched {
            index,
            encoder: encoder.as_ref(),
        };
        self.finish((self.mode.open)(&searched)?)
    }

    /// The settings with the remote retriever that a TOML file names.
    fn at(&self, file: &Path) -> Result<Self> {
        Ok(Self {
            remote: Some(read_remote(file)?),
            ..self.clone()
        })
    }

    /// The retriever a config names when it is a remote one.
    pub(crate) fn connect(&self) -> Result<Option<Arc<dyn Retriever>>> {
        let first = self.connect_alone()?;
        first.map(|first| self.finish(first)).transpose()
    }

    /// As [`Self::connect`], without reranker and cache.
    fn connect_alone(&self) -> Result<Option<Arc<dyn Retriever>>> {
        self.check()?;
        let Some(spec) = &self.remote else {
            return Ok(None);
        };
        if spec.needs_encoder() && self.encoder.is_none() {
            bail!(
                "this remote retriever searches by vectors: name an encoder, the model its vectors were made with"
            );
        }
        let encoder = self.open_encoder()?;
        Ok(Some(runtime()?.block_on(spec.clone().open(encoder))?))
    }

    /// The services of a server of this index: every mode it has the models for.
    ///
    /// # Errors
    /// When a model cannot be opened or does not fit the index.
    pub fn services(&self, index: &Arc<Index>) -> Result<Services> {
        self.check()?;
        let encoder = self.open_encoder()?;
        let mut services = Services::of_index(Arc::new(Bm25Retriever::new(Arc::clone(index))));
        let searched = Searched {
            index,
            encoder: encoder.as_ref(),
        };
        // The server itself answers in boolean mode, with what it repaired.
        let modes = Mode::all().filter(|mode| *mode != Mode::BOOLEAN);
        for mode in modes.filter(|mode| encoder.is_some() || !mode.needs_encoder) {
            let retriever = self.cached((mode.open)(&searched)?, &mut services.caches);
            services.retrievers.insert(mode, retriever);
        }
        services.default_mode = self.mode;
        services.reranker = self.open_reranker()?;
        Ok(services)
    }

    /// The services of a front of the remote retriever that a TOML file names.
    ///
    /// # Errors
    /// When it or the cross-encoder cannot be opened.
    pub fn front(&self, remote: &Path) -> Result<Services> {
        let first = self.at(remote)?.connect_alone()?;
        let first = first.context("no remote retriever")?;
        let mut caches = Vec::new();
        let retriever = self.cached(first, &mut caches);
        let mut services = Services::of_retriever(Mode::BM25, retriever);
        services.caches = caches;
        services.reranker = self.open_reranker()?;
        Ok(services)
    }

    fn cached(
        &self,
        retriever: Arc<dyn Retriever>,
        caches: &mut Vec<Arc<CachedRetriever>>,
    ) -> Arc<dyn Retriever> {
        if self.cache_entries == 0 {
            return retriever;
        }
        let cached = Arc::new(CachedRetriever::new(retriever, self.cache_entries));
        caches.push(Arc::clone(&cached));
        cached
    }

    /// Opens a BERT encoder by its folder or its address on the hub.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn encoder(folder: &Path, device: DeviceSpec) -> Result<Arc<dyn Encoder>> {
        let encoder = BertEncoder::open(&model_folder(folder)?, device, None)
            .with_context(|| format!("encoder {} cannot be used", folder.display()))?;
        Ok(Arc::new(encoder))
    }

    /// Encoder of queries, when one is named.
    pub(crate) fn open_encoder(&self) -> Result<Option<Arc<dyn Encoder>>> {
        self.encoder
            .as_deref()
            .map(|folder| Self::encoder(folder, self.device))
            .transpose()
    }

    /// Cross-encoder, when one is named.
    pub(crate) fn open_reranker(&self) -> Result<Option<Arc<dyn Reranker>>> {
        let Some(folder) = &self.reranker else {
            return Ok(None);
        };
        let model = BertReranker::open(&model_folder(folder)?, self.device)
            .with_context(|| format!("cross-encoder {} cannot be used", folder.display()))?;
        Ok(Some(Arc::new(model)))
    }

    /// Reranking and the cache, around whatever finds the first hits.
    fn finish(&self, first: Arc<dyn Retriever>) -> Result<Arc<dyn Retriever>> {
        let mut retriever = first;
        if let Some(reranker) = self.open_reranker()? {
            retriever = Arc::new(RerankedRetriever::new(
                retriever,
                reranker,
                self.rerank_depth,
            ));
        }
        Ok(self.cached(retriever, &mut Vec::new()))
    }
}

/// The folder of an encoder or a cross-encoder: as it is named, or fetched from the hub by its address, `hf://ORG/NAME`.
fn model_folder(named: &Path) -> Result<PathBuf> {
    match named.to_str().filter(|named| named.starts_with("hf://")) {
        None => Ok(named.to_owned()),
        Some(address) => hub()
            .fetch(address)
            .with_context(|| format!("the model {} cannot be had", named.display())),
    }
}

fn without_address(remote: &RemoteSpec) -> RemoteSpec {
    let mut settings = json!(remote);
    if let Some(settings) = settings.as_object_mut() {
        settings.remove("http");
        settings.remove("batch_queries");
        for (key, nowhere) in [("url", json!("")), ("urls", json!([]))] {
            if let Some(address) = settings.get_mut(key) {
                *address = nowhere;
            }
        }
    }
    // A kind from outside may read its keys otherwise.
    RemoteSpec::deserialize(settings).unwrap_or_else(|_| remote.clone())
}

fn read_remote(file: &Path) -> Result<RemoteSpec> {
    let name = file.to_string_lossy();
    if ["http://", "https://"]
        .iter()
        .any(|scheme| name.starts_with(scheme))
    {
        refuse!(
            "--remote names a TOML file, and {name} is an address: write `kind = \"search-r1\"` and `url = \"{name}\"` into a file, and \
             name it"
        );
    }
    let text = std::fs::read_to_string(file)
        .in_config(format!("cannot read remote retriever {}", file.display()))?;
    toml::from_str(&text).in_config(format!("remote retriever {} is not usable", file.display()))
}

/// The retriever, with a recording of its answers where one is asked for.
pub(crate) fn recorded(
    retriever: Arc<dyn Retriever>,
    tape: Option<&Path>,
) -> Result<Arc<dyn Retriever>> {
    let Some(path) = tape else {
        return Ok(retriever);
    };
    Tape::record(path, retriever).in_config("--record-tools")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_a_folder_or_an_address_on_the_hub() {
        let folder = Path::new("models/e5-base-v2");
        assert_eq!(model_folder(folder).unwrap(), folder);
        let error = model_folder(Path::new("hf://nowhere")).unwrap_err();
        assert!(error.to_string().contains("hf://nowhere"), "{error}");
    }

    #[test]
    fn models_of_the_search_are_said_not_to_be_counted() {
        let mut config = RetrieverConfig::default();
        assert_eq!(config.uncounted(), None);
        config.encoder = Some("e5".into());
        config.reranker = Some("ranker".into());
        let line = config.uncounted().unwrap();
        assert!(line.contains("encoder and cross-encoder on cpu"), "{line}");
    }

    #[test]
    fn a_front_orders_hits_anew_where_a_request_asks_for_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("remote.toml");
        // Opening it sends nothing.
        let remote = "kind = \"elasticsearch\"\nurl = \"http://127.0.0.1:9\"\nindex = \"wiki\"\n";
        std::fs::write(&file, remote).unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/tests/fixtures");
        let plain = RetrieverConfig::default();
        let config = RetrieverConfig {
            reranker: Some(fixtures.join("tiny_cross_encoder")),
            cache_entries: 4,
            ..plain.clone()
        };
        let named = |retriever: &Arc<dyn Retriever>| retriever.fingerprint();
        let alone = named(&plain.open(None, Some(&file)).unwrap());
        assert_ne!(named(&config.open(None, Some(&file)).unwrap()), alone);
        let written = RetrieverConfig {
            remote: Some(read_remote(&file).unwrap()),
            ..plain.clone()
        };
        assert_eq!(named(&written.open(None, None).unwrap()), alone);
        let error = plain.open(None, Some(Path::new("http://127.0.0.1:9")));
        let error = error.err().unwrap().to_string();
        assert!(error.contains("is an address: write `kind"), "{error}");
        let services = config.front(&file).unwrap();
        assert_eq!(named(&services.retrievers[&Mode::BM25]), alone);
        assert!(services.reranker.is_some());
        assert_eq!(services.caches.len(), 1);
    }
}
