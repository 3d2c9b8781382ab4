//! A batch before it is learned from: its advantages, and the forward passes for old log-probabilities, the distance from the reference,
//! and the information gain of each turn.

use std::collections::BTreeSet;

use burn::tensor::{Int, Tensor};
use forage_contracts::Tokenizer;

use crate::learner::Learner;
use crate::logprobs::Scores;
use crate::model::{Batch, Decoder};
use crate::objective::{Credit, RankMetrics, RankShaping, rank_means, step_potential};
use crate::ranks::RankError;
use crate::sample::Sample;
use crate::sequence::{Sequence, ids};
use crate::student::{LearnError, Student};
use crate::update::{Readings, Scored, score};
use crate::update_stats::GroupCounts;

impl Learner {
    /// Advantages of groups, one per token of what is learned from, with turns paid for what they told; the counts of groups by outcome;
    /// and, where the objective reads them, the mean metrics of hidden states over the groups that are learned from.
    ///
    /// # Errors
    /// [`LearnError::Ranks`] when a rank is lost.
    pub(crate) fn advantages(
        &self,
        mut groups: Vec<Vec<Sample>>,
    ) -> Result<(Vec<Scored>, GroupCounts, Option<RankMetrics>), LearnError> {
        self.prepare(&mut groups)?;
        // Rollouts that record no temperature were drawn at the run's one temperature.
        let temperature = self.config.one_temperature().unwrap_or(1.0);
        let anchored = self.recipe.entropy.anchored;
        for Sample { sequence, .. } in groups.iter_mut().flatten() {
            if sequence.temperatures.is_empty() {
                sequence.temperatures = vec![temperature; sequence.targets.len()];
            }
            sequence.nucleus = anchored.map_or(0.0, |anchored| anchored.top_p);
        }
        let mut readings = self.readings(&groups)?;
        let mut metrics = Vec::new();
        if let Some(shaping) = self.recipe.rank_shaping {
            metrics = self.rank_metrics(&shaping, &groups)?;
            let bonus = |metrics| {
                let averages = self.averages();
                averages.map_or(0.0, |averages| shaping.bonus(metrics, &averages))
            };
            readings.bonuses = metrics.iter().map(bonus).collect();
        }
        let numbered = groups.iter().zip(0_u64..);
        let numbers: Vec<u64> = numbered
            .flat_map(|(group, number)| group.iter().map(move |_| number))
            .collect();
        let (scored, counts) = score(groups, &self.recipe, &readings, &self.sentence_ends);
        let kept: BTreeSet<u64> = scored.iter().map(|row| row.group).collect();
        let metrics = metrics.into_iter().zip(numbers);
        let learned: Vec<RankMetrics> = metrics
            .filter(|(_, group)| kept.contains(group))
            .map(|(metrics, _)| metrics)
            .collect();
        Ok((scored, counts, rank_means(&learned)))
    }

    /// Where the config asks for it, takes text in a tag out of what is learned, and adds the information gain to the rewards of turns.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost.
    pub(crate) fn prepare(&self, groups: &mut [Vec<Sample>]) -> Result<(), RankError> {
        if let Some(tag) = &self.config.unlearned_tag {
            let tokenizer = &self.student.checkpoint().tokenizer;
            for sample in groups.iter_mut().flatten() {
                sample.unlearn(tag, tokenizer);
            }
        }
        match (self.recipe.credit, &self.config.answer_lead) {
            (Credit::InformationGain { .. }, Some(lead)) => self.pay_information(groups, lead),
            _ => Ok(()),
        }
    }

    /// Adds to the reward of each turn but the last how much its observation raised the probability of the gold answer. Nothing is
    /// measured or paid beyond the context, or in an episode that counts as having earned nothing.
    fn pay_information(&self, groups: &mut [Vec<Sample>], lead: &str) -> Result<(), RankError> {
        let asked = self.ask_for_gold(groups, lead)?;
        let all = groups.iter_mut().flatten().zip(asked);
        for (sample, scores) in all.filter(|(sample, _)| !sample.unpaid) {
            let beliefs: Vec<f64> = scores
                .iter()
                .map(|scores| belief(&scores.logprobs))
                .collect();
            for (paid, pair) in sample.turn_rewards.iter_mut().zip(beliefs.windows(2)) {
                *paid += (pair[1] - pair[0]) as f32;
            }
        }
        Ok(())
    }

