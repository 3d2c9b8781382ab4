//! `forage index`: building, growing, embedding, checking and describing index folders.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use forage_lab::{Observer, RetrieverConfig, fetch_file};
use forage_retriever::{
    AddRequest, Bm25Params, BuildRequest, BuildSummary, CorpusFormat, Index as RetrieverIndex,
    VectorIndexKind, VectorIndexRequest, VectorSource,
};
use forage_trainer::device::DeviceSpec;
use serde::Deserialize;

use crate::progress::Watch;
use crate::terminal::{counted, hint, note, out, word};

/// Builds, changes, checks or describes an index of a corpus.
#[derive(Subcommand, Debug)]
pub(crate) enum Index {
    Build(Build),
    Add(Add),
    Merge(Merge),
    Embed(Embed),
    Verify(Verify),
    Info(Info),
}

/// Builds an index folder.
///
/// The folder appears only when it is complete.
#[derive(Args, Debug)]
pub(crate) struct Build {
    #[command(flatten)]
    corpus: Corpus,
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

/// Adds a corpus to an index.
///
/// Searches then rank as if both had been indexed at once.
#[derive(Args, Debug)]
pub(crate) struct Add {
    /// Index folder.
    index: PathBuf,
    #[command(flatten)]
    corpus: Corpus,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// The corpus to index.
#[derive(Args, Debug)]
struct Corpus {
    /// Corpus file (JSON lines, .tsv or .csv, .gz too; a JSON list, parquet or markdown) or folder of such files, or `hf://ORG/NAME[/PATH]`
    /// on the hub. Given again for each further one: names of the folders are then the field `dataset` of passages, and before their ids.
    #[arg(long = "corpus", value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The corpus format.
    #[arg(long, help = format!("{}; read off the first record when absent", CorpusFormat::help()))]
    format: Option<CorpusFormat>,
    /// Leave out passages whose title and text were there already.
    #[arg(long)]
    drop_duplicates: bool,
    /// Threads; all of them by default.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

/// Makes one segment of all that was added.
///
/// Searches are faster, and rank the same.
#[derive(Args, Debug)]
pub(crate) struct Merge {
    /// Index folder.
    index: PathBuf,
}

/// Gives the passages vectors, for dense and hybrid search.
///
/// Passages that have theirs keep them. Without --encoder and --vectors, another --kind of index is made of those.
#[derive(Args, Debug)]
pub(crate) struct Embed {
    /// Index folder.
    index: PathBuf,
    /// Folder of the BERT encoder (E5, BGE, MiniLM), or `hf://ORG/NAME` on the hub.
    #[arg(long, conflicts_with = "vectors")]
    encoder: Option<PathBuf>,
    /// Vectors made elsewhere, one per passage in corpus order: .npy, or a FAISS flat or IVF-Flat file, `hf://ORG/NAME/PATH` on the
    /// hub too. Given again for each further piece of a file in pieces.
    #[arg(long, value_name = "FILE")]
    vectors: Vec<PathBuf>,
    /// quantised, flat, ivf or graph.
    #[arg(long, default_value = "quantised")]
    kind: VectorIndexKind,
    /// Lists of an ivf index [default: 4 times the square root of the passages].
    #[arg(long)]
    lists: Option<NonZeroUsize>,
    /// Lists that a query reads [default: the fewest that find 99 % of the 10 nearest, measured].
    #[arg(long, value_name = "LISTS")]
    nprobe: Option<NonZeroUsize>,
    /// Device of the encoder: cpu, cuda:0, ...
    #[arg(long, default_value = "cpu")]
    device: DeviceSpec,
}

/// Compares every byte of an index with its digests.
#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// Index folder.
    index: PathBuf,
}

/// Describes an index folder.
#[derive(Args, Debug)]
pub(crate) struct Info {
    /// Index folder.
    index: PathBuf,
    /// Print the whole manifest as JSON.
    #[arg(long)]
    json: bool,
}

/// The part of a manifest that is shown to people.
#[derive(Deserialize)]
struct Manifest {
    generation: u64,
    analyzer: String,
    bm25: Bm25Params,
    counts: Counts,
    sources: Vec<Source>,
    segments: Vec<Segment>,
    dense: Option<Vectors>,
}

#[derive(Deserialize)]
struct Counts {
    passages: u64,
    terms: u64,
    tokens: u64,
}

#[derive(Deserialize)]
struct Source {
    path: String,
    format: String,
    passages: u64,
    dropped_duplicates: u64,
}

#[derive(Deserialize)]
struct Segment {
    files: BTreeMap<String, FileRecord>,
}

#[derive(Deserialize)]
struct FileRecord {
    bytes: u64,
}

#[derive(Deserialize)]
struct Vectors {
    kind: VectorIndexKind,
    dimension: usize,
    encoder: Option<String>,
    folders: BTreeMap<String, String>,
    #[serde(default)]
    ivf: BTreeMap<String, Probing>,
}

#[derive(Deserialize)]
struct Probing {
    lists: usize,
    nprobe: usize,
    recall: f64,
}

impl Index {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Build(build) => build.run(),
            Self::Add(add) => add.run(),
            Self::Merge(merge) => {
                let merged = RetrieverIndex::merge(&merge.index, &mut show(&Watch::new()))?;
                print_summary(&merged, false)?;
                next_search(&merge.index);
                Ok(())
            }
            Self::Embed(embed) => embed.run(),
            Self::Verify(verify) => {
                RetrieverIndex::verify(&verify.index)?;
                out(&format!(
                    "{}: every file is as it was written",
                    verify.index.display()
                ));
                Ok(())
            }
            Self::Info(info) => info.run(),
        }
    }
}

