//! The episodes that a step plays: functions of the run's seed and the step.

use std::sync::Arc;

use forage_contracts::Task;
use forage_contracts::seed::Seed;
use forage_env::Job;

use crate::ranks::Ranks;
use crate::sequence::shuffled;

/// `group_size` jobs per task, in order, each an episode of its own.
pub fn group_jobs(tasks: &[Arc<Task>], group_size: usize, seed: Seed) -> Vec<Job> {
    tree_jobs(tasks, group_size, group_size, seed)
}

/// `group_size` jobs per task, in order: the first `trees` are episodes of their own, the others leave them in turn.
pub(super) fn tree_jobs(
    tasks: &[Arc<Task>],
    group_size: usize,
    trees: usize,
    seed: Seed,
) -> Vec<Job> {
    let members = |(group, task): (usize, &Arc<Task>)| {
        let task = Arc::clone(task);
        (0..group_size as u64).map(move |member| Job {
            task: Arc::clone(&task),
            group: group as u64,
            member,
            seed: seed.child("episode", &[group as u64, member]),
            leaves: (member as usize >= trees)
                .then(|| group * group_size + member as usize % trees),
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
            let leaves = job.leaves.map(|root| places[root]);
            own.push(Job { leaves, ..job });
        }
    }
    own
}

/// The tasks of a step: a walk through the tasks in an order drawn anew for each epoch, a function of seed and step.
pub(super) fn step_tasks(
    tasks: &[Arc<Task>],
    count: usize,
    seed: u64,
    step: u64,
) -> Vec<Arc<Task>> {
    let first = step as usize * count;
    let mut order = (usize::MAX, Vec::new());
    (first..first + count)
        .map(|index| {
            let epoch = index / tasks.len();
            if order.0 != epoch {
                order = (
                    epoch,
                    shuffled(
                        tasks.len(),
                        Seed::root(seed).child("order", &[epoch as u64]),
                    ),
                );
            }
            Arc::clone(&tasks[order.1[index % tasks.len()]])
        })
        .collect()
}
