//! `forage world`: writes a generated world in the published formats.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use forage_contracts::Split;
use forage_env::{Difficulty, QuestionCounts, World, WorldError, WorldSpec};

use forage_lab::Observer;
use serde_json::json;

use crate::progress::Watch;
use crate::terminal::{hint, out, word};

/// Generates an encyclopedia with questions.
///
/// Writes a BEIR folder, Search-R1 files, wiki pages and questions of three disjoint splits.
#[derive(Args, Debug)]
pub(crate) struct WorldArgs {
    /// Pages, one per entity: 100 to 5000000.
    #[arg(long)]
    pages: u64,
    /// Seed of names, facts and questions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder to create.
    #[arg(long)]
    out: PathBuf,
    /// Questions per split; by default as many as fit, at most 1000 for train and 300 for dev and test.
    #[arg(long)]
    questions: Option<u64>,
    /// Shares of 1, 2, 3 and 4-hop questions, for instance 0.7,0.3,0,0.
    #[arg(long, value_delimiter = ',', num_args = 1..=4)]
    hops: Option<Vec<f32>>,
    /// Share of questions worded without the keyword of the evidence.
    #[arg(long)]
    paraphrase: Option<f32>,
    /// Share of entities with a near-name twin.
    #[arg(long)]
    near_names: Option<f32>,
    /// Share of entities whose facts further passages tell again, in other words.
    #[arg(long)]
    retold: Option<f32>,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

impl WorldArgs {
    pub(crate) fn run(self) -> Result<()> {
        let world = World::new(self.spec()?)?;
        // A small world has few entities per split: a hundred pages hold about 450, 65 and 130 questions, and fewer of one hop alone.
        let fitting = |split, most| match world.questions(split, most) {
            Err(WorldError::TooManyQuestions { available, .. }) => available,
            _ => most,
        };
        let small = || QuestionCounts {
            train: fitting(Split::Train, 1000.min(self.pages)),
            dev: fitting(Split::Dev, 300.min(self.pages / 2)),
            test: fitting(Split::Test, 300.min(self.pages)),
        };
        let counts = self.questions.map_or_else(small, QuestionCounts::each);
        let watch = Watch::new();
        let passages = world.export(&self.out, counts, |done, total| {
            watch.progress("pages", done, total, "");
        })?;
        if self.json {
            let summary = json!({
                "pages": self.pages,
                "passages": passages,
                "questions": counts,
                "fingerprint": world.fingerprint(),
            });
            out(&summary.to_string());
        } else {
            out(&format!(
                "{}: {} pages, {} passages; questions {} train, {} dev, {} test",
                self.out.display(),
                self.pages,
                passages,
                counts.train,
                counts.dev,
                counts.test
            ));
            hint(&format!(
                "next: forage index build --corpus {} --out INDEX",
                word(&self.out.join("beir"))
            ));
        }
        Ok(())
    }

    fn spec(&self) -> Result<WorldSpec> {
        let mut difficulty = Difficulty::default();
        if let Some(hops) = &self.hops {
            let shares = <[f32; 4]>::try_from(hops.as_slice());
            difficulty.hops = shares
                .ok()
                .context("--hops takes four shares, for instance 0.7,0.3,0,0")?;
        }
        difficulty.paraphrase = self.paraphrase.unwrap_or(difficulty.paraphrase);
        difficulty.near_names = self.near_names.unwrap_or(difficulty.near_names);
        difficulty.retold = self.retold.unwrap_or(difficulty.retold);
        Ok(WorldSpec {
            difficulty,
            ..WorldSpec::new(self.pages, self.seed)
        })
    }
}
