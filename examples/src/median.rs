//! An advantage from outside: the reward less the median of its group, which one lucky episode does not move.

use forage_contracts::objective::{AdvantageEntry, Group, GroupOutcome};

/// The registry's entry.
pub(crate) const ENTRY: AdvantageEntry = AdvantageEntry::new(
    "median",
    "r - the median of its group",
    |_settings, groups| groups.iter().map(outcome).collect(),
);

fn outcome(group: &Group) -> GroupOutcome {
    if let Some(outcome) = GroupOutcome::without_lesson(group.rewards) {
        return outcome;
    }
    let mut sorted = group.rewards.to_vec();
    sorted.sort_by(f32::total_cmp);
    let middle = sorted.len() / 2;
    let median = if sorted.len().is_multiple_of(2) {
        f32::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    };
    GroupOutcome::Learn(group.rewards.iter().map(|reward| reward - median).collect())
}