    /// `[samples][turns]`: scores of the gold answer's tokens before each turn, as far as that fits the context, under the policy without
    /// dropout.
    fn ask_for_gold(
        &self,
        groups: &[Vec<Sample>],
        lead: &str,
    ) -> Result<Vec<Vec<Scores>>, RankError> {
        let tokenizer = &self.student.checkpoint().tokenizer;
        // Tokenizers join a word with the space before it, as in text that a policy writes.
        let (lead, space) = lead.split_at(lead.trim_end_matches(' ').len());
        let lead = tokenizer.encode(lead);
        let asked = |sample: &Sample| {
            let gold = match sample.gold.as_str() {
                "" => Vec::new(),
                gold => tokenizer.encode(&format!("{space}{gold}")),
            };
            sample.asked(&lead, &gold, self.context)
        };
        let asked: Vec<Vec<Sequence>> = groups.iter().flatten().map(asked).collect();
        let all: Vec<&Sequence> = asked.iter().flatten().collect();
        let policy = self.student.decoder();
        let mut scores = self.score_all(Some(policy), &all)?.into_iter();
        let of_sample = |asked: &Vec<Sequence>| scores.by_ref().take(asked.len()).collect();
        Ok(asked.iter().map(of_sample).collect())
    }

    /// Everything that the recipe reads besides rewards: measurements under the policy, its reference and the critic, without dropout.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost.
    pub(crate) fn readings(&self, groups: &[Vec<Sample>]) -> Result<Readings, RankError> {
        let samples = groups.iter().flatten();
        let sequences: Vec<&Sequence> = samples.map(|sample| &sample.sequence).collect();
        let mut readings = Readings::default();
        let reads_shifts = self.recipe.reads_shifts();
        if let Some(reference) = self.reference.as_ref().filter(|_| reads_shifts) {
            let now = self.score_all(Some(self.student.decoder()), &sequences)?;
            let before = self.score_all(Some(reference), &sequences)?;
            let shifts = |(now, before): (&Scores, &Scores)| {
                let pairs = now.logprobs.iter().zip(&before.logprobs);
                pairs.map(|(now, before)| now - before).collect()
            };
            readings.shifts = now.iter().zip(&before).map(shifts).collect();
        }
        if let Some(critic) = &self.critic {
            let found = self.on_all_ranks(&sequences, targets, |batch| [critic.values(batch)])?;
            readings.values = found.into_iter().flatten().collect();
        }
        if let (Credit::StepPotential { .. }, Some(lead)) =
            (self.recipe.credit, &self.config.answer_lead)
        {
            let asked = self.ask_for_gold(groups, lead)?;
            let of_place = |scores: &Scores| step_potential(&scores.logprobs, &scores.entropies);
            let of_sample = |scores: &Vec<Scores>| scores.iter().map_while(of_place).collect();
            readings.potentials = asked.iter().map(of_sample).collect();
        }
        Ok(readings)
    }

    /// `[samples]`: metrics of the hidden states that predict each response, by a forward pass without the output head.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost.
    pub(crate) fn rank_metrics(
        &self,
        shaping: &RankShaping,
        groups: &[Vec<Sample>],
    ) -> Result<Vec<RankMetrics>, RankError> {
        let samples = groups.iter().flatten();
        let sequences: Vec<&Sequence> = samples.map(|sample| &sample.sequence).collect();
        let student = &self.student;
        let found = self.on_all_ranks(
            &sequences,
            |_| 3,
            |batch| [rank_metrics(student, shaping, batch)],
        )?;
        let metrics = |[numbers]: [Vec<f32>; 1]| [numbers[0], numbers[1], numbers[2]];
        Ok(found.into_iter().map(metrics).collect())
    }

    /// Replaces the sampler's log-probabilities by the trainer's, and keeps entropies where the objective reads them. Returns the places of
    /// the tokens outside the entropy mask, by row and token.
    pub(crate) fn recompute(
        &self,
        scored: &mut [Scored],
    ) -> Result<Vec<(usize, usize)>, RankError> {
        let all: Vec<&Sequence> = scored.iter().map(|scored| &scored.sequence).collect();
        let found = self.score_all(None, &all)?;
        let entropies = found.iter().map(|scores| scores.entropies.as_slice());
        let outside = self.recipe.entropy.outside(&entropies.collect::<Vec<_>>());
        for (row, scores) in scored.iter_mut().zip(found) {
            row.proximal = scores.logprobs;
            if self.recipe.entropy.anchored.is_some() {
                row.entropies = scores.entropies;
            }
        }
        Ok(outside)
    }

    /// Log-probabilities of the targets of each sequence under the current weights, nats.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost.
    pub(crate) fn logprobs(&self, scored: &[Scored]) -> Result<Vec<Vec<f32>>, RankError> {
        let all: Vec<&Sequence> = scored.iter().map(|scored| &scored.sequence).collect();
        let found = self.score_all(None, &all)?;
        Ok(found.into_iter().map(|scores| scores.logprobs).collect())
    }

    /// Scores of the targets of each sequence, computed by all ranks together: under these weights, or else as an update computes them
    /// under the current ones, with the masks of dropout that were drawn.
    fn score_all(
        &self,
        weights: Option<&Decoder>,
        sequences: &[&Sequence],
    ) -> Result<Vec<Scores>, RankError> {
        let student = &self.student;
        let found = self.on_all_ranks(sequences, targets, |batch| {
            let scores = match weights {
                Some(weights) => student.scores(weights, batch),
                None => student.scores(&student.decoder_of(batch), batch),
            };
            [scores.logprobs, scores.entropies]
        })?;
        let scores = |[logprobs, entropies]: [Vec<f32>; 2]| Scores {
            logprobs,
            entropies,
        };
        Ok(found.into_iter().map(scores).collect())
    }

