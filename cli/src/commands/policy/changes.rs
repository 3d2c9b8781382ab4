//! `forage policy changes`: which weights a run changed, what its layers make of texts since, and how likely these are to it.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use forage_eval::{Bootstrap, Interval};
use forage_lab::{Resolved, RunLayout, open_policy};
use forage_trainer::device::DeviceSpec;
use forage_trainer::{Checkpoint, Precision, Sequence, WeightChange, Workers};
use serde::Serialize;
use serde_json::json;

use super::Prompt;
use crate::figures::{columns, number};
use crate::terminal::out;

/// Shows which weights changed from one policy to another.
///
/// By layer and by kind of matrix: the share of the weights that changed, and that still differ in bf16; the norm of the difference over that
/// of the weights; its stable rank. With texts also the linear CKA of the hidden states after each layer, 1 where the layers say the same,
/// and the log-probability of a token before and after: texts of an ability that was forgotten are less likely since.
#[derive(Args, Debug)]
pub(crate) struct Changes {
    /// Policy before: a run's folder, a checkpoint's folder, a name on the hub, or builtin:quickstart.
    before: String,
    /// Policy after.
    after: String,
    /// File of texts, {"id", "text"} or {"id", "tokens"} a line, whose hidden states and log-probabilities are compared.
    #[arg(long)]
    input: Option<PathBuf>,
    /// Device of the models: cpu, cuda:0, ...
    #[arg(long, default_value = "cpu")]
    device: DeviceSpec,
    /// Print every parameter as JSON.
    #[arg(long)]
    json: bool,
}

impl Changes {
    pub(super) fn run(self) -> Result<()> {
        let before = self.open(&self.before)?;
        let after = self.open(&self.after)?;
        let texts = self.texts(&before)?;
        let workers = Workers::new(Resolved::all_threads());
        let Some(found) = before.changes(&after, &workers) else {
            bail!(
                "{} and {} are of different shapes; name a policy and what was trained from it",
                self.before,
                self.after
            );
        };
        let alignment = before.alignment(&after, &texts);
        let likelihood = Likelihood::under(&before, &after, &texts)?;
        if self.json {
            let all =
                json!({"parameters": found, "linear_cka": alignment, "likelihood": likelihood});
            out(&all.to_string());
        } else {
            out(&in_words(&found, &alignment));
            if let Some(found) = &likelihood {
                out(&found.in_words());
            }
        }
        Ok(())
    }

    fn open(&self, name: &str) -> Result<Checkpoint> {
        let newest = RunLayout::new(name).newest_policy()?;
        let name = newest.map_or(name.to_owned(), |folder| {
            folder.to_string_lossy().into_owned()
        });
        Ok(open_policy(&name, Precision::Full, &self.device)?)
    }

    /// The token ids of the texts; none without a file.
    fn texts(&self, policy: &Checkpoint) -> Result<Vec<Vec<u32>>> {
        let Some(path) = &self.input else {
            return Ok(Vec::new());
        };
        let longest = policy.config.max_position_embeddings;
        let mut texts = Vec::new();
        for line in Prompt::read(path)? {
            let place = line.number;
            let (_, tokens) = line.tokens(path, &policy.tokenizer, policy.config.vocab_size)?;
            if tokens.len() > longest {
                let path = path.display();
                bail!(
                    "{path}, line {place}: {} tokens, and the model takes {longest}",
                    tokens.len()
                );
            }
            texts.push(tokens);
        }
        if texts.iter().map(Vec::len).sum::<usize>() < 2 {
            bail!(
                "{}: hidden states are compared over two tokens or more",
                path.display()
            );
        }
        Ok(texts)
    }
}

/// The likelihood of texts before and after.
#[derive(Debug, Serialize)]
struct Likelihood {
    /// Texts of two tokens or more.
    texts: usize,
    /// Log-probability of a token given those before it, nats: the mean over texts of the mean over tokens.
    before: f64,
    /// The same of the policy after.
    after: f64,
    /// After less before, with its interval over texts.
    change: Interval,
}

