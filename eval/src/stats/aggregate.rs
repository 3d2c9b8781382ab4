//! Aggregates over runs and tasks, equal to rliable's (Agarwal et al. 2021). `scores[run][task]`.

/// Mean over tasks of the mean over runs. `None` when there are no scores or runs differ in their number of tasks.
pub fn mean_score(scores: &[Vec<f64>]) -> Option<f64> {
    Some(super::mean(&task_means(scores)?))
}

/// Median over tasks of the mean over runs. `None` when there are no scores or runs differ in their number of tasks.
pub fn median_score(scores: &[Vec<f64>]) -> Option<f64> {
    let mut means = task_means(scores)?;
    means.sort_by(f64::total_cmp);
    Some(f64::midpoint(
        means[(means.len() - 1) / 2],
        means[means.len() / 2],
    ))
}

fn task_means(scores: &[Vec<f64>]) -> Option<Vec<f64>> {
    let tasks = scores.first()?.len();
    if tasks == 0 || scores.iter().any(|run| run.len() != tasks) {
        return None;
    }
    let sum = |task: usize| scores.iter().map(|run| run[task]).sum::<f64>();
    Some(
        (0..tasks)
            .map(|task| sum(task) / scores.len() as f64)
            .collect(),
    )
}

/// Mean of the middle half of the values: `floor(n / 4)` dropped on each side. `None` for no values.
pub fn interquartile_mean(scores: &[Vec<f64>]) -> Option<f64> {
    let mut values = scores.concat();
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 4;
    Some(super::mean(&values[cut..values.len() - cut]))
}

/// The mean shortfall of the scores from `target`; scores above it count as it. `None` for no values.
pub fn optimality_gap(scores: &[Vec<f64>], target: f64) -> Option<f64> {
    let capped: Vec<f64> = scores
        .concat()
        .iter()
        .map(|score| score.min(target))
        .collect();
    (!capped.is_empty()).then(|| target - super::mean(&capped))
}

/// Probability that a run of `x` scores above a run of `y` on a task, ties counted half, averaged over tasks. `None`
/// when a side is empty or tasks differ in number.
pub fn probability_of_improvement(x: &[Vec<f64>], y: &[Vec<f64>]) -> Option<f64> {
    let tasks = x.first()?.len();
    if tasks == 0 || y.is_empty() || x.iter().chain(y).any(|run| run.len() != tasks) {
        return None;
    }
    let per_task: Vec<f64> = (0..tasks)
        .map(|task| task_improvement(x, y, task))
        .collect();
    Some(super::mean(&per_task))
}

fn task_improvement(x: &[Vec<f64>], y: &[Vec<f64>], task: usize) -> f64 {
    let mut wins = 0.0;
    for better in x {
        for worse in y {
            wins += match better[task].total_cmp(&worse[task]) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    wins / (x.len() * y.len()) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-12)
    }

    #[test]
    fn equals_rliable() {
        let x = vec![
            vec![0.1, 0.5],
            vec![0.2, 0.6],
            vec![0.3, 0.7],
            vec![0.4, 0.9],
        ];
        let y = vec![
            vec![0.1, 0.4],
            vec![0.1, 0.6],
            vec![0.2, 0.6],
            vec![0.5, 0.8],
        ];
        assert!(close(interquartile_mean(&x), 0.45) && close(interquartile_mean(&y), 0.425));
        assert!(close(optimality_gap(&x, 1.0), 0.5375));
        assert!(close(mean_score(&x), 0.4625) && close(median_score(&x), 0.4625));
        assert!(close(median_score(&[vec![5.0, 1.0, 2.0]]), 2.0));
        assert_eq!(median_score(&[vec![1.0], vec![1.0, 2.0]]), None);
        assert_eq!(mean_score(&[]), None);
        assert!(close(probability_of_improvement(&x, &y), 0.609_375));
        let digits: Vec<f64> = (0..10).map(f64::from).collect();
        assert!(close(interquartile_mean(&[digits]), 4.5));
        assert_eq!(interquartile_mean(&[]), None);
        assert_eq!(probability_of_improvement(&x, &[vec![1.0]]), None);
    }
}
