//! Studies across seeds, beside spurious twins: is the gain real, and is it due to the reward?
//!
//! A study holds runs of several seeds. Each seed has a start, a trained policy and any number of twins trained on a reward without
//! information (Shao et al. 2025, "Spurious rewards"), all evaluated on that seed's held-out questions. Every seed is compared by itself
//! ([`Comparison`]); a [`Verdict`](crate::verdict::Verdict) is the study of one seed, kept in a file.

mod arm;
mod chosen;
mod cost;
mod seeds;
mod words;

pub(crate) use arm::{Arm, adjust};
pub(crate) use cost::Cost;
pub(crate) use words::{late_words, oracle_words};

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use forage_contracts::Episode;
use serde::{Deserialize, Serialize};

use crate::at_k::CurveComparison;
use crate::compare::{CompareError, Comparison, Difference};
use crate::decomposition::Decomposition;
use crate::effort::Effort;
use crate::measures::{Headline, QuestionKey, by_question, clusters, sources};
use crate::mistakes::MistakeShare;
use crate::pool::{Scores, differences, over_sets};
use crate::stats::{Bootstrap, Interval, StatsError, mean, performance_profile};
use crate::telemetry::Course;
use seeds::interquartile;

/// One seed: the episodes of every policy on its held-out questions.
#[derive(Clone, Debug)]
pub struct SeedEpisodes {
    /// The run's seed.
    pub seed: u64,
    /// Episodes of the policy that all arms start from.
    pub start: Vec<Episode>,
    /// Episodes of each arm by name: the trained policy first, then its twins.
    pub arms: Vec<(String, Vec<Episode>)>,
    /// Episodes of each baseline by name. Unlike twins, baselines say nothing about the reward.
    pub baselines: Vec<(String, Vec<Episode>)>,
}

/// Every arm of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// The measure of the figures.
    pub(crate) outcome: Headline,
    /// The trained policy, then its twins.
    pub(crate) arms: Vec<Arm>,
    /// The baselines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) baselines: Vec<Arm>,
    /// The shares of the gain due to searching, finding, reading and guessing; only where episodes end in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parts: Option<Decomposition>,
    /// The mistakes of episodes that fail; only where they end in answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mistakes: Vec<MistakeShare>,
    /// pass@k of start and trained policy, where there are several samples of each question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pass_at_k: Option<CurveComparison>,
    /// Searches per episode against hops, where questions differ in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) effort: Option<Effort>,
    /// Share of the reward's rise that came after the first quarter of the steps, by seed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) late_gain: BTreeMap<u64, Interval>,
    /// The same arms on each data set (and split, as [`EvalSummary`](crate::EvalSummary) has it), where there are several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) by_source: BTreeMap<String, Vec<Arm>>,
    /// Macro-average gain of each arm over its data sets, where there are several. The interval is as that of `Arm::gain`: Student's is
    /// of each seed's own mean over the data sets, which share its runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) macro_gain: BTreeMap<String, Interval>,
    /// The interquartile mean of each arm's scores over seeds and data sets, with its bootstrap interval over runs; of several seeds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) interquartile_mean: BTreeMap<String, Interval>,
    /// Questions of all seeds, those asked under several counted once.
    pub questions: usize,
    /// Questions, those of each seed by themselves, that faults of ours left without a score of the start or the trained policy.
    #[serde(default)]
    pub(crate) lost_to_infra: usize,
    /// The settings of the intervals.
    pub bootstrap: Bootstrap,
}

/// The claim about a gain that a study supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The gain is real, and the reward's ([`Study::holds`]).
    Holds,
    /// Training made it worse.
    Worse,
    /// No gain is shown.
    NoGain,
    /// A twin gained too, and all are beaten.
    LeadAlone,
    /// A twin gained too, and not all are beaten.
    TwinGained,
    /// There is a gain, and no twin.
    NoTwin,
    /// There is a gain, and not all twins are beaten.
    NotAhead,
}