impl Likelihood {
    /// The likelihood of `texts`, of token ids, under both policies; `None` where no text has two tokens.
    fn under(before: &Checkpoint, after: &Checkpoint, texts: &[Vec<u32>]) -> Result<Option<Self>> {
        let texts = texts.iter().filter(|ids| ids.len() > 1);
        let sequence = |ids: &Vec<u32>| Sequence {
            ids: ids.clone(),
            targets: (1..ids.len()).collect(),
            ..Sequence::default()
        };
        let sequences: Vec<Sequence> = texts.map(sequence).collect();
        if sequences.is_empty() {
            return Ok(None);
        }
        let levels = |policy: &Checkpoint| -> Vec<f64> {
            let threads = Resolved::all_threads();
            let workers = Workers::for_model(threads, &policy.config, &policy.decoder.device());
            let found = policy.logprobs(&sequences, &workers);
            found.iter().map(|tokens| mean(tokens)).collect()
        };
        Self::of(&levels(before), &levels(after)).map(Some)
    }

    /// Compares the mean log-probabilities of the same texts.
    fn of(before: &[f64], after: &[f64]) -> Result<Self> {
        let changes: Vec<f64> = before.iter().zip(after).map(|(a, b)| b - a).collect();
        let level = |levels: &[f64]| levels.iter().sum::<f64>() / levels.len() as f64;
        Ok(Self {
            texts: changes.len(),
            before: level(before),
            after: level(after),
            change: Bootstrap::new(1).mean(&changes)?,
        })
    }

    fn in_words(&self) -> String {
        let Self {
            texts,
            before,
            after,
            change,
        } = self;
        let what = if *texts < 2 {
            "one text tells nothing of others"
        } else if change.is_negative() {
            "they are less likely since"
        } else if change.is_positive() {
            "they are more likely since"
        } else {
            "no change is shown"
        };
        let [low, high] = change.ends();
        format!(
            "\nA token of the {texts} texts has a log-probability of {before:.3} nats before and of {after:.3} after: {what} (change \
             {:+.3}, interval {low:+.3} to {high:+.3}).",
            change.estimate
        )
    }
}

/// The mean of numbers, of which there is one at least.
fn mean(numbers: &[f32]) -> f64 {
    numbers.iter().map(|&number| f64::from(number)).sum::<f64>() / numbers.len() as f64
}

/// Parameters taken together.
#[derive(Default)]
struct Sum {
    entries: usize,
    changed: usize,
    changed_in_bf16: usize,
    squares: f64,
    changes: f64,
    ranks: Vec<f64>,
}

impl Sum {
    fn of<'a>(found: impl IntoIterator<Item = &'a WeightChange>) -> Self {
        found.into_iter().fold(Self::default(), |mut sum, change| {
            sum.entries += change.entries;
            sum.changed += change.changed;
            sum.changed_in_bf16 += change.changed_in_bf16;
            sum.squares += change.norm.powi(2);
            sum.changes += change.difference.powi(2);
            sum.ranks.extend(change.stable_rank);
            sum
        })
    }

    fn cells(&self) -> [String; 4] {
        let share = |count: usize| number(count as f64 / self.entries.max(1) as f64);
        let relative = (self.changes / self.squares).sqrt();
        let rank = self.ranks.iter().sum::<f64>() / self.ranks.len() as f64;
        [
            share(self.changed),
            share(self.changed_in_bf16),
            if relative.is_finite() {
                number(relative)
            } else {
                "-".to_owned()
            },
            if rank.is_finite() {
                number(rank)
            } else {
                "-".to_owned()
            },
        ]
    }
}

/// The layer of a parameter and its kind: `model.layers.3.mlp.up_proj.weight` is of layer 3 and of the kind `mlp.up_proj.weight`.
fn parts(parameter: &str) -> (Option<usize>, &str) {
    let within = parameter
        .strip_prefix("model.layers.")
        .and_then(|rest| rest.split_once('.'));
    match within.and_then(|(layer, kind)| Some((layer.parse().ok()?, kind))) {
        Some((layer, kind)) => (Some(layer), kind),
        None => (None, parameter),
    }
}

