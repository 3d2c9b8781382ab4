//! Finished rollouts as the learner sees them: tokens, their authors and their rewards.

use std::collections::BTreeMap;
use std::path::Path;

use forage_contracts::environment::Outcome;
use forage_contracts::{Branch, Episode, Provenance, Tokenizer, Treatment, Turn};
use forage_env::EpisodeRecord;
use serde::Deserialize;
use serde_json::Value;

use crate::lesson_error::{Fault, LessonError};
use crate::objective::Member;
use crate::sequence::Sequence;
use crate::temperature;
use crate::vocabulary::{check_tokenizer, check_vocabulary};

/// One rollout with its reward.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// All tokens, and which of them the policy wrote.
    pub sequence: Sequence,
    /// Log-probabilities of the policy's tokens as the sampler reported them at the sequence's temperatures, one per target, nats.
    pub logprobs: Vec<f32>,
    /// Policy tokens of each turn, in order; their sum is the number of targets.
    pub turns: Vec<usize>,
    /// `[turns]`: reward of each turn, not part of `reward`.
    pub turn_rewards: Vec<f32>,
    /// Common number of the rollouts of one tree: the member that was played from the beginning.
    pub tree: u64,
    /// The training reward: the score at the end.
    pub reward: f32,
    /// 1 for a right answer, 0 for a wrong one; the reward where correctness is unknown.
    pub accuracy: f32,
    /// Whether its tokens carry no loss because of how it ended; its reward still counts in its group.
    pub masked: bool,
    /// Whether its turns earn nothing because of how it ended.
    pub unpaid: bool,
    /// The first gold answer of its question; empty where unknown.
    pub gold: String,
}

impl Sample {
    /// The sample of an episode, treated as its token spans say; `None` when an infrastructure fault left it without a score.
    pub fn of(episode: &Episode) -> Option<Self> {
        let score = episode.score.as_ref()?;
        let mut sequence = Sequence::from_log(&episode.tokens);
        sequence.temperatures = temperature::of_targets(&episode.tokens, &sequence.targets);
        let sampled = episode.tokens.logprobs();
        let logprobs = sequence
            .targets
            .iter()
            .map(|&position| sampled[position])
            .collect();
        let policy = episode
            .tokens
            .spans()
            .iter()
            .filter(|span| span.provenance == Provenance::Policy);
        let turns: Vec<usize> = policy.map(|span| span.end - span.start.max(1)).collect();
        let treatment = episode.tokens.treatment();
        // The policy did not earn the rewards of a hint's turns.
        let own = episode.turns.get(episode.hinted..).unwrap_or_default();
        let earned: Vec<f32> = episode.turn_rewards().skip(episode.hinted).collect();
        let mut turn_rewards = turn_rewards(own, &earned, turns.len());
        if treatment == Treatment::Zero {
            turn_rewards.fill(0.0);
        }
        let tree = episode.branch.map_or(episode.member, Branch::tree);
        Some(Self {
            sequence,
            logprobs,
            turns,
            turn_rewards,
            tree,
            reward: treatment.reward(score.total),
            accuracy: Outcome::accuracy(score),
            masked: treatment == Treatment::Mask,
            unpaid: treatment == Treatment::Zero,
            gold: episode.task.golds.first().cloned().unwrap_or_default(),
        })
    }

    /// One sequence per turn that asks for the gold answer: what the policy had read before the turn, then `lead` and the gold answer,
    /// whose tokens are the targets. Stops before the first that exceeds `context` tokens; empty without a gold answer.
    pub(crate) fn asked(&self, lead: &[u32], gold: &[u32], context: usize) -> Vec<Sequence> {
        if gold.is_empty() {
            return Vec::new();
        }
        let Sequence { ids, targets, .. } = &self.sequence;
        let mut first = 0;
        let starts = self.turns.iter().map(|&tokens| {
            let start = targets.get(first).copied().unwrap_or(ids.len());
            first += tokens;
            start
        });
        let ask = |start: usize| {
            let ids = [&ids[..start], lead, gold].concat();
            Sequence {
                targets: (ids.len() - gold.len()..ids.len()).collect(),
                ids,
                ..Sequence::default()
            }
        };
        starts
            .map(ask)
            .take_while(|asked| asked.ids.len() <= context)
            .collect()
    }

