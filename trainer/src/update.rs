//! Scoring of a batch: from groups of rollouts to the sequences of each optimizer step, in plain numbers without tensors.

use forage_contracts::objective::{GroupOutcome, TokenInputs};
use forage_contracts::seed::Seed;

use crate::logprobs::{ScoreGrads, Scores};
use crate::objective::{
    AnchoredEntropy, EntropyTerms, Member, ObjectiveStats, RankMetrics, Recipe, explained_variance,
};
use crate::sample::Sample;
use crate::sequence::Sequence;

/// Number of a batch's groups by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupCounts {
    /// Groups seen.
    pub groups: usize,
    /// Groups whose advantages give a gradient.
    pub directed: usize,
    /// Groups dropped by the objective's filter, whatever their outcome.
    pub filtered: usize,
    /// Groups whose members all earned the same.
    pub zero_variance: usize,
    /// Groups with fewer than two members.
    pub too_small: usize,
    /// Groups whose rewards differ but give this advantage no direction.
    pub no_direction: usize,
}

/// Quantities computed by forward passes before a batch is learned from. Each list is empty where the recipe does not read it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    /// `[samples][tokens]`: log-probability less that under the reference, nats.
    pub shifts: Vec<Vec<f32>>,
    /// `[samples][tokens]`: the critic's values.
    pub values: Vec<Vec<f32>>,
    /// `[samples][turns]`: potentials before each turn, as far as they were measured.
    pub potentials: Vec<Vec<f32>>,
    /// `[samples]`: largest amount that the shaping by hidden states adds to an advantage.
    pub bonuses: Vec<f32>,
}

/// The critic's targets for a sample, and the KL penalty that was part of its reward.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lesson {
    /// `[n]`: the critic's values before the batch is learned from; empty without a critic.
    pub values: Vec<f32>,
    /// `[n]`: returns, the critic's targets; empty without a critic.
    pub returns: Vec<f32>,
    /// Sum of the KL estimates of a penalty that is part of the reward, nats.
    pub kl_in_reward: f64,
}

impl Lesson {
    fn of(member: &Member, recipe: &Recipe) -> Self {
        Self {
            values: member.values.to_vec(),
            returns: recipe.returns(member),
            kl_in_reward: recipe.kl_in_reward(member),
        }
    }
}

/// A sequence with everything that its loss needs besides its current log-probabilities.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scored {
    /// Tokens and targets.
    pub sequence: Sequence,
    /// Index of its group in the batch.
    pub group: u64,
    /// `[n]`, nats: log-probabilities that the sampler reported.
    pub sampler: Vec<f32>,
    /// `[n]`, nats: old log-probabilities, the denominator of the ratio.
    pub proximal: Vec<f32>,
    /// `[n]`: advantages.
    pub advantages: Vec<f32>,
    /// Targets of the critic, and the KL penalty in the reward.
    pub lesson: Lesson,
    /// Weight of each of its tokens in the step's loss.
    pub weight: f32,
    /// Number of tokens of each sentence, in order; each turn is one sentence unless the loss reads sentences.
    pub sentences: Vec<usize>,
    /// `[n]`, nats: entropies before the batch is learned from; empty unless the objective holds entropy.
    pub entropies: Vec<f32>,
    /// `[n]`: derivative of the step's loss by each entropy, without the bonus; empty where there is none.
    pub entropy_slopes: Vec<f32>,
    /// `[n]`: whether KL-Cov holds the token at its old log-probability; empty where none is held.
    pub held: Vec<bool>,
}

impl Scored {
    /// A sample with its advantages, `[n]`, as a member of group `group`. A masked one keeps no targets. `sentence_ends`: whether each
    /// token id ends a sentence.
    fn of(
        mut sample: Sample,
        (mut advantages, mut lesson): (Vec<f32>, Lesson),
        group: usize,
        sentence_ends: &[bool],
    ) -> Self {
        if sample.masked {
            sample.sequence.targets.clear();
            sample.sequence.temperatures.clear();
            sample.logprobs.clear();
            advantages.clear();
            lesson = Lesson::default();
        }
        Self {
            group: group as u64,
            advantages,
            lesson,
            sentences: sample.sentences(sentence_ends),
            proximal: sample.logprobs.clone(),
            sampler: sample.logprobs,
            sequence: sample.sequence,
            ..Self::default()
        }
    }

