//! The reliability of a judge: agreement with labels, length bias and position bias.

use forage_env::reward::judge::Preference;
use serde::Serialize;

use crate::stats::{
    Bootstrap, Interval, StatsError, bootstrap_mean, bootstrap_statistic, mean_interval,
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
    /// Compares verdicts with labels; intervals by resampling answers, that of the accuracy Wilson's.
    ///
    /// # Errors
    /// [`StatsError`] for no rows and settings out of range.
    pub fn of(rows: &[Labelled], settings: Bootstrap) -> Result<Self, StatsError> {
        let equal: Vec<f64> = rows
            .iter()
            .map(|row| f64::from(u8::from(row.verdict == row.label)))
            .collect();
        let count = |verdict, label| {
            rows.iter()
                .filter(|row| (row.verdict, row.label) == (verdict, label))
                .count()
        };
        let pick = |items: &[usize]| items.iter().map(|&item| rows[item]).collect::<Vec<_>>();
        Ok(Self {
            answers: rows.len(),
            right: rows.iter().filter(|row| row.label).count(),
            accuracy: mean_interval(&equal, settings)?,
            kappa: bootstrap_statistic(rows.len(), settings, |items| kappa(&pick(items)))?,
            false_positives: count(true, false),
            false_negatives: count(false, true),
            length_bias: bootstrap_statistic(rows.len(), settings, |items| {
                length_bias(&pick(items))
            })?,
        })
    }
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
    /// Takes the preferences of each pair in the written order and in the other one, each in terms of what was shown.
    ///
    /// # Errors
    /// [`StatsError`] for no pairs and settings out of range.
    pub fn of(pairs: &[[Preference; 2]], settings: Bootstrap) -> Result<Self, StatsError> {
        let favour = |preference| match preference {
            Preference::A => 1.0,
            Preference::B => -1.0,
            Preference::Tie => 0.0,
        };
        let first: Vec<f64> = pairs
            .iter()
            .map(|[one, two]| f64::midpoint(favour(*one), favour(*two)))
            .collect();
        let consistent: Vec<f64> = first
            .iter()
            .map(|favour| if favour.abs() < 1e-9 { 1.0 } else { 0.0 })
            .collect();
        Ok(Self {
            pairs: pairs.len(),
            consistent: mean_interval(&consistent, settings)?,
            first_place: bootstrap_mean(&first, settings)?,
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
        let found = Agreement::of(&rows, SETTINGS)?;
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
        assert_eq!(Agreement::of(&same, SETTINGS)?.kappa, None);
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
        let found = PositionBias::of(&[[A, A], [A, B], [A, Tie], [Tie, Tie]], SETTINGS)?;
        assert!((found.first_place.estimate - 0.375).abs() < 1e-12);
        assert!((found.consistent.estimate - 0.5).abs() < 1e-12);
        Ok(())
    }

    #[test]
    fn a_judge_that_never_erred_may_still_err() -> Result<(), StatsError> {
        let right = Labelled {
            verdict: true,
            label: true,
            length: 1,
        };
        let accuracy = Agreement::of(&[right; 20], SETTINGS)?.accuracy;
        let consistent = PositionBias::of(&[[Preference::Tie; 2]; 20], SETTINGS)?.consistent;
        for share in [accuracy, consistent] {
            // Wilson's of 20 of 20.
            assert!((share.low - 0.838_875).abs() < 1e-6, "{share:?}");
            assert!((share.high - 1.0).abs() < 1e-12, "{share:?}");
        }
        Ok(())
    }
}
