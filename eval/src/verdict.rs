//! The verdict of a run: the study of its one seed, with the control as the only twin, as it is kept in `verdict.json`.

mod file;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use forage_contracts::Episode;
use forage_env::Alarm;
use serde::{Deserialize, Serialize};

use crate::at_k::CurveComparison;
use crate::compare::{Comparison, Difference, SMALL_N, few_questions, interval_words, test_words};
use crate::decomposition::Decomposition;
use crate::effort::Effort;
use crate::measures::Headline;
use crate::mistakes::MistakeShare;
use crate::stats::{Bootstrap, Interval};
use crate::study::{
    Arm, Cost, Figures, SeedEpisodes, Study, StudyError, adjust, late_words, oracle_words,
};
use crate::telemetry::Course;
use crate::text::{figure, lost_questions, signed};

pub use file::VerdictError;

/// The name of a verdict's p-values in sentences.
const P_VALUE: &str = "p over questions";
/// The sentence about a gain that the control has as well.
const SHARED: &str = "This part of the trained policy's gain is not its reward's.";

/// The comparisons behind a verdict, for one way of sampling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Detail {
    /// Trained against start.
    pub gain: Comparison,
    /// Control against start.
    pub control_gain: Option<Comparison>,
    /// Trained against control: the share of the reward itself.
    pub over_control: Option<Comparison>,
    /// The baselines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<Arm>,
}

/// The result of a run on held-out questions. Written to `verdict.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The measure of the figures: exact match where episodes end in answers, NDCG@10 where they end in rankings, the reward where the
    /// environment pays for turns and no episode earned any of that.
    #[serde(default)]
    pub(crate) outcome: Headline,
    /// Exact match, or what `outcome` is measured in, before reinforcement learning.
    #[serde(alias = "em_start")]
    pub start: f64,
    /// The measure after reinforcement learning.
    #[serde(alias = "em_trained")]
    pub trained: f64,
    /// `trained - start`.
    pub gain: f64,
    /// Ends of the paired bootstrap interval of the gain.
    pub gain_interval: [f64; 2],
    /// Gain of the control; null when there was none.
    pub control_gain: Option<f64>,
    /// Ends of its interval; null when there was no control.
    pub control_interval: Option<[f64; 2]>,
    /// Questions behind the gain.
    pub n: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Wall time of the run; where it was resumed, of the part since then and of the training steps before.
    pub minutes: f64,
    /// Whether the run was resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// Smallest true gain these questions would show with 80 % probability; null where fewer than five of them changed, or
    /// all by the same amount.
    pub minimum_detectable_effect: Option<f64>,
    /// The comparisons the figures above come from: one greedy episode per question.
    pub(crate) greedy: Detail,
    /// The comparisons of sampled episodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sampled: Option<Detail>,
    /// The shares of the gain due to searching, finding, reading and guessing; only where episodes end in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parts: Option<Decomposition>,
    /// The shares of the gain of sampled episodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sampled_parts: Option<Decomposition>,
    /// The mistakes of greedy episodes that fail; only where they end in answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mistakes: Vec<MistakeShare>,
    /// pass@k of start and trained policy, where questions have several samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pass_at_k: Option<CurveComparison>,
    /// Searches per episode against hops, where questions differ in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) effort: Option<Effort>,
    /// The share of the reward's rise that came after the first quarter of the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) late_gain: Option<Interval>,
    /// The reward that the control learned from alone, where that was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_reward: Option<String>,
    /// Cost of training, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<Cost>,
    /// The alarms of telemetry about the trained policy, in training and on the held-out questions.
    #[serde(default)]
    pub alarms: Vec<Alarm>,
}

