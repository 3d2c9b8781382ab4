//! Scales and tick marks.

/// A linear map from values to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// Smallest value shown.
    pub(super) low: f64,
    /// Largest value shown.
    pub(super) high: f64,
    /// Pixel of `low`.
    pub(super) from: f64,
    /// Pixel of `high`.
    pub(super) to: f64,
}

impl Scale {
    /// Pixel of a value.
    pub(super) fn pixel(&self, value: f64) -> f64 {
        let span = self.high - self.low;
        let share = if span > 0.0 { (value - self.low) / span } else { 0.5 };
        self.from + share * (self.to - self.from)
    }
}

/// Round numbers 1, 2 or 5 times a power of ten apart, about `target` of them between `low` and `high`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ticks {
    /// Where.
    pub(super) values: Vec<f64>,
    /// Distance between them.
    pub(super) step: f64,
}

impl Ticks {
    /// Ticks inside `[low, high]`.
    pub(super) fn inside(low: f64, high: f64, target: usize, least_step: f64) -> Self {
        let step = round_step((high - low) / target.max(1) as f64).max(least_step);
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        Self { values: (first..=last).map(|index| index as f64 * step).collect(), step }
    }

    /// Ticks that enclose `[low, high]`: the first at or below `low`, the last at or above `high`.
    pub(super) fn around(low: f64, high: f64, target: usize) -> Self {
        let (low, high) = widen(low, high);
        let step = round_step((high - low) / target.max(1) as f64);
        let first = (low / step + 1e-9).floor() as i64;
        let last = (high / step - 1e-9).ceil() as i64;
        Self { values: (first..=last).map(|index| index as f64 * step).collect(), step }
    }

    /// The first and last tick.
    pub(super) fn range(&self) -> (f64, f64) {
        (self.values.first().copied().unwrap_or(0.0), self.values.last().copied().unwrap_or(1.0))
    }

    /// The label of a tick: as many decimals as the step has.
    pub(super) fn label(&self, value: f64) -> String {
        let largest = self.values.iter().fold(0.0_f64, |most, tick| most.max(tick.abs()));
        if largest >= 1e5 || self.step < 1e-4 {
            return if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}").replace(".0e", "e") };
        }
        let decimals = (-self.step.log10().floor()).max(0.0) as usize;
        let text = format!("{value:.decimals$}");
        if text.trim_start_matches('-').chars().all(|letter| matches!(letter, '0' | '.')) {
            "0".to_owned()
        } else {
            text
        }
    }
}

/// A range that is never empty, and starts at 0 when the values come near it anyway.
fn widen(low: f64, high: f64) -> (f64, f64) {
    if high - low <= 1e-9 * high.abs().max(1e-9) {
        let pad = if high == 0.0 { 0.5 } else { 0.1 * high.abs() };
        return (low - pad, high + pad);
    }
    if low > 0.0 && low < 0.4 * high { (0.0, high) } else { (low, high) }
}

fn round_step(rough: f64) -> f64 {
    if !(rough.is_finite() && rough > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(rough.log10().floor());
    let digit = rough / power;
    let rounded = [1.0, 2.0, 5.0].into_iter().find(|choice| digit <= choice + 1e-9).unwrap_or(10.0);
    rounded * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &Ticks) -> Vec<String> {
        ticks.values.iter().map(|value| ticks.label(*value)).collect()
    }

    #[test]
    fn ticks_are_round_and_enclose() {
        assert_eq!(labels(&Ticks::around(0.03, 0.47, 4)), ["0", "0.2", "0.4", "0.6"]);
        assert_eq!(labels(&Ticks::around(-0.04, 0.31, 4)), ["-0.1", "0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(labels(&Ticks::around(2.0, 2.0, 2)), ["1.8", "2.0", "2.2"]);
        assert_eq!(labels(&Ticks::around(0.0, 0.0, 2)), ["-0.5", "0", "0.5"]);
        assert_eq!(labels(&Ticks::inside(1.0, 60.0, 4, 1.0)), ["20", "40", "60"]);
        assert_eq!(labels(&Ticks::inside(0.0, 2.0, 5, 1.0)), ["0", "1", "2"]);
        assert_eq!(labels(&Ticks::around(0.0, 2e-5, 2)), ["0", "1e-5", "2e-5"]);
    }

    #[test]
    fn scale_maps_ends() {
        let scale = Scale { low: 0.0, high: 2.0, from: 100.0, to: 0.0 };
        assert!((scale.pixel(0.5) - 75.0).abs() < 1e-9);
        assert!((Scale { high: 0.0, ..scale }.pixel(0.0) - 50.0).abs() < 1e-9);
    }
}
