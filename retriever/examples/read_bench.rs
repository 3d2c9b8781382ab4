//! How fast a corpus is read: `cargo run --release -p forage-retriever --example read_bench -- PATH [FORMAT]`.
//!
//! MB are of the files as they lie on disk, 10^6 bytes; one thread reads, parses and drops every passage.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use forage_retriever::{CorpusFormat, CorpusReader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("name a corpus file or folder")?);
    let format = match arguments.next() {
        Some(name) => name.to_string_lossy().parse()?,
        None => CorpusFormat::detect(&path)?,
    };
    let start = Instant::now();
    let (mut passages, mut fields, mut text_bytes) = (0_u64, 0_u64, 0_u64);
    for passage in CorpusReader::open(&path, format)? {
        let passage = passage?;
        passages += 1;
        fields += passage.fields.len() as u64;
        text_bytes += (passage.title.len() + passage.text.len()) as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = size(&path)? as f64 / 1e6;
    println!(
        "{format}: {passages} passages, {fields} fields, {:.1} MB of text; {megabytes:.1} MB read in {seconds:.2} s: \
         {:.0} MB/s, {:.0} passages/s",
        text_bytes as f64 / 1e6,
        megabytes / seconds,
        passages as f64 / seconds,
    );
    Ok(())
}

fn size(path: &Path) -> std::io::Result<u64> {
    if !path.is_dir() {
        return Ok(std::fs::metadata(path)?.len());
    }
    std::fs::read_dir(path)?
        .map(|entry| Ok(entry?.metadata()?.len()))
        .sum()
}
