//! Judging several answers of a group in one request.

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::reward::{GroupReward, Make, Making, Pieces, RewardEntry, RewardError};
use forage_contracts::{Episode, SettingError, Task};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::prompt::written;
use super::{ENTRY, Judge, JudgeError, JudgeSettings, TOURNAMENT, Transcript, alone, points};
use crate::reward::UNIT;
use crate::reward::grading::normalize;

/// The registry's entry of several answers in one request.
pub(crate) const BATCH: RewardEntry = RewardEntry {
    name: "judge_batch",
    about: "as judge, several answers of a group in one request (settings: those of judge but rubric, together = 8)",
    always: false,
    judges: Some(Outcome::Answer),
    range: UNIT,
    schema: Some(|| {
        let about = "Most answers in one request.";
        schema_without_rubric([(
            "together",
            json!({"type": "integer", "minimum": 1, "default": 8, "description": about}),
        )])
    }),
    make: Make::Group(|making| {
        let (judge, together) = judge(making, "together", 8)?;
        Ok(Box::new(Batch { judge, together }))
    }),
};

/// The judge of a part's settings, and a count of its own among them.
fn judge(making: &Making, key: &str, default: usize) -> Result<(Judge, usize), SettingError> {
    let mut settings = making.settings.clone();
    let count = match settings.shift_remove(key) {
        None => default,
        Some(value) => count(key, &value)?,
    };
    let settings: JudgeSettings = serde_json::from_value(Value::Object(settings))?;
    without_rubric(&settings)?;
    Ok((Judge::new(settings)?, count))
}

/// Refuses a rubric.
pub(super) fn without_rubric(settings: &JudgeSettings) -> Result<(), SettingError> {
    if settings.rubric.is_empty() {
        return Ok(());
    }
    let fault = format!(
        "is for [reward.{}] and [reward.{}]; leave it out",
        ENTRY.name, TOURNAMENT.name
    );
    Err(SettingError::new("a rubric", fault))
}

/// Reads a count of at least one.
pub(super) fn count(key: &str, value: &Value) -> Result<usize, SettingError> {
    let count = value.as_u64().filter(|&count| count >= 1);
    let count = count.ok_or_else(|| SettingError::range(key, value, "1 or more"))?;
    Ok(count as usize)
}

/// JSON schema of a judge with these settings beside its own.
pub(super) fn schema<const N: usize>(more: [(&str, Value); N]) -> Value {
    let mut schema: Value = schemars::schema_for!(JudgeSettings).into();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.extend(more.map(|(key, schema)| (key.to_owned(), schema)));
    }
    schema
}

/// As [`schema`], of a judge without a rubric.
pub(super) fn schema_without_rubric<const N: usize>(more: [(&str, Value); N]) -> Value {
    let mut schema = schema(more);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.shift_remove("rubric");
    }
    schema
}

pub(super) fn failed(name: &'static str, task: &Task, cause: &JudgeError) -> RewardError {
    RewardError {
        name: name.to_owned(),
        message: format!("task `{}`: {cause}", task.name()),
    }
}

/// Judges the answers of a group, up to [`Batch::together`] in one request: a judge that sees them side by side is asked less
/// often and grades them by one scale, as SLM-RL-Search found.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The judge.
    pub judge: Judge,
    /// Most answers in one request.
    pub together: usize,
}

impl Batch {
    /// The scores of members that are shown together; each by itself where the texts of some leave the judge without verdicts.
    async fn score(
        &self,
        task: &Task,
        members: &[&Episode],
    ) -> Result<Vec<(f32, Pieces)>, JudgeError> {
        let shown: Vec<_> = members
            .iter()
            .map(|member| (written(member), Transcript::Turns(&member.turns)))
            .collect();
        let verdicts = self.judge.ask_together(&task.question, &task.golds, &shown);
        let verdicts = match verdicts.await {
            Ok(verdicts) => verdicts,
            Err(JudgeError::Refused(_)) => {
                let alone = members
                    .iter()
                    .map(|member| alone(&self.judge, task, member));
                return try_join_all(alone).await;
            }
            Err(fault) => return Err(fault),
        };
        let points = verdicts
            .iter()
            .zip(members)
            .map(|(verdict, member)| points(verdict, member.answer().is_some()));
        Ok(points.collect())
    }
}

#[async_trait]
impl GroupReward for Batch {
    fn name(&self) -> &'static str {
        BATCH.name
    }

    async fn score_group(
        &self,
        task: &Task,
        members: &[&Episode],
    ) -> Result<Vec<(f32, Pieces)>, RewardError> {
        // Answers that are alike share a request.
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by_cached_key(|&member| members[member].answer().map(normalize));
        let found = try_join_all(order.chunks(self.together).map(|chunk| async {
            let chunk: Vec<&Episode> = chunk.iter().map(|&member| members[member]).collect();
            self.score(task, &chunk).await
        }));
        let found = found
            .await
            .map_err(|cause| failed(BATCH.name, task, &cause))?;
        let mut scores = vec![(0.0, Pieces::new()); members.len()];
        for (member, score) in order.into_iter().zip(found.into_iter().flatten()) {
            scores[member] = score;
        }
        Ok(scores)
    }
}
