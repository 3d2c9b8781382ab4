//! `forage shell`: completions and man pages.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::terminal::out;

/// Prints shell completions, or writes man pages.
#[derive(Subcommand, Debug)]
pub(crate) enum Shell {
    /// Prints the completions of a shell.
    ///
    /// For bash: forage shell completions bash > ~/.local/share/bash-completion/completions/forage
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes a man page for each command.
    Man {
        /// Folder to write into; ~/.local/share/man/man1 is where man looks.
        folder: PathBuf,
    },
}

impl Shell {
    pub(crate) fn run(self) -> Result<()> {
        let mut command = super::cli::command();
        match self {
            Self::Completions { shell } => {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut command, "forage", &mut text);
                out(String::from_utf8_lossy(&text).trim_end());
            }
            Self::Man { folder } => {
                let unwritable = || format!("cannot write man pages into {}", folder.display());
                std::fs::create_dir_all(&folder).with_context(unwritable)?;
                clap_mangen::generate_to(command, &folder).with_context(unwritable)?;
                out(&folder.display().to_string());
            }
        }
        Ok(())
    }
}