impl Detail {
    fn of(
        seed: &SeedEpisodes,
        measure: &'static str,
        bootstrap: Bootstrap,
    ) -> Result<Self, StudyError> {
        let mut arms = seed.compare(measure, bootstrap)?;
        let beside = arms.split_off(seed.arms.len().min(arms.len()));
        let baselines = seed.baselines.iter().zip(&beside);
        let baselines = baselines
            .filter_map(|((name, _), found)| Arm::of(name, &[found.figures(seed.seed, measure)?]));
        let mut baselines: Vec<Arm> = baselines.collect();
        adjust(&mut baselines)?;
        let mut arms = arms.into_iter();
        let trained = arms.next().ok_or(StudyError::Empty)?;
        let control = arms.next();
        let (control_gain, over_control) =
            control.map_or((None, None), |control| (Some(control.gain), control.lead));
        Ok(Self {
            gain: trained.gain,
            control_gain,
            over_control,
            baselines,
        })
    }
}

impl Verdict {
    /// Judges one seed by its greedy episodes; its arms are the trained policy and, if there was one, the control. `sampled`
    /// holds sampled episodes of the same policies.
    ///
    /// # Errors
    /// [`StudyError`] when the sets answer different questions, lack a score, or lack `em` (for queries `ndcg`).
    pub fn of(
        greedy: &SeedEpisodes,
        sampled: Option<&SeedEpisodes>,
        minutes: f64,
        bootstrap: Bootstrap,
    ) -> Result<Self, StudyError> {
        let outcome = Headline::of(
            std::iter::once(greedy)
                .chain(sampled)
                .flat_map(SeedEpisodes::played),
        );
        let is_graded = outcome != Headline::Reward;
        let seed = greedy.seed;
        let trained = greedy.arms.first();
        let policies = trained.map(|(_, trained)| (greedy.start.as_slice(), trained.as_slice()));
        let policies: Vec<(&[Episode], &[Episode])> = policies.into_iter().collect();
        let effort = Effort::of(&policies, bootstrap)?;
        // Where the figures are of the reward nothing is right, and being right has no parts.
        let graded: &[(&[Episode], &[Episode])] = if is_graded { &policies } else { &[] };
        let parts = Decomposition::of(graded, bootstrap)?;
        let mistakes = MistakeShare::all(graded, bootstrap)?;
        let samples = sampled
            .filter(|_| is_graded)
            .and_then(|seed| Some((&seed.start, &seed.arms.first()?.1)));
        let pass_at_k = samples
            .map(|(start, trained)| CurveComparison::of(start, trained, bootstrap))
            .transpose()?;
        let samples = samples.map(|(start, trained)| (start.as_slice(), trained.as_slice()));
        let samples: Vec<(&[Episode], &[Episode])> = samples.into_iter().collect();
        let sampled_parts = Decomposition::of(&samples, bootstrap)?;
        let greedy = Detail::of(greedy, outcome.measure(), bootstrap)?;
        let of = |comparison: &Comparison| comparison.difference(outcome.measure()).copied();
        let gain = of(&greedy.gain).ok_or(StudyError::Empty)?;
        let control = greedy.control_gain.as_ref().and_then(of);
        Ok(Self {
            outcome,
            start: gain.a,
            trained: gain.b,
            gain: gain.difference.estimate,
            gain_interval: gain.difference.ends(),
            control_gain: control.map(|found| found.difference.estimate),
            control_interval: control.map(|found| found.difference.ends()),
            n: gain.questions,
            seed,
            minutes,
            resumed: false,
            confidence: bootstrap.confidence,
            minimum_detectable_effect: gain.minimum_detectable_effect,
            greedy,
            sampled: sampled
                .map(|sampled| Detail::of(sampled, outcome.measure(), bootstrap))
                .transpose()?,
            parts,
            sampled_parts,
            mistakes,
            pass_at_k: pass_at_k.flatten(),
            effort,
            late_gain: None,
            control_reward: None,
            cost: None,
            alarms: Vec::new(),
        })
    }

    /// Adds findings from the course of training: its alarms, and when the gain was made.
    #[must_use]
    pub fn with_course(mut self, course: &Course) -> Self {
        self.alarms.extend(course.alarms.iter().cloned());
        self.late_gain = course.late_gain;
        self
    }

