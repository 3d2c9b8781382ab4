//! A tournament within a group: a judge compares two members at a time, and the standing at the end is the score.
//!
//! `ArenaRL` (arXiv 2601.06487) ranks the trajectories of a group so where no answer can be checked, and compares the schemes of
//! [`Scheme`].

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::reward::{GroupReward, Make, Making, Pieces, RewardEntry, RewardError};
use forage_contracts::{Episode, SettingError, Task};
use futures::future::try_join_all;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::group::{count, failed, schema};
use super::prompt::{Shown, Transcript, written};
use super::scheme::{Game, Scheme};
use super::{Judge, JudgeError, JudgeSettings, Preference, refused};
use crate::reward::UNIT;
use crate::reward::grading::normalize;

/// The registry's entry.
pub(crate) const TOURNAMENT: RewardEntry = RewardEntry {
    name: "tournament",
    about: "standing of an episode in its group, by a judge that compares two at a time, in both orders (settings: those of \
            judge, scheme = \"round_robin\", rounds, compares = \"answers\")",
    always: false,
    judges: Some(Outcome::Answer),
    range: UNIT,
    schema: Some(settings_schema),
    make: Make::Group(|making| Ok(Box::new(Tournament::of(making)?))),
};

fn settings_schema() -> Value {
    let mut scheme: Value = schemars::schema_for!(Scheme).into();
    let mut compares: Value = schemars::schema_for!(Compares).into();
    scheme["default"] = json!("round_robin");
    compares["default"] = json!("answers");
    for (schema, about) in [
        (&mut scheme, "The pairs that meet, and the score."),
        (
            &mut compares,
            "The part of the two that the judge is shown.",
        ),
    ] {
        schema["description"] = json!(about);
    }
    let rounds = "Of a round robin the members that each one meets (4), of a Swiss tournament its rounds (as many as a \
                  knockout has).";
    let rounds = json!({"type": "integer", "minimum": 1, "description": rounds});
    schema([
        ("scheme", scheme),
        ("rounds", rounds),
        ("compares", compares),
    ])
}

/// The opponent in a comparison that only shows whether a member can be judged.
const NOBODY: Shown<'static> = (None, Transcript::Unknown);

/// What a judge is shown of two members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Compares {
    /// Their answers.
    #[default]
    Answers,
    /// All that they wrote and read.
    Episodes,
}

/// Ranks a group. A pair is shown in both orders; a judge that changes its mind with the order has called a tie.
///
/// Nobody is asked where the outcome is plain: an answer beats none, and of answers alone equal ones tie. A group of one
/// scores 0.5. Where the texts of a pair leave the judge without a verdict, each is shown by itself, and loses if it does so alone.
#[derive(Debug)]
struct Tournament {
    judge: Judge,
    scheme: Scheme,
    rounds: Option<usize>,
    compares: Compares,
}

impl Tournament {
    fn of(making: &Making) -> Result<Self, SettingError> {
        let mut settings = making.settings.clone();
        let scheme: Scheme = choice("scheme", &mut settings)?;
        let rounds = settings.shift_remove("rounds");
        if rounds.is_some() && !matches!(scheme, Scheme::RoundRobin | Scheme::Swiss) {
            let fault = "follow from the size of the group in this scheme; leave them out";
            return Err(SettingError::new("rounds", fault));
        }
        let compares: Compares = choice("compares", &mut settings)?;
        let settings: JudgeSettings = serde_json::from_value(Value::Object(settings))?;
        if !settings.rubric.is_empty() && compares == Compares::Answers {
            let fault =
                "is about the way to an answer: set compares = \"episodes\", or leave it out";
            return Err(SettingError::new("a rubric", fault));
        }
        Ok(Self {
            judge: Judge::new(settings)?,
            scheme,
            rounds: rounds.map(|rounds| count("rounds", &rounds)).transpose()?,
            compares,
        })
    }

