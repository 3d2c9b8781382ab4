//! Reads texts as JSON strings, one per line, and writes the terms of each as a JSON list: the other side of
//! `bench/lucene/tokens.py`.

use std::error::Error;
use std::io::{BufRead, BufWriter, Write};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        serde_json::to_writer(&mut out, &forage_retriever::analyze(&text))?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
