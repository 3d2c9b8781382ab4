//! Advantages shaped by how many directions a response's hidden states take up, and by how that number grows: VERL (Beyond the
//! Exploration-Exploitation Trade-off, arXiv 2509.23808).

use forage_contracts::SettingError;
use serde::{Deserialize, Serialize};

use super::algorithm::Recipe;
use crate::spectrum::{Gram, effective_rank};

/// Metrics of a response: the effective rank of its hidden states, and the velocity and acceleration of that rank.
pub(crate) type RankMetrics = [f32; 3];

/// Adds min(max(0, Phi), |A| / `clip`) to each advantage A of a response, where Phi = b tanh(d(rank)) + (1 - b) tanh(d(velocity)) and
/// b = sigmoid(`gain` d(acceleration)). d(m) is the distance of m from its moving average over batches, in units of that average, held
/// within -5 and 5.
///
/// The rank is that of the response's last hidden states, less their mean: the exponential of the entropy of their normalised singular
/// values.
/// The velocity is the mean over growing prefixes of a prefix' rank less the mean rank of those before it, the acceleration the mean
/// difference of neighbouring velocities; 0 of a response too short to have one.
///
/// As in the authors' code but for these: at most `positions` hidden states are read, evenly spread, which bounds the cost (with as
/// many as `window` all are); the whole rank is that of the window too; the averages begin at the first batch's means, not at 0; and
/// every token of a response is shaped, as the paper writes it, where the code shapes the last one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RankShaping {
    /// Tokens of the policy by which prefixes grow; the authors' 40.
    pub(crate) stride: usize,
    /// Last tokens of a response that are looked at; the authors' 512.
    pub(crate) window: usize,
    /// Most hidden states that are read of a window.
    pub(crate) positions: usize,
    /// Weight of the newest batch in the moving averages; the authors' 0.3.
    pub(crate) newest: f64,
    /// The strength with which acceleration decides between rank and velocity; the authors' 2.
    pub(crate) gain: f64,
    /// Share of an advantage, 1 / `clip`, that is added to it at most, so that its sign stays; the authors' 2.
    pub(crate) clip: f64,
}

impl Default for RankShaping {
    fn default() -> Self {
        Self {
            stride: 40,
            window: 512,
            positions: 64,
            newest: 0.3,
            gain: 2.0,
            clip: 2.0,
        }
    }
}

impl RankShaping {
    /// Places among the policy tokens of a response whose hidden states are read, in order.
    pub(crate) fn places(&self, tokens: usize) -> Vec<usize> {
        let seen = tokens.min(self.window);
        let count = seen.min(self.positions);
        let at = |place: usize| tokens - seen + place * seen / count;
        (0..count).map(at).collect()
    }

    /// The metrics of a response of so many tokens. `states`: `[places, hidden]`.
    pub(crate) fn metrics(&self, tokens: usize, states: &[f32]) -> RankMetrics {
        let places = self.places(tokens);
        if places.is_empty() {
            return [0.0; 3];
        }
        let gram = Gram::of_rows(states, states.len() / places.len());
        let seen = tokens.min(self.window);
        let rank = |count| effective_rank(&gram.centred(count));
        let prefix = |end: usize| {
            let last = tokens - seen + end;
            rank(places.partition_point(|&place| place <= last))
        };
        let ranks: Vec<f64> = (self.stride..seen)
            .step_by(self.stride)
            .map(prefix)
            .collect();
        let velocities: Vec<f64> = (1..ranks.len())
            .map(|count| ranks[count] - mean(&ranks[..count]))
            .collect();
        let accelerations: Vec<f64> = velocities
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect();
        [rank(places.len()), mean(&velocities), mean(&accelerations)].map(|metric| metric as f32)
    }

    /// What is added to an advantage of a response at most, beside its clip. `averages`: of the batches before.
    pub(crate) fn bonus(&self, metrics: &RankMetrics, averages: &RankMetrics) -> f32 {
        let [rank, velocity, acceleration] =
            [0, 1, 2].map(|kind: usize| deviation(metrics[kind], averages[kind]));
        let explore = 1.0 / (1.0 + (-self.gain * acceleration).exp());
        let phi = explore * rank.tanh() + (1.0 - explore) * velocity.tanh();
        phi.max(0.0) as f32
    }

    /// Shapes the advantages of a response.
    pub(crate) fn apply(&self, advantages: &mut [f32], bonus: f32) {
        for advantage in advantages {
            let most = f64::from(advantage.abs()) / self.clip;
            *advantage = (f64::from(*advantage) + f64::from(bonus).min(most)) as f32;
        }
    }

    /// The moving averages after a batch with these means.
    pub(crate) fn averages(&self, before: Option<RankMetrics>, means: RankMetrics) -> RankMetrics {
        let Some(before) = before else {
            return means;
        };
        let weigh = |kind: usize| {
            let (old, new) = (f64::from(before[kind]), f64::from(means[kind]));
            ((1.0 - self.newest) * old + self.newest * new) as f32
        };
        [0, 1, 2].map(weigh)
    }

