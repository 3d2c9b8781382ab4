//! Whether a policy searches more where a question needs more: searches per episode against the number of hops.

use std::collections::BTreeMap;

use forage_contracts::Episode;
use serde::{Deserialize, Serialize};

use crate::measures::{QuestionKey, by_question, score};
use crate::stats::{Bootstrap, Interval, StatsError, bootstrap_statistic, mean};
use crate::text::signed;

/// Pearson's correlation of a question's hops with the searches of its episodes, before and after training, over questions whose hops are
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Effort {
    /// Correlation at the start, with a bootstrap interval over questions, each drawn under all seeds that asked it; `None` where either
    /// quantity does not vary.
    pub start: Option<Interval>,
    /// Correlation of the trained policy.
    pub trained: Option<Interval>,
}

impl Effort {
    /// Over the questions of several seeds, each with the episodes of start and trained policy; `None` where neither has a
    /// correlation.
    ///
    /// # Errors
    /// [`StatsError`] for settings out of range.
    pub(crate) fn of(
        seeds: &[(&[Episode], &[Episode])],
        bootstrap: Bootstrap,
    ) -> Result<Option<Self>, StatsError> {
        let found = Self {
            start: correlation(seeds.iter().map(|(start, _)| *start), bootstrap)?,
            trained: correlation(seeds.iter().map(|(_, trained)| *trained), bootstrap)?,
        };
        Ok((found.start.is_some() || found.trained.is_some()).then_some(found))
    }

    /// Both in a sentence.
    pub(crate) fn words(&self) -> String {
        let one = |found: Option<Interval>| {
            found.map_or_else(
                || "no correlation (one of the two does not vary)".to_owned(),
                |found| {
                    format!(
                        "r = {} ({} to {})",
                        signed(found.estimate),
                        signed(found.low),
                        signed(found.high)
                    )
                },
            )
        };
        format!(
            "Searches per episode against the hops of the question: {} at the start, {} after training.",
            one(self.start),
            one(self.trained)
        )
    }
}

/// A question's hops and the mean number of searches of its scored episodes.
type Point = [f64; 2];

fn correlation<'a>(
    seeds: impl Iterator<Item = &'a [Episode]>,
    bootstrap: Bootstrap,
) -> Result<Option<Interval>, StatsError> {
    let mut asked: BTreeMap<QuestionKey, Vec<Point>> = BTreeMap::new();
    for (key, point) in seeds.flat_map(points) {
        asked.entry(key).or_default().push(point);
    }
    if asked.is_empty() {
        return Ok(None);
    }
    let asked: Vec<Vec<Point>> = asked.into_values().collect();
    bootstrap_statistic(asked.len(), bootstrap, |items| {
        let drawn = items.iter().flat_map(|&item| &asked[item]);
        pearson(&drawn.copied().collect::<Vec<Point>>())
    })
}

fn points(episodes: &[Episode]) -> Vec<(QuestionKey, Point)> {
    let point = |(key, episodes): (QuestionKey, Vec<&Episode>)| {
        let scored = episodes.iter().filter(|episode| score(episode).is_some());
        let searches: Vec<f64> = scored.map(|episode| episode.searches() as f64).collect();
        let hops = episodes.first()?.task.hops;
        let is_point = hops > 0 && !searches.is_empty();
        is_point.then(|| (key, [f64::from(hops), mean(&searches)]))
    };
    by_question(episodes)
        .into_iter()
        .filter_map(point)
        .collect()
}

/// `None` where one of the two does not vary.
fn pearson(points: &[Point]) -> Option<f64> {
    let centre: Point = [0, 1]
        .map(|side: usize| mean(&points.iter().map(|point| point[side]).collect::<Vec<f64>>()));
    let (mut both, mut squares) = (0.0, [0.0; 2]);
    for point in points {
        let apart = [point[0] - centre[0], point[1] - centre[1]];
        both += apart[0] * apart[1];
        squares[0] += apart[0] * apart[0];
        squares[1] += apart[1] * apart[1];
    }
    let spread = (squares[0] * squares[1]).sqrt();
    (spread > 1e-12).then(|| both / spread)
}

#[cfg(test)]
mod tests {
    use forage_contracts::environment::TurnKind;
    use forage_contracts::policy::Finish;
    use forage_contracts::{Score, Task, Turn};

    use super::*;

    /// Questions of two hops, and others of which nobody says how many they have, on which the policy searches less.
    #[test]
    fn unknown_hops_are_no_number() -> Result<(), StatsError> {
        let search = Turn {
            policy: String::new(),
            finish: Finish::Stop,
            kind: TurnKind::search("works", Vec::new()),
            observation: String::new(),
            reward: 0.0,
        };
        let asked = |(id, (hops, searches)): (usize, (u8, usize))| Episode {
            turns: vec![search.clone(); searches],
            score: Some(Score::default()),
            ..Episode::new(Task {
                hops,
                ..Task::new(id.to_string(), "Who?")
            })
        };
        let found = |questions: [(u8, usize); 4]| {
            let all: Vec<Episode> = (0..).zip(questions).map(asked).collect();
            correlation(std::iter::once(all.as_slice()), Bootstrap::new(1))
        };
        assert_eq!(found([(2, 2), (2, 3), (0, 1), (0, 0)])?, None);
        let known = found([(2, 2), (3, 3), (0, 3), (0, 2)])?;
        assert!(known.is_some_and(|known| (known.estimate - 1.0).abs() < 1e-12));
        Ok(())
    }

    #[test]
    fn the_correlation_is_pearsons() {
        // numpy.corrcoef([1, 1, 2, 2, 3], [1, 2, 2, 2, 4]) = 0.8728715609439696.
        let points = [[1.0, 1.0], [1.0, 2.0], [2.0, 2.0], [2.0, 2.0], [3.0, 4.0]];
        let found = pearson(&points).unwrap();
        assert!((found - 0.872_871_560_943_969_4).abs() < 1e-12, "{found}");
        assert_eq!(pearson(&[[1.0, 1.0], [1.0, 2.0]]), None);
        assert_eq!(pearson(&[[1.0, 1.0], [2.0, 1.0]]), None);
    }
}
