//! `forage compare`: sets of recorded episodes on the same questions.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_contracts::Episode;
use forage_env::{EpisodeRecord, RecordError};
use forage_eval::{Bootstrap, Comparison, CurveComparison, NonInferiority, Standings};
use forage_lab::page;

use super::runs::check_replaced;
use crate::terminal::{hint, out, word};

/// Compares policies on the same questions.
///
/// Takes the episodes that `forage eval --out` wrote and compares them in words, in numbers and drawn. Of files with several samples of each question (they end in .sampled.jsonl) it also says whether B adds capability or sharpens sampling.
///
/// With --out it writes a page as well: every metric, each data set and their average, how both fail (answers without a search, repeated instructions, stray answers, tags left open) with episodes that do, and transcripts side by side.
///
/// Three and more policies are ranked by a simulated Swiss-system contest over the data sets, and each is compared with A in words.
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// Episodes of the first policy.
    a: PathBuf,
    /// Episodes of the second policy.
    b: PathBuf,
    /// Episodes of further policies.
    #[arg(conflicts_with_all = ["margins", "out"])]
    more: Vec<PathBuf>,
    /// How much worse B may be in a metric, searches=0.5 for instance: tests that it is not. Choose it before looking; may be
    /// repeated.
    #[arg(long = "margin", value_name = "METRIC=VALUE", value_parser = margin)]
    margins: Vec<(String, f64)>,
    /// Seed of bootstrap and contest.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Page to write beside what is printed; an earlier page of a report is replaced, another file is not.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Most trajectories on the page.
const MOST: usize = 10_000;

fn margin(text: &str) -> Result<(String, f64), String> {
    let parsed = text
        .split_once('=')
        .and_then(|(metric, value)| Some((metric.to_owned(), value.parse().ok()?)));
    parsed.ok_or_else(|| "write METRIC=VALUE, searches=0.5 for instance".to_owned())
}

impl Compare {
    pub(crate) fn run(self) -> Result<()> {
        if let Some(path) = &self.out {
            check_replaced(path)?;
        }
        let bootstrap = Bootstrap::new(self.seed);
        if !self.more.is_empty() {
            return self.rank(bootstrap);
        }
        let [a, b] = [read(&self.a)?, read(&self.b)?];
        let comparison = Comparison::from_episodes(&a, &b, bootstrap)?;
        let margins = self.margins.iter().map(|(metric, margin)| {
            Ok((
                metric,
                comparison
                    .non_inferiority(metric, *margin)
                    .with_context(|| format!("--margin {metric}={margin}"))?,
            ))
        });
        let margins: Vec<(&String, NonInferiority)> = margins.collect::<Result<_>>()?;
        let curves = CurveComparison::of(&a, &b, bootstrap)?;
        if let Some(path) = &self.out {
            page(&[self.a.clone(), self.b.clone()], MOST)?.write(path)?;
        }
        if self.json {
            let margins: serde_json::Map<_, _> = margins
                .into_iter()
                .map(|(metric, found)| (metric.clone(), serde_json::json!(found)))
                .collect();
            let mut all = serde_json::to_value(&comparison)?;
            all["margins"] = margins.into();
            all["pass_at_k"] = serde_json::to_value(&curves)?;
            if let Some(caveat) = comparison.caveat() {
                all["caveat"] = caveat.into();
            }
            out(&all.to_string());
            return Ok(());
        }
        out(&comparison.outcome("A", "B"));
        if let Some(caveat) = comparison.caveat() {
            out(&caveat);
        }
        if let Some(curves) = curves {
            out(&curves.words("A", "B"));
        }
        for (metric, found) in margins {
            out(&in_words(metric, &found));
        }
        out(&comparison.to_text("A", "B"));
        match &self.out {
            Some(page) => {
                out(&page.display().to_string());
                hint(&format!("next: open {} in a browser", word(page)));
            }
            None => hint(&format!(
                "next: forage compare {} {} --out PAGE.html shows transcripts side by side",
                word(&self.a),
                word(&self.b)
            )),
        }
        Ok(())
    }
}

