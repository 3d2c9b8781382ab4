//! What is shown of a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use forage_contracts::{Episode, Metric};
use forage_env::Alarm;
use forage_eval::{Bootstrap, Interval, QuestionKey, Trajectory, Verdict};
use forage_lab::{Records, RunFolder};

use crate::figures::Figure;

/// A run as it was at a moment.
pub(super) struct View {
    /// What is said of it where it has no parts.
    pub(super) bare: String,
    /// The sentences of the verdict; none before the end.
    pub(super) verdict: Vec<String>,
    /// The run's records and its twins', or those of a quickstart's two runs; none before the first step, and of files of episodes.
    pub(super) parts: Vec<Part>,
    /// Those of the newest steps, then those of evaluations.
    pub(super) trajectories: Vec<Trajectory>,
    /// What could not be read to its end.
    pub(super) notes: Vec<String>,
    read: Instant,
}

/// The records of a run that are written step by step, and what follows from them.
pub(super) struct Part {
    pub(super) records: Records,
    /// Those that a small screen must show come first.
    pub(super) figures: Vec<Figure>,
    /// The training reward step by step.
    pub(super) rewards: Vec<(f64, f64)>,
    /// Means of the reward over the first and the last steps, and how many steps those are.
    pub(super) reward: Option<([Interval; 2], usize)>,
    /// Of sentinel and telemetry, the newest first.
    pub(super) alarms: Vec<Alarm>,
}

/// Most trajectories that are held.
const TRAJECTORIES: usize = 32;
/// Most of them to one question in one file: the members of a group are much alike.
const PER_QUESTION: usize = 4;
/// Most steps that a mean of the reward is taken over.
const SPAN: usize = 20;
/// Behind the interval of such a mean, which is drawn anew with every step.
const RESAMPLES: usize = 2000;

/// The metrics that come first on a screen.
const FIRST: [&str; 13] = [
    Metric::REWARD,
    Metric::VAL_EM,
    Metric::VAL_NDCG,
    Metric::VAL_REWARD,
    Metric::INFRA,
    Metric::SEARCHES,
    Metric::RESPONSE_TOKENS,
    Metric::ENTROPY,
    Metric::MISMATCH,
    Metric::SFT_LOSS,
    Metric::FINISHED,
    Metric::NO_VARIANCE,
    Metric::GRADIENT,
];

impl View {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let run = RunFolder::peek(path)?;
        let mut sources = run.sources();
        // Of a run that goes on its steps say more than evaluations; both stay in their order.
        sources.sort_by_key(|source| source.origin.step.is_none());
        let (mut trajectories, mut notes) = (Vec::new(), Vec::new());
        for source in sources {
            let room = TRAJECTORIES.saturating_sub(trajectories.len());
            if room == 0 {
                break;
            }
            let reading = source.read()?;
            notes.extend(reading.note);
            let mut asked: BTreeMap<QuestionKey, usize> = BTreeMap::new();
            let few = |episode: &&Episode| {
                let count = asked.entry(QuestionKey::of(episode)).or_default();
                *count += 1;
                *count <= PER_QUESTION
            };
            let episodes = reading.episodes.iter().filter(few).take(room);
            let origin = || source.origin.clone();
            trajectories.extend(episodes.map(|episode| run.trajectory(origin(), episode)));
        }
        let verdict = run.verdict.as_ref().map(Verdict::words);
        Ok(Self {
            bare: run
                .waits()
                .unwrap_or_else(|| format!("{}: an evaluation.", run.name)),
            verdict: verdict.unwrap_or_default(),
            parts: run.records.into_iter().map(Part::of).collect(),
            trajectories,
            notes,
            read: Instant::now(),
        })
    }

    /// Time since it was read.
    pub(super) fn since(&self) -> Duration {
        self.read.elapsed()
    }

    /// The part at this place, counted around.
    pub(super) fn part(&self, place: usize) -> Option<&Part> {
        self.parts.get(place % self.parts.len().max(1))
    }
}

impl Part {
    fn of(records: Records) -> Self {
        let mut figures = Figure::of(&records);
        figures.sort_by_key(|figure| rank(&figure.metric));
        let rewards: Vec<(f64, f64)> = records
            .rows
            .iter()
            .filter_map(|row| Some((row.step() as f64, row.get(Metric::REWARD)?)))
            .collect();
        let of_conduct = records.course.iter().flat_map(|course| &course.alarms);
        let mut alarms: Vec<Alarm> = records.alarms.iter().chain(of_conduct).cloned().collect();
        alarms.sort_by_key(|alarm| std::cmp::Reverse(alarm.step));
        Self {
            figures,
            reward: means(&rewards),
            rewards,
            alarms,
            records,
        }
    }
}

/// The place of a metric on a screen.
fn rank(metric: &str) -> usize {
    FIRST
        .iter()
        .position(|first| *first == metric)
        .unwrap_or(FIRST.len())
}

/// Means over the first and the last steps. Each step asks questions of its own, so steps are resampled.
fn means(rewards: &[(f64, f64)]) -> Option<([Interval; 2], usize)> {
    let values: Vec<f64> = rewards.iter().map(|(_, reward)| *reward).collect();
    // Both ends apart, as far as there are steps.
    let span = values.len().div_ceil(2).min(SPAN);
    let bootstrap = Bootstrap {
        resamples: RESAMPLES,
        ..Bootstrap::new(1)
    };
    let first = bootstrap.mean(&values[..span]).ok()?;
    let last = bootstrap.mean(&values[values.len() - span..]).ok()?;
    Some(([first, last], span))
}
