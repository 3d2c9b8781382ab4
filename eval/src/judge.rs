//! The reliability of a judge: agreement with labels, length bias and position bias.

use forage_env::reward::judge::Preference;
use serde::Serialize;

use crate::stats::{
    Bootstrap, Interval, StatsError, bootstrap_mean, bootstrap_statistic, cluster_means, mean,
    mean_interval,
};

/// A verdict beside the label of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labelled {
    /// The judge's.
    pub verdict: bool,
    /// The person's.
    pub label: bool,
    /// Characters of the answer.
    pub length: usize,
}

/// Verdicts against labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// Answers judged.
    pub answers: usize,
    /// Number of answers labelled right.
    pub right: usize,
    /// Share of verdicts equal to the label.
    pub accuracy: Interval,
    /// Cohen's kappa: agreement beyond what the shares of yes and no would give by chance. `None` where both sides say the
    /// same of everything.
    pub kappa: Option<Interval>,
    /// Wrong answers called right.
    pub false_positives: usize,
    /// Right answers called wrong.
    pub false_negatives: usize,
    /// Correlation of the verdict with the answer's length among answers of the same label, in `[-1, 1]`: above 0 the judge
    /// favours long answers. `None` where lengths or verdicts do not vary.
    pub length_bias: Option<Interval>,
}

impl Agreement {
    /// Compares verdicts with labels, `[questions]` the answers to each, since those to one question are not independent; intervals by
    /// resampling questions, that of the accuracy Wilson's where each has one answer.
    ///
    /// # Errors
    /// [`StatsError`] for no rows and settings out of range.
    pub fn of(questions: &[Vec<Labelled>], settings: Bootstrap) -> Result<Self, StatsError> {
        let equal = |answers: &Vec<Labelled>| -> Vec<f64> {
            let equal = answers.iter().map(|row| row.verdict == row.label);
            equal.map(|equal| f64::from(u8::from(equal))).collect()
        };
        let equal: Vec<Vec<f64>> = questions.iter().map(equal).collect();
        let rows: Vec<Labelled> = questions.concat();
        let count = |verdict, label| {
            rows.iter()
                .filter(|row| (row.verdict, row.label) == (verdict, label))
                .count()
        };
        let pick = |items: &[usize]| -> Vec<Labelled> {
            let drawn = items.iter().flat_map(|&item| &questions[item]);
            drawn.copied().collect()
        };
        Ok(Self {
            answers: rows.len(),
            right: rows.iter().filter(|row| row.label).count(),
            accuracy: grouped(&equal, settings, mean_interval)?,
            kappa: bootstrap_statistic(questions.len(), settings, |items| kappa(&pick(items)))?,
            false_positives: count(true, false),
            false_negatives: count(false, true),
            length_bias: bootstrap_statistic(questions.len(), settings, |items| {
                length_bias(&pick(items))
            })?,
        })
    }
}

/// The mean of all values, with its interval by resampling their groups; as `plain` has it where each group is of one value, or all
/// values are 0 or all are 1, beyond which resampling cannot see.
fn grouped(
    groups: &[Vec<f64>],
    settings: Bootstrap,
    plain: fn(&[f64], Bootstrap) -> Result<Interval, StatsError>,
) -> Result<Interval, StatsError> {
    let means = cluster_means(groups);
    let all = |value: f64| means.iter().all(|mean| (mean - value).abs() < 1e-9);
    if all(0.0) || all(1.0) || groups.iter().all(|group| group.len() == 1) {
        return plain(&means, settings);
    }
    let pooled = |items: &[usize]| {
        let drawn = items.iter().flat_map(|&item| &groups[item]);
        Some(mean(&drawn.copied().collect::<Vec<f64>>()))
    };
    bootstrap_statistic(groups.len(), settings, pooled)?.ok_or(StatsError::Empty)
}

