//! Item response theory: how often a question is answered, by how much of its solution was shown.
//!
//! The three-parameter logistic model: P(x) = c + (1 - c) / (1 + exp(-a (x - b))), x the share that was shown, c what is right without any,
//! a how sharply help acts, b the share at which it does. SEELE (arXiv 2509.06923) fits it to the rounds of one question, which are fewer
//! than its parameters at first. Assumed: least squares with a normal prior on logit c, ln a and b, the mode of their posterior.

/// Means of logit c, ln a and b before anything was played: right once in twenty without help, and in the middle with half of it.
const MEANS: [f64; 3] = [-2.944_438_979_166_440_7, 2.079_441_541_679_835_7, 0.5];
/// Their standard deviations.
const SPREADS: [f64; 3] = [1.0, 0.5, 0.5];
/// Standard deviation of an outcome, at its largest, and the weight that it gives to its square.
const NOISE: f64 = 0.5;
const WEIGHT: f64 = 1.0 / (NOISE * NOISE);
/// Most steps of a fit, and the length of a step below which it is done.
const STEPS: usize = 500;
const SMALL: f64 = 1e-12;

/// What an episode has shown of a question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Share of the solution that was shown.
    pub(super) share: f64,
    /// Whether its answer was right, 0 to 1.
    pub(super) accuracy: f64,
}

/// A fitted model: logit c, ln a, b.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response([f64; 3]);

impl Response {
    /// The mode of the posterior after these outcomes, by the method of Levenberg and Marquardt from the mean of the prior on.
    pub(super) fn fit(outcomes: &[Seen]) -> Self {
        let (mut best, mut damping) = (Self(MEANS), 1e-3);
        let mut cost = best.cost(outcomes);
        for _ in 0..STEPS {
            let (slopes, squares) = best.normal(outcomes);
            let mut damped = squares;
            for (place, row) in damped.iter_mut().enumerate() {
                row[place] *= 1.0 + damping;
            }
            let step = solved(damped, slopes);
            let next = Self(std::array::from_fn(|place| best.0[place] - step[place]));
            let found = next.cost(outcomes);
            if found <= cost {
                let length = step.iter().map(|part| part.abs()).fold(0.0, f64::max);
                (best, cost, damping) = (next, found, damping / 10.0);
                if length < SMALL {
                    break;
                }
            } else {
                damping *= 10.0;
            }
        }
        best
    }

    /// The accuracy that it expects where so much is shown.
    pub(super) fn accuracy(self, share: f64) -> f64 {
        let [guess, slope, place] = self.natural();
        guess + (1.0 - guess) * logistic(slope * (share - place))
    }

    /// The share at which it expects an accuracy, above 0 and below 1: 0 where that is reached without, 1 where all does not reach it.
    pub(super) fn share(self, accuracy: f64) -> f64 {
        let [guess, slope, place] = self.natural();
        if guess >= accuracy {
            return 0.0;
        }
        let odds = (accuracy - guess) / (1.0 - accuracy);
        (place + odds.ln() / slope).clamp(0.0, 1.0)
    }

    /// c, a and b.
    fn natural(self) -> [f64; 3] {
        let [guess, slope, place] = self.0;
        [logistic(guess), slope.exp(), place]
    }

    fn cost(self, outcomes: &[Seen]) -> f64 {
        let gap = |seen: &Seen| self.accuracy(seen.share) - seen.accuracy;
        let data = outcomes.iter().map(|seen| WEIGHT * gap(seen).powi(2));
        let prior = (0..3).map(|place| ((self.0[place] - MEANS[place]) / SPREADS[place]).powi(2));
        data.sum::<f64>() + prior.sum::<f64>()
    }

    /// Half the gradient of the cost, and Gauss and Newton's half of its second derivatives.
    fn normal(self, outcomes: &[Seen]) -> ([f64; 3], [[f64; 3]; 3]) {
        let (mut slopes, mut squares) = ([0.0; 3], [[0.0; 3]; 3]);
        for place in 0..3 {
            let precision = SPREADS[place].powi(-2);
            slopes[place] = precision * (self.0[place] - MEANS[place]);
            squares[place][place] = precision;
        }
        let [guess, slope, place] = self.natural();
        for seen in outcomes {
            let raised = logistic(slope * (seen.share - place));
            let steep = (1.0 - guess) * raised * (1.0 - raised) * slope;
            let by = [
                (1.0 - raised) * guess * (1.0 - guess),
                steep * (seen.share - place),
                -steep,
            ];
            let gap = self.accuracy(seen.share) - seen.accuracy;
            for row in 0..3 {
                slopes[row] += WEIGHT * by[row] * gap;
                for column in 0..3 {
                    squares[row][column] += WEIGHT * by[row] * by[column];
                }
            }
        }
        (slopes, squares)
    }
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Solves a symmetric positive definite system of three equations by elimination.
fn solved(mut rows: [[f64; 3]; 3], mut right: [f64; 3]) -> [f64; 3] {
    for pivot in 0..3 {
        for row in pivot + 1..3 {
            let factor = rows[row][pivot] / rows[pivot][pivot];
            let from = rows[pivot];
            for (to, from) in rows[row].iter_mut().zip(from).skip(pivot) {
                *to -= factor * from;
            }
            right[row] -= factor * right[pivot];
        }
    }
    let mut found = [0.0; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3)
            .map(|column| rows[row][column] * found[column])
            .sum();
        found[row] = (right[row] - known) / rows[row][row];
    }
    found
}
