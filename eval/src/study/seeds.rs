//! Leads over several seeds, and bootstraps over runs.

use std::collections::BTreeMap;

use super::Arm;
use super::arm::Lead;
use crate::pool::{Scores, by_seed, differences, over_seeds, student_p};
use crate::stats::{
    Bootstrap, Interval, StatsError, bootstrap_statistic, interquartile_mean,
    probability_of_improvement, stratified_bootstrap_pair,
};

pub(super) fn lead(
    twin: &[Scores],
    trained: &[Scores],
    bootstrap: Bootstrap,
) -> Result<Lead, StatsError> {
    let p = student_p(&differences(twin, trained));
    let finals = |side: &[Scores]| -> Vec<Vec<f64>> {
        by_seed(side).into_iter().map(|seed| vec![seed]).collect()
    };
    let improvement = stratified_bootstrap_pair(
        &finals(trained),
        &finals(twin),
        bootstrap,
        probability_of_improvement,
    )?;
    Ok(Lead {
        difference: over_seeds(twin, trained, bootstrap)?,
        improvement,
        p,
        p_adjusted: p,
    })
}

/// Fewer scores have no quarters.
const QUARTERS: usize = 4;

/// The interquartile mean of each arm's scores over seeds and data sets, with a percentile interval that draws runs, each with its scores
/// on all data sets, which are not independent; none of one seed, and of too few scores to cut a quarter off.
pub(super) fn interquartile(
    arms: &[Arm],
    by_source: &BTreeMap<String, Vec<Arm>>,
    bootstrap: Bootstrap,
) -> Result<BTreeMap<String, Interval>, StatsError> {
    let mut found = BTreeMap::new();
    for arm in arms {
        let same = |other: &&Arm| other.name == arm.name && other.seeds.len() == arm.seeds.len();
        let mut tasks: Vec<&Arm> = by_source.values().flatten().filter(same).collect();
        if tasks.is_empty() {
            tasks.push(arm);
        }
        let seeds = 0..arm.seeds.len();
        let run = |seed: usize| tasks.iter().map(|task| task.seeds[seed].score).collect();
        let scores: Vec<Vec<f64>> = seeds.map(run).collect();
        if scores.len() < 2 || scores.len() * tasks.len() < QUARTERS {
            continue;
        }
        let mean = bootstrap_statistic(scores.len(), bootstrap, |runs| {
            let drawn = runs.iter().map(|&run| scores[run].clone());
            interquartile_mean(&drawn.collect::<Vec<_>>())
        })?;
        found.extend(mean.map(|mean| (arm.name.clone(), mean)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::arm::SeedGain;
    use super::*;

    /// Two data sets on which runs score alike tell no more of other runs than one of them does.
    #[test]
    fn runs_are_drawn_with_all_of_their_data_sets() -> Result<(), StatsError> {
        let point = |estimate| Interval {
            estimate,
            low: estimate,
            high: estimate,
        };
        let seed = |(seed, score)| SeedGain {
            seed,
            start: 0.0,
            score,
            gain: point(score),
        };
        let arm = Arm {
            name: "trained".to_owned(),
            seeds: (1..).zip([0.1, 0.2, 0.3]).map(seed).collect(),
            gain: point(0.2),
            p: 1.0,
            profile: Vec::new(),
            lead: None,
            cost: None,
        };
        let sets = ["nq", "hotpotqa"].map(|name| (name.to_owned(), vec![arm.clone()]));
        let found = interquartile(&[arm], &BTreeMap::from(sets), Bootstrap::new(1))?["trained"];
        // One of 27 resamples has the lowest run alone, and one the highest.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(found.estimate, 0.2) && near(found.low, 0.1) && near(found.high, 0.3),
            "{found:?}"
        );
        Ok(())
    }
}