/// Cohen's kappa, `(p_o - p_e) / (1 - p_e)`; `None` where agreement by chance is certain.
fn kappa(rows: &[Labelled]) -> Option<f64> {
    let share = |holds: &dyn Fn(&Labelled) -> bool| {
        rows.iter().filter(|&row| holds(row)).count() as f64 / rows.len().max(1) as f64
    };
    let (verdicts, labels) = (share(&|row| row.verdict), share(&|row| row.label));
    let chance = verdicts * labels + (1.0 - verdicts) * (1.0 - labels);
    (chance < 1.0).then(|| (share(&|row| row.verdict == row.label) - chance) / (1.0 - chance))
}

/// Partial correlation of verdict and length given the label: Pearson's, of both less their means among equal labels.
fn length_bias(rows: &[Labelled]) -> Option<f64> {
    let (mut both, mut verdicts, mut lengths) = (0.0, 0.0, 0.0);
    for label in [false, true] {
        let of: Vec<[f64; 2]> = rows
            .iter()
            .filter(|row| row.label == label)
            .map(|row| [f64::from(u8::from(row.verdict)), row.length as f64])
            .collect();
        let mean = |at: usize| of.iter().map(|pair| pair[at]).sum::<f64>() / of.len().max(1) as f64;
        let means = [mean(0), mean(1)];
        for pair in &of {
            let [verdict, length] = [pair[0] - means[0], pair[1] - means[1]];
            both += verdict * length;
            verdicts += verdict * verdict;
            lengths += length * length;
        }
    }
    (verdicts > 1e-12 && lengths > 1e-12)
        .then(|| (both / (verdicts * lengths).sqrt()).clamp(-1.0, 1.0))
}

/// Pairs of answers judged in both orders.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PositionBias {
    /// Pairs judged.
    pub pairs: usize,
    /// Share of pairs where both orders say the same.
    pub consistent: Interval,
    /// The excess of wins of the first place over the second, in `[-1, 1]`; 0 without a bias.
    pub first_place: Interval,
}

