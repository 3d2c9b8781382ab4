//! Writes a world to files that other programs read: BEIR, Search-R1 / `FlashRAG`, wiki pages and full tasks.
//!
//! ```text
//! beir/corpus.jsonl  beir/queries.jsonl  beir/qrels/{train,dev,test}.tsv
//! search-r1/wiki.jsonl  search-r1/{train,dev,test}.jsonl
//! pages/pages.jsonl  questions.jsonl  world.json
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use forage_contracts::{Split, Task};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entity::{GENERATOR_VERSION, SPLITS, World};
use super::error::WorldError;
use super::page::Page;

/// Pages between two calls of the progress callback.
const PROGRESS_EVERY: u64 = 4096;

/// The number of questions of each split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionCounts {
    /// Training questions.
    pub train: u64,
    /// Questions for choosing settings.
    pub dev: u64,
    /// Held-out questions.
    pub test: u64,
}

impl QuestionCounts {
    /// `count` questions for every split.
    pub fn each(count: u64) -> Self {
        Self {
            train: count,
            dev: count,
            test: count,
        }
    }

    fn of(self, split: Split) -> u64 {
        match split {
            Split::Train => self.train,
            Split::Dev => self.dev,
            Split::Test => self.test,
        }
    }
}

impl World {
    /// Writes the whole world under `out_dir`, which must not exist or be empty, and returns the number of its passages.
    ///
    /// `progress` hears of the pages that were written and of their number. Files are streamed into a hidden folder beside `out_dir` and
    /// moved there at the end: it is complete or absent.
    ///
    /// # Errors
    /// [`WorldError::NotEmpty`], [`WorldError::TooManyQuestions`] or [`WorldError::Busy`] (before anything is written), or
    /// [`WorldError::Io`] with the file.
    pub fn export(
        &self,
        out_dir: &Path,
        questions: QuestionCounts,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<u64, WorldError> {
        refuse_content(out_dir)?;
        for split in SPLITS {
            self.questions(split, questions.of(split)).map(drop)?;
        }
        let staging = Staging::beside(out_dir)?;
        for folder in ["beir/qrels", "search-r1", "pages"] {
            let path = staging.path.join(folder);
            fs::create_dir_all(&path).map_err(io_error("create folder", &path))?;
        }
        let passages = write_pages(self, &staging.path, &mut progress)?;
        write_questions(self, &staging.path, questions)?;
        write_manifest(self, &staging.path, passages, questions)?;
        staging.publish(out_dir)?;
        Ok(passages)
    }
}

fn write_pages(
    world: &World,
    root: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, WorldError> {
    let mut corpus = Output::create(root.join("beir/corpus.jsonl"))?;
    let mut wiki = Output::create(root.join("search-r1/wiki.jsonl"))?;
    let mut pages = Output::create(root.join("pages/pages.jsonl"))?;
    let mut passages = 0;
    let total = world.pages_count();
    for (done, page) in (1..).zip(world.pages()) {
        pages.row(&page_row(&page))?;
        for passage in page.passages() {
            corpus
                .row(&json!({"_id": passage.id, "title": passage.title, "text": passage.text}))?;
            let contents = format!("\"{}\"\n{}", passage.title, passage.text);
            wiki.row(&json!({"id": passage.id, "contents": contents}))?;
            passages += 1;
        }
        if done % PROGRESS_EVERY == 0 || done == total {
            progress(done, total);
        }
    }
    for output in [corpus, wiki, pages] {
        output.finish()?;
    }
    Ok(passages)
}

fn page_row(page: &Page) -> Value {
    json!({"id": page.id, "title": page.title, "content": page.content(), "sections": page.sections.len()})
}

fn write_questions(world: &World, root: &Path, counts: QuestionCounts) -> Result<(), WorldError> {
    let mut queries = Output::create(root.join("beir/queries.jsonl"))?;
    let mut tasks = Output::create(root.join("questions.jsonl"))?;
    for split in SPLITS {
        let tag = split_tag(split);
        let mut qrels = Output::create(root.join(format!("beir/qrels/{tag}.tsv")))?;
        let mut rows = Output::create(root.join(format!("search-r1/{tag}.jsonl")))?;
        qrels.line("query-id\tcorpus-id\tscore")?;
        for task in world.questions(split, counts.of(split))? {
            queries.row(&json!({"_id": task.id, "text": task.question}))?;
            let further = task.qrels.keys();
            let further = further.filter(|id| !task.evidence.contains(id));
            for passage in task.evidence.iter().chain(further) {
                qrels.line(&format!("{}\t{passage}\t1", task.id))?;
            }
            rows.row(&search_r1_row(&task))?;
            tasks.row(&task)?;
        }
        qrels.finish()?;
        rows.finish()?;
    }
    queries.finish()?;
    tasks.finish()
}

fn search_r1_row(task: &Task) -> Value {
    json!({
        "id": task.id,
        "question": task.question,
        "golden_answers": task.golds,
        "data_source": task.data_source,
        "metadata": {"hops": task.hops, "evidence": task.evidence},
    })
}

fn write_manifest(
    world: &World,
    root: &Path,
    passages: u64,
    questions: QuestionCounts,
) -> Result<(), WorldError> {
    let mut manifest = Output::create(root.join("world.json"))?;
    manifest.row(&json!({
        "spec": world.spec(),
        "generator_version": GENERATOR_VERSION,
        "pages": world.pages_count(),
        "passages": passages,
        "questions": questions,
        "fingerprint": world.fingerprint(),
    }))?;
    manifest.finish()
}

fn split_tag(split: Split) -> &'static str {
    match split {
        Split::Train => "train",
        Split::Dev => "dev",
        Split::Test => "test",
    }
}

/// Errors when `folder` exists and holds anything (or is a file).
fn refuse_content(folder: &Path) -> Result<(), WorldError> {
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(WorldError::NotEmpty {
            path: folder.to_owned(),
        }),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(io_error("read folder", folder)(source)),
    }
}