    /// Number of tokens of each sentence that the policy wrote, in order. `ends`: whether each token id ends a sentence; a turn ends one
    /// in any case.
    pub(crate) fn sentences(&self, ends: &[bool]) -> Vec<usize> {
        let mut found = Vec::new();
        let mut targets = self.sequence.targets.iter();
        for &tokens in &self.turns {
            let turn = targets.by_ref().take(tokens);
            let ids: Vec<u32> = turn.map(|&at| self.sequence.ids[at]).collect();
            let ended = |id: u32| ends.get(id as usize).copied().unwrap_or(false);
            let sentences = ids.split_inclusive(|&id| ended(id));
            found.extend(sentences.map(<[u32]>::len));
        }
        found
    }

    /// The rollout as input of credit assignment.
    pub(crate) fn member(&self) -> Member<'_> {
        let mut states = Vec::with_capacity(self.turns.len());
        let (mut first, mut read) = (0, 0);
        for &tokens in &self.turns {
            let targets = &self.sequence.targets[first..first + tokens];
            let start = targets.first().copied().unwrap_or(read);
            states.push(&self.sequence.ids[read..start]);
            first += tokens;
            read = targets.last().map_or(read, |last| last + 1);
        }
        Member {
            reward: self.reward,
            turn_rewards: &self.turn_rewards,
            turns: &self.turns,
            states,
            tree: self.tree,
            shifts: &[],
            values: &[],
            potentials: &[],
        }
    }
}

/// `[count]`: rewards of the turns with policy tokens; a turn without any gives its reward to the turn before.
fn turn_rewards(turns: &[Turn], earned: &[f32], count: usize) -> Vec<f32> {
    let mut silent = turns.len().saturating_sub(count);
    let mut rewards: Vec<f32> = Vec::with_capacity(count);
    for (turn, &reward) in turns.iter().zip(earned) {
        let full = rewards.len() == count;
        let wrote_nothing = full || (silent > 0 && turn.policy.is_empty());
        if !wrote_nothing {
            rewards.push(reward);
            continue;
        }
        silent = silent.saturating_sub(1);
        if let Some(before) = rewards.last_mut() {
            *before += reward;
        }
    }
    rewards.resize(count, 0.0);
    rewards
}

/// A line of a file of recorded rollouts. Episodes and their records, as runs keep them under `rollouts/`, are accepted too.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recorded {
    /// The number that the members of a group share; lines of a group need not be neighbours.
    pub(crate) group: u64,
    /// `[n]`: token ids, prompt included.
    pub(crate) ids: Vec<u32>,
    /// `[n]`: 1 where the policy wrote the token, else 0.
    pub(crate) mask: Vec<u8>,
    /// `[n]`: the sampler's log-probabilities, nats; anything where the mask is 0. Imitation needs none.
    #[serde(default)]
    pub(crate) logprobs: Vec<f32>,
    /// Softmax temperature that drew them; the config's where there is none.
    #[serde(default)]
    pub(crate) temperature: Option<f32>,
    /// The reward. Imitation needs none.
    #[serde(default)]
    pub(crate) reward: Option<f32>,
    /// `[runs of 1 in the mask]`: what the environment paid for each turn, apart from the reward; nothing by default.
    #[serde(default)]
    pub(crate) turn_rewards: Option<Vec<f32>>,
    /// Common number of the rollouts of a group that branch off one another; none by default.
    #[serde(default)]
    pub(crate) tree: Option<u64>,
    /// 1 where its answer was right, 0 where it was wrong; the reward by default.
    #[serde(default)]
    pub(crate) accuracy: Option<f32>,
    /// The right answer to its question, which credit by information gain asks for; none by default.
    #[serde(default)]
    pub(crate) gold: Option<String>,
}

impl Recorded {
    /// The tokens and which of them the policy wrote.
    pub(crate) fn sequence(&self) -> Result<Sequence, Fault> {
        let count = self.ids.len();
        if self.mask.len() != count {
            return Err(format!(
                "has {count} ids and {} mask values; give one of each per token",
                self.mask.len()
            )
            .into());
        }
        if self.mask.iter().any(|&mask| mask > 1) {
            return Err("has a mask value that is neither 0 nor 1".into());
        }
        if self.mask.first() == Some(&1) {
            return Err(
                "begins with a token of the policy, before which there is nothing; put the prompt first".into()
            );
        }
        let targets = (1..count)
            .filter(|&position| self.mask[position] == 1)
            .collect();
        Ok(Sequence {
            ids: self.ids.clone(),
            targets,
            ..Sequence::default()
        })
    }

    /// The reward; an error where there is none.
    pub(crate) fn finite_reward(&self) -> Result<f32, Fault> {
        match self.reward {
            None => Err("has no reward; give it one".into()),
            Some(reward) if reward.is_finite() => Ok(reward),
            Some(_) => Err("has a reward that is not a finite number".into()),
        }
    }

