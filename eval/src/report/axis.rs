//! Linear axes with round ticks.

/// A linear map from values to pixels, with ticks at multiples of 1, 2 or 5 times a power of ten.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    values: [f64; 2],
    pixels: [f64; 2],
    step: f64,
    /// The values of the ticks.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// An axis over training steps: it ends at the first and the last one, its ticks lie between them.
    pub(super) fn of_steps([low, high]: [f64; 2], pixels: [f64; 2]) -> Self {
        let step = round_step((high - low) / 5.0).max(1.0);
        let ticks = multiples(
            step,
            (low / step - 1e-9).ceil(),
            (high / step + 1e-9).floor(),
        );
        Self {
            values: [low, high],
            pixels,
            step,
            ticks,
        }
    }

    /// An axis from the tick at or below `low` to the one at or above `high`, with about `target` ticks.
    pub(super) fn around([low, high]: [f64; 2], pixels: [f64; 2], target: usize) -> Self {
        let [low, high] = widen(low, high);
        let step = round_step((high - low) / target as f64);
        let [first, last] = [(low / step + 1e-9).floor(), (high / step - 1e-9).ceil()];
        Self {
            values: [first * step, last * step],
            pixels,
            step,
            ticks: multiples(step, first, last),
        }
    }

    /// The pixel of a value.
    pub(super) fn pixel(&self, value: f64) -> f64 {
        let ([low, high], [from, to]) = (self.values, self.pixels);
        let share = if high > low {
            (value - low) / (high - low)
        } else {
            0.5
        };
        from + share * (to - from)
    }

    /// The pixels of the ends.
    pub(super) fn ends(&self) -> [f64; 2] {
        self.pixels
    }

    /// The label of a tick: as many decimals as the step has.
    pub(super) fn label(&self, tick: f64) -> String {
        let largest = self.values[0].abs().max(self.values[1].abs());
        if tick == 0.0 {
            "0".to_owned()
        } else if largest >= 1e5 || self.step < 1e-4 {
            format!("{tick:.1e}").replace(".0e", "e")
        } else {
            let decimals = (-self.step.log10().floor()).max(0.0) as usize;
            format!("{tick:.decimals$}")
        }
    }
}

fn multiples(step: f64, first: f64, last: f64) -> Vec<f64> {
    (first as i64..=last as i64)
        .map(|index| index as f64 * step)
        .collect()
}

/// A range that is never empty, and starts at 0 when the values come near it anyway, or are all the same: no share is above 1 or below 0.
fn widen(low: f64, high: f64) -> [f64; 2] {
    if high - low <= 1e-9 * high.abs().max(1e-9) {
        if high > 0.0 {
            [0.0, high]
        } else if low < 0.0 {
            [low, 0.0]
        } else {
            [0.0, 1.0]
        }
    } else if low > 0.0 && low < 0.4 * high {
        [0.0, high]
    } else {
        [low, high]
    }
}

fn round_step(rough: f64) -> f64 {
    if !(rough.is_finite() && rough > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(rough.log10().floor());
    let fits = |digit: &f64| rough / power <= digit + 1e-9;
    power * [1.0, 2.0, 5.0].into_iter().find(fits).unwrap_or(10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIXELS: [f64; 2] = [100.0, 0.0];

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|tick| axis.label(*tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_enclose() {
        let around = |low, high, target| labels(&Axis::around([low, high], PIXELS, target));
        assert_eq!(around(0.03, 0.47, 4), ["0", "0.2", "0.4", "0.6"]);
        assert_eq!(
            around(-0.04, 0.31, 4),
            ["-0.1", "0", "0.1", "0.2", "0.3", "0.4"]
        );
        assert_eq!(around(2.0, 2.0, 2), ["0", "1", "2"]);
        assert_eq!(around(-2.0, -2.0, 2), ["-2", "-1", "0"]);
        assert_eq!(around(0.0, 0.0, 2), ["0", "0.5", "1.0"]);
        assert_eq!(around(0.0, 2e-5, 2), ["0", "1e-5", "2e-5"]);
        let steps = |low, high| labels(&Axis::of_steps([low, high], PIXELS));
        assert_eq!(steps(1.0, 60.0), ["20", "40", "60"]);
        assert_eq!(steps(0.0, 2.0), ["0", "1", "2"]);
    }

    #[test]
    fn pixels_map_the_ends() {
        let axis = Axis::of_steps([0.0, 2.0], PIXELS);
        assert!((axis.pixel(0.5) - 75.0).abs() < 1e-9);
        assert!((Axis::of_steps([0.0, 0.0], PIXELS).pixel(0.0) - 50.0).abs() < 1e-9);
    }
}
