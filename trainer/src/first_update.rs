//! The first update of a run, taken apart before there is a run: whether it would teach what it is meant to.

use std::fmt::Write as _;
use std::time::Instant;

use forage_contracts::Episode;

use crate::device::is_processor;
use crate::doctor::Check;
use crate::grads::NamedGrads;
use crate::learner::Learner;
use crate::run::GrpoConfig;
use crate::sample::Sample;
use crate::student::LearnError;
use crate::update::Scored;
use crate::update_stats::GroupCounts;

/// Largest distance from 1 of a ratio that rounding makes.
const RATIO: f64 = 1e-3;
/// Mean difference of sampler and trainer, nats per token, up to which they may compute the same weights in bf16.
const MISMATCH: f64 = 0.02;
/// Largest relative change of a gradient's norm by the order of sums on a device.
const ROUNDING: f64 = 1e-4;

impl Learner {
    /// Takes a first update on the episodes of groups, one group after the other, as a run of `config` would, and examines it: groups with
    /// a gradient, the ratio that the loss begins with, tokens without loss, the gradient, and whether rewarded tokens become likelier. The
    /// weights change. A check that passed and has a `fix` should be looked at. Beside the checks are the seconds that a step of a run takes
    /// to learn the policy from these groups; 0 where none has a direction.
    ///
    /// # Errors
    /// [`LearnError::Ranks`] when a rank is lost.
    pub fn examine(
        &mut self,
        mut episodes: Vec<Episode>,
        config: &GrpoConfig,
    ) -> Result<(Vec<Check>, f64), LearnError> {
        config.treat(&mut episodes);
        let samples =
            |group: &[Episode]| -> Vec<Sample> { group.iter().filter_map(Sample::of).collect() };
        let groups = episodes.chunks(config.group_size).map(samples);
        self.examine_groups(groups.collect())
    }

    /// As [`Self::examine`], on groups of rollouts.
    pub(crate) fn examine_groups(
        &mut self,
        groups: Vec<Vec<Sample>>,
    ) -> Result<(Vec<Check>, f64), LearnError> {
        self.draw_masks();
        let (mut scored, counts, _) = self.advantages(groups)?;
        let mut checks = vec![directed(counts)];
        if counts.directed == 0 {
            return Ok((checks, 0.0));
        }
        let all = scored.len();
        let started = Instant::now();
        self.set_old_logprobs(&mut scored)?;
        let mut seconds = started.elapsed().as_secs_f64();
        let Some(rows) = self.minibatches(scored).into_iter().next() else {
            return Ok((checks, 0.0));
        };
        let before = self.logprobs(&rows)?;
        checks.push(first_ratio(&rows, &before));
        checks.push(mismatch(&rows, &before));
        checks.push(self.masks(&rows)?);
        let started = Instant::now();
        let (gradients, _) = self.gradients(&rows)?;
        let (gradient, applied) = match self.optimize(gradients) {
            Ok((norm, _)) => (format!("its norm is {norm:.3e}"), norm > 0.0),
            Err(LearnError::NonFinite { norm, .. }) => (format!("its norm is {norm}"), false),
            Err(error) => return Err(error),
        };
        let steps = self.epochs() as f64 * all as f64 / rows.len().max(1) as f64;
        seconds += steps * started.elapsed().as_secs_f64();
        checks.push(Check {
            name: "gradient",
            found: gradient,
            holds: applied,
            fix: Some("see the objective's keys, and the range of the rewards")
                .filter(|_| !applied),
        });
        if applied {
            checks.push(sign(&rows, &before, &self.logprobs(&rows)?));
        }
        Ok((checks, seconds))
    }

    /// Another token that nobody is trained on, behind a sequence, must leave the gradient as it is. Sequences of the greatest length
    /// have no room for one.
    fn masks(&mut self, rows: &[Scored]) -> Result<Check, LearnError> {
        let longest = rows.iter().map(|row| row.sequence.ids.len()).max();
        let followed_by = |token: u32| -> Vec<Scored> {
            let shorter = rows
                .iter()
                .filter(|row| Some(row.sequence.ids.len()) < longest);
            let longer = |row: &Scored| {
                let mut row = row.clone();
                row.sequence.ids.push(token);
                row
            };
            shorter.map(longer).collect()
        };
        let name = "masks";
        let one = followed_by(0);
        if one.is_empty() {
            return Ok(Check {
                name,
                found: "every rollout is of one length; there is no room to try".to_owned(),
                holds: true,
                fix: None,
            });
        }
        let (mut one, _) = self.gradients(&one)?;
        let (mut other, _) = self.gradients(&followed_by(1))?;
        self.student.separate(&mut one);
        self.student.separate(&mut other);
        let gap = difference(&one, &other);
        let norm = one.global_norm();
        let exact = is_processor(&self.checkpoint().decoder.device());
        let holds = gap == 0.0 || (!exact && gap <= ROUNDING * norm);
        let found = if gap == 0.0 {
            "the gradient of tokens without loss is exactly 0".to_owned()
        } else {
            format!("a token without loss moves the gradient by {gap:.1e}, of {norm:.1e}")
        };
        let fix =
            "this is a fault of the program or the device: run `forage doctor`, and report it";
        Ok(Check {
            name,
            found,
            holds,
            fix: (!holds).then_some(fix),
        })
    }
}

