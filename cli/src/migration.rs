//! Names that other trainers have for the keys of a config.

/// The page that has their keys beside those of a config.
const PAGE: &str = include_str!("../../docs/migration.md");

/// The table that holds most of theirs, which the page names once.
const TABLE: &str = "actor_rollout_ref";

/// Advice for a key of Search-R1, verl or TRL, named by its whole path or a part of it, which a config does not have.
pub(crate) fn advice(name: &str) -> Option<&'static str> {
    let inside = name.strip_prefix(TABLE);
    let path = inside.map_or(name, |inside| inside.trim_start_matches('.'));
    let cells = PAGE
        .lines()
        .filter(|line| line.starts_with("| "))
        .flat_map(|row| row.split('|').skip(2).take(3));
    let mut theirs = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let (begin, end) = (format!("{path}."), format!(".{path}"));
    let is_theirs = path.is_empty()
        || theirs.any(|key| key == path || key.starts_with(&begin) || key.ends_with(&end));
    is_theirs.then_some(
        "it is a name of Search-R1, verl or TRL: docs/migration.md has their keys with those of a config",
    )
}

#[cfg(test)]
mod tests {
    use super::advice;

    #[test]
    fn names_of_other_trainers_lead_to_the_page() {
        for theirs in [
            "actor_rollout_ref",
            "actor_rollout_ref.rollout.n",
            "actor",
            "trainer",
            "num_generations",
            "data.train_batch_size",
            "train_batch_size",
            "n",
        ] {
            assert!(advice(theirs).is_some(), "{theirs}");
        }
        for other in ["grpo.stepps", "stepps", "zzz", "actor_rollout"] {
            assert_eq!(advice(other), None, "{other}");
        }
    }
}
