//! The size of the reward.

use forage_contracts::Metric;
use forage_env::Severity;

use super::{Facts, Finding, number};

/// The largest reward, without its sign, that an alarm lets pass: the numbers of single precision are whole ones from 16 times as much on.
const LARGEST: f64 = 1e6;

impl Facts<'_> {
    /// Rewards are finite and beyond any sensible size. They may cancel in the mean and not in their deviation.
    pub(super) fn reward_size(&self) -> Option<Finding> {
        let of = |name: &str| self.row.get(name).map_or(0.0, f64::abs);
        let size = of(Metric::REWARD).max(of(Metric::REWARD_STD));
        (size > LARGEST).then(|| {
            let message = format!(
                "Rewards are as large as {}. Advantages that are divided by the deviation of their group hide this, and every \
                 other one, every mean and every curve is of the largest rewards alone. Look at the rewards of this step's \
                 episodes, and bound the part that pays so much.",
                number(size)
            );
            Finding::new(Severity::Warn, [size, LARGEST], message).at_once()
        })
    }
}
