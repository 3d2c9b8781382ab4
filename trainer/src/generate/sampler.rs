//! Draws one token from a row of logits.

use forage_env::policy::Sampling;
use forage_env::seed::Seed;
use rand::RngExt;

/// A drawn token with its log-probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// Token id.
    pub token: u32,
    /// ln p(token) in nats under the full-vocabulary softmax at the sampling temperature (1 when greedy).
    pub logprob: f32,
}

/// Draws the `index`-th token of a completion. The draw depends on the logits, the settings, `seed` and `index` alone.
/// `None` when a logit is not finite.
///
/// # Shapes
/// `logits`: `[vocab]`.
pub fn sample(logits: &[f32], sampling: Sampling, seed: Seed, index: usize) -> Option<Sampled> {
    let temperature = if sampling.temperature > 0.0 { f64::from(sampling.temperature) } else { 1.0 };
    let best = argmax(logits)?;
    let highest = f64::from(logits[best]);
    let mut weights: Vec<f32> = Vec::with_capacity(logits.len());
    let mut total = 0.0_f64;
    let inverse = (1.0 / temperature) as f32;
    for &logit in logits {
        let weight = ((logit - logits[best]) * inverse).exp();
        total += f64::from(weight);
        weights.push(weight);
    }
    if !total.is_finite() {
        return None;
    }
    let logprob = |token: usize| ((f64::from(logits[token]) - highest) / temperature - total.ln()) as f32;
    if sampling.temperature <= 0.0 {
        return Some(Sampled { token: best as u32, logprob: logprob(best) });
    }
    let uniform: f64 = seed.child("token", &[index as u64]).rng().random();
    let token = if sampling.top_p < 1.0 {
        draw_nucleus(&weights, total, f64::from(sampling.top_p), uniform)
    } else {
        draw(&weights, total, uniform)
    };
    Some(Sampled { token: token as u32, logprob: logprob(token) })
}

/// Index of the largest value, the first one of equals; `None` when a value is not finite.
fn argmax(logits: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (index, &logit) in logits.iter().enumerate() {
        if !logit.is_finite() {
            return None;
        }
        if logit > logits[best] {
            best = index;
        }
    }
    (!logits.is_empty()).then_some(best)
}

fn draw(weights: &[f32], total: f64, uniform: f64) -> usize {
    let mut remaining = uniform * total;
    let mut last = 0;
    for (index, &weight) in weights.iter().enumerate() {
        if weight > 0.0 {
            remaining -= f64::from(weight);
            last = index;
            if remaining < 0.0 {
                break;
            }
        }
    }
    last
}

/// Draws among the smallest set of most likely tokens whose mass reaches `top_p` (Holtzman et al. 2020).
fn draw_nucleus(weights: &[f32], total: f64, top_p: f64, uniform: f64) -> usize {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
    let mut kept = 0.0;
    let mut size = 0;
    for &index in &order {
        kept += f64::from(weights[index]);
        size += 1;
        if kept >= top_p * total {
            break;
        }
    }
    let nucleus: Vec<f32> = order[..size].iter().map(|&index| weights[index]).collect();
    order[draw(&nucleus, kept, uniform)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, -1.0];

    fn counts(sampling: Sampling, draws: usize) -> Vec<f64> {
        let mut counts = vec![0.0; LOGITS.len()];
        for index in 0..draws {
            counts[sample(&LOGITS, sampling, Seed::root(5), index).unwrap().token as usize] += 1.0 / draws as f64;
        }
        counts
    }

    fn softmax(temperature: f64) -> Vec<f64> {
        let weights: Vec<f64> = LOGITS.iter().map(|&logit| (f64::from(logit) / temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        for temperature in [1.0, 0.5] {
            let seen = counts(Sampling { temperature, ..Sampling::FULL }, 20_000);
            for (seen, expected) in seen.iter().zip(softmax(f64::from(temperature))) {
                assert!((seen - expected).abs() < 0.015, "{seen} {expected}");
            }
        }
    }

    #[test]
    fn logprob_is_of_the_full_vocabulary_even_under_top_p() {
        let sampling = Sampling { top_p: 0.5, ..Sampling::FULL };
        let drawn = sample(&LOGITS, sampling, Seed::root(1), 0).unwrap();
        assert_eq!(drawn.token, 1, "only the best token stays at top_p 0.5");
        assert!((f64::from(drawn.logprob) - softmax(1.0)[1].ln()).abs() < 1e-6);
        let seen = counts(Sampling { top_p: 0.8, ..Sampling::FULL }, 5_000);
        assert!(seen[0] == 0.0 && seen[3] == 0.0 && seen[2] > 0.2);
    }

    #[test]
    fn greedy_takes_the_best_and_non_finite_is_reported() {
        assert_eq!(sample(&LOGITS, Sampling::GREEDY, Seed::root(1), 9).unwrap().token, 1);
        assert_eq!(sample(&[0.0, f32::NAN], Sampling::FULL, Seed::root(1), 0), None);
    }
}