/// A row per layer with what stands outside of all, then a row per kind of parameter, then all together.
fn in_words(found: &[WeightChange], alignment: &[f64]) -> String {
    let heads = ["changed", "in bf16", "relative norm", "stable rank"];
    let head = |first: &str| -> Vec<String> {
        let heads = heads.iter().map(|&head| head.to_owned());
        std::iter::once(first.to_owned()).chain(heads).collect()
    };
    let row = |name: String, sum: &Sum| -> Vec<String> {
        std::iter::once(name).chain(sum.cells()).collect()
    };
    let mut layers = vec![head("layer")];
    if !alignment.is_empty() {
        layers[0].push("linear CKA".to_owned());
    }
    let depth = found
        .iter()
        .filter_map(|change| parts(&change.parameter).0)
        .max();
    for layer in 0..depth.map_or(0, |last| last + 1) {
        let of = |change: &&WeightChange| parts(&change.parameter).0 == Some(layer);
        let mut cells = row(layer.to_string(), &Sum::of(found.iter().filter(of)));
        cells.extend(alignment.get(layer).map(|cka| format!("{cka:.4}")));
        layers.push(cells);
    }
    let mut kinds = vec![head("parameters")];
    let mut seen: Vec<&str> = Vec::new();
    for change in found {
        let (_, kind) = parts(&change.parameter);
        if !seen.contains(&kind) {
            seen.push(kind);
            let of = |change: &&WeightChange| parts(&change.parameter).1 == kind;
            kinds.push(row(kind.to_owned(), &Sum::of(found.iter().filter(of))));
        }
    }
    kinds.push(row("all".to_owned(), &Sum::of(found)));
    format!("{}\n\n{}", columns(&layers), columns(&kinds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgetting_is_told_over_texts() {
        let found = Likelihood::of(&[-2.0, -3.0, -2.5], &[-2.5, -3.25, -3.25]).unwrap();
        assert_eq!((found.texts, found.before, found.after), (3, -2.5, -3.0));
        assert!((found.change.estimate + 0.5).abs() < 1e-12);
        let text = found.in_words();
        assert!(text.contains("-2.500 nats before and of -3.000 after: they are less likely"));
        assert!(text.contains("change -0.500"), "{text}");
        let mixed = Likelihood::of(&[-2.0, -3.0, -2.5], &[-1.0, -4.0, -2.5]).unwrap();
        assert!(mixed.in_words().contains("no change is shown"));
        // Samples of a single text have no spread, which proves nothing.
        let one = Likelihood::of(&[-2.0], &[-2.5]).unwrap().in_words();
        assert!(one.contains("one text tells nothing of others"), "{one}");
        assert!((mean(&[-1.0, -2.0]) + 1.5).abs() < 1e-12);
    }

    #[test]
    fn parameters_are_taken_together_by_layer_and_kind() {
        let change = |parameter: &str, changed, difference, stable_rank| WeightChange {
            parameter: parameter.to_owned(),
            entries: 10,
            changed,
            changed_in_bf16: changed / 2,
            norm: 2.0,
            difference,
            stable_rank,
        };
        let found = [
            change("model.embed_tokens.weight", 0, 0.0, None),
            change("model.layers.0.mlp.up_proj.weight", 10, 3.0, Some(2.0)),
            change("model.layers.0.input_layernorm.weight", 0, 0.0, None),
            change("model.layers.1.mlp.up_proj.weight", 4, 1.0, Some(4.0)),
        ];
        let text = in_words(&found, &[1.0, 0.5]);
        let cells = |name: &str| -> Vec<String> {
            let line = text
                .lines()
                .find(|line| line.split_whitespace().next() == Some(name));
            line.unwrap()
                .split_whitespace()
                .skip(1)
                .map(str::to_owned)
                .collect()
        };
        // Norms add as squares do: 3 over the root of 8.
        assert_eq!(cells("0"), ["0.500", "0.250", "1.061", "2.000", "1.0000"]);
        assert_eq!(cells("1"), ["0.400", "0.200", "0.500", "4.000", "0.5000"]);
        assert_eq!(
            cells("mlp.up_proj.weight"),
            ["0.700", "0.350", "1.118", "3.000"]
        );
        assert_eq!(
            cells("model.embed_tokens.weight"),
            ["0.000", "0.000", "0.000", "-"]
        );
        assert_eq!(cells("all"), ["0.350", "0.175", "0.791", "3.000"]);
    }
}
