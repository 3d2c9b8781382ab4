//! Non-inferiority: a policy is not worse than another by more than a margin. For costs, where no gain is expected.

use serde::{Deserialize, Serialize};

use super::{Interval, StatsError, wilson};

/// The direction in which a quantity is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Better {
    /// More is better, as with right answers.
    Higher,
    /// Less is better, as with searches and tokens.
    Lower,
}

/// The outcome of a non-inferiority test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NonInferiority {
    /// Mean of `b - a` with its paired bootstrap interval, or the wider one that so many questions allow where none differs.
    pub difference: Interval,
    /// The amount by which `b` may be worse, in the unit of the values.
    pub margin: f64,
    /// True when even the worse end of the interval is within the margin. Otherwise `b` may still be as good, unless
    /// `exceeded`: nothing was shown.
    pub holds: bool,
    /// True when even the better end of the interval is beyond the margin: `b` is worse by more than that.
    pub exceeded: bool,
}

impl NonInferiority {
    /// Tests that `b` is worse than `a` by less than `margin`, from the paired interval of `b - a` over so many questions.
    ///
    /// Where few questions differ, or none, resampling cannot see the others that may. Of none in `questions` as many may differ as
    /// Wilson's interval of this confidence says, each by 1: the most of a share, the least of a count. No interval is taken for
    /// narrower.
    ///
    /// The margin is chosen before looking, from what would still be worth it. The interval's worse end makes this a one-sided
    /// test at half of `1 - confidence`: 2.5 % at the usual 95 %.
    ///
    /// # Errors
    /// [`StatsError::Margin`] for a margin that is not above 0; for no questions and a confidence out of range.
    pub(crate) fn of(
        difference: Interval,
        (questions, confidence): (usize, f64),
        margin: f64,
        better: Better,
    ) -> Result<Self, StatsError> {
        if !(margin > 0.0 && margin.is_finite()) {
            return Err(StatsError::Margin(margin));
        }
        let unseen = wilson(0, questions as u64, confidence)?.high;
        let difference = Interval {
            low: difference.low.min(difference.estimate - unseen),
            high: difference.high.max(difference.estimate + unseen),
            ..difference
        };
        let [least, most] = match better {
            Better::Higher => [-difference.high, -difference.low],
            Better::Lower => difference.ends(),
        };
        Ok(Self {
            difference,
            margin,
            holds: most < margin,
            exceeded: least > margin,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bootstrap, paired_bootstrap};
    use super::*;

    const SETTINGS: Bootstrap = Bootstrap {
        resamples: 1000,
        confidence: 0.95,
        seed: 1,
    };

    #[test]
    fn the_worse_end_must_be_within_the_margin() -> Result<(), StatsError> {
        let a: Vec<f64> = (0..200).map(|index| f64::from(index % 4)).collect();
        let b: Vec<f64> = a
            .iter()
            .enumerate()
            .map(|(index, value)| value + f64::from(index % 2 == 0))
            .collect();
        // b - a is 0.5 on average, give or take 0.07.
        let (gained, lost) = (
            paired_bootstrap(&a, &b, SETTINGS)?,
            paired_bootstrap(&b, &a, SETTINGS)?,
        );
        let over = (200, SETTINGS.confidence);
        let holds = |margin, better| {
            NonInferiority::of(gained, over, margin, better).map(|found| found.holds)
        };
        assert!(
            !holds(0.5, Better::Lower)?
                && holds(0.6, Better::Lower)?
                && holds(0.01, Better::Higher)?
        );
        assert!(NonInferiority::of(lost, over, 0.6, Better::Higher)?.holds);
        assert!(!NonInferiority::of(lost, over, 0.5, Better::Higher)?.holds);
        assert_eq!(holds(0.0, Better::Lower), Err(StatsError::Margin(0.0)));
        Ok(())
    }

    /// `b` has 0.5 more on average, give or take 0.07.
    #[test]
    fn a_whole_interval_beyond_the_margin_shows_that_it_is_exceeded() -> Result<(), StatsError> {
        let a = [0.0; 200];
        let b: Vec<f64> = (0..200).map(|index| f64::from(index % 2)).collect();
        let more = (paired_bootstrap(&a, &b, SETTINGS)?, Better::Lower);
        let less = (paired_bootstrap(&b, &a, SETTINGS)?, Better::Higher);
        for (worse, better) in [more, less] {
            let exceeded = |margin| {
                let over = (200, SETTINGS.confidence);
                NonInferiority::of(worse, over, margin, better).map(|found| found.exceeded)
            };
            assert!(exceeded(0.4)? && !exceeded(0.5)? && !exceeded(0.6)?);
        }
        Ok(())
    }

    /// Of 0 in n Wilson's interval reaches to z^2 / (n + z^2), and z^2 is 3.8415.
    #[test]
    fn a_few_questions_that_agree_show_nothing() -> Result<(), StatsError> {
        let none = Interval {
            estimate: 0.0,
            low: 0.0,
            high: 0.0,
        };
        for (questions, holds) in [(5, false), (72, false), (73, true), (2000, true)] {
            for better in [Better::Higher, Better::Lower] {
                let found = NonInferiority::of(none, (questions, 0.95), 0.05, better)?;
                assert_eq!(found.holds, holds, "{questions}: {found:?}");
            }
        }
        Ok(())
    }
}
