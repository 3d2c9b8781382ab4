//! `[data.files]`: questions, corpora and indexes on disk.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forage_contracts::environment::Outcome;
use forage_contracts::{OpenWiki, Passages, Split, Task};
use forage_env::{pick_ids, read_tasks, registry};
use forage_retriever::{CorpusFormat, CorpusReader, Index, NoPassages};

use super::Tasks;
use super::corpus::{Corpus, fetch_all, open_checked, open_or_build, pages_in, pages_of};
use crate::config::{EnvironmentConfig, FilesConfig};
use crate::error::{Context, Result, RunError, refuse};
use crate::evidence::name_pages;
use crate::hub::fetch_file;
use crate::layout::RunLayout;
use crate::retrieval::RetrieverConfig;

impl EnvironmentConfig {
    /// The format of a corpus, read off its first record; pages stay whole where the environment neither reads passages nor ranks them.
    ///
    /// # Errors
    /// As [`CorpusFormat::detect`].
    pub fn format_of(&self, corpus: &Path) -> Result<CorpusFormat> {
        let format = CorpusFormat::detect(corpus)?;
        let (entry, resolved) = (registry::find(&self.id)?, self.resolved());
        let is_unread =
            resolved.is_ok_and(|found| matches!(found.passages, Passages::Unread { .. }));
        Ok(if is_unread && entry.outcome == Outcome::Answer {
            format.whole()
        } else {
            format
        })
    }
}

/// `retriever`: the environment, how passages are found, and whether the environment needs any.
pub(super) fn load_files(
    files: &FilesConfig,
    (environment, retriever, needed): (&EnvironmentConfig, &RetrieverConfig, bool),
    layout: &RunLayout,
) -> Result<(Corpus, [Tasks; 3])> {
    let remote = retriever.connect()?;
    if remote.is_some() && (!files.corpus.is_empty() || files.index.is_some()) {
        return Err(RunError::config_because(
            "[data.files] names what is searched, and [retriever.remote] a server that searches",
            "remove data.files.corpus and data.files.index, or [retriever.remote]",
        ));
    }
    let corpora = fetch_all(&files.corpus)?;
    let format = match (corpora.first(), files.format) {
        (Some(corpus), None) => {
            let format = environment.format_of(corpus);
            Some(format.in_config("data.files.corpus")?)
        }
        (_, format) => format,
    };
    let index = match (format.filter(|_| !corpora.is_empty()), &files.index) {
        (Some(format), Some(index)) => {
            Some(open_checked(index, &corpora, format).in_config("data.files.index")?)
        }
        (Some(format), None) => {
            let place = layout.index();
            if !place.exists() {
                // Questions that cannot be read are told before the index is built, which may take hours.
                file_splits(files, None)?;
            }
            Some(open_or_build(&corpora, format, &place)?)
        }
        (None, Some(index)) => Some(Arc::new(Index::open(index)?)),
        (None, None) => None,
    };
    let wiki = files_wiki(files, format, index.clone(), layout);
    let retriever = match (remote, &index) {
        (Some(remote), _) => remote,
        (None, Some(index)) => retriever.over(index)?,
        (None, None) if !needed => Arc::new(NoPassages),
        (None, None) => {
            return Err(RunError::config_because(
                "[data.files] names nothing to search",
                "write data.files.index or data.files.corpus, or a server in [retriever.remote]",
            ));
        }
    };
    let splits = file_splits(files, index.as_deref())?;
    if let Some(index) = index.as_ref().filter(|_| corpora.is_empty()) {
        refuse_other_names(index, &splits)?;
    }
    let corpus = Corpus {
        retriever,
        wiki,
        index,
    };
    Ok((corpus, splits))
}

