//! Whether a policy searches more where a question needs more: searches per episode against the number of hops.

use std::collections::BTreeMap;

use forage_contracts::Episode;
use serde::{Deserialize, Serialize};

use crate::measures::{QuestionKey, by_question, score};
use crate::stats::{Bootstrap, Interval, StatsError, bootstrap_statistic, mean};
use crate::text::signed;

/// Pearson's correlation of a question's hops with the searches of its episodes, before and after training.
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
        let hops = f64::from(episodes.first()?.task.hops);
        (!searches.is_empty()).then(|| (key, [hops, mean(&searches)]))
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
    use super::*;

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