impl Corpus {
    /// The corpora on this machine, fetched where they are on the hub, at least one, and their format: of pages that are added to `index`,
    /// whole or cut as they are there.
    fn open(&self, index: Option<&Path>) -> Result<(Vec<PathBuf>, CorpusFormat)> {
        let paths = self.paths.iter().map(|path| fetch_file(path));
        let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>()?;
        if let Some(format) = self.format {
            return Ok((paths, format));
        }
        let format = CorpusFormat::detect(&paths[0])?;
        let sources = index.map_or_else(|| Ok(Vec::new()), sources_of)?;
        let formats = sources.iter();
        let mut formats = formats.filter_map(|source| source.format.parse::<CorpusFormat>().ok());
        if let Some(held) = formats.find(|held| held.whole() == format.whole()) {
            hint(&format!(
                "taken for {held} ({}), as the index is",
                held.about
            ));
            return Ok((paths, held));
        }
        hint(&format!(
            "taken for {format} ({}); --format says otherwise{}",
            format.about,
            format.whole.map_or_else(String::new, |whole| format!(
                ", {} to keep each whole",
                whole.name
            ))
        ));
        Ok((paths, format))
    }
}

impl Info {
    fn run(self) -> Result<()> {
        let manifest = serde_json::to_value(RetrieverIndex::open(&self.index)?.description())?;
        if self.json {
            out(&serde_json::to_string_pretty(&manifest)?);
            return Ok(());
        }
        let index: Manifest = serde_json::from_value(manifest)?;
        let counts = &index.counts;
        let mut lines = vec![format!(
            "{}: {}, {}, {} in all",
            self.index.display(),
            counted(counts.passages, "passage"),
            counted(counts.terms, "distinct term"),
            counted(counts.tokens, "term")
        )];
        for source in &index.sources {
            let dropped = match source.dropped_duplicates {
                0 => String::new(),
                count => format!(", {} left out", counted(count, "duplicate")),
            };
            lines.push(format!(
                "corpus    {} ({}), {}{dropped}",
                source.path,
                source.format,
                counted(source.passages, "passage")
            ));
        }
        lines.push(format!(
            "ranking   BM25, k1 {}, b {}, analyzer {}",
            index.bm25.k1, index.bm25.b, index.analyzer
        ));
        lines.push(match &index.dense {
            None => "vectors   none; `forage index embed` makes them".to_owned(),
            Some(vectors) => {
                let encoder = vectors.encoder.as_deref().unwrap_or("imported");
                let without =
                    index.segments.len() - vectors.folders.len().min(index.segments.len());
                let rest = match without {
                    0 => String::new(),
                    1 => "; 1 segment has none yet".to_owned(),
                    count => format!("; {count} segments have none yet"),
                };
                format!(
                    "vectors   {} numbers, {}, {encoder}{rest}",
                    vectors.dimension, vectors.kind
                )
            }
        });
        for (segment, probing) in index.dense.iter().flat_map(|vectors| &vectors.ivf) {
            lines.push(format!(
                "lists     {}, {} of them read; recall@10 {:.4} with passages as queries ({segment})",
                probing.lists, probing.nprobe, probing.recall
            ));
        }
        let files = index
            .segments
            .iter()
            .flat_map(|segment| segment.files.values());
        let bytes: u64 = files.map(|file| file.bytes).sum();
        lines.push(format!(
            "folder    {}, {:.1} MB, {} since it was built",
            counted(index.segments.len(), "segment"),
            bytes as f64 / 1e6,
            counted(index.generation - 1, "change")
        ));
        out(&lines.join("\n"));
        Ok(())
    }
}