    /// What the first of two members wins, 1, 0.5 or 0, and which of them leave the judge without a verdict.
    async fn play(
        &self,
        task: &Task,
        [a, b]: [&Episode; 2],
    ) -> Result<(f32, [bool; 2]), JudgeError> {
        const NONE: [bool; 2] = [false, false];
        let (Some(answer_a), Some(answer_b)) = (a.answer(), b.answer()) else {
            let has = |member: &Episode| f32::from(member.answer().is_some());
            return Ok((0.5 + 0.5 * (has(a) - has(b)), NONE));
        };
        if self.compares == Compares::Answers && normalize(answer_a) == normalize(answer_b) {
            return Ok((0.5, NONE));
        }
        let [a, b] = [a, b].map(|member| self.shown(member));
        let both = match self.prefer(task, [a, b]).await {
            Ok(first) => self
                .prefer(task, [b, a])
                .await
                .map(|second| (first, second)),
            Err(error) => Err(error),
        };
        match both {
            Ok((Preference::A, Preference::B)) => Ok((1.0, NONE)),
            Ok((Preference::B, Preference::A)) => Ok((0.0, NONE)),
            Ok(_) => Ok((0.5, NONE)),
            Err(JudgeError::Refused(_)) => {
                let mut unjudged = NONE;
                for (unjudged, member) in unjudged.iter_mut().zip([a, b]) {
                    *unjudged = match self.prefer(task, [member, NOBODY]).await {
                        Ok(_) => false,
                        Err(JudgeError::Refused(_)) => true,
                        Err(fault) => return Err(fault),
                    };
                }
                let [lost_a, lost_b] = unjudged.map(f32::from);
                Ok((0.5 + 0.5 * (lost_b - lost_a), unjudged))
            }
            Err(fault) => Err(fault),
        }
    }

    async fn prefer(&self, task: &Task, pair: [Shown<'_>; 2]) -> Result<Preference, JudgeError> {
        let Task {
            question, golds, ..
        } = task;
        self.judge.prefer_work(question, golds, pair).await
    }

    fn shown<'a>(&self, member: &'a Episode) -> Shown<'a> {
        let transcript = match self.compares {
            Compares::Answers => Transcript::Unknown,
            Compares::Episodes => Transcript::Turns(&member.turns),
        };
        (written(member), transcript)
    }
}

/// The setting `key`, or its default where it is not written.
fn choice<T: DeserializeOwned + Default>(
    key: &str,
    settings: &mut Map<String, Value>,
) -> Result<T, SettingError> {
    let Some(value) = settings.shift_remove(key) else {
        return Ok(T::default());
    };
    serde_json::from_value(value)
        .map_err(|error| SettingError::new(key, format!("cannot be read: {error}")))
}

#[async_trait]
impl GroupReward for Tournament {
    fn name(&self) -> &'static str {
        TOURNAMENT.name
    }

    async fn score_group(
        &self,
        task: &Task,
        members: &[&Episode],
    ) -> Result<Vec<(f32, Pieces)>, RewardError> {
        let mut played: Vec<Vec<Game>> = Vec::new();
        let mut pieces = vec![Pieces::new(); members.len()];
        loop {
            let pairs = self.scheme.pairs(members.len(), self.rounds, &played);
            if pairs.is_empty() {
                break;
            }
            let games = pairs.into_iter().map(|[a, b]| async move {
                let (won, unjudged) = self.play(task, [members[a], members[b]]).await?;
                Ok((Game { pair: [a, b], won }, unjudged))
            });
            let games = try_join_all(games).await;
            let games = games.map_err(|cause| failed(TOURNAMENT.name, task, &cause))?;
            for (game, unjudged) in &games {
                for (member, unjudged) in game.pair.into_iter().zip(unjudged) {
                    if *unjudged {
                        pieces[member] = vec![refused()];
                    }
                }
            }
            played.push(games.into_iter().map(|(game, _)| game).collect());
        }
        let scores = self.scheme.scores(members.len(), &played);
        Ok(scores.into_iter().zip(pieces).collect())
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        self.judge.needs_golds()
    }
}
