//! `forage policy changes`: which weights a run changed, and what its layers make of texts since.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use forage_lab::{Resolved, RunLayout, open_policy};
use forage_trainer::device::DeviceSpec;
use forage_trainer::{Checkpoint, Precision, WeightChange, Workers};
use serde_json::json;

use super::Prompt;
use crate::figures::{columns, number};
use crate::terminal::out;

/// Shows which weights changed from one policy to another.
///
/// By layer and by kind of matrix: the share of the weights that changed, and that still differ in bf16; the norm of the difference over that
/// of the weights; its stable rank. With texts also the linear CKA of the hidden states after each layer, 1 where the layers say the same.
#[derive(Args, Debug)]
pub(crate) struct Changes {
    /// Policy before: a run's folder, a checkpoint's folder, a name on the hub, or builtin:quickstart.
    before: String,
    /// Policy after.
    after: String,
    /// File of texts, {"id", "text"} or {"id", "tokens"} a line, whose hidden states are compared.
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
        if self.json {
            out(&json!({"parameters": found, "linear_cka": alignment}).to_string());
        } else {
            out(&in_words(&found, &alignment));
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