    /// Returns whether the loss is constant and the critic has nothing to learn, so that no pass is needed. The sequence has already
    /// counted in the step's weights.
    fn is_inert(&self, recipe: &Recipe) -> bool {
        let moves = recipe.penalty().is_some()
            || recipe.entropy.moves()
            || recipe.loss.penalises()
            || self.held.contains(&true)
            || !self.lesson.returns.is_empty();
        self.sequence.targets.is_empty()
            || (!moves
                && self
                    .advantages
                    .iter()
                    .all(|advantage| advantage.abs() == 0.0))
    }
}

impl Recipe {
    /// Returns whether the filter keeps a group; without one it does.
    pub(crate) fn keeps(&self, group: &[Sample]) -> bool {
        let Some(filter) = self.filter else {
            return true;
        };
        let reward = |sample: &Sample| self.reward_of(&sample.member());
        let rewards: Vec<f32> = group.iter().map(reward).collect();
        let accuracies: Vec<f32> = group.iter().map(|sample| sample.accuracy).collect();
        filter.keeps(&rewards, &accuracies)
    }
}

/// Scores a batch: the advantage of each policy token. Groups without a gradient are counted and left out. `sentence_ends`: whether each
/// token id ends a sentence; empty where the recipe does not read it.
pub(crate) fn score(
    groups: Vec<Vec<Sample>>,
    recipe: &Recipe,
    readings: &Readings,
    sentence_ends: &[bool],
) -> (Vec<Scored>, GroupCounts) {
    let mut counts = GroupCounts {
        groups: groups.len(),
        ..GroupCounts::default()
    };
    let mut shifts = readings.shifts.iter();
    let mut values = readings.values.iter();
    let mut potentials = readings.potentials.iter();
    let mut member = |sample| Member {
        shifts: shifts.next().map_or(&[], Vec::as_slice),
        values: values.next().map_or(&[], Vec::as_slice),
        potentials: potentials.next().map_or(&[], Vec::as_slice),
        ..Sample::member(sample)
    };
    let members: Vec<Vec<Member>> = groups
        .iter()
        .map(|group| group.iter().map(&mut member).collect())
        .collect();
    let outcomes = recipe.advantages(&members);
    let lessons: Vec<Vec<Lesson>> = members
        .iter()
        .map(|group| {
            group
                .iter()
                .map(|member| Lesson::of(member, recipe))
                .collect()
        })
        .collect();
    let mut scored = Vec::new();
    let mut bonuses = readings.bonuses.iter();
    let all = groups.into_iter().zip(outcomes).zip(lessons);
    for (index, ((group, outcome), lessons)) in all.enumerate() {
        let flat = match outcome {
            GroupOutcome::ZeroVariance => &mut counts.zero_variance,
            GroupOutcome::NoDirection => &mut counts.no_direction,
            GroupOutcome::TooSmall => &mut counts.too_small,
            GroupOutcome::Learn(_) => &mut counts.directed,
        };
        *flat += 1;
        let bonuses: Vec<f32> = bonuses.by_ref().take(group.len()).copied().collect();
        let advantages = match outcome {
            GroupOutcome::TooSmall => continue,
            GroupOutcome::Learn(advantages) => recipe.shaped(advantages, &bonuses),
            // The group still counts in the step's means and in the penalty.
            GroupOutcome::ZeroVariance | GroupOutcome::NoDirection => group
                .iter()
                .map(|sample| vec![0.0; sample.sequence.targets.len()])
                .collect(),
        };
        if !recipe.keeps(&group) {
            counts.filtered += 1;
            continue;
        }
        let learned = advantages.into_iter().zip(lessons);
        let scored_of = |(sample, learned)| Scored::of(sample, learned, index, sentence_ends);
        scored.extend(group.into_iter().zip(learned).map(scored_of));
    }
    (scored, counts)
}

