//! Episodes as people read them: who wrote what, how it ended, what it earned.

use std::collections::BTreeMap;

use forage_contracts::{Ending, Episode, Provenance};

use crate::measures::QuestionKey;

/// Everyone who writes in an episode, in the order of the legend.
pub(crate) const AUTHORS: [Provenance; 4] = [
    Provenance::Prompt,
    Provenance::Policy,
    Provenance::Environment,
    Provenance::Forced,
];

/// The place where an episode was played.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The run, or the set of an evaluation.
    pub run: String,
    /// The training step; none of an evaluation.
    pub step: Option<u64>,
    /// The alarms of the run's sentinel at that step, by kind.
    pub alarms: Vec<String>,
}

/// Text of one author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The author.
    pub author: Provenance,
    /// The text.
    pub text: String,
}

/// An episode without its tokens: small enough to hold ten thousand.
#[derive(Clone, Debug, PartialEq)]
pub struct Trajectory {
    /// The place where it was played.
    pub origin: Origin,
    /// Identity of its question.
    pub key: QuestionKey,
    /// Accepted answers.
    pub golds: Vec<String>,
    /// Ids of the relevant passages, where they are known.
    pub relevant: Vec<String>,
    /// The last answer the policy gave.
    pub answer: Option<String>,
    /// Index of the question within its batch.
    pub group: u64,
    /// Index within the group.
    pub member: u64,
    /// The training reward; none for infrastructure faults.
    pub reward: Option<f32>,
    /// Every part of the score before weighting.
    pub parts: BTreeMap<String, f32>,
    /// The ending.
    pub ending: Ending,
    /// Turns of the policy.
    pub turns: usize,
    /// Searches made.
    pub searches: usize,
    /// `[author]`: tokens of each author.
    pub tokens: [usize; 4],
    /// The texts in order, none empty.
    pub segments: Vec<Segment>,
}

impl Trajectory {
    /// Cut by turns: what the policy wrote, what the environment answered. What the driver forced stands where the record of
    /// the turn has it, with the policy's.
    pub fn from_turns(origin: Origin, episode: &Episode) -> Self {
        let mut segments = vec![(Provenance::Prompt, episode.prompt.clone())];
        for turn in &episode.turns {
            segments.push((Provenance::Policy, turn.policy.clone()));
            segments.push((Provenance::Environment, turn.observation.clone()));
        }
        Self::new(origin, episode, segments)
    }

    /// Cut by the token log, forced tokens apart; `decode` turns ids into text. By turns where the log has no ids.
    pub fn from_tokens(
        origin: Origin,
        episode: &Episode,
        decode: impl Fn(&[u32]) -> String,
    ) -> Self {
        if !episode.tokens.has_ids() {
            return Self::from_turns(origin, episode);
        }
        let ids = episode.tokens.ids();
        let spans = episode.tokens.spans().iter();
        let segments = spans
            .map(|span| (span.provenance, decode(&ids[span.start..span.end])))
            .collect();
        Self::new(origin, episode, segments)
    }

    fn new(origin: Origin, episode: &Episode, segments: Vec<(Provenance, String)>) -> Self {
        let segments = segments.into_iter().filter(|(_, text)| !text.is_empty());
        let judgments = episode.task.judgments();
        let relevant = judgments.iter().filter(|(_, grade)| **grade > 0);
        Self {
            origin,
            key: QuestionKey::of(episode),
            golds: episode.task.golds.clone(),
            relevant: relevant.map(|(id, _)| id.clone()).collect(),
            answer: episode.answer().map(str::to_owned),
            group: episode.group,
            member: episode.member,
            reward: episode.reward(),
            parts: episode
                .score
                .as_ref()
                .map(|score| score.parts.clone())
                .unwrap_or_default(),
            ending: episode.ending.clone(),
            turns: episode.turns.len(),
            searches: episode.searches(),
            tokens: AUTHORS.map(|author| episode.tokens.count(author)),
            segments: segments
                .map(|(author, text)| Segment { author, text })
                .collect(),
        }
    }

    /// Returns true when its answer matches a gold exactly; `None` where no exact match was measured.
    pub fn is_correct(&self) -> Option<bool> {
        self.parts.get("em").map(|value| *value > 0.5)
    }

    /// The accepted answers in one line, or the relevant passages where the question has no answer; `None` without either.
    pub fn labels(&self) -> Option<String> {
        let (name, labels) = if self.golds.is_empty() {
            ("relevant", &self.relevant)
        } else {
            ("gold", &self.golds)
        };
        (!labels.is_empty()).then(|| format!("{name}: {}", labels.join(" | ")))
    }

    /// Its origin in one line: `trained, step 40, group 0, member 3`.
    pub fn label(&self) -> String {
        let run = &self.origin.run;
        match self.origin.step {
            Some(step) => format!(
                "{run}, step {step}, group {}, member {}",
                self.group, self.member
            ),
            None => format!("{run}, question {}, member {}", self.group + 1, self.member),
        }
    }
}
