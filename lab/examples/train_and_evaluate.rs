//! Trains a tiny policy for two steps, then asks it questions about entities it has not met.

use forage_lab::{EvaluateOptions, RunConfig, RunError, TrainOptions, evaluate, train};

#[expect(clippy::print_stdout, reason = "an example shows what it found")]
pub(crate) fn main() -> Result<(), RunError> {
    let smaller = ["grpo.steps=2", "data.test_questions=8"].map(str::to_owned);
    let config = RunConfig::parse(include_str!("../../configs/smoke.toml"), &smaller)?;
    let config = config.resolve(None)?;
    let folder = std::env::temp_dir().join(format!("forage-{}", std::process::id()));

    let run = TrainOptions {
        folder,
        ..TrainOptions::default()
    };
    let trained = train(&config, &run, &())?;
    println!("trained policy in {}", trained.policy.display());

    let asked = EvaluateOptions {
        policy: Some(trained.policy.display().to_string()),
        ..EvaluateOptions::default()
    };
    let found = evaluate(&config, &asked, &())?;
    println!("{}", found.greedy.to_text());
    Ok(())
}