    fn sample(&self, number: u64) -> Result<Sample, Fault> {
        let mut sequence = self.sequence()?;
        if let Some(temperature) = self.temperature {
            if !(temperature > 0.0 && temperature.is_finite()) {
                return Err(format!(
                    "has the temperature {temperature}; nothing is learned from what was drawn at 0, so give one above"
                )
                .into());
            }
            sequence.temperatures = vec![temperature; sequence.targets.len()];
        }
        let (count, known) = (self.ids.len(), self.logprobs.len());
        if known != count {
            return Err(format!(
                "has {count} ids and {known} logprobs; give one of each per token"
            )
            .into());
        }
        let reward = self.finite_reward()?;
        if !self.accuracy.is_none_or(f32::is_finite) {
            return Err("has an accuracy that is not a finite number".into());
        }
        let bad = |&&position: &&usize| {
            !(self.logprobs[position].is_finite() && self.logprobs[position] <= 1e-3)
        };
        if let Some(position) = sequence.targets.iter().find(bad) {
            return Err(format!(
                "has the log-probability {} at token {position}",
                self.logprobs[*position]
            )
            .into());
        }
        let turns: Vec<usize> = self
            .mask
            .chunk_by(|a, b| a == b)
            .filter(|run| run[0] == 1)
            .map(<[u8]>::len)
            .collect();
        let turn_rewards = self
            .turn_rewards
            .clone()
            .unwrap_or_else(|| vec![0.0; turns.len()]);
        if turn_rewards.len() != turns.len() {
            let (written, paid) = (turns.len(), turn_rewards.len());
            return Err(format!(
                "has {written} turns and {paid} turn_rewards; give one per run of 1 in the mask"
            )
            .into());
        }
        if !turn_rewards.iter().all(|reward| reward.is_finite()) {
            return Err("has a turn reward that is not a finite number".into());
        }
        let logprobs = sequence
            .targets
            .iter()
            .map(|&position| self.logprobs[position])
            .collect();
        let (tree, accuracy) = (self.tree.unwrap_or(number), self.accuracy.unwrap_or(reward));
        Ok(Sample {
            sequence,
            logprobs,
            turns,
            turn_rewards,
            tree,
            reward,
            accuracy,
            masked: false,
            unpaid: false,
            gold: self.gold.clone().unwrap_or_default(),
        })
    }
}

/// A line of a file of rollouts.
pub(crate) enum Line {
    Episode(Box<Episode>),
    Recorded(Recorded),
}

impl Line {
    /// An object with `episode` is a record, one with `tokens` an episode.
    pub(crate) fn of(value: Value) -> Result<Self, Fault> {
        if value.get("episode").is_some() {
            let record: EpisodeRecord = serde_json::from_value(value)
                .map_err(|error| Fault::because("is not a record of an episode", error))?;
            if record.schema != EpisodeRecord::SCHEMA {
                return Err(format!(
                    "has schema {}, this program reads {}",
                    record.schema,
                    EpisodeRecord::SCHEMA
                )
                .into());
            }
            return Ok(Self::Episode(Box::new(record.episode)));
        }
        if value.get("tokens").is_some() {
            let episode = serde_json::from_value(value)
                .map_err(|error| Fault::because("is not an episode", error))?;
            return Ok(Self::Episode(Box::new(episode)));
        }
        serde_json::from_value(value)
            .map(Self::Recorded)
            .map_err(|error| Fault::because("is not a rollout", error))
    }
}

impl Sample {
    /// Reads a file of rollouts, JSON lines of token lists with masks, episodes or their records, as groups in the order they begin,
    /// episodes by their question too. Those that a fault of ours ended are left out. `vocab_size` and `context`: of the model that learns;
    /// given its `tokenizer`, the tokens of episodes must be the text of their turns.
    ///
    /// # Errors
    /// [`LessonError`], which names the line.
    pub fn read_groups(
        path: &Path,
        vocab_size: usize,
        context: usize,
        tokenizer: Option<&dyn Tokenizer>,
    ) -> Result<Vec<Vec<Self>>, LessonError> {
        read_lines(path, vocab_size, context, tokenizer).map_err(|fault| fault.of(path))
    }
}

