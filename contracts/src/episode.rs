//! A finished episode: what was written by whom, how it ended, what it earned.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use crate::environment::Boundary;
use crate::environment::{Call, Outcome, TurnKind};
use crate::policy::Finish;
use crate::seed::Seed;
use crate::task::Task;
use crate::tokens::TokenLog;

/// The limit that ended an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The last allowed turn was used.
    Turns,
    /// The token budget of the episode is spent.
    Tokens,
    /// The policy's context window is full.
    Context,
    /// The time limit passed.
    Time,
}

/// The way an episode ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum Ending {
    /// The policy gave its answer, or the query or ranking it was asked for.
    Answered,
    /// A limit was reached.
    Truncated {
        /// Which.
        limit: Limit,
    },
    /// A turn broke the protocol in a profile that ends on it.
    Malformed {
        /// What was wrong.
        fault: String,
    },
    /// The infrastructure failed. Such an episode has no reward, is outside every group statistic, and is counted.
    Infra {
        /// What failed.
        boundary: Boundary,
        /// The error with its causes.
        message: String,
    },
}

impl Ending {
    /// The ending without its particulars.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Truncated { limit } => match limit {
                Limit::Turns => "out of turns",
                Limit::Tokens => "out of tokens",
                Limit::Context => "context window full",
                Limit::Time => "out of time",
            },
            Self::Malformed { .. } => "malformed",
            Self::Infra { .. } => "infrastructure fault",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Answered => formatter.write_str(name),
            Self::Truncated { .. } => write!(formatter, "truncated: {name}"),
            Self::Malformed { fault } => write!(formatter, "{name}: {fault}"),
            Self::Infra { boundary, message } => {
                let place = match boundary {
                    Boundary::Policy => "policy",
                    Boundary::Retriever => "retriever",
                    Boundary::Sandbox => "sandbox",
                    Boundary::Environment => "environment",
                    Boundary::Reward => "reward",
                };
                write!(formatter, "{name} ({place}): {message}")
            }
        }
    }
}

impl Ending {
    /// Whether the episode must stay outside rewards and statistics.
    pub fn is_infra(&self) -> bool {
        matches!(self, Self::Infra { .. })
    }
}

/// One policy turn and what the environment made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The text that the policy wrote, decoded; begins with the forced prefix when there was one.
    pub policy: String,
    /// Why the completion ended.
    pub finish: Finish,
    /// The turn as the environment understood it.
    pub kind: TurnKind,
    /// The environment's reply; empty at the end.
    pub observation: String,
    /// The environment's pay for this turn, apart from the score; 0 where a limit kept its observation from the policy.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reward: f32,
}

/// Tells whether a value is the default of its type, which records leave out.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The score of an episode: the weighted total and every part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The training reward.
    pub total: f32,
    /// Every part before weighting, by name; parts of weight 0 are here too.
    pub parts: BTreeMap<String, f32>,
    /// Weighted sum, for each turn, of the rewards that pay turns; not part of the total. Empty without such a reward.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<f32>,
}

impl Score {
    /// The reward of a published grader beyond what its own rule allows, before weighting; below 0 where it paid less, `None` without
    /// such a grader.
    pub fn published_excess(&self) -> Option<f32> {
        let part = |name: &str| self.parts.get(name).copied();
        Some(part("published")? - part("published_correct")?)
    }
}

/// The point at which an episode branched off another of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// Index within the group of the episode it branched from.
    pub member: u64,
    /// Number of turns that both share.
    pub turns: usize,
    /// Index of the tree's root, where the episode it branched from is a branch itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<u64>,
}

impl Branch {
    /// Index of the tree's root within the group.
    pub fn tree(self) -> u64 {
        self.root.unwrap_or(self.member)
    }
}

/// One episode from prompt to score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// The task that was asked.
    pub task: Task,
    /// Index of the prompt within its rollout batch: members of a group share it.
    pub group: u64,
    /// Index within the group.
    pub member: u64,
    /// The place where it branched off another; `None` for an episode played from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Branch>,
    /// Number of turns at its beginning that were given as a hint: the policy did not write them, and their tokens are forced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hinted: usize,
    /// Id of the environment that it was played in; empty where nobody recorded it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub environment: String,
    /// The opening prompt as the environment wrote it; a chat template's text around it is in the tokens only.
    pub prompt: String,
    /// Turns in order.
    pub turns: Vec<Turn>,
    /// All tokens with their authors; for a policy that reads text, only their number.
    pub tokens: TokenLog,
    /// The messages and tools of a chat with a policy that reads text, in the form of a demonstration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Map<String, Value>>,
    /// The way it ended.
    pub ending: Ending,
    /// `None` exactly when the ending is an infrastructure fault.
    pub score: Option<Score>,
    /// Start of its random streams, the environment's among them; `None` where nobody recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<Seed>,
}

