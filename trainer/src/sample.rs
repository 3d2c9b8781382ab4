//! Finished rollouts as the learner sees them: tokens, who wrote them, and what they earned.

use std::collections::BTreeMap;
use std::path::Path;

use forage_env::episode::Episode;
use forage_env::rollout::EpisodeRecord;
use forage_env::rollout::record::SCHEMA;
use forage_env::tokens::Provenance;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sequence::Sequence;

/// Part of an episode's score that says whether its answer was right, where there is one.
const ACCURACY: &str = "em";

/// One rollout with its reward.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// All tokens, and which of them the policy wrote.
    pub sequence: Sequence,
    /// Log-probabilities of the policy's tokens as the sampler reported them, one per target, nats.
    pub logprobs: Vec<f32>,
    /// Policy tokens of each generation, in order; their sum is the number of targets.
    pub turns: Vec<usize>,
    /// The training reward.
    pub reward: f32,
    /// Whether the answer was right, 0 to 1; the reward where nothing says.
    pub accuracy: f32,
}

impl Sample {
    /// Of an episode; `None` when a fault of ours left it without a score.
    pub fn of(episode: &Episode) -> Option<Self> {
        let score = episode.score.as_ref()?;
        let sequence = Sequence::from_log(&episode.tokens);
        let sampled = episode.tokens.logprobs();
        let logprobs = sequence.targets.iter().map(|&position| sampled[position]).collect();
        let policy = episode.tokens.spans().iter().filter(|span| span.provenance == Provenance::Policy);
        let turns = policy.map(|span| span.end - span.start.max(1)).collect();
        let accuracy = score.parts.get(ACCURACY).copied().unwrap_or(score.total);
        Some(Self { sequence, logprobs, turns, reward: score.total, accuracy })
    }
}

/// A line of a file of recorded rollouts. An episode and a record of one, as runs keep them under `rollouts/`, are lines as
/// well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// What the members of a group share; lines of a group need not stand together.
    pub group: u64,
    /// `[n]`: token ids, prompt included.
    pub ids: Vec<u32>,
    /// `[n]`: 1 where the policy wrote the token, else 0.
    pub mask: Vec<u8>,
    /// `[n]`: the sampler's log-probabilities, nats; anything where the mask is 0. Imitation needs none.
    #[serde(default)]
    pub logprobs: Vec<f32>,
    /// What the rollout earned. Imitation needs none.
    #[serde(default)]
    pub reward: Option<f32>,
    /// Whether its answer was right, 0 to 1; the reward by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f32>,
}

impl Recorded {
    /// The tokens and which of them the policy wrote.
    pub(crate) fn sequence(&self) -> Result<Sequence, String> {
        let count = self.ids.len();
        if self.mask.len() != count {
            return Err(format!("has {count} ids and {} mask values; give one of each per token", self.mask.len()));
        }
        if self.mask.iter().any(|&mask| mask > 1) {
            return Err("has a mask value that is neither 0 nor 1".to_owned());
        }
        if self.mask.first() == Some(&1) {
            return Err(
                "begins with a token of the policy, which nothing stands before; put the prompt first".to_owned()
            );
        }
        let targets = (1..count).filter(|&position| self.mask[position] == 1).collect();
        Ok(Sequence { ids: self.ids.clone(), targets })
    }

    /// What it earned; an error that says so where it does not tell.
    pub(crate) fn finite_reward(&self) -> Result<f32, String> {
        match self.reward {
            None => Err("has no reward; give it one".to_owned()),
            Some(reward) if reward.is_finite() => Ok(reward),
            Some(_) => Err("has a reward that is no finite number".to_owned()),
        }
    }

    fn sample(&self) -> Result<Sample, String> {
        let sequence = self.sequence()?;
        let (count, known) = (self.ids.len(), self.logprobs.len());
        if known != count {
            return Err(format!("has {count} ids and {known} logprobs; give one of each per token"));
        }
        let reward = self.finite_reward()?;
        if !self.accuracy.is_none_or(f32::is_finite) {
            return Err("has an accuracy that is no finite number".to_owned());
        }
        let bad = |&&position: &&usize| !(self.logprobs[position].is_finite() && self.logprobs[position] <= 1e-3);
        if let Some(position) = sequence.targets.iter().find(bad) {
            return Err(format!("has the log-probability {} at token {position}", self.logprobs[*position]));
        }
        let turns = self.mask.chunk_by(|a, b| a == b).filter(|run| run[0] == 1).map(<[u8]>::len).collect();
        let logprobs = sequence.targets.iter().map(|&position| self.logprobs[position]).collect();
        Ok(Sample { sequence, logprobs, turns, reward, accuracy: self.accuracy.unwrap_or(reward) })
    }
}

/// A line of a file of rollouts.
pub(crate) enum Line {
    Episode(Box<Episode>),
    Recorded(Recorded),
}