/// Runs that cannot form a study.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// There is no seed.
    #[error("there is no run to study")]
    Empty,
    /// Two runs with the same seed, and so the same randomness.
    #[error("seed {0} comes twice; give each run a seed of its own")]
    Twice(u64),
    /// Seeds with different arms.
    #[error(
        "seed {seed} has {found}, the first seed {expected}; train the same twins under every seed, and ask for the same baselines"
    )]
    Arms {
        /// The seed.
        seed: u64,
        /// Its arms.
        found: String,
        /// The arms of the first.
        expected: String,
    },
    /// Episodes of a seed that do not fit together.
    #[error("seed {seed}, {arm}: cannot be compared with the {other}")]
    Compare {
        /// The seed.
        seed: u64,
        /// The arm.
        arm: String,
        /// The policy that it is compared with.
        other: &'static str,
        /// Why.
        source: CompareError,
    },
    /// The statistics failed.
    #[error("the study has no interval")]
    Stats(#[from] StatsError),
}

/// An arm or a baseline on one seed: compared with the start, and the trained policy compared with it.
pub(crate) struct Compared {
    pub(crate) gain: Comparison,
    pub(crate) lead: Option<Comparison>,
}

/// The differences in the measure of an arm on one seed: from the start, and of the trained policy from the arm.
#[derive(Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) seed: u64,
    pub(crate) gain: Difference,
    pub(crate) lead: Option<Difference>,
}

impl SeedEpisodes {
    /// The episodes of one data set, by its name in [`sources`].
    fn only(&self, source: &str) -> Self {
        let names = sources(&by_question(&self.start));
        let of = |episode: &&Episode| {
            let name = names.get(&QuestionKey::of(episode));
            name.is_some_and(|name| name == source)
        };
        let only = |episodes: &[Episode]| episodes.iter().filter(of).cloned().collect();
        Self {
            seed: self.seed,
            start: only(&self.start),
            arms: self
                .arms
                .iter()
                .map(|(name, episodes)| (name.clone(), only(episodes)))
                .collect(),
            baselines: Vec::new(),
        }
    }

    /// The episodes of the start, then those of each arm.
    pub(crate) fn played(&self) -> impl Iterator<Item = &[Episode]> {
        let arms = self.arms.iter().map(|(_, episodes)| episodes.as_slice());
        std::iter::once(self.start.as_slice()).chain(arms)
    }

    /// Its arms, then its baselines.
    fn all(&self) -> impl Iterator<Item = &(String, Vec<Episode>)> {
        self.arms.iter().chain(&self.baselines)
    }

    /// Compares each arm, then each baseline, with the start, and the trained policy with each of them.
    pub(crate) fn compare(
        &self,
        measure: &'static str,
        bootstrap: Bootstrap,
    ) -> Result<Vec<Compared>, StudyError> {
        let against = |a: &[Episode], b: &[Episode], arm: &str, other: &'static str| {
            let found = Comparison::from_episodes(a, b, bootstrap).and_then(|found| {
                let has = found.difference(measure).is_some();
                has.then_some(found).ok_or(CompareError::NoMetric(measure))
            });
            found.map_err(|source| StudyError::Compare {
                seed: self.seed,
                arm: arm.to_owned(),
                other,
                source,
            })
        };
        let Some((_, trained)) = self.arms.first() else {
            return Ok(Vec::new());
        };
        let all = self.all().enumerate();
        all.map(|(index, (name, episodes))| {
            Ok(Compared {
                gain: against(&self.start, episodes, name, "start")?,
                lead: (index > 0)
                    .then(|| against(episodes, trained, name, "trained policy"))
                    .transpose()?,
            })
        })
        .collect()
    }
}

impl Compared {
    /// The differences in `measure`.
    pub(crate) fn figures(&self, seed: u64, measure: &str) -> Option<Figures> {
        let of = |comparison: &Comparison| comparison.difference(measure).copied();
        Some(Figures {
            seed,
            gain: of(&self.gain)?,
            lead: self.lead.as_ref().and_then(of),
        })
    }
}