    /// Runs `job` over micro-batches on all ranks together: `N` lists of numbers, of which each sequence has as many as `count` says.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost.
    fn on_all_ranks<const N: usize>(
        &self,
        sequences: &[&Sequence],
        count: impl Fn(&Sequence) -> usize,
        job: impl Fn(&[&Sequence]) -> [Vec<f32>; N] + Sync,
    ) -> Result<Vec<[Vec<f32>; N]>, RankError> {
        let student = &self.student;
        let batches = student.cut(sequences.iter().copied());
        let own = student.map(&batches[self.ranks.own(batches.len())], |rows| {
            if self.ranks.loss().is_some() {
                return [const { Vec::new() }; N];
            }
            let batch: Vec<&Sequence> = rows.iter().map(|&row| sequences[row]).collect();
            job(&batch)
        });
        let count = |row: &usize| count(sequences[*row]);
        let counts: Vec<usize> = batches
            .iter()
            .map(|rows| rows.iter().map(count).sum())
            .collect();
        let found = self.ranks.numbers(own, &counts)?;
        let mut all = vec![[const { Vec::new() }; N]; sequences.len()];
        for (rows, numbers) in batches.into_iter().zip(found) {
            let mut start = 0;
            for row in rows {
                let range = start..start + count(&row);
                start = range.end;
                all[row] = numbers.each_ref().map(|kind| kind[range.clone()].to_vec());
            }
        }
        Ok(all)
    }
}

fn targets(sequence: &Sequence) -> usize {
    sequence.targets.len()
}

/// Three metrics of each sequence, one after the other.
fn rank_metrics(student: &Student, shaping: &RankShaping, sequences: &[&Sequence]) -> Vec<f32> {
    let (decoder, config) = (student.decoder(), &student.checkpoint().config);
    let batch = Batch::new(&ids(sequences.iter().copied()));
    let mut rows = Vec::new();
    for (sequence, span) in sequences.iter().zip(batch.spans()) {
        let places = shaping.places(sequence.targets.len()).into_iter();
        // A token is predicted from the position before it.
        rows.extend(places.map(|place| span.row(sequence.targets[place] - 1) as i32));
    }
    if rows.is_empty() {
        return vec![0.0; 3 * sequences.len()];
    }
    let rows = Tensor::<1, Int>::from_ints(rows.as_slice(), &decoder.device());
    let hidden = decoder
        .hidden(config, &student.rope, &batch)
        .select(0, rows);
    let [_, width] = hidden.dims();
    let data = hidden.into_data().convert::<f32>();
    let states: Vec<f32> = data.try_into_vec().expect("converted just before");
    let mut rest = states.as_slice();
    let metrics = sequences.iter().flat_map(|sequence| {
        let tokens = sequence.targets.len();
        let (own, others) = rest.split_at(shaping.places(tokens).len() * width);
        rest = others;
        shaping.metrics(tokens, own)
    });
    metrics.collect()
}

/// The geometric mean of the probabilities of an answer's tokens; 0 without any.
fn belief(logprobs: &[f32]) -> f64 {
    if logprobs.is_empty() {
        return 0.0;
    }
    let sum: f64 = logprobs.iter().map(|&logprob| f64::from(logprob)).sum();
    (sum / logprobs.len() as f64).exp()
}

/// Whether each token id ends a sentence: a full stop, a mark of question or exclamation or a line's end is in its text.
pub(crate) fn sentence_ends(tokenizer: &dyn Tokenizer) -> Vec<bool> {
    const MARKS: [char; 7] = ['.', '?', '!', '\n', '。', '？', '！'];
    (0..tokenizer.vocab_size() as u32)
        .map(|id| tokenizer.decode(&[id]).contains(MARKS))
        .collect()
}

#[cfg(test)]
mod tests {
    use forage_contracts::ByteTokenizer;

    use super::*;

    #[test]
    fn marks_end_sentences() {
        let ends = sentence_ends(&ByteTokenizer);
        assert_eq!(ends.len(), 257);
        for (byte, expected) in [(b'.', true), (b'\n', true), (b'a', false), (b',', false)] {
            assert_eq!(ends[usize::from(byte)], expected, "{byte}");
        }
    }

    #[test]
    fn belief_does_not_depend_on_an_answers_length() {
        let half = 0.5_f32.ln();
        for count in [1, 3] {
            assert!((belief(&vec![half; count]) - 0.5).abs() < 1e-6);
        }
        assert_eq!(belief(&[]).to_bits(), 0.0_f64.to_bits());
    }
}
