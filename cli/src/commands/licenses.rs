//! `forage licenses`: the licence of the program and of everything that it contains.

use std::io::Read;

use anyhow::{Context, Result};
use clap::Args;
use flate2::read::GzDecoder;

use crate::terminal::out;

/// Prints the licences of all that the program contains.
#[derive(Args, Debug)]
pub(crate) struct Licenses {}

impl Licenses {
    /// Prints them all.
    pub(crate) fn run() -> Result<()> {
        for (title, text) in TEXTS {
            out(&format!("==== {title} ====\n\n{}\n", text.trim()));
        }
        out(&format!("==== crates ====\n\n{}", crates()?.trim()));
        Ok(())
    }
}

/// Titles and texts.
const TEXTS: [(&str, &str); 6] = [
    ("NOTICE", include_str!("../../../NOTICE")),
    ("LICENSE-MIT", include_str!("../../../LICENSE-MIT")),
    ("LICENSE-APACHE", include_str!("../../../LICENSE-APACHE")),
    ("PSF-2.0", include_str!("../../licenses/PSF-2.0.txt")),
    ("LGPL-3.0", include_str!("../../licenses/LGPL-3.0.txt")),
    ("GPL-3.0", include_str!("../../licenses/GPL-3.0.txt")),
];
/// The crates with their texts, as `.ci/licenses.py` collects them.
const CRATES: &[u8] = include_bytes!("../../licenses/crates.txt.gz");

fn crates() -> Result<String> {
    let mut text = String::new();
    let read = GzDecoder::new(CRATES).read_to_string(&mut text);
    read.context("the licences within the program are damaged")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_contains_is_named_with_its_text() {
        let text = crates().unwrap();
        for part in [
            "\n  rustpython-vm (MIT)",
            "\n  malachite-nz (LGPL-3.0-only)",
            "\n  burn (MIT OR Apache-2.0)",
            "\n  tokenizers (Apache-2.0)",
            "Permission is hereby granted, free of charge",
        ] {
            assert!(text.contains(part), "{part}");
        }
        let all: String = TEXTS.iter().map(|(_, text)| *text).collect();
        for part in [
            "PYTHON SOFTWARE FOUNDATION LICENSE",
            "GNU LESSER GENERAL PUBLIC",
            "RustPython",
        ] {
            assert!(all.contains(part), "{part}");
        }
    }
}