impl Episode {
    /// An answered, unscored episode without turns; struct update fills in the rest.
    pub fn new(task: Task) -> Self {
        Self {
            task,
            group: 0,
            member: 0,
            branch: None,
            hinted: 0,
            environment: String::new(),
            prompt: String::new(),
            turns: Vec::new(),
            tokens: TokenLog::default(),
            conversation: None,
            ending: Ending::Answered,
            score: None,
            seed: None,
        }
    }

    /// Whether its tokens are bytes, as those of a script without a policy's tokenizer are: its tokens begin with the bytes of the
    /// prompt.
    pub fn is_in_bytes(&self) -> bool {
        let (bytes, ids) = (self.prompt.as_bytes(), self.tokens.ids());
        let same = |(byte, id): (&u8, &u32)| u32::from(*byte) == *id;
        !bytes.is_empty() && bytes.len() <= ids.len() && bytes.iter().zip(ids).all(same)
    }

    /// The last answer the policy gave, if any.
    pub fn answer(&self) -> Option<&str> {
        self.turns.iter().rev().find_map(|turn| match &turn.kind {
            TurnKind::Answer { answer } => Some(answer.as_str()),
            _ => None,
        })
    }

    /// Number of searches made, those of programs included.
    pub fn searches(&self) -> usize {
        self.queries().count()
    }

    /// The queries searched for, in order.
    pub fn queries(&self) -> impl Iterator<Item = &str> {
        self.turns.iter().flat_map(|turn| turn.kind.queries())
    }

    /// The calls of all turns, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.turns.iter().flat_map(|turn| turn.kind.calls())
    }

    /// The ranking that the episode is judged by: the documents of the call that ended it.
    pub fn ranking(&self) -> Option<&[String]> {
        let last = self.turns.last()?.kind.calls().last()?;
        (self.ending == Ending::Answered).then_some(&last.shown)
    }

    /// The reward of each turn: what the environment paid for it plus what the rewards that pay turns gave it. Not part of the score's
    /// total.
    pub fn turn_rewards(&self) -> impl Iterator<Item = f32> {
        let judged = self.score.iter().flat_map(|score| &score.turns).copied();
        let judged = judged.chain(std::iter::repeat(0.0));
        self.turns
            .iter()
            .zip(judged)
            .map(|(turn, judged)| turn.reward + judged)
    }

    /// The training reward; `None` for infrastructure faults.
    pub fn reward(&self) -> Option<f32> {
        self.score.as_ref().map(|score| score.total)
    }
}

impl Outcome {
    /// The outcome of scored episodes, by the parts of their scores; answers when there are none.
    pub fn of(episodes: &[Episode]) -> Self {
        let scores = episodes.iter().find_map(|episode| episode.score.as_ref());
        let has = |part: &str| scores.is_some_and(|score| score.parts.contains_key(part));
        if has(Self::Ranking.measure()) && !has(Self::Answer.measure()) {
            Self::Ranking
        } else {
            Self::Answer
        }
    }

    /// Tells whether a demonstration is worth learning from: it reached its end, and a careful one earned full marks. A hasty one may
    /// fail and, in rankings, break the protocol: that is part of what it shows.
    pub fn teaches(self, episode: &Episode, careful: bool) -> bool {
        let ended = match episode.ending {
            Ending::Answered => true,
            Ending::Malformed { .. } => self == Self::Ranking && !careful,
            Ending::Truncated { .. } | Ending::Infra { .. } => false,
        };
        let needed: &[&str] = match self {
            _ if !careful => &[],
            Self::Answer => &["em"],
            Self::Ranking => &["mrr", "syntax"],
        };
        let scores = episode.score.as_ref();
        let earned = |part: &&str| {
            scores.is_some_and(|score| score.parts.get(*part).is_some_and(|part| *part >= 1.0))
        };
        ended && needed.iter().all(earned)
    }

    /// The degree to which the answer of an episode was right, 0 to 1; its reward where nothing says.
    pub fn accuracy(score: &Score) -> f32 {
        let part = score.parts.get(Self::Answer.measure());
        part.copied().unwrap_or(score.total)
    }
}
