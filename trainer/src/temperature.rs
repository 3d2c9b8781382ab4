//! The temperatures of rollouts: one for all, or for each its own from a range.
//!
//! In a config a temperature is a number or a range of two, `[0.7, 1.15]`; here it is always the two ends. An episode's temperature
//! follows from its seed, stands in the spans of its tokens, and its loss is computed at it: the ratio of a step that starts
//! from the weights that sampled is 1 whatever drew the tokens.

use forage_contracts::policy::Sampling;
use forage_contracts::{Provenance, SettingError, TokenLog};
use forage_env::Job;
use rand::RngExt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::learner::UpdateConfig;

/// A temperature as configs write it.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(
    untagged,
    expecting = "a temperature is a number or a range of two, [0.7, 1.15] for instance"
)]
pub(crate) enum Written {
    /// The same for every episode.
    One(f32),
    /// The lowest and the highest, of which each episode draws its own.
    Range([f32; 2]),
}

/// Writes a range of one temperature as a number.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
pub(crate) fn serialize<S: Serializer>(range: &[f32; 2], serializer: S) -> Result<S::Ok, S::Error> {
    let written = match *range {
        [low, high] if low.to_bits() == high.to_bits() => Written::One(low),
        range => Written::Range(range),
    };
    written.serialize(serializer)
}

/// Reads a number as a range of one temperature.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<[f32; 2], D::Error> {
    Ok(match Written::deserialize(deserializer)? {
        Written::One(temperature) => [temperature; 2],
        Written::Range(range) => range,
    })
}

/// Checks a range.
pub(crate) fn check([low, high]: [f32; 2]) -> Result<(), SettingError> {
    let lowest = Sampling {
        temperature: low,
        ..Sampling::FULL
    };
    let fault = if lowest.is_greedy() || !(low > 0.0 && high.is_finite()) {
        format!(
            "is {low} to {high}: training samples at temperatures of at least 0.00001, below which the likeliest token is always taken"
        )
    } else if low > high {
        format!("begins at {low} and ends at {high}: write the lower end first")
    } else {
        return Ok(());
    };
    Err(SettingError::new("temperature", fault))
}

impl UpdateConfig {
    /// The temperature that all tokens are drawn at, unless each episode has its own.
    pub(crate) fn one_temperature(&self) -> Option<f32> {
        let [low, high] = self.temperature;
        (low.to_bits() == high.to_bits()).then_some(low)
    }

    /// Gives each job the temperature of its episode, drawn evenly from the range by the job's seed alone: by run, step, task and
    /// place in the group.
    pub fn temper(&self, jobs: &mut [Job]) {
        let [low, high] = self.temperature;
        for job in jobs {
            let share: f32 = job.seed.child("temperature", &[]).rng().random();
            job.temperature = Some(
                self.one_temperature()
                    .unwrap_or_else(|| (low + (high - low) * share).min(high)),
            );
        }
    }
}

/// The temperature of each of the policy's tokens at `targets`, as their spans say; nothing where one does not say it. What was
/// drawn greedily has log-probabilities at temperature 1.
pub(crate) fn of_targets(log: &TokenLog, targets: &[usize]) -> Vec<f32> {
    let mut all = vec![None; log.len()];
    for span in log.spans() {
        if span.provenance == Provenance::Policy {
            all[span.start..span.end].fill(span.sampling.map(scored_at));
        }
    }
    let found: Option<Vec<f32>> = targets.iter().map(|&position| all[position]).collect();
    found.unwrap_or_default()
}

/// The temperature of the log-probabilities that a policy reports.
fn scored_at(sampling: Sampling) -> f32 {
    if sampling.is_greedy() {
        1.0
    } else {
        sampling.temperature
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<[f32; 2], String> {
        let config: Result<UpdateConfig, _> = serde_json::from_str(text);
        let config = config.map_err(|error| error.to_string())?;
        config.check().map_err(|error| error.to_string())?;
        let written = serde_json::to_value(&config).unwrap();
        let again: UpdateConfig = serde_json::from_value(written).unwrap();
        assert_eq!(again, config);
        Ok(config.temperature)
    }

    #[test]
    fn a_temperature_is_a_number_or_a_range() {
        assert_eq!(read(r#"{"temperature": 1}"#), Ok([1.0, 1.0]));
        assert_eq!(read(r#"{"temperature": [0.7, 1.15]}"#), Ok([0.7, 1.15]));
        let one = UpdateConfig {
            temperature: [0.5; 2],
            ..UpdateConfig::default()
        };
        assert_eq!(serde_json::to_value(&one).unwrap()["temperature"], 0.5);
        for (bad, expected) in [
            (r#"{"temperature": 0}"#, "at least 0.00001"),
            (r#"{"temperature": 9e-6}"#, "at least 0.00001"),
            (r#"{"temperature": [0, 1]}"#, "at least 0.00001"),
            (r#"{"temperature": [1.15, 0.7]}"#, "the lower end first"),
            (r#"{"temperature": [0.7, 1.0, 1.2]}"#, "a range of two"),
            (r#"{"temperature": "warm"}"#, "a number or a range of two"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }

    #[test]
    fn what_was_drawn_greedily_is_scored_at_one() {
        let mut log = TokenLog::with_prompt(&[1, 2]);
        log.push_policy(&[3], &[-0.5], 0, Some(Sampling::GREEDY));
        log.push_policy(
            &[4, 5],
            &[-0.5; 2],
            0,
            Some(Sampling {
                temperature: 0.7,
                ..Sampling::FULL
            }),
        );
        assert_eq!(of_targets(&log, &[2, 3, 4]), [1.0, 0.7, 0.7]);
        log.push_policy(&[6], &[-0.5], 0, None);
        assert!(of_targets(&log, &[2, 3, 4, 5]).is_empty());
    }
}
