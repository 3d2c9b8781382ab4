//! `forage policy`: a policy from scripts, without a server.

mod changes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use forage_contracts::Tokenizer;
use forage_contracts::policy::{Finish, GenerateRequest, Policy as _, PolicyError, Sampling};
use forage_contracts::seed::Seed;
use forage_lab::{Observer, runtime};
use forage_trainer::server::Model;
use futures::stream::{self, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::jsonl::{self, Line, Output};
use crate::policy::PolicyArgs;
use crate::progress::Watch;
use crate::terminal::hint;

/// Continues or scores prompts with a policy; compares weights.
///
/// The input has a prompt per line, {"id", "text"} or {"id", "tokens"}; the output has a row for each, in the same order,
/// and appears when it is complete. A prompt the policy cannot answer has {"id", "error": {"kind", "message"}}, and the
/// exit code is 1.
#[derive(Subcommand, Debug)]
pub(crate) enum Policy {
    Generate(Box<Generate>),
    Logprobs(Box<Logprobs>),
    Changes(changes::Changes),
}

impl Policy {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Generate(command) => command.run(),
            Self::Logprobs(command) => command.run(),
            Self::Changes(command) => command.run(),
        }
    }
}

/// The files of prompts and rows.
#[derive(Args, Debug)]
struct Files {
    /// Checkpoint folder, name on the hub (ORG/NAME or ORG/NAME@REVISION), or builtin:quickstart.
    #[arg(long, required_unless_present = "random_init")]
    model: Option<String>,
    /// File of {"id", "text"} or {"id", "tokens"}.
    #[arg(long)]
    input: PathBuf,
    /// File to write.
    #[arg(long)]
    output: PathBuf,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// Continues every prompt: rows of {"id", "tokens", "text", "logprobs", "finish"}.
///
/// `text` is the decoded `tokens` without an end token; a stop string at its end is kept. `logprobs` are in nats, under the
/// full vocabulary at the temperature. `finish` is stop, eos, length or context.
#[derive(Args, Debug)]
pub(crate) struct Generate {
    #[command(flatten)]
    files: Files,
    /// Most tokens to generate.
    #[arg(long, default_value_t = 256)]
    max_tokens: usize,
    /// Softmax temperature; 0 is greedy.
    #[arg(long, default_value_t = 1.0)]
    temperature: f32,
    /// Nucleus mass kept.
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Most likely tokens kept; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Tokens less likely than this share of the most likely one are dropped.
    #[arg(long, default_value_t = 0.0)]
    min_p: f32,
    /// Decides all draws, together with the row's place.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Ends a completion; may be given several times.
    #[arg(long)]
    stop: Vec<String>,
    /// Takes end tokens for tokens like any other.
    #[arg(long)]
    ignore_eos: bool,
}

/// Prints log-probabilities of every prompt's tokens.
///
/// Rows of {"id", "logprobs"}: one value fewer than there are tokens, each given the tokens before it, in nats.
#[derive(Args, Debug)]
pub(crate) struct Logprobs {
    #[command(flatten)]
    files: Files,
    /// Softmax temperature.
    #[arg(long, default_value_t = 1.0)]
    temperature: f32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prompt {
    id: Value,
    text: Option<String>,
    tokens: Option<Vec<u32>>,
}

impl Prompt {
    fn read(path: &Path) -> Result<Vec<Line<Self>>> {
        jsonl::read(path, "{\"id\", \"text\"} or {\"id\", \"tokens\"}")
    }
}

impl Line<Prompt> {
    /// Its id and its tokens, of which there is one at least; `file` is for errors.
    fn tokens(
        self,
        file: &Path,
        tokenizer: &dyn Tokenizer,
        vocab_size: usize,
    ) -> Result<(Value, Vec<u32>)> {
        let place = || format!("{}, line {}", file.display(), self.number);
        let tokens = match (self.value.text, self.value.tokens) {
            (Some(text), None) => tokenizer.encode(&text),
            (None, Some(tokens)) => tokens,
            _ => bail!("{}: give `text` or `tokens`, one of them", place()),
        };
        if tokens.is_empty() {
            bail!("{}: the prompt has no tokens", place());
        }
        if let Some(id) = tokens.iter().find(|&&id| id as usize >= vocab_size) {
            bail!(
                "{}: token id {id} is outside the vocabulary of {vocab_size}",
                place()
            );
        }
        Ok((self.value.id, tokens))
    }
}

/// The outcome of a prompt.
#[derive(Serialize)]
struct Row<T> {
    id: Value,
    #[serde(flatten)]
    outcome: Outcome<T>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<T> {
    Done(T),
    Failed { error: Failure },
}

#[derive(Serialize)]
struct Failure {
    kind: &'static str,
    message: String,
}

#[derive(Serialize)]
struct Generated {
    tokens: Vec<u32>,
    text: String,
    logprobs: Vec<f32>,
    finish: Finish,
}

#[derive(Serialize)]
struct Scored {
    logprobs: Vec<f32>,
}

impl Generate {
    fn run(self) -> Result<()> {
        let Self {
            temperature,
            top_p,
            top_k,
            min_p,
            ..
        } = self;
        let sampling = Sampling {
            temperature,
            top_p,
            top_k,
            min_p,
        };
        sampling.check().map_err(|fault| anyhow!("{fault}"))?;
        if self.max_tokens == 0 {
            bail!("--max-tokens must be at least 1");
        }
        if self.stop.iter().any(String::is_empty) {
            bail!("--stop must not be empty");
        }
        let seed = Seed::root(self.seed);
        self.files.run(|model, place, tokens| {
            let request = GenerateRequest {
                episode: place as u64,
                tokens,
                max_tokens: self.max_tokens,
                stop: self.stop.clone(),
                ignore_eos: self.ignore_eos,
                sampling,
                seed: seed.child("prompt", &[place as u64]),
            };
            async move {
                let completion = model.engine.generate(request).await;
                model.engine.release(place as u64);
                let completion = completion?;
                let end = usize::from(completion.finish == Finish::Eos);
                let text = model
                    .tokenizer
                    .decode(&completion.tokens[..completion.tokens.len() - end]);
                Ok(Generated {
                    tokens: completion.tokens,
                    text,
                    logprobs: completion.logprobs,
                    finish: completion.finish,
                })
            }
        })
    }
}

impl Logprobs {
    fn run(self) -> Result<()> {
        let temperature = self.temperature;
        if !(temperature > 0.0 && temperature.is_finite()) {
            bail!("--temperature must be above 0");
        }
        self.files.run(|model, _, tokens| async move {
            Ok(Scored {
                logprobs: model.engine.score(tokens, temperature).await?,
            })
        })
    }
}

impl Files {
    /// Runs `job` for every prompt, given its place and tokens, many at a time, and writes the rows.
    fn run<T, F>(&self, job: impl Fn(Model, usize, Vec<u32>) -> F) -> Result<()>
    where
        T: Serialize + Send + 'static,
        F: Future<Output = Result<T, PolicyError>> + Send + 'static,
    {
        let lines = Prompt::read(&self.input)?;
        let output = Output::create(&self.output, &[&self.input])?;
        let model = self.policy.start(self.model.as_deref())?;
        let prompts = lines
            .into_iter()
            .map(|line| line.tokens(&self.input, &model.tokenizer, model.vocab_size))
            .collect::<Result<Vec<_>>>()?;
        let count = prompts.len();
        let (ids, tokens): (Vec<Value>, Vec<Vec<u32>>) = prompts.into_iter().unzip();
        let outcomes = runtime()?.block_on(self.outcomes(&model, tokens, job))?;
        let failed = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Failed { .. }))
            .count();
        output.write(
            ids.into_iter()
                .zip(outcomes)
                .map(|(id, outcome)| Row { id, outcome }),
        )?;
        if failed > 0 {
            bail!(
                "{failed} of {count} prompts were not answered; their rows in {} say why",
                self.output.display()
            );
        }
        hint(&format!("{count} rows in {}", self.output.display()));
        Ok(())
    }

