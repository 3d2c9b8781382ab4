//! Leads over several seeds, and bootstraps over runs.

use std::collections::BTreeMap;

use super::Arm;
use super::arm::Lead;
use crate::pool::{Scores, by_seed, differences, over_seeds, student_p};
use crate::stats::{
    Bootstrap, Interval, StatsError, interquartile_mean, probability_of_improvement,
    stratified_bootstrap, stratified_bootstrap_pair,
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

/// The interquartile mean of each arm's scores over seeds and data sets, with an interval that draws runs anew within each data set;
/// none of one seed, and of too few scores to cut a quarter off.
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
        let mean = stratified_bootstrap(&scores, bootstrap, interquartile_mean)?;
        found.extend(mean.map(|mean| (arm.name.clone(), mean)));
    }
    Ok(found)
}
