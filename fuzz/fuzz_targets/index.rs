//! Part of a file of an index is other bytes: the index is searched, or refused with a typed error.
//!
//! Byte 0 of the input chooses the file, byte 1 how it is changed, bytes 2 and 3 where; the rest is written there. Where the lowest
//! three bits of the second are 0, the manifest stays as it was, and the digest of the file refuses it; else the manifest is signed
//! anew, as whoever means harm would do, and what lies behind the digests reads the bytes. With bit 0x08 the file ends behind them.
#![no_main]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use forage_retriever::{
    AddRequest, Bm25Retriever, BuildRequest, CorpusFormat, Filter, Index, Query, RetrieverError,
};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const MANIFEST: &str = "manifest.json";

/// A whole index and its folder, in which every input changes one file.
struct Whole {
    folder: TempDir,
    /// Every file by its path in the index; the manifest without its checksum.
    files: Vec<(String, Vec<u8>)>,
    /// The manifest without its checksum, in the form that the checksum is computed from.
    manifest: String,
}

static WHOLE: LazyLock<Whole> = LazyLock::new(Whole::make);

impl Whole {
    /// An index of two segments, with fields.
    fn make() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let corpus = |name: &str, ids: Range<u32>| {
            let line = |id: u32| {
                format!(
                    "{{\"_id\":\"d{id}\",\"title\":\"Tides {id}\",\"text\":\"the moon raises tide {id}\",\"metadata\":{{\"page\":\"p{}\"}}}}\n",
                    id % 3
                )
            };
            let path = folder.path().join(name);
            std::fs::write(&path, ids.map(line).collect::<String>())
                .expect("room for a small file");
            path
        };
        let index = folder.path().join("index");
        let request = BuildRequest::new(corpus("one.jsonl", 0..20), CorpusFormat::BEIR, &index);
        Index::build(&request, &mut |_, _| {}).expect("a small corpus");
        let request = AddRequest::new(corpus("two.jsonl", 20..30), CorpusFormat::BEIR, &index);
        Index::add(&request, &mut |_, _| {}).expect("a small corpus");

        let opened = Index::open(&index).expect("an index");
        let mut manifest = serde_json::to_string(&opened.description()).expect("JSON");
        drop(opened);
        let checksum = "\"checksum\":\"";
        let start = manifest.find(checksum).expect("a checksum") + checksum.len();
        let end = start + manifest[start..].find('"').expect("a text");
        manifest.replace_range(start..end, "");
        let files = files(&index).into_iter().map(|path| {
            let name = path.strip_prefix(&index).expect("within the index");
            let name = name.to_str().expect("a plain name").to_owned();
            let bytes = if name == MANIFEST {
                manifest.clone().into_bytes()
            } else {
                std::fs::read(&path).expect("a file of the index")
            };
            (name, bytes)
        });
        let whole = Self {
            files: files.collect(),
            folder,
            manifest,
        };
        whole.put(MANIFEST, signed(&whole.manifest).as_bytes());
        read(&whole.index()).expect("an index that nobody changed");
        whole
    }

    fn index(&self) -> PathBuf {
        self.folder.path().join("index")
    }

    /// Writes a file in place of another: what is mapped still stays as it is.
    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.index().join(name);
        std::fs::remove_file(&path).expect("a file of the index");
        std::fs::write(path, bytes).expect("room for a small file");
    }

    /// The manifest whose record of a file is that of these bytes.
    fn recording(&self, name: &str, bytes: &[u8]) -> String {
        let mut manifest = self.manifest.clone();
        if let Some(place) = self.record(name) {
            let (count, digest) = (bytes.len(), blake3::hash(bytes).to_hex());
            let record = format!("{{\"bytes\":{count},\"blake3\":\"{digest}\"}}");
            manifest.replace_range(place, &record);
        }
        manifest
    }

    /// Position of a file's size and digest in the manifest.
    fn record(&self, name: &str) -> Option<Range<usize>> {
        let (segment, file) = name.split_once('/')?;
        let segment = self.manifest.find(&format!("\"name\":\"{segment}\""))?;
        let key = format!("\"{file}\":");
        let start = segment + self.manifest[segment..].find(&key)? + key.len();
        let end = start + self.manifest[start..].find('}')? + 1;
        Some(start..end)
    }
}

/// The manifest with the checksum of what it says.
fn signed(manifest: &str) -> String {
    let digest = blake3::hash(manifest.as_bytes()).to_hex();
    manifest.replacen(
        "\"checksum\":\"\"",
        &format!("\"checksum\":\"{digest}\""),
        1,
    )
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("an index") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.sort();
    found
}

/// Everything that reads an index, whatever comes of it.
fn read(index: &Path) -> Result<(), RetrieverError> {
    let retriever = Bm25Retriever::open(index)?;
    let paged = Filter([("page".to_owned(), vec!["p1".to_owned()])].into());
    let query = Query::new("moon").filtered(paged);
    let opened = retriever.index();
    let mut outcomes = vec![
        retriever.search_one("tide moon 7", 5).map(drop),
        retriever.search_many(&[query], 50).map(drop),
        retriever.ceiling("tide nothing").map(drop),
        opened.ordinal_of("d7").map(drop).map_err(Into::into),
        opened.verify_contents().map_err(Into::into),
        Index::verify(index).map(drop).map_err(Into::into),
    ];
    for text in [
        "\"moon raises\" OR tide",
        "mo* AND title:\"Tides 7\"",
        "NOT id:d3 page:p2",
    ] {
        let found = retriever.search_boolean(&Query::new(text), 5);
        outcomes.push(found.map(drop));
    }
    let ordinals = 0..u32::try_from(opened.len()).unwrap_or(u32::MAX);
    outcomes.extend(ordinals.map(|ordinal| -> Result<(), RetrieverError> {
        let document = opened.document(ordinal)?;
        assert_eq!(document.field("id").as_deref(), Some(document.id));
        document.to_passage();
        Ok(())
    }));
    outcomes.into_iter().collect()
}

/// Panics of tantivy on damaged segments are caught by the reader.
fn quiet() {
    std::panic::set_hook(Box::new(|info| {
        if !info
            .location()
            .is_some_and(|at| at.file().contains("tantivy"))
        {
            eprintln!("{info}");
        }
    }));
}

fuzz_target!(init: quiet(), |data: &[u8]| {
    let [file, how, high, low, rest @ ..] = data else { return };
    let whole = &*WHOLE;
    let (name, before) = &whole.files[usize::from(*file) % whole.files.len()];
    let mut bytes = before.clone();
    let start = usize::from(u16::from_be_bytes([*high, *low])) % (bytes.len() + 1);
    let end = if how & 0x08 == 0 { bytes.len().min(start + rest.len()) } else { bytes.len() };
    bytes.splice(start..end, rest.iter().copied());

    let is_signed = how & 0x07 != 0;
    if name == MANIFEST {
        let text = if is_signed { std::str::from_utf8(&bytes).ok().map(signed) } else { None };
        whole.put(MANIFEST, text.as_deref().map_or(bytes.as_slice(), str::as_bytes));
    } else {
        whole.put(name, &bytes);
        if is_signed {
            whole.put(MANIFEST, signed(&whole.recording(name, &bytes)).as_bytes());
        }
    }
    let _ = read(&whole.index());
    if name != MANIFEST {
        whole.put(name, before);
    }
    whole.put(MANIFEST, signed(&whole.manifest).as_bytes());
});
