//! Encodes JSON lines `{"kind": "query" | "passage", "text": ...}` from standard input with a BERT folder and prints one
//! JSON list of numbers per line, in the same order. Texts of one kind go to the encoder in one call; with `--single`
//! every text is a call of its own. Times go to standard error.
//!
//! `cargo run --release -p forage-trainer --example encode -- FOLDER [--single] [--repeat N] [--threads N] < texts.jsonl`

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use forage_retriever::{Encoder, TextKind};
use forage_trainer::BertEncoder;
use forage_trainer::device::DeviceSpec;

struct Arguments {
    folder: PathBuf,
    single: bool,
    repeat: usize,
    threads: Option<usize>,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut found = Arguments {
        folder: PathBuf::new(),
        single: false,
        repeat: 1,
        threads: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut number = || {
            given
                .next()
                .and_then(|value| value.parse().ok())
                .ok_or("a number is missing")
        };
        match argument.as_str() {
            "--single" => found.single = true,
            "--repeat" => found.repeat = number()?,
            "--threads" => found.threads = Some(number()?),
            folder => found.folder = folder.into(),
        }
    }
    Ok(found)
}

fn read() -> Result<Vec<(TextKind, String)>, Box<dyn Error>> {
    let mut texts = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let row: serde_json::Value = serde_json::from_str(&line?)?;
        let kind = if row["kind"] == "query" {
            TextKind::Query
        } else {
            TextKind::Passage
        };
        texts.push((
            kind,
            row["text"].as_str().ok_or("a line has no text")?.to_owned(),
        ));
    }
    Ok(texts)
}

fn encode(
    encoder: &BertEncoder,
    texts: &[(TextKind, String)],
    single: bool,
) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
    let mut vectors = vec![Vec::new(); texts.len()];
    for kind in [TextKind::Query, TextKind::Passage] {
        let places: Vec<usize> = (0..texts.len())
            .filter(|&place| texts[place].0 == kind)
            .collect();
        for places in places.chunks(if single { 1 } else { places.len().max(1) }) {
            let call: Vec<&str> = places
                .iter()
                .map(|&place| texts[place].1.as_str())
                .collect();
            let found = encoder.encode(kind, &call)?;
            for (&place, vector) in places.iter().zip(found.chunks_exact(encoder.dimension())) {
                vectors[place] = vector.to_vec();
            }
        }
    }
    Ok(vectors)
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments {
        folder,
        single,
        repeat,
        threads,
    } = arguments()?;
    let texts = read()?;
    let started = Instant::now();
    let encoder = BertEncoder::open(&folder, DeviceSpec::Cpu, threads)?;
    let mut log = std::io::stderr().lock();
    writeln!(log, "{}", encoder.identity())?;
    writeln!(log, "load_ms {:.1}", started.elapsed().as_secs_f64() * 1e3)?;
    let mut vectors = Vec::new();
    for _ in 0..repeat {
        let started = Instant::now();
        vectors = encode(&encoder, &texts, single)?;
        writeln!(
            log,
            "ms_per_text {:.3}",
            started.elapsed().as_secs_f64() * 1e3 / texts.len().max(1) as f64
        )?;
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for vector in vectors {
        serde_json::to_writer(&mut out, &vector)?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