/// Euclidean norm of the difference of two gradients of the same parameters.
fn difference(one: &NamedGrads, other: &NamedGrads) -> f64 {
    let gaps = one.0.iter().filter_map(|(name, gradient)| {
        let other = other.0.get(name)?;
        Some((name.clone(), gradient.clone() - other.clone()))
    });
    NamedGrads(gaps.collect()).global_norm()
}

fn directed(counts: GroupCounts) -> Check {
    let GroupCounts {
        groups,
        directed,
        filtered,
        zero_variance,
        too_small,
        no_direction,
    } = counts;
    let mut found = format!("{directed} of {groups} groups have one");
    for (count, why) in [
        (zero_variance, "earned the same in every episode"),
        (too_small, "have fewer than two episodes"),
        (no_direction, "differ and have none for this advantage"),
        (filtered, "were dropped by the filter"),
    ] {
        if count > 0 {
            let _ = write!(found, "; {count} {why}");
        }
    }
    let fix = "nothing is learned where all episodes of a group earn the same: use easier questions, a reward in parts, larger \
               groups, or a policy that sometimes succeeds";
    Check {
        name: "directions",
        found,
        holds: true,
        fix: (directed == 0).then_some(fix),
    }
}

/// The pairs of all tokens: the number kept with the rollouts, and that of the trainer now.
fn pairs<'a>(
    rows: &'a [Scored],
    now: &'a [Vec<f32>],
    kept: impl Fn(&'a Scored) -> &'a [f32] + 'a,
) -> impl Iterator<Item = (f64, f64)> + 'a {
    let of_row = move |(row, now): (&'a Scored, &'a Vec<f32>)| {
        let kept = kept(row).iter().map(|&number| f64::from(number));
        kept.zip(now.iter().map(|&logprob| f64::from(logprob)))
    };
    rows.iter().zip(now).flat_map(of_row)
}

fn first_ratio(rows: &[Scored], now: &[Vec<f32>]) -> Check {
    let gaps = pairs(rows, now, |row| &row.proximal).map(|(then, now)| (now - then).exp_m1().abs());
    let largest = gaps.fold(0.0, f64::max);
    let holds = largest <= RATIO;
    let fix =
        "the loss would begin with clipped tokens: set grpo.update.old_logprobs = \"trainer\"";
    Check {
        name: "first ratio",
        found: format!("1, to within {largest:.1e}"),
        holds,
        fix: (!holds).then_some(fix),
    }
}

fn mismatch(rows: &[Scored], now: &[Vec<f32>]) -> Check {
    let (mut sum, mut count) = (0.0, 0_usize);
    for (then, now) in pairs(rows, now, |row| &row.sampler) {
        sum += (now - then).abs();
        count += 1;
    }
    let mean = sum / count.max(1) as f64;
    let holds = mean <= MISMATCH;
    let fix = "sampler and trainer are of different weights or temperatures; see `mismatch` in docs/metrics.md";
    Check {
        name: "sampler and trainer",
        found: format!("{mean:.1e} nats per token apart, over {count} tokens"),
        holds,
        fix: (!holds).then_some(fix),
    }
}

fn sign(rows: &[Scored], before: &[Vec<f32>], after: &[Vec<f32>]) -> Check {
    let mut gain = 0.0;
    for ((row, before), after) in rows.iter().zip(before).zip(after) {
        let changes = before.iter().zip(after).map(|(then, now)| now - then);
        let weighted = changes
            .zip(&row.advantages)
            .map(|(change, advantage)| f64::from(change * advantage));
        gain += f64::from(row.weight) * weighted.sum::<f64>();
    }
    let holds = gain > 0.0;
    let fix =
        "the update goes the wrong way, or the learning rate is too small or far too large to tell";
    Check {
        name: "sign of an update",
        found: format!("log-probabilities weighed by advantages change by {gain:+.2e}"),
        holds,
        fix: (!holds).then_some(fix),
    }
}