    /// Checks the ranges.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let range = |key: &str, value: f64, must: &str| {
            let key = format!("rank_shaping.{key}");
            Err(SettingError::range(key, value, must))
        };
        for (key, value) in [("stride", self.stride), ("window", self.window)] {
            if value == 0 {
                return range(key, 0.0, "at least 1");
            }
        }
        if self.positions < 2 {
            return range("positions", self.positions as f64, "at least 2");
        }
        if !(self.newest > 0.0 && self.newest <= 1.0) {
            return range("newest", self.newest, "above 0 and at most 1");
        }
        if !(self.gain.is_finite() && self.gain >= 0.0) {
            return range("gain", self.gain, "0 or more");
        }
        if !(self.clip.is_finite() && self.clip > 1.0) {
            return range(
                "clip",
                self.clip,
                "above 1, so that no advantage loses its sign",
            );
        }
        Ok(())
    }
}

impl Recipe {
    /// Advantages of the tokens of a group, shaped where the recipe says so. `bonuses`: of its members.
    pub(crate) fn shaped(&self, mut advantages: Vec<Vec<f32>>, bonuses: &[f32]) -> Vec<Vec<f32>> {
        if let Some(shaping) = self.rank_shaping {
            for (tokens, &bonus) in advantages.iter_mut().zip(bonuses) {
                shaping.apply(tokens, bonus);
            }
        }
        advantages
    }
}

/// Means over some responses; `None` without any.
pub(crate) fn rank_means(metrics: &[RankMetrics]) -> Option<RankMetrics> {
    let of = |kind: usize| {
        let all: Vec<f64> = metrics
            .iter()
            .map(|metrics| f64::from(metrics[kind]))
            .collect();
        mean(&all) as f32
    };
    (!metrics.is_empty()).then(|| [0, 1, 2].map(of))
}

/// Distance from an average in units of it.
fn deviation(metric: f32, average: f32) -> f64 {
    let (metric, average) = (f64::from(metric), f64::from(average));
    ((metric - average) / (average.abs() + 1e-8)).clamp(-5.0, 5.0)
}

/// 0 of nothing.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::common::{floats, json};
    use crate::tests::reference::assert_close;

    fn singles(value: &serde_json::Value) -> Vec<f32> {
        let numbers = floats(value).into_iter();
        numbers.map(|number| number as f32).collect()
    }

    #[test]
    fn metrics_and_bonuses_equal_plain_python() {
        let fixture = &json("shaping.json")["rank_shaping"];
        let shaping: RankShaping = serde_json::from_value(fixture["settings"].clone()).unwrap();
        let responses = fixture["responses"].as_array().unwrap();
        let mut averages = None;
        for batch in responses.chunks(fixture["batch"].as_u64().unwrap() as usize) {
            let mut all = Vec::new();
            for response in batch {
                let states = singles(&response["states"]);
                let tokens = response["tokens"].as_u64().unwrap() as usize;
                let width = states.len() / tokens;
                let places = shaping.places(tokens);
                let rows = places
                    .iter()
                    .map(|&place| &states[place * width..][..width]);
                let read: Vec<f32> = rows.flatten().copied().collect();
                let metrics = shaping.metrics(tokens, &read);
                for (found, expected) in metrics.iter().zip(singles(&response["metrics"])) {
                    assert_close((*found).into(), expected.into(), 2e-5, "a metric");
                }
                let bonus = averages.map_or(0.0, |averages| shaping.bonus(&metrics, &averages));
                let expected = response["bonus"].as_f64().unwrap();
                assert_close(bonus.into(), expected, 1e-4, "a bonus");
                let mut advantages = singles(&fixture["advantages"]);
                shaping.apply(&mut advantages, bonus);
                for (found, expected) in advantages.iter().zip(singles(&response["shaped"])) {
                    assert_close((*found).into(), expected.into(), 1e-4, "an advantage");
                }
                all.push(metrics);
            }
            averages = Some(shaping.averages(averages, rank_means(&all).unwrap()));
        }
    }

    #[test]
    fn no_advantage_loses_its_sign() {
        let shaping = RankShaping::default();
        let mut advantages = vec![1.0, -1.0, 0.125, -0.125, 0.0];
        shaping.apply(&mut advantages, 0.25);
        assert_eq!(advantages, [1.25, -0.75, 0.1875, -0.0625, 0.0]);
    }

    #[test]
    fn what_is_read_is_bounded_and_spread_over_the_window() {
        let shaping = RankShaping {
            window: 100,
            positions: 4,
            ..RankShaping::default()
        };
        assert_eq!(shaping.places(3), [0, 1, 2]);
        assert_eq!(shaping.places(120), [20, 45, 70, 95]);
        assert!(shaping.places(0).is_empty());
        let nothing = |metrics: RankMetrics| metrics.iter().all(|metric| metric.abs() == 0.0);
        assert!(nothing(shaping.metrics(0, &[])));
        // One state alone has no direction, and one prefix no velocity.
        assert!(nothing(shaping.metrics(1, &[1.0, 2.0])));
    }
}
