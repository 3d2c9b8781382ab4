//! The episodes that a step plays: functions of the run's seed and the step.

use std::sync::Arc;

use forage_contracts::Task;
use forage_contracts::seed::Seed;
use forage_env::{Branching, Job};

use crate::ranks::Ranks;

/// `group_size` jobs per task, in order, each an episode of its own.
pub fn group_jobs(tasks: &[Arc<Task>], group_size: usize, seed: Seed) -> Vec<Job> {
    let trees = (group_size, Branching::Random);
    tree_jobs(tasks, 0, group_size, |_| trees, seed)
}

/// `group_size` jobs per task, in order: the first of them, as many as `trees` says of the task, are episodes of their own, the others
/// leave them in turn, as it says too. Groups are numbered from `first` on.
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
            leaves: (member as usize >= trees)
                .then(|| (group * group_size + member as usize % trees, branching)),
            hint: None,
            temperature: None,
        })
    };
    tasks.iter().enumerate().flat_map(members).collect()
}

/// The jobs of the groups that a rank plays; whole groups, because members leave each other and are compared.
pub(super) fn dealt(jobs: Vec<Job>, ranks: &Ranks) -> Vec<Job> {
    let mut places = vec![0; jobs.len()];
    let mut own: Vec<Job> = Vec::new();
    for (index, job) in jobs.into_iter().enumerate() {
        if ranks.plays(ranks.rank(), job.group) {
            places[index] = own.len();
            // Who is left stands before who leaves it.
            let leaves = job
                .leaves
                .map(|(root, branching)| (places[root], branching));
            own.push(Job { leaves, ..job });
        }
    }
    own
}
