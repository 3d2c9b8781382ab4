//! Scoring of a batch: from groups of rollouts to the sequences of each optimizer step, in plain numbers without tensors.

use forage_contracts::objective::{GroupOutcome, TokenInputs};
use forage_contracts::seed::Seed;

use crate::logprobs::{ScoreGrads, Scores};
use crate::objective::{AnchoredEntropy, EntropyTerms, Member, Recipe};
use crate::sample::Sample;
use crate::sequence::Sequence;
use crate::update_stats::{GroupCounts, TokenSums};

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
    /// Nats by which the step's entropy was above the one that it is held at, before the batch is learned from.
    pub entropy_gap: f64,
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
        let mut directed = 0;
        let seen = match outcome {
            GroupOutcome::ZeroVariance => &mut counts.zero_variance,
            GroupOutcome::NoDirection => &mut counts.no_direction,
            GroupOutcome::TooSmall => &mut counts.too_small,
            GroupOutcome::Learn(_) => &mut directed,
        };
        *seen += 1;
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
        counts.directed += directed;
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
            row.entropy_gap = level.0 - f64::from(anchor);
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
        // The term as it was when the batch began, and its change since along the slopes.
        let moves = entropies.iter().zip(&row.entropies);
        let moves = moves.map(|(&now, &before)| f64::from(now) - f64::from(before));
        let held: f64 = row
            .entropy_slopes
            .iter()
            .zip(moves)
            .map(|(&slope, moved)| f64::from(slope) * (row.entropy_gap / 2.0 + moved))
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