fn read_lines(
    path: &Path,
    vocab_size: usize,
    context: usize,
    tokenizer: Option<&dyn Tokenizer>,
) -> Result<Vec<Vec<Sample>>, Fault> {
    let text = std::fs::read_to_string(path).map_err(Fault::unread)?;
    let mut order: BTreeMap<Group, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<Sample>> = Vec::new();
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let at = |fault: Fault| fault.at("line", index + 1);
        let Some((group, sample)) = parse(line, index as u64, tokenizer).map_err(at)? else {
            continue;
        };
        if sample.sequence.ids.len() > context {
            let length = sample.sequence.ids.len();
            let fault = format!(
                "has {length} tokens, more than the context of {context}; raise engine.context_tokens"
            );
            return Err(at(fault.into()));
        }
        check_vocabulary(&sample.sequence, vocab_size).map_err(at)?;
        let place = *order.entry(group).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[place].push(sample);
    }
    if groups.is_empty() {
        return Err("holds no rollout with a reward".into());
    }
    Ok(groups)
}

/// The number of a group, and its question where a line says it: the files of a run's steps number their groups alike.
type Group = (u64, Option<[String; 2]>);

/// `number` tells this line from the others.
fn parse(
    line: &str,
    number: u64,
    tokenizer: Option<&dyn Tokenizer>,
) -> Result<Option<(Group, Sample)>, Fault> {
    let value: Value =
        serde_json::from_str(line).map_err(|error| Fault::because("is not JSON", error))?;
    match Line::of(value)? {
        Line::Episode(episode) if episode.score.is_some() && !episode.tokens.has_ids() => {
            Err("has no token ids: a server that tells text alone played it, and `forage sft` alone learns from text".into())
        }
        Line::Episode(episode) => {
            let sample = Sample::of(&episode);
            if let (Some(_), Some(tokenizer)) = (&sample, tokenizer) {
                check_tokenizer(&episode, tokenizer)?;
            }
            let asked = [episode.task.name(), episode.task.question.clone()];
            Ok(sample.map(|sample| ((episode.group, Some(asked)), sample)))
        }
        Line::Recorded(recorded) => Ok(Some(((recorded.group, None), recorded.sample(number)?))),
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::environment::TurnKind;
    use forage_contracts::policy::Finish;
    use forage_contracts::{Score, Task};

    use super::*;

    fn line(group: u64, mask: &str, reward: &str) -> String {
        format!(
            r#"{{"group":{group},"ids":[1,2,3,4,5],"mask":{mask},"logprobs":[0,0,-0.5,0,-1.5],"reward":{reward}}}"#
        )
    }

    fn read(lines: &[String]) -> Result<Vec<Vec<Sample>>, LessonError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollouts.jsonl");
        std::fs::write(&path, lines.join("\n")).unwrap();
        Sample::read_groups(&path, 10, 8, None)
    }

    #[test]
    fn an_episode_of_text_alone_is_refused() {
        let mut episode = Episode::new(Task::new("1", "Who?"));
        episode.score = Some(Score::default());
        episode.tokens.push_counted(3, Provenance::Policy, Some(0));
        let line = serde_json::to_string(&EpisodeRecord::from(episode)).unwrap();
        let error = read(&[line]).unwrap_err().to_string();
        assert!(error.contains("line 1 has no token ids"), "{error}");
    }

    #[test]
    fn episodes_of_other_questions_are_of_other_groups() {
        let line = |question: &str| {
            let mut episode = Episode::new(Task::new(question, "Who?"));
            episode.score = Some(Score::default());
            serde_json::to_string(&EpisodeRecord::from(episode)).unwrap()
        };
        let groups = read(&[line("1"), line("2"), line("1")]).unwrap();
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn lines_of_a_group_come_together() {
        let mask = "[0,0,1,0,1]";
        let groups = read(&[
            line(7, mask, "1.0"),
            line(3, mask, "0.5"),
            line(7, mask, "0.0"),
        ])
        .unwrap();
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        let sample = &groups[0][0];
        assert_eq!(
            (sample.sequence.targets.as_slice(), sample.turns.as_slice()),
            ([2, 4].as_slice(), [1, 1].as_slice())
        );
        assert_eq!(
            (sample.logprobs.as_slice(), sample.accuracy),
            ([-0.5, -1.5].as_slice(), 1.0)
        );
        assert_eq!(sample.turn_rewards, [0.0, 0.0]);
        assert_eq!(sample.member().states, [[1, 2].as_slice(), [4].as_slice()]);
        let paid = read(&[line(7, mask, "1.0,\"turn_rewards\":[0.5,0]")]).unwrap();
        assert_eq!(paid[0][0].turn_rewards, [0.5, 0.0]);
        assert!(paid[0][0].sequence.temperatures.is_empty());
        let warm = read(&[line(7, mask, "1.0,\"temperature\":0.7")]).unwrap();
        assert_eq!(warm[0][0].sequence.temperatures, [0.7, 0.7]);
    }

    #[test]
    fn the_gold_answer_is_asked_before_each_turn_as_far_as_it_fits() {
        let groups = read(&[line(7, "[0,0,1,0,1]", "1.0,\"gold\":\"Ada\"")]).unwrap();
        let sample = &groups[0][0];
        assert_eq!(sample.gold, "Ada");
        let ask = |context| sample.asked(&[8], &[9, 6], context);
        let asked = ask(7);
        let ids = |asked: &Sequence| asked.ids.clone();
        assert_eq!(
            asked.iter().map(ids).collect::<Vec<_>>(),
            [vec![1, 2, 8, 9, 6], vec![1, 2, 3, 4, 8, 9, 6]]
        );
        assert_eq!(asked[1].targets, [5, 6]);
        assert_eq!(ask(6).len(), 1);
        assert!(sample.asked(&[8], &[], 7).is_empty());
    }

    #[test]
    fn sentences_end_at_marks_and_with_their_turn() {
        let mut sample = read(&[line(7, "[0,1,1,0,1]", "1.0")])
            .unwrap()
            .remove(0)
            .remove(0);
        let mut ends = vec![false; 10];
        assert_eq!(sample.sentences(&[]), [2, 1]);
        ends[2] = true;
        assert_eq!(sample.sentences(&ends), [1, 1, 1]);
        ends[3] = true;
        assert_eq!(sample.sentences(&ends), [1, 1, 1]);
        sample.turns = vec![3];
        assert_eq!(sample.sentences(&[]), [3]);
    }

    #[test]
    fn turns_that_sampled_nothing_give_to_the_turn_before() {
        let turn = |policy: &str, reward| Turn {
            policy: policy.to_owned(),
            finish: Finish::Stop,
            kind: TurnKind::answer(""),
            observation: String::new(),
            reward,
        };
        let mut episode = Episode::new(Task::new("1", "Who?"));
        episode.turns = vec![turn("a", 1.0), turn("", 2.0), turn("b", 3.0)];
        // A reward that pays turns paid the last.
        episode.score = Some(Score {
            turns: vec![0.0, 0.0, 1.0],
            ..Score::default()
        });
        let earned: Vec<f32> = episode.turn_rewards().collect();
        assert_eq!(earned, [1.0, 2.0, 4.0]);
        let turn_rewards = |count| turn_rewards(&episode.turns, &earned, count);
        assert_eq!(turn_rewards(3), [1.0, 2.0, 4.0]);
        assert_eq!(turn_rewards(2), [3.0, 4.0]);
        assert_eq!(turn_rewards(1), [7.0]);
        assert!(turn_rewards(0).is_empty());
        assert_eq!(super::turn_rewards(&[], &[], 1), [0.0]);
    }

    #[test]
    fn faults_name_the_line() {
        let good = line(1, "[0,0,1,0,1]", "1.0");
        for (bad, expected) in [
            (line(1, "[0,0,1,0]", "1.0"), "has 5 ids and 4 mask values"),
            (line(1, "[1,0,1,0,1]", "1.0"), "begins with a token"),
            (line(1, "[0,0,2,0,1]", "1.0"), "has a mask value"),
            (line(1, "[0,0,1,0,1]", "null"), "has no reward"),
            (line(1, "[0,0,1,0,1]", "\"1\""), "is not a rollout"),
            (
                line(1, "[0,0,1,0,1]", "1.0").replace(",-1.5", ""),
                "has 5 ids and 4 logprobs",
            ),
            (
                line(1, "[0,0,1,0,1]", "1.0").replace("-1.5", "3.0"),
                "has the log-probability 3 at token 4",
            ),
            (
                line(1, "[0,0,1,0,1]", "1.0").replace("[1,2", "[1,12"),
                "has the token 12",
            ),
            (
                line(1, "[0,0,1,0,1]", "1.0,\"turn_rewards\":[1]"),
                "has 2 turns and 1 turn_rewards",
            ),
            (
                line(1, "[0,0,1,0,1]", "1.0,\"temperature\":0"),
                "has the temperature 0",
            ),
            ("{".to_owned(), "is not JSON"),
        ] {
            let error = read(&[good.clone(), bad]).unwrap_err().to_string();
            let expected = format!("line 2 {expected}");
            assert!(error.contains(&expected), "{error}");
        }
        assert!(
            read(&[String::new()])
                .unwrap_err()
                .to_string()
                .contains("holds no rollout")
        );
    }
}