impl PositionBias {
    /// Takes the preferences of each pair in the written order and in the other one, each in terms of what was shown; `[questions]` the
    /// pairs of each, with intervals as those of an [`Agreement`].
    ///
    /// # Errors
    /// [`StatsError`] for no pairs and settings out of range.
    pub fn of(questions: &[Vec<[Preference; 2]>], settings: Bootstrap) -> Result<Self, StatsError> {
        let favour = |preference| match preference {
            Preference::A => 1.0,
            Preference::B => -1.0,
            Preference::Tie => 0.0,
        };
        let first = |pairs: &Vec<[Preference; 2]>| -> Vec<f64> {
            let both = pairs.iter();
            both.map(|[one, two]| f64::midpoint(favour(*one), favour(*two)))
                .collect()
        };
        let first: Vec<Vec<f64>> = questions.iter().map(first).collect();
        let consistent = |favours: &Vec<f64>| -> Vec<f64> {
            let consistent = favours.iter().map(|favour| favour.abs() < 1e-9);
            consistent.map(|holds| f64::from(u8::from(holds))).collect()
        };
        let consistent: Vec<Vec<f64>> = first.iter().map(consistent).collect();
        Ok(Self {
            pairs: questions.iter().map(Vec::len).sum(),
            consistent: grouped(&consistent, settings, mean_interval)?,
            first_place: grouped(&first, settings, bootstrap_mean)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Bootstrap = Bootstrap {
        resamples: 500,
        confidence: 0.95,
        seed: 3,
    };

    /// Each by itself.
    fn each<T: Copy>(rows: &[T]) -> Vec<Vec<T>> {
        rows.iter().map(|&row| vec![row]).collect()
    }

    fn rows(counts: [(bool, bool, usize); 4]) -> Vec<Labelled> {
        let of = |&(verdict, label, count): &(bool, bool, usize)| {
            (0..count).map(move |length| Labelled {
                verdict,
                label,
                length,
            })
        };
        counts.iter().flat_map(of).collect()
    }

    #[test]
    fn agreement_is_that_of_the_textbook() -> Result<(), StatsError> {
        // 20 and 15 agreed of 50, 5 and 10 not: p_o = .7, p_e = .5, kappa = .4.
        let rows = rows([
            (true, true, 20),
            (true, false, 5),
            (false, true, 10),
            (false, false, 15),
        ]);
        let found = Agreement::of(&each(&rows), SETTINGS)?;
        assert!((found.accuracy.estimate - 0.7).abs() < 1e-12);
        let kappa = found.kappa.expect("defined");
        assert!((kappa.estimate - 0.4).abs() < 1e-12 && kappa.low < 0.4 && kappa.high > 0.4);
        assert_eq!(
            (found.false_positives, found.false_negatives, found.answers),
            (5, 10, 50)
        );
        assert_eq!(Agreement::of(&[], SETTINGS), Err(StatsError::Empty));
        let same = [Labelled {
            verdict: true,
            label: true,
            length: 1,
        }; 5];
        assert_eq!(Agreement::of(&each(&same), SETTINGS)?.kappa, None);
        Ok(())
    }

    #[test]
    fn liking_length_is_told_from_being_right() {
        let row = |verdict, label, length| Labelled {
            verdict,
            label,
            length,
        };
        // Right answers are longer, and the judge is always right: no bias.
        let fair = [
            row(true, true, 9),
            row(true, true, 8),
            row(false, false, 1),
            row(false, false, 2),
        ];
        assert_eq!(length_bias(&fair), None);
        // Among equal labels, the longer one is called right: by hand, (.5 + 1) / sqrt(1 * 2.5).
        let biased = [
            row(true, true, 9),
            row(false, true, 8),
            row(true, false, 3),
            row(false, false, 1),
        ];
        assert!((length_bias(&biased).expect("varies") - 1.5 / 2.5_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_judge_of_places_is_found_out() -> Result<(), StatsError> {
        use Preference::{A, B, Tie};
        let found = PositionBias::of(&each(&[[A, A], [A, B], [A, Tie], [Tie, Tie]]), SETTINGS)?;
        assert!((found.first_place.estimate - 0.375).abs() < 1e-12);
        assert!((found.consistent.estimate - 0.5).abs() < 1e-12);
        Ok(())
    }

    /// Forty answers to five questions, judged alike: five in eight tell as much as five questions do.
    #[test]
    fn answers_to_one_question_are_not_independent() -> Result<(), StatsError> {
        let rows = rows([
            (true, true, 24),
            (false, false, 0),
            (false, true, 16),
            (true, false, 0),
        ]);
        let together: Vec<Vec<Labelled>> = rows.chunks(8).map(<[Labelled]>::to_vec).collect();
        let [apart, together] = [each(&rows), together].map(|rows| Agreement::of(&rows, SETTINGS));
        let [apart, together] = [apart?.accuracy, together?.accuracy];
        for share in [apart, together] {
            assert!((share.estimate - 0.6).abs() < 1e-12, "{share:?}");
        }
        assert!(apart.high - apart.low < 0.32, "{apart:?}");
        assert!(together.high - together.low > 0.5, "{together:?}");
        let right = [vec![rows[0]; 2], vec![rows[0]; 8]];
        let never_wrong = Agreement::of(&right, SETTINGS)?.accuracy;
        // Wilson's of 2 of 2.
        assert!(
            (never_wrong.low - 0.342_380).abs() < 1e-6,
            "{never_wrong:?}"
        );
        let pairs = [vec![[Preference::A; 2]; 3], vec![[Preference::Tie; 2]]];
        let found = PositionBias::of(&pairs, SETTINGS)?;
        assert_eq!(found.pairs, 4);
        assert!((found.first_place.estimate - 0.75).abs() < 1e-12);
        assert!((found.consistent.estimate - 0.25).abs() < 1e-12);
        Ok(())
    }

    #[test]
    fn a_judge_that_never_erred_may_still_err() -> Result<(), StatsError> {
        let right = Labelled {
            verdict: true,
            label: true,
            length: 1,
        };
        let accuracy = Agreement::of(&each(&[right; 20]), SETTINGS)?.accuracy;
        let consistent = PositionBias::of(&each(&[[Preference::Tie; 2]; 20]), SETTINGS)?.consistent;
        for share in [accuracy, consistent] {
            // Wilson's of 20 of 20.
            assert!((share.low - 0.838_875).abs() < 1e-6, "{share:?}");
            assert!((share.high - 1.0).abs() < 1e-12, "{share:?}");
        }
        Ok(())
    }
}