    /// Adds the cost of training: episodes and seconds by the name of a policy, `trained` or a baseline's.
    #[must_use]
    pub fn with_costs(mut self, costs: &[(String, [f64; 2])]) -> Self {
        self.cost = Cost::of("trained", costs);
        let details = std::iter::once(&mut self.greedy).chain(&mut self.sampled);
        let baselines = details.flat_map(|detail| &mut detail.baselines);
        baselines.for_each(|arm| arm.take_cost(costs));
        self
    }

    /// The study of this one seed.
    pub(crate) fn study(&self) -> Study {
        let of = |found: &Comparison| found.difference(self.outcome.measure()).copied();
        let Detail {
            gain,
            control_gain,
            over_control,
            baselines,
        } = &self.greedy;
        let arm = |name, gain: Option<&Comparison>, lead: Option<&Comparison>| {
            let (seed, gain, lead) = (self.seed, of(gain?)?, lead.and_then(of));
            Arm::of(name, &[Figures { seed, gain, lead }])
        };
        let arms = [
            arm("trained", Some(gain), None),
            arm("control", control_gain.as_ref(), over_control.as_ref()),
        ];
        Study {
            outcome: self.outcome,
            arms: arms.into_iter().flatten().collect(),
            baselines: baselines.clone(),
            parts: None,
            mistakes: Vec::new(),
            pass_at_k: None,
            effort: None,
            late_gain: BTreeMap::new(),
            by_source: BTreeMap::new(),
            macro_gain: BTreeMap::new(),
            interquartile_mean: BTreeMap::new(),
            questions: self.n,
            lost_to_infra: gain.lost_to_infra,
            bootstrap: gain.bootstrap,
        }
    }

    /// Returns whether the gain is shown and due to the reward ([`Study::holds`]).
    pub fn holds(&self) -> bool {
        self.study().holds()
    }

    /// Returns whether training is shown to have raised the outcome or lowered it; `Equal` where neither is.
    pub fn direction(&self) -> Ordering {
        self.direction_of(Some(&self.greedy.gain))
    }

    fn direction_of(&self, found: Option<&Comparison>) -> Ordering {
        found
            .and_then(|found| found.difference(self.outcome.measure()))
            .map_or(Ordering::Equal, Difference::direction)
    }

    /// Returns whether the interval of the control's gain lies above 0: enough for suspicion.
    pub fn control_gained(&self) -> bool {
        self.control_interval.is_some_and(|[low, _]| low > 0.0)
    }

    /// The verdict in sentences: gain, control, what may be claimed, the same for sampled episodes, size of the sample.
    pub fn words(&self) -> Vec<String> {
        let mut sentences = vec![self.gain_words()];
        sentences.extend(self.control_words());
        sentences.extend(self.study().concluded());
        sentences.extend(self.sampled_words());
        let [_, unit] = self.outcome.words();
        let baselines = self.greedy.baselines.iter();
        sentences.extend(baselines.map(|arm| arm.baseline_words(unit, self.confidence)));
        sentences.extend(oracle_words(self.outcome, &self.greedy.baselines));
        let parts = self.parts.as_ref();
        sentences.extend(parts.map(|parts| parts.words("exact match")));
        let parts = self.sampled_parts.as_ref();
        sentences.extend(parts.map(|parts| parts.words("sampled exact match")));
        sentences.extend(MistakeShare::words(&self.mistakes, self.confidence));
        let curves = self.pass_at_k.as_ref();
        sentences.extend(curves.map(|found| found.words("the start", "the trained policy")));
        sentences.extend(self.effort.as_ref().map(Effort::words));
        let late = self.late_gain.map(|share| (self.seed, share));
        sentences.extend(late_words(&late.into_iter().collect(), 1));
        sentences.extend(self.sample_words());
        sentences
    }

    fn gain_words(&self) -> String {
        let [words, unit] = self.outcome.words();
        let evidence = format!(
            "{} {unit}, from {} to {} ({}, n = {} questions)",
            signed(self.gain),
            figure(self.start),
            figure(self.trained),
            self.interval_words(self.gain_interval),
            self.n
        );
        match self.direction() {
            Ordering::Greater => format!("Training raised held-out {words} by {evidence}."),
            Ordering::Less => format!("Training made held-out {words} worse: {evidence}."),
            Ordering::Equal => {
                let found = self.greedy.gain.difference(self.outcome.measure());
                let p = found.map_or(1.0, Difference::p_of_direction);
                format!(
                    "No gain can be shown: {evidence}{}.",
                    test_words(self.gain_interval, p, P_VALUE)
                )
            }
        }
    }