impl Compare {
    /// Ranks three policies or more.
    fn rank(&self, bootstrap: Bootstrap) -> Result<()> {
        let files: Vec<&PathBuf> = [&self.a, &self.b].into_iter().chain(&self.more).collect();
        let sets: Vec<Vec<Episode>> = files.iter().map(|file| read(file)).collect::<Result<_>>()?;
        let standings = Standings::of(&sets, bootstrap)?;
        let compared = &standings.against_first;
        if self.json {
            let all = serde_json::json!({"policies": files, "standings": standings, "against_first": compared});
            out(&all.to_string());
            return Ok(());
        }
        let names: Vec<String> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        out(&standings.to_text(&names));
        for (found, name) in compared.iter().zip(&names[1..]) {
            out(&found.words(standings.measure, &names[0], name));
            if let Some(caveat) = found.caveat() {
                out(&caveat);
            }
        }
        hint(&format!(
            "next: forage compare {} {} has every metric of two of them",
            word(&self.a),
            word(&self.b)
        ));
        Ok(())
    }
}

fn in_words(
    metric: &str,
    NonInferiority {
        difference,
        margin,
        holds,
        exceeded,
    }: &NonInferiority,
) -> String {
    let [low, high] = difference.ends();
    let state = if *holds {
        format!("B is not worse than A by {margin} {metric} or more")
    } else if *exceeded {
        format!("B is worse than A by more than {margin} {metric}")
    } else {
        format!("It cannot be shown that B is not worse than A by {margin} {metric} or more")
    };
    format!(
        "{state} (difference {:+.3}, interval {low:+.3} to {high:+.3}).",
        difference.estimate
    )
}

pub(super) fn read(path: &Path) -> Result<Vec<Episode>> {
    let name = path.to_string_lossy();
    if name.starts_with("http://") || name.starts_with("https://") {
        bail!(
            "{name} is a server, not a file of episodes: forage eval CONFIG --policy {name} --out FILE plays it, then compare the files"
        );
    }
    if path.is_dir() {
        bail!(
            "`{name}` is a folder, not a file of episodes: name one of forage eval --out; `forage runs compare` takes folders of runs"
        );
    }
    let episodes: Result<Vec<Episode>, RecordError> = EpisodeRecord::read_all(path)?
        .map(|record| record.map(|record| record.episode))
        .collect();
    let episodes = match episodes {
        Err(RecordError::Malformed { line: 1, .. }) if is_trec_run(path) => bail!(
            "`{name}` is a TREC run, not a file of episodes: forage eval retrieval --against {name} compares a search with it"
        ),
        episodes => episodes?,
    };
    if episodes.is_empty() {
        bail!("`{name}` holds no episode; give a file that forage eval --out wrote to its end");
    }
    Ok(episodes)
}

/// Tells whether a file begins with a line of a TREC run, `qid Q0 docid rank score tag`.
fn is_trec_run(path: &Path) -> bool {
    /// Most bytes of the line that are looked at.
    const LONGEST: u64 = 10_000;
    // A pipe has been read already.
    let Some(file) = path.is_file().then(|| File::open(path).ok()).flatten() else {
        return false;
    };
    let mut line = String::new();
    if BufReader::new(file.take(LONGEST))
        .read_line(&mut line)
        .is_err()
    {
        return false;
    }
    let columns: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, rank, score, _] = columns.as_slice() else {
        return false;
    };
    rank.parse::<u64>().is_ok() && score.parse::<f32>().is_ok()
}

#[cfg(test)]
mod tests {
    use forage_eval::Interval;

    use super::*;

    #[test]
    fn a_margin_is_kept_exceeded_or_neither() {
        let said = |holds, exceeded| {
            let difference = Interval {
                estimate: 0.9,
                low: 0.731,
                high: 1.094,
            };
            let found = NonInferiority {
                difference,
                margin: 0.5,
                holds,
                exceeded,
            };
            in_words("searches", &found)
        };
        assert_eq!(
            said(false, true),
            "B is worse than A by more than 0.5 searches (difference +0.900, interval +0.731 to +1.094)."
        );
        assert!(said(true, false).starts_with("B is not worse than A by 0.5 searches or more"));
        assert!(said(false, false).starts_with("It cannot be shown that B is not worse"));
    }
}
