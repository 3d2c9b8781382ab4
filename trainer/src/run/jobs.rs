//! The jobs of a step, as functions of the run's seed and the step.

use std::sync::Arc;

use forage_contracts::Task;
use forage_contracts::seed::Seed;
use forage_env::{Branching, Job};

use crate::ranks::Ranks;

/// `group_size` independent jobs per task, in order.
pub fn group_jobs(tasks: &[Arc<Task>], group_size: usize, seed: Seed) -> Vec<Job> {
    let trees = (group_size, Branching::Random);
    tree_jobs(tasks, 0, group_size, |_| trees, seed)
}

/// `group_size` jobs per task, in order. `trees` gives, for a task, how many of them begin at the question and how the others branch off
/// these. Groups are numbered from `first`.
pub(super) fn tree_jobs(
    tasks: &[Arc<Task>],
    first: usize,
    group_size: usize,
    trees: impl Fn(&Task) -> (usize, Branching),
    seed: Seed,
) -> Vec<Job> {
    let members = |(group, task): (usize, &Arc<Task>)| {
        let task = Arc::clone(task);
        let (trees, branching) = trees(&task);
        let number = (first + group) as u64;
        (0..group_size as u64).map(move |member| Job {
            task: Arc::clone(&task),
            group: number,
            member,
            seed: seed.child("episode", &[number, member]),
            branches_from: (member as usize >= trees)
                .then(|| (group * group_size + member as usize % trees, branching)),
            hint: None,
            temperature: None,
        })
    };
    tasks.iter().enumerate().flat_map(members).collect()
}

/// The jobs that a rank plays: whole groups, because members branch off each other and are compared.
pub(super) fn dealt(jobs: Vec<Job>, ranks: &Ranks) -> Vec<Job> {
    let mut places = vec![0; jobs.len()];
    let mut own: Vec<Job> = Vec::new();
    for (index, job) in jobs.into_iter().enumerate() {
        if ranks.plays(ranks.rank(), job.group) {
            places[index] = own.len();
            // A job stands after the one that it branches from.
            let branches_from = job
                .branches_from
                .map(|(root, branching)| (places[root], branching));
            own.push(Job {
                branches_from,
                ..job
            });
        }
    }
    own
}