/// Refuses judgments of passages that the index has under the ids of several corpora.
fn refuse_other_names(index: &Index, splits: &[Tasks; 3]) -> Result<()> {
    for task in splits.iter().flat_map(|tasks| tasks.iter()) {
        let Some(id) = task.qrels.keys().next() else {
            continue;
        };
        let among = CorpusReader::id_among(&task.data_source, id);
        if index.ordinal_of(id)?.is_none() && index.ordinal_of(&among)?.is_some() {
            return Err(RunError::config_because(
                format!(
                    "data.files.index has the passage `{id}`, which {} judges, as `{among}`",
                    task.name()
                ),
                "the index is of several corpora: list them in data.files.corpus too, and judgments are renamed",
            ));
        }
    }
    Ok(())
}

/// All questions of files, by their splits, with their pages named as in the index.
pub(crate) fn file_splits(files: &FilesConfig, index: Option<&Index>) -> Result<[Tasks; 3]> {
    let ids = files.ids.clone().unwrap_or_default();
    let mut corpora = BTreeSet::new();
    if files.corpus.len() > 1 {
        let fetched = fetch_all(&files.corpus)?;
        corpora.extend(fetched.iter().map(|path| CorpusReader::source_name(path)));
    }
    let tasks = |paths: &[PathBuf], ids: Option<&Path>, split| -> Result<Vec<Task>> {
        let mut read = Vec::new();
        let key = match split {
            Split::Train => "data.files.train",
            Split::Dev => "data.files.dev",
            Split::Test => "data.files.test",
        };
        for path in paths {
            let path = fetch_file(path)?;
            if !path.exists() {
                refuse!(
                    "{key}: no file at `{}`; write the path of a file of questions",
                    path.display()
                );
            }
            let own = read_tasks(&path, split);
            let mut own = own.in_config(format!("{key} cannot be read"))?;
            let name = CorpusReader::source_name(&path);
            if path.is_dir() && corpora.contains(&name) {
                // Judged are the passages of one corpus, which the index has among those of several.
                for task in &mut own {
                    let judged = std::mem::take(&mut task.qrels).into_iter();
                    let among =
                        |(id, grade): (String, i32)| (CorpusReader::id_among(&name, &id), grade);
                    task.qrels = judged.map(among).collect();
                }
            }
            read.extend(own);
        }
        name_pages(&mut read, index)?;
        let mut seen = HashSet::new();
        if let Some(twice) = read.iter().find(|task| !seen.insert(task.key())) {
            return Err(RunError::config_because(
                format!("data.files: two files have the question {}", twice.name()),
                "give rows a data_source, or name the files after their data sets; of parts of one data set name the folder, whose rows are \
                 counted on",
            ));
        }
        Ok(match ids {
            Some(ids) if !paths.is_empty() => pick_ids(&read, ids).in_config("data.files.ids")?,
            _ => read,
        })
    };
    let mut train = tasks(&files.train, ids.train.as_deref(), Split::Train)?;
    let dev = tasks(&files.dev, ids.dev.as_deref(), Split::Dev)?;
    let mut test = tasks(&files.test, ids.test.as_deref(), Split::Test)?;
    if let Some(share) = files.train_share {
        (train, test) = Split::cut(train, share);
    }
    let shared = |tasks: Vec<Task>| -> Tasks { tasks.into_iter().map(Arc::new).collect() };
    Ok([train, dev, test].map(shared))
}

/// Whole pages of files: their own, or those of the corpus, whose index serves where it is of pages.
pub(super) fn files_wiki(
    files: &FilesConfig,
    format: Option<CorpusFormat>,
    index: Option<Arc<Index>>,
    layout: &RunLayout,
) -> Option<OpenWiki> {
    let corpora = &files.corpus;
    match (&files.pages, format) {
        (Some(pages), _) => {
            let pages = std::slice::from_ref(pages);
            Some(pages_of(pages, CorpusFormat::WHOLE_PAGES, None, layout))
        }
        (None, _) if corpora.is_empty() => index.map(pages_in),
        (None, Some(format)) => Some(pages_of(corpora, format, index, layout)),
        (None, None) => None,
    }
}