impl Study {
    /// Makes the study of some seeds; the first arm of each is the trained policy. With one seed the figures are those of its
    /// comparisons.
    ///
    /// # Errors
    /// [`StudyError`] when seeds differ in their arms, repeat, or hold episodes that do not fit together.
    pub fn of(seeds: &[SeedEpisodes], bootstrap: Bootstrap) -> Result<Self, StudyError> {
        let names = check(seeds)?;
        let outcome = Headline::of(seeds.iter().flat_map(SeedEpisodes::played));
        let measure = outcome.measure();
        let (mut arms, [questions, lost_to_infra]) = arms(seeds, &names, measure, bootstrap)?;
        let names = &names[..seeds[0].arms.len()];
        let baselines = arms.split_off(names.len().min(arms.len()));
        let policies: Vec<(&[Episode], &[Episode])> = seeds
            .iter()
            .map(|seed| (seed.start.as_slice(), seed.arms[0].1.as_slice()))
            .collect();
        // Where the figures are of the reward nothing is right, and being right has no parts.
        let graded: &[(&[Episode], &[Episode])] = match outcome {
            Headline::Reward => &[],
            Headline::Answer | Headline::Ranking => &policies,
        };
        let mut by_source = BTreeMap::new();
        // The gains of each arm, by data set and seed.
        let mut gains: Vec<Vec<Vec<Scores>>> = vec![Vec::new(); names.len()];
        for source in several_sources(seeds) {
            let part: Vec<SeedEpisodes> = seeds.iter().map(|seed| seed.only(&source)).collect();
            match self::arms(&part, names, measure, bootstrap) {
                Ok((arms, _)) => {
                    by_source.insert(source, arms);
                    let starts = starts(&part, measure);
                    for (index, sets) in gains.iter_mut().enumerate() {
                        sets.push(differences(&starts, &of_arm(&part, index, measure)));
                    }
                }
                // Under some seed the data set was not asked, or all of its questions were lost; or they are not graded by the measure.
                Err(StudyError::Compare {
                    source:
                        CompareError::NothingScored { .. }
                        | CompareError::Empty
                        | CompareError::NoMetric(_),
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut macro_gain = BTreeMap::new();
        for (name, sets) in names.iter().zip(&gains) {
            let found = over_sets(sets, bootstrap)?;
            macro_gain.extend(found.map(|found| (name.clone(), found)));
        }
        Ok(Self {
            outcome,
            macro_gain,
            parts: Decomposition::of(graded, bootstrap)?,
            mistakes: MistakeShare::all(graded, bootstrap)?,
            pass_at_k: CurveComparison::over_seeds(graded.iter().copied(), bootstrap)?,
            effort: Effort::of(&policies, bootstrap)?,
            late_gain: BTreeMap::new(),
            interquartile_mean: interquartile(&arms, &by_source, bootstrap)?,
            arms,
            baselines,
            by_source,
            questions,
            lost_to_infra,
            bootstrap,
        })
    }

    /// Adds findings from the courses of training, each with its seed.
    #[must_use]
    pub fn with_courses(mut self, courses: &[(u64, Course)]) -> Self {
        let late = courses.iter();
        let late = late.filter_map(|(seed, course)| Some((*seed, course.late_gain?)));
        self.late_gain.extend(late);
        self
    }

    /// Returns whether the gain is shown and due to the reward: there is a twin, every twin is beaten, and no twin's gain has an interval
    /// above 0.
    pub fn holds(&self) -> bool {
        self.claim() == Claim::Holds
    }

    /// The claim that it supports. Of a twin's gain the interval alone is enough for suspicion.
    pub(crate) fn claim(&self) -> Claim {
        let (trained, twins) = self.arms.split_at(self.arms.len().min(1));
        let beaten = twins.iter().all(Arm::is_beaten);
        let gained = twins.iter().any(|twin| twin.gain.is_positive());
        match trained.first().map_or(Ordering::Equal, Arm::direction) {
            Ordering::Less => Claim::Worse,
            Ordering::Equal => Claim::NoGain,
            Ordering::Greater if twins.is_empty() => Claim::NoTwin,
            Ordering::Greater => match (beaten, gained) {
                (true, false) => Claim::Holds,
                (true, true) => Claim::LeadAlone,
                (false, true) => Claim::TwinGained,
                (false, false) => Claim::NotAhead,
            },
        }
    }
}

/// The names of the data sets, where there are several.
fn several_sources(seeds: &[SeedEpisodes]) -> BTreeSet<String> {
    let names = seeds
        .iter()
        .flat_map(|seed| sources(&by_question(&seed.start)).into_values());
    let names: BTreeSet<String> = names.collect();
    if names.len() > 1 {
        names
    } else {
        BTreeSet::new()
    }
}

/// Every arm over the seeds, then every baseline; the number of their questions, and of those that were lost.
fn arms(
    seeds: &[SeedEpisodes],
    names: &[String],
    measure: &'static str,
    bootstrap: Bootstrap,
) -> Result<(Vec<Arm>, [usize; 2]), StudyError> {
    let mut figures: Vec<Vec<Figures>> = vec![Vec::new(); names.len()];
    let mut lost = 0;
    for seed in seeds {
        let compared = seed.compare(measure, bootstrap)?;
        lost += compared
            .first()
            .map_or(0, |trained| trained.gain.lost_to_infra);
        for (arm, found) in figures.iter_mut().zip(compared) {
            arm.extend(found.figures(seed.seed, measure));
        }
    }
    let mut arms: Vec<Arm> = names
        .iter()
        .zip(&figures)
        .filter_map(|(name, figures)| Arm::of(name, figures))
        .collect();
    let starts = starts(seeds, measure);
    if seeds.len() > 1 {
        let trained = of_arm(seeds, 0, measure);
        for (index, arm) in arms.iter_mut().enumerate() {
            let own = of_arm(seeds, index, measure);
            arm.pool([&starts, &own, &trained], bootstrap)?;
        }
    }
    let thresholds: Vec<f64> = (0..10).map(|tenth| f64::from(tenth) / 10.0).collect();
    for arm in &mut arms {
        let finals: Vec<Vec<f64>> = arm.seeds.iter().map(|seed| vec![seed.score]).collect();
        arm.profile = performance_profile(&finals, &thresholds, bootstrap)?;
    }
    let count = seeds[0].arms.len().min(arms.len());
    let (policies, baselines) = arms.split_at_mut(count);
    adjust(policies)?;
    adjust(baselines)?;
    let questions: BTreeSet<&QuestionKey> = starts.iter().flat_map(BTreeMap::keys).collect();
    Ok((arms, [questions.len(), lost]))
}

/// Checks that every seed has the same arms and baselines, and returns their names.
fn check(seeds: &[SeedEpisodes]) -> Result<Vec<String>, StudyError> {
    let names = |seed: &SeedEpisodes| seed.all().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let expected = seeds
        .first()
        .filter(|seed| !seed.arms.is_empty())
        .map(names)
        .ok_or(StudyError::Empty)?;
    for (index, seed) in seeds.iter().enumerate() {
        if seeds[..index]
            .iter()
            .any(|earlier| earlier.seed == seed.seed)
        {
            return Err(StudyError::Twice(seed.seed));
        }
        let found = names(seed);
        if found != expected || seed.arms.len() != seeds[0].arms.len() {
            return Err(StudyError::Arms {
                seed: seed.seed,
                found: found.join(", "),
                expected: expected.join(", "),
            });
        }
    }
    Ok(expected)
}

/// The scores of the starts by seed.
fn starts(seeds: &[SeedEpisodes], measure: &str) -> Vec<Scores> {
    seeds
        .iter()
        .map(|seed| scores(&seed.start, measure))
        .collect()
}

/// The scores of an arm or a baseline, by its position, by seed.
fn of_arm(seeds: &[SeedEpisodes], index: usize, measure: &str) -> Vec<Scores> {
    let episodes = seeds.iter().filter_map(|seed| seed.all().nth(index));
    episodes
        .map(|(_, episodes)| scores(episodes, measure))
        .collect()
}

/// Mean of the measure's samples by question.
fn scores(episodes: &[Episode], measure: &str) -> Scores {
    let values = clusters(&by_question(episodes))
        .remove(measure)
        .unwrap_or_default();
    values
        .into_iter()
        .map(|(key, samples)| (key, mean(&samples)))
        .collect()
}