    async fn outcomes<T, F>(
        &self,
        model: &Model,
        prompts: Vec<Vec<u32>>,
        job: impl Fn(Model, usize, Vec<u32>) -> F,
    ) -> Result<Vec<Outcome<T>>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, PolicyError>> + Send + 'static,
    {
        // Some wait in the engine, so that a place that gets free is taken at once.
        let most = self.policy.sequences() * 2;
        let (watch, total) = (Watch::new(), prompts.len() as u64);
        let begun = prompts.into_iter().enumerate().map(|(place, tokens)| {
            let job = job(model.clone(), place, tokens);
            async move { (place, tokio::spawn(job).await) }
        });
        let mut running = stream::iter(begun).buffer_unordered(most);
        let mut outcomes = BTreeMap::new();
        while let Some((place, ended)) = running.next().await {
            let outcome = match ended.context("a prompt failed in an unforeseen way")? {
                Ok(value) => Outcome::Done(value),
                Err(PolicyError::Gone(message)) => bail!("the policy is gone: {message}"),
                Err(error) => Outcome::Failed {
                    error: Failure {
                        kind: kind(&error),
                        message: error.to_string(),
                    },
                },
            };
            outcomes.insert(place, outcome);
            watch.progress("prompts", outcomes.len() as u64, total, "");
        }
        Ok(outcomes.into_values().collect())
    }
}

fn kind(error: &PolicyError) -> &'static str {
    match error {
        PolicyError::Gone(_) => "gone",
        PolicyError::BadRequest(_) => "bad_request",
        PolicyError::NonFinite(_) => "non_finite",
        PolicyError::Unavailable(_) => "unavailable",
        PolicyError::Malformed(_) => "malformed",
    }
}