impl Build {
    fn run(self) -> Result<()> {
        let bm25 = Bm25Params {
            k1: self.k1,
            b: self.b,
        };
        let corpus = &self.corpus;
        let (paths, format) = corpus.open(None)?;
        let mut request = BuildRequest {
            bm25,
            replace: self.replace,
            drop_duplicates: corpus.drop_duplicates,
            ..BuildRequest::new(&paths[0], format, &self.out)
        };
        request.sources = paths;
        request.threads = corpus.threads.map_or(request.threads, NonZeroUsize::get);
        let built = RetrieverIndex::build(&request, &mut show(&Watch::new()))?;
        print_summary(&built, self.json)?;
        next_search(&self.out);
        Ok(())
    }
}

impl Add {
    fn run(self) -> Result<()> {
        let corpus = &self.corpus;
        let (paths, format) = corpus.open(Some(&self.index))?;
        let mut request = AddRequest {
            drop_duplicates: corpus.drop_duplicates,
            ..AddRequest::new(&paths[0], format, &self.index)
        };
        request.sources = paths;
        request.threads = corpus.threads.map_or(request.threads, NonZeroUsize::get);
        let grown = RetrieverIndex::add(&request, &mut show(&Watch::new()))?;
        print_summary(&grown, self.json)?;
        next_search(&self.index);
        Ok(())
    }
}

impl Embed {
    fn run(self) -> Result<()> {
        if self.kind != VectorIndexKind::Ivf && (self.lists.is_some() || self.nprobe.is_some()) {
            bail!(
                "--lists and --nprobe are settings of --kind ivf, not of {}",
                self.kind
            );
        }
        let watch = Watch::new();
        let encoder = self
            .encoder
            .as_deref()
            .map(|folder| RetrieverConfig::encoder(folder, self.device))
            .transpose()?;
        let vectors = self.vectors.iter().map(|path| fetch_file(path));
        let vectors: Vec<PathBuf> = vectors.collect::<Result<_, _>>()?;
        let source = match &encoder {
            Some(encoder) => VectorSource::Encoder(encoder.as_ref()),
            None if vectors.is_empty() => VectorSource::Kept,
            None => VectorSource::Files(&vectors),
        };
        let request = VectorIndexRequest {
            kind: self.kind,
            lists: self.lists.map(NonZeroUsize::get),
            nprobe: self.nprobe.map(NonZeroUsize::get),
        };
        let summary = RetrieverIndex::embed(&self.index, source, request, &mut show(&watch))?;
        let embedded = match summary.embedded {
            0 => "every passage had its vector".to_owned(),
            count => format!("{} embedded", counted(count, "passage")),
        };
        out(&format!(
            "{}: {embedded}, vectors of {} numbers, {}",
            self.index.display(),
            summary.dimension(),
            summary.kind()
        ));
        let encoder = self.encoder.as_deref().unwrap_or(Path::new("ENCODER"));
        hint(&format!(
            "next: forage search {} QUERY --mode hybrid --encoder {}",
            word(&self.index),
            word(encoder)
        ));
        Ok(())
    }
}

/// The corpora that an index was made from.
fn sources_of(index: &Path) -> Result<Vec<Source>> {
    let manifest = serde_json::to_value(RetrieverIndex::open(index)?.description())?;
    let manifest: Manifest = serde_json::from_value(manifest)?;
    Ok(manifest.sources)
}

/// Says how an index is searched.
fn next_search(index: &Path) {
    hint(&format!("next: forage search {} QUERY", word(index)));
}

/// Shows the progress over passages.
fn show(watch: &Watch) -> impl FnMut(u64, u64) + '_ {
    |done, total| watch.progress("passages", done, total, "")
}

fn print_summary(summary: &BuildSummary, json: bool) -> Result<()> {
    if let Some(first) = &summary.first_textless {
        note(&format!(
            "warning: {} without a text, `{first}` for instance: only titles can be found there",
            counted(summary.textless, "passage")
        ));
    }
    if json {
        out(&serde_json::to_string(&serde_json::json!({
            "index": summary.path,
            "passages": summary.passages,
            "terms": summary.terms,
            "tokens": summary.tokens,
            "dropped_duplicates": summary.dropped_duplicates,
            "textless": summary.textless,
            "bytes": summary.bytes,
            "corpus_digest": summary.corpus_digest,
            "fingerprint": summary.fingerprint,
        }))?);
        return Ok(());
    }
    let dropped = match summary.dropped_duplicates {
        0 => String::new(),
        count => format!(", {} left out", counted(count, "duplicate")),
    };
    out(&format!(
        "{}: {}, {}, {:.1} MB{dropped}",
        summary.path.display(),
        counted(summary.passages, "passage"),
        counted(summary.terms, "term"),
        summary.bytes as f64 / 1e6
    ));
    Ok(())
}