/// Cuts a batch into at most `count` minibatches of whole groups, as equal in number of groups as possible, and sets their token weights.
pub(crate) fn minibatches(scored: Vec<Scored>, count: usize, recipe: &Recipe) -> Vec<Vec<Scored>> {
    let mut groups: Vec<Vec<Scored>> = Vec::new();
    for sequence in scored {
        match groups.last_mut() {
            Some(group) if group[0].group == sequence.group => group.push(sequence),
            _ => groups.push(vec![sequence]),
        }
    }
    let (total, count) = (groups.len(), count.clamp(1, groups.len().max(1)));
    let mut groups = groups.into_iter();
    let step = |index: usize| {
        let size = (index + 1) * total / count - index * total / count;
        let mut step: Vec<Scored> = groups.by_ref().take(size).flatten().collect();
        weigh(&mut step, recipe);
        step.retain(|scored| !scored.is_inert(recipe));
        step
    };
    (0..count)
        .map(step)
        .filter(|step| !step.is_empty())
        .collect()
}

/// Sets the derivatives that pull entropy towards `anchor`, by default the level of this batch. Returns the anchor.
pub(crate) fn hold_entropy(
    steps: &mut [Vec<Scored>],
    anchored: &AnchoredEntropy,
    anchor: Option<f32>,
) -> Option<f32> {
    let all = steps.iter().flatten();
    let all = all.map(|row| row.entropies.as_slice());
    let own = anchored.level(all).map(|(level, _)| level as f32);
    let anchor = anchor.or(own)?;
    for step in steps {
        let before = step.iter().map(|row| row.entropies.as_slice());
        let Some(level) = anchored.level(before) else {
            continue;
        };
        for row in step {
            row.entropy_slopes = anchored.slopes(&row.entropies, level, anchor);
        }
    }
    Some(anchor)
}

/// Applies Clip-Cov and KL-Cov: removes the policy loss of some tokens of a batch and marks the tokens to hold.
pub(crate) fn restrain(rows: &mut [Scored], terms: &EntropyTerms, seed: Seed) {
    if terms.clip_cov.is_none() && terms.kl_cov.is_none() {
        return;
    }
    let (mut places, mut tokens) = (Vec::new(), Vec::new());
    for (row, scored) in rows.iter().enumerate() {
        let pairs = scored.proximal.iter().zip(&scored.advantages);
        for (token, (&logprob, &advantage)) in pairs.enumerate() {
            places.push((row, token));
            tokens.push((logprob, advantage));
        }
    }
    let [clipped, held] = terms.restrained(&tokens, seed);
    for (row, token) in clipped.into_iter().map(|place| places[place]) {
        rows[row].advantages[token] = 0.0;
    }
    for (row, token) in held.into_iter().map(|place| places[place]) {
        let row = &mut rows[row];
        row.held.resize(row.advantages.len(), false);
        row.held[token] = true;
    }
}

/// Sets the token weights from the whole step, so that its cut into micro-batches does not matter.
fn weigh(step: &mut [Scored], recipe: &Recipe) {
    let tokens: Vec<usize> = step
        .iter()
        .map(|scored| scored.sequence.targets.len())
        .collect();
    let prompts: Vec<u64> = step.iter().map(|scored| scored.group).collect();
    for (scored, weight) in step
        .iter_mut()
        .zip(recipe.aggregation.weights(&tokens, &prompts))
    {
        scored.weight = weight;
    }
}

/// Sums over the policy tokens of some sequences, which add up over micro-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TokenSums {
    /// Counts and sums of the objective.
    pub objective: ObjectiveStats,
    /// The step's share of the loss, with penalty and bonus.
    pub loss: f64,
    /// Entropies, nats.
    pub entropy: f64,
    /// Proximal - current log-probability: the k1 estimate of the KL from the policy of the batch's start.
    pub approx_kl_old: f64,
    /// |current - sampler|: at the first step of a batch, the mismatch of sampler and trainer.
    pub mismatch: f64,
    /// Largest |exp(current - sampler) - 1|.
    pub ratio_deviation_max: f64,
}

impl std::ops::AddAssign for TokenSums {
    fn add_assign(&mut self, other: Self) {
        self.objective += other.objective;
        self.loss += other.loss;
        self.entropy += other.entropy;
        self.approx_kl_old += other.approx_kl_old;
        self.mismatch += other.mismatch;
        self.ratio_deviation_max = self.ratio_deviation_max.max(other.ratio_deviation_max);
    }
}

