//! The corpus of a run: its passages behind a retriever, and its whole pages.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use forage_contracts::{OpenWiki, Pages};
use forage_env::{Wiki, World};
use forage_retriever::{Bm25Retriever, BuildRequest, CorpusFormat, Index, NoPassages, Retriever};

use crate::error::{Result, bail};
use crate::hub::fetch_file;
use crate::layout::RunLayout;
use crate::retrieval::{RetrieverConfig, recorded};

/// Passages that can be searched, and whole pages for environments that read them.
#[derive(Clone)]
pub struct Corpus {
    pub(crate) retriever: Arc<dyn Retriever>,
    pub(crate) wiki: Option<OpenWiki>,
    /// What is searched, where questions of files may name evidence that it does not have.
    pub(crate) index: Option<Arc<Index>>,
}

impl Corpus {
    /// Nothing to search, for environments that need nothing.
    pub(crate) fn none() -> Self {
        Self {
            retriever: Arc::new(NoPassages),
            wiki: None,
            index: None,
        }
    }

    /// The passages and pages of a generated world, searched in memory.
    pub(crate) fn generated(world: &Arc<World>, retrieval: &RetrieverConfig) -> Result<Self> {
        let pages = Arc::clone(world);
        let passages = Bm25Retriever::in_memory(world.passages().collect())?;
        Ok(Self {
            retriever: retrieval.over(passages.index())?,
            wiki: Some(lazily(move || Ok(Wiki::of_world(&pages)?))),
            index: None,
        })
    }

    /// An index folder, or a corpus that is indexed in `scratch` first, with its pages.
    pub(crate) fn searchable(
        index: Option<&Path>,
        corpus: Option<(&Path, CorpusFormat)>,
        retrieval: &RetrieverConfig,
        scratch: &Path,
    ) -> Result<Self> {
        let scratch = RunLayout::new(scratch);
        let fetch = |(corpus, format): (&Path, CorpusFormat)| {
            fetch_file(corpus).map(|corpus| (corpus, format))
        };
        let fetched = corpus.map(fetch).transpose()?;
        let corpus = fetched
            .as_ref()
            .map(|(corpus, format)| (std::slice::from_ref(corpus), *format));
        let found = match (index, corpus) {
            (Some(index), None) => Arc::new(Index::open(index)?),
            (None, Some((corpus, format))) => open_or_build(corpus, format, &scratch.index())?,
            _ => bail!("give exactly one of --index and --corpus"),
        };
        let retriever = retrieval.over(&found)?;
        let index = Some(Arc::clone(&found));
        let wiki = match corpus {
            Some((corpus, format)) => pages_of(corpus, format, Some(found), &scratch),
            None => pages_in(found),
        };
        Ok(Self {
            retriever,
            wiki: Some(wiki),
            index,
        })
    }

    /// The corpus with its retriever's answers recorded in the file `tape`, where one is named.
    pub(crate) fn recorded(self, tape: Option<&Path>) -> Result<Self> {
        Ok(Self {
            retriever: recorded(self.retriever, tape)?,
            ..self
        })
    }
}

/// Pages that are opened, or indexed first, when an environment asks for them; once for all that ask.
fn lazily(open: impl Fn() -> Result<Wiki> + Send + Sync + 'static) -> OpenWiki {
    let opened: Mutex<Option<Arc<dyn Pages>>> = Mutex::default();
    Arc::new(move || {
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wiki) = opened.as_ref() {
            return Ok(Arc::clone(wiki));
        }
        let wiki: Arc<dyn Pages> = Arc::new(open()?);
        Ok(Arc::clone(opened.insert(wiki)))
    })
}

/// The pages of corpora; a format of passages has a page in each, and `passages`, their index, serves for both.
pub(super) fn pages_of(
    corpora: &[PathBuf],
    format: CorpusFormat,
    passages: Option<Arc<Index>>,
    layout: &RunLayout,
) -> OpenWiki {
    let (corpora, place) = (corpora.to_vec(), layout.pages());
    lazily(move || {
        let index = match &passages {
            Some(index) if format.whole() == format => Arc::clone(index),
            _ => open_or_build(&fetch_all(&corpora)?, format.whole(), &place)?,
        };
        index.verify_whole_pages()?;
        Ok(Wiki::of_index(index))
    })
}

/// The documents of an index as pages.
pub(super) fn pages_in(index: Arc<Index>) -> OpenWiki {
    lazily(move || {
        index.verify_whole_pages()?;
        Ok(Wiki::of_index(Arc::clone(&index)))
    })
}

/// Finds each path as [`fetch_file`] does.
pub(super) fn fetch_all(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    paths.iter().map(|path| fetch_file(path)).collect()
}

/// Opens an index after checking that it was built from these corpora.
pub(super) fn open_checked(
    place: &Path,
    corpora: &[PathBuf],
    format: CorpusFormat,
) -> Result<Arc<Index>> {
    let index = Index::open(place)?;
    index.verify_corpora(corpora, format)?;
    Ok(Arc::new(index))
}

/// Opens the index of corpora at `place`, building it first when there is none.
pub(super) fn open_or_build(
    corpora: &[PathBuf],
    format: CorpusFormat,
    place: &Path,
) -> Result<Arc<Index>> {
    if place.exists() {
        return open_checked(place, corpora, format);
    }
    let request = BuildRequest {
        sources: corpora.to_vec(),
        ..BuildRequest::new(PathBuf::new(), format, place)
    };
    Index::build(&request, &mut |_, _| {})?;
    Ok(Arc::new(Index::open(place)?))
}