    fn control_words(&self) -> Vec<String> {
        let (Some(gain), Some([low, high])) = (self.control_gain, self.control_interval) else {
            return vec![
                "There was no control run, so nothing separates the reward's effect from that of training as such."
                    .into(),
            ];
        };
        let [_, unit] = self.outcome.words();
        let evidence = format!(
            "{} {unit} ({})",
            signed(gain),
            self.interval_words([low, high])
        );
        let reward = match &self.control_reward {
            Some(name) => format!("the reward `{name}` alone"),
            None => "a meaningless reward".to_owned(),
        };
        let state = if self.control_gained() {
            "gained as well"
        } else if self.direction_of(self.greedy.control_gain.as_ref()) == Ordering::Less {
            "got worse"
        } else {
            "shows no gain"
        };
        let mut sentences = vec![format!(
            "The control, trained on {reward}, {state}: {evidence}."
        )];
        if self.control_gained() {
            sentences.push(SHARED.to_owned());
        }
        let over = self.greedy.over_control.as_ref();
        let over = over.and_then(|found| found.difference(self.outcome.measure()));
        sentences.extend(over.map(|found| self.over_control_words(found)));
        sentences
    }

    fn over_control_words(&self, found: &Difference) -> String {
        let ([_, unit], lead) = (self.outcome.words(), found.difference);
        let evidence = format!(
            "{} {unit} ({})",
            signed(lead.estimate),
            self.interval_words(lead.ends())
        );
        match found.direction() {
            Ordering::Greater => {
                format!("The trained policy is ahead of the control by {evidence}.")
            }
            Ordering::Less => format!("But the trained policy is behind the control: {evidence}."),
            Ordering::Equal => format!(
                "But the trained policy is not clearly ahead of the control: {evidence}{}.",
                test_words(lead.ends(), found.p_of_direction(), P_VALUE)
            ),
        }
    }

    /// The gains of the trained policy and of the control by sampled episodes, where there are some, and the lead: a small push turns greedy answers as a whole, and a twin whose
    /// greedy answers are all wrong cannot get worse.
    fn sampled_words(&self) -> Option<String> {
        let sampled = self.sampled.as_ref()?;
        let of = |found: &Comparison| found.difference(self.outcome.measure()).copied();
        let evidence = |found: Difference| {
            format!(
                "{} ({})",
                signed(found.difference.estimate),
                self.interval_words(found.difference.ends())
            )
        };
        let gain = of(&sampled.gain)?;
        let beside = [
            ("the control's change", &sampled.control_gain),
            ("trained less control", &sampled.over_control),
        ];
        let beside = beside.into_iter().filter_map(|(name, found)| {
            let found = of(found.as_ref()?)?;
            Some(format!("; {name}: {}", evidence(found)))
        });
        let beside: Vec<String> = beside.collect();
        let [words, _] = self.outcome.words();
        Some(format!(
            "Sampled at temperature 1, {words} went from {} to {}: {}{}.",
            figure(gain.a),
            figure(gain.b),
            evidence(gain),
            beside.concat()
        ))
    }

    fn sample_words(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        if self.n < SMALL_N {
            sentences.push(few_questions(self.n));
        }
        sentences.extend(lost_questions(self.greedy.gain.lost_to_infra));
        match self.minimum_detectable_effect {
            Some(effect) => sentences.push(format!(
                "With these questions a true gain of {} or more shows with 80 % probability.",
                figure(effect)
            )),
            None => sentences.push(
                "Fewer than five questions changed, or all by as much: the interval says little."
                    .into(),
            ),
        }
        sentences
    }

    fn interval_words(&self, [low, high]: [f64; 2]) -> String {
        let interval = Interval {
            estimate: self.gain,
            low,
            high,
        };
        interval_words(interval, self.confidence)
    }
}