/// The critic's sums over the policy tokens of some sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ValueSums {
    /// Policy tokens.
    pub tokens: usize,
    /// The step's share of the loss.
    pub loss: f64,
    /// Tokens at which the value loss is clipped.
    pub clipped: usize,
}

impl std::ops::AddAssign for ValueSums {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.loss += other.loss;
        self.clipped += other.clipped;
    }
}

/// Statistics of a critic's updates on one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ValueStats {
    /// Optimizer steps done.
    pub updates: usize,
    /// Mean loss over the steps.
    pub loss: f64,
    /// Share of tokens at which the value loss was clipped.
    pub clip_frac: f64,
    /// Share of the returns' variance that its values explained before it learned from them.
    pub explained_variance: f64,
    /// Largest global gradient norm before clipping.
    pub grad_norm: f64,
    tokens: usize,
}

impl ValueStats {
    /// The statistics before the first step on these sequences.
    pub(crate) fn of<'a>(rows: impl Iterator<Item = &'a Scored>) -> Self {
        let pairs = rows.flat_map(|row| {
            let values = row.lesson.values.iter().copied();
            values.zip(row.lesson.returns.iter().copied())
        });
        Self {
            explained_variance: explained_variance(&pairs.collect::<Vec<_>>()),
            ..Self::default()
        }
    }

    /// Adds an optimizer step.
    pub(crate) fn add(&mut self, sums: &ValueSums, grad_norm: f64) {
        self.updates += 1;
        self.loss += (sums.loss - self.loss) / self.updates as f64;
        let clipped = self.clip_frac * self.tokens as f64 + sums.clipped as f64;
        self.tokens += sums.tokens;
        self.clip_frac = clipped / self.tokens.max(1) as f64;
        self.grad_norm = self.grad_norm.max(grad_norm);
    }
}

/// Statistics of the updates on one batch. Means are over the policy tokens that passed through the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpdateStats {
    /// Groups by outcome.
    pub(crate) groups: GroupCounts,
    /// Whether dropout was on in the trainer and not in the sampler, so that [`Self::mismatch`] measures dropout as well.
    pub(crate) masked: bool,
    /// Whether the objective has a KL penalty; [`Self::kl_reference`] is measured only then.
    pub(crate) penalised: bool,
    /// Statistics of the critic, if there is one.
    pub(crate) values: Option<ValueStats>,
    /// Means of the metrics of hidden states, where the objective reads them.
    pub(crate) ranks: Option<RankMetrics>,
    /// Optimizer steps done: 0 when no group has a gradient, or while the critic has its head start.
    pub updates: usize,
    /// Policy tokens that passed through the model, over all epochs.
    pub tokens: usize,
    /// Mean loss over the steps, with penalty and bonus.
    pub loss: f64,
    /// Mean policy loss over the steps, without penalty and bonus.
    pub policy_loss: f64,
    /// Share of tokens at which the policy loss was clipped.
    pub clip_frac: f64,
    /// Mean of old - current log-probability, nats: the k1 estimate of the KL from the policy of the batch's start.
    pub approx_kl_old: f64,
    /// Mean of the penalty's estimate, nats.
    pub kl_reference: f64,
    /// Mean entropy of the policy at its own tokens, nats.
    pub entropy: f64,
    /// Mean |current - sampler| at the first step, nats: the mismatch of trainer and sampler.
    pub mismatch: f64,
    /// Largest |ratio to the sampler - 1| at the first step.
    pub ratio_deviation_max: f64,
    /// Share of tokens whose weight the correction truncated.
    pub correction_truncated_frac: f64,
    /// Share of tokens that the correction dropped.
    pub correction_masked_frac: f64,
    /// Largest global gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate of the last step.
    pub learning_rate: f64,
}

impl UpdateStats {
    /// Counts the optimizer steps of the step's next batch as well; the policy's figures are those of `next` where `self` has no
    /// optimizer step.
    pub(crate) fn followed_by(self, next: Self) -> Self {
        if self.updates == 0 && next.updates > 0 {
            return Self {
                groups: self.groups,
                values: self.values,
                ..next
            };
        }
        Self {
            updates: self.updates + next.updates,
            ..self
        }
    }