fn io_error<'p>(action: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> WorldError + 'p {
    move |source| WorldError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// The folder an export grows in. It lies in a hidden one beside its place, which is locked meanwhile, and removed in the end.
struct Staging {
    hidden: PathBuf,
    path: PathBuf,
    _lock: File,
}

impl Staging {
    fn beside(out_dir: &Path) -> Result<Self, WorldError> {
        let mut name = std::ffi::OsString::from(".");
        name.push(out_dir.file_name().unwrap_or_else(|| "world".as_ref()));
        name.push(".partial");
        let hidden = out_dir.with_file_name(name);
        fs::create_dir_all(&hidden).map_err(io_error("create folder", &hidden))?;
        let lock_path = hidden.join("lock");
        let lock = File::create(&lock_path).map_err(io_error("create", &lock_path))?;
        match lock.try_lock() {
            Ok(()) if lock_path.exists() => {}
            Ok(()) | Err(TryLockError::WouldBlock) => {
                return Err(WorldError::Busy {
                    path: out_dir.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io_error("lock", &lock_path)(source)),
        }
        let path = hidden.join("world");
        if path.is_dir() {
            // What a killed export left.
            fs::remove_dir_all(&path).map_err(io_error("clear folder", &path))?;
        }
        fs::create_dir(&path).map_err(io_error("create folder", &path))?;
        Ok(Self {
            hidden,
            path,
            _lock: lock,
        })
    }

    fn publish(self, out_dir: &Path) -> Result<(), WorldError> {
        if out_dir.is_dir() {
            fs::remove_dir(out_dir).map_err(io_error("replace empty folder", out_dir))?;
        }
        fs::rename(&self.path, out_dir).map_err(io_error("rename the finished export to", out_dir))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What is left of an export is only clutter, so a failure here is no news.
        let _ = fs::remove_dir_all(&self.hidden);
    }
}

/// A buffered file that knows its path.
struct Output {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Output {
    fn create(path: PathBuf) -> Result<Self, WorldError> {
        let file = File::create(&path).map_err(io_error("create", &path))?;
        Ok(Self {
            path,
            file: BufWriter::with_capacity(1 << 18, file),
        })
    }

    fn row(&mut self, row: &impl Serialize) -> Result<(), WorldError> {
        serde_json::to_writer(&mut self.file, row)
            .map_err(|e| io_error("write", &self.path)(e.into()))?;
        self.file
            .write_all(b"\n")
            .map_err(io_error("write", &self.path))
    }

    fn line(&mut self, line: &str) -> Result<(), WorldError> {
        writeln!(self.file, "{line}").map_err(io_error("write", &self.path))
    }

    fn finish(self) -> Result<(), WorldError> {
        let path = self.path;
        let file = self
            .file
            .into_inner()
            .map_err(|e| io_error("write", &path)(e.into_error()))?;
        file.sync_all().map_err(io_error("write", &path))
    }
}