impl Line {
    /// An object with `episode` is a record, one with `tokens` an episode.
    pub(crate) fn of(value: Value) -> Result<Self, String> {
        if value.get("episode").is_some() {
            let record: EpisodeRecord =
                serde_json::from_value(value).map_err(|error| format!("is no record of an episode: {error}"))?;
            if record.schema != SCHEMA {
                return Err(format!("has schema {}, this program reads {SCHEMA}", record.schema));
            }
            return Ok(Self::Episode(Box::new(record.episode)));
        }
        if value.get("tokens").is_some() {
            let episode = serde_json::from_value(value).map_err(|error| format!("is no episode: {error}"))?;
            return Ok(Self::Episode(Box::new(episode)));
        }
        serde_json::from_value(value).map(Self::Recorded).map_err(|error| format!("is no rollout: {error}"))
    }
}

/// Checks that every token is one of the model's.
pub(crate) fn check_vocabulary(sequence: &Sequence, vocab_size: usize) -> Result<(), String> {
    match sequence.ids.iter().find(|&&id| id as usize >= vocab_size) {
        Some(id) => Err(format!("has the token {id}, and the model's vocabulary ends at {vocab_size}")),
        None => Ok(()),
    }
}

/// Recorded rollouts cannot be learned from.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {message}")]
pub struct RecordedError {
    /// The file.
    pub path: String,
    /// What is wrong, with its line, and what to do.
    pub message: String,
}

/// Reads a file of recorded rollouts, JSON lines of [`Recorded`], episodes or their records, as groups in the order they begin.
/// Episodes that a fault of ours ended are left out. `vocab_size` and `context`: of the model that learns.
///
/// # Errors
/// [`RecordedError`] that names the line.
pub fn read_groups(path: &Path, vocab_size: usize, context: usize) -> Result<Vec<Vec<Sample>>, RecordedError> {
    let fail = |message: String| RecordedError { path: path.display().to_string(), message };
    let text = std::fs::read_to_string(path).map_err(|error| fail(format!("cannot be read: {error}")))?;
    let mut order: BTreeMap<u64, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<Sample>> = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = |message: String| fail(format!("line {} {message}", index + 1));
        let Some((group, sample)) = parse(line).map_err(at)? else { continue };
        if sample.sequence.ids.len() > context {
            let length = sample.sequence.ids.len();
            return Err(at(format!(
                "has {length} tokens, more than the context of {context}; raise engine.context_tokens"
            )));
        }
        check_vocabulary(&sample.sequence, vocab_size).map_err(at)?;
        let place = *order.entry(group).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[place].push(sample);
    }
    if groups.is_empty() {
        return Err(fail("holds no rollout with a reward".to_owned()));
    }
    Ok(groups)
}

fn parse(line: &str) -> Result<Option<(u64, Sample)>, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("is no JSON: {error}"))?;
    match Line::of(value)? {
        Line::Episode(episode) => Ok(Sample::of(&episode).map(|sample| (episode.group, sample))),
        Line::Recorded(recorded) => Ok(Some((recorded.group, recorded.sample()?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(group: u64, mask: &str, reward: &str) -> String {
        format!(r#"{{"group":{group},"ids":[1,2,3,4,5],"mask":{mask},"logprobs":[0,0,-0.5,0,-1.5],"reward":{reward}}}"#)
    }

    fn read(lines: &[String]) -> Result<Vec<Vec<Sample>>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollouts.jsonl");
        std::fs::write(&path, lines.join("\n")).unwrap();
        read_groups(&path, 10, 8).map_err(|error| error.message)
    }

    #[test]
    fn lines_of_a_group_come_together() {
        let mask = "[0,0,1,0,1]";
        let groups = read(&[line(7, mask, "1.0"), line(3, mask, "0.5"), line(7, mask, "0.0")]).unwrap();
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        let sample = &groups[0][0];
        assert_eq!(
            (sample.sequence.targets.as_slice(), sample.turns.as_slice()),
            ([2, 4].as_slice(), [1, 1].as_slice())
        );
        assert_eq!((sample.logprobs.as_slice(), sample.accuracy), ([-0.5, -1.5].as_slice(), 1.0));
    }

    #[test]
    fn faults_name_the_line() {
        let good = line(1, "[0,0,1,0,1]", "1.0");
        for (bad, expected) in [
            (line(1, "[0,0,1,0]", "1.0"), "line 2 has 5 ids and 4 mask values"),
            (line(1, "[1,0,1,0,1]", "1.0"), "line 2 begins with a token of the policy"),
            (line(1, "[0,0,2,0,1]", "1.0"), "line 2 has a mask value"),
            (line(1, "[0,0,1,0,1]", "null"), "line 2 has no reward"),
            (line(1, "[0,0,1,0,1]", "\"1\""), "line 2 is no rollout"),
            (line(1, "[0,0,1,0,1]", "1.0").replace(",-1.5", ""), "line 2 has 5 ids and 4 logprobs"),
            (line(1, "[0,0,1,0,1]", "1.0").replace("-1.5", "3.0"), "line 2 has the log-probability 3 at token 4"),
            (line(1, "[0,0,1,0,1]", "1.0").replace("[1,2", "[1,12"), "line 2 has the token 12"),
            ("{".to_owned(), "line 2 is no JSON"),
        ] {
            let error = read(&[good.clone(), bad]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(read(&[String::new()]).unwrap_err().contains("holds no rollout"));
    }
}