    /// Adds an optimizer step.
    pub(crate) fn add(&mut self, sums: &TokenSums, grad_norm: f64, learning_rate: f64) {
        let first = self.updates == 0;
        self.updates += 1;
        let tokens = sums.objective.tokens.max(1) as f64;
        let before = self.tokens as f64;
        self.tokens += sums.objective.tokens;
        let mean = |old: f64, sum: f64| (old * before + sum) / (before + tokens);
        let steps = self.updates as f64;
        self.loss += (sums.loss - self.loss) / steps;
        self.policy_loss += (sums.objective.policy_loss - self.policy_loss) / steps;
        self.clip_frac = mean(self.clip_frac, sums.objective.bounded as f64);
        self.approx_kl_old = mean(self.approx_kl_old, sums.approx_kl_old);
        self.kl_reference = mean(self.kl_reference, sums.objective.kl);
        self.entropy = mean(self.entropy, sums.entropy);
        let correction = sums.objective.correction;
        self.correction_truncated_frac =
            mean(self.correction_truncated_frac, correction.truncated as f64);
        self.correction_masked_frac = mean(
            self.correction_masked_frac,
            (correction.masked + correction.vetoed) as f64,
        );
        if first {
            self.mismatch = sums.mismatch / tokens;
            self.ratio_deviation_max = sums.ratio_deviation_max;
        }
        self.grad_norm = self.grad_norm.max(grad_norm);
        self.learning_rate = learning_rate;
    }
}

/// Loss of some sequences of a step, and its derivative. `scores`: of all their targets, in order, under the weights being trained;
/// `reference`: `[n]`, nats, log-probabilities under the reference, read only if the loss has a penalty.
///
/// # Panics
/// When lengths differ, or a recipe with a penalty is given no reference.
pub(crate) fn loss(
    rows: &[&Scored],
    recipe: &Recipe,
    scores: &Scores,
    reference: Option<&[f32]>,
) -> (ScoreGrads, TokenSums) {
    let mut sums = TokenSums::default();
    let mut grads = ScoreGrads::default();
    let mut start = 0;
    for row in rows {
        let range = start..start + row.sampler.len();
        start = range.end;
        let logprobs = &scores.logprobs[range.clone()];
        let inputs = TokenInputs {
            logprobs,
            proximal: &row.proximal,
            sampler: &row.sampler,
            advantages: &row.advantages,
            entropies: &scores.entropies[range.clone()],
            sentences: &row.sentences,
        };
        let mut found = recipe.sequence(
            &inputs,
            reference.map(|reference| &reference[range.clone()]),
            row.weight,
        );
        if let Some(kl_cov) = recipe.entropy.kl_cov {
            kl_cov.hold(&mut found, [logprobs, &row.proximal], &row.held, row.weight);
        }
        found.stats.kl += row.lesson.kl_in_reward;
        let entropies = &scores.entropies[range];
        let entropy: f64 = entropies.iter().map(|&entropy| f64::from(entropy)).sum();
        let held: f64 = row
            .entropy_slopes
            .iter()
            .zip(entropies)
            .map(|(&slope, &entropy)| f64::from(slope) * f64::from(entropy))
            .sum();
        let bonus = f64::from(row.weight) * recipe.entropy.bonus;
        let gaps = || {
            logprobs
                .iter()
                .zip(&row.sampler)
                .map(|(now, then)| f64::from(now - then))
        };
        sums += TokenSums {
            loss: found.loss - bonus * entropy + held,
            entropy,
            approx_kl_old: row
                .proximal
                .iter()
                .zip(logprobs)
                .map(|(old, now)| f64::from(old - now))
                .sum(),
            mismatch: gaps().map(f64::abs).sum(),
            ratio_deviation_max: gaps().map(|gap| gap.exp_m1().abs()).fold(0.0, f64::max),
            objective: found.stats,
        };
        if recipe.entropy.moves() {
            let slope = |token| row.entropy_slopes.get(token).copied().unwrap_or(0.0);
            let tokens = 0..logprobs.len();
            grads
                .entropies
                .extend(tokens.map(|token| -bonus as f32 + slope(token)));
        }
        grads.logprobs.extend(found.gradients);
    }
    (grads, sums)
}
