//! Scripted policies that rank passages.

use std::cmp::Reverse;
use std::sync::Arc;

use forage_contracts::policy::PolicyError;
use forage_contracts::scripted::{Conduct, OracleStyle, Script, ScriptEntry, Scripted, View};
use forage_contracts::{Tag, Task};
use rand::RngExt;
use rand::seq::SliceRandom;

use super::form::{Form, HEADER, TOP};

pub(super) const SCRIPTS: &[ScriptEntry] = &[
    ScriptEntry {
        name: ScriptEntry::ORACLE,
        play: |cast| Arc::new(Scripted::knowing(cast, oracle)),
    },
    ScriptEntry {
        name: "first-stage",
        play: |cast| Arc::new(Scripted::with_script(FirstStage, cast.tokenizer)),
    },
    ScriptEntry {
        name: "random",
        play: |cast| Arc::new(Scripted::with_script(Random, cast.tokenizer)),
    },
];

/// The passages of a turn as a script reads them.
struct Window<'a> {
    form: Form,
    /// What stands behind the number, by place.
    passages: Vec<&'a str>,
}

/// A passage of a window: its number, and how good it is taken to be.
type Rated = (usize, i32);

impl<'a> Window<'a> {
    /// The passages shown last.
    fn last(view: &View<'a>) -> Result<Self, PolicyError> {
        let text = view.shown.last().map_or(view.prompt, String::as_str);
        let lines: Vec<&str> = text.lines().collect();
        let read = || {
            let header = lines.iter().rposition(|line| *line == HEADER)?;
            let below = &lines[header + 1..];
            let is_request =
                |line: &&str| Form::ALL.into_iter().find(|form| form.request() == *line);
            let (end, form) = (0..)
                .zip(below)
                .find_map(|(end, line)| Some((end, is_request(line)?)))?;
            let passages = below[..end].iter();
            let passages = passages.map(|line| line.split_once("] ").map_or("", |(_, rest)| rest));
            Some(Self {
                form,
                passages: passages.collect(),
            })
        };
        read().ok_or_else(|| {
            let message = "no passages are shown on lines of their own: write {passages} on a line of the prompt";
            PolicyError::BadRequest(message.to_owned())
        })
    }

    /// The passages as they are shown, each as good as `rate` says.
    fn rated(&self, rate: impl Fn(&str) -> i32) -> Vec<Rated> {
        let numbered = (1..).zip(&self.passages);
        numbered
            .map(|(number, text)| (number, rate(text)))
            .collect()
    }

    /// What stands between the answer tags for passages, best first.
    fn answer(&self, passages: &[Rated]) -> String {
        let joined = |between: &str, one: fn(&Rated) -> String| {
            passages.iter().map(one).collect::<Vec<_>>().join(between)
        };
        match self.form {
            Form::Pointwise => passages
                .first()
                .map_or_else(String::new, |(_, rate)| rate.to_string()),
            Form::Pairwise | Form::Setwise => passages
                .first()
                .map_or_else(String::new, |(number, _)| format!("[{number}]")),
            Form::Listwise => joined(" > ", |(number, _)| format!("[{number}]")),
            Form::Groupwise => joined(", ", |(number, rate)| format!("[{number}] {rate}")),
        }
    }
}

fn written(thought: &str, answer: &str) -> String {
    Tag::turn(thought, Tag::Answer.both(), answer)
}

/// The grade of a passage by its id, within the scale of scores.
fn grade(task: &Task, passage: &str) -> i32 {
    let judgments = task.judgments();
    let shown = |id: &str| {
        let rest = passage
            .strip_prefix('(')
            .and_then(|rest| rest.strip_prefix(id));
        rest.is_some_and(|rest| rest.starts_with(')'))
    };
    // Of ids that begin alike the longest is the passage's.
    let own = judgments
        .iter()
        .filter(|(id, _)| shown(id))
        .max_by_key(|(id, _)| id.len());
    own.map_or(0, |(_, grade)| (*grade).clamp(0, TOP as i32))
}

/// Ranks by the task's judgments, for passages that are shown with their ids; the others are as good as those not judged.
fn oracle(
    task: &Task,
    view: &View<'_>,
    style: OracleStyle,
    conduct: Conduct,
) -> Result<String, PolicyError> {
    let window = Window::last(view)?;
    let as_shown = window.rated(|passage| grade(task, passage));
    let mut best = as_shown.clone();
    best.sort_by_key(|(_, grade)| Reverse(*grade));
    let thought = match (style, best.first()) {
        (OracleStyle::Plain, Some((number, 1..))) => format!("Passage {number} helps most."),
        (OracleStyle::Plain, _) => "No passage helps.".to_owned(),
        (OracleStyle::Terse | OracleStyle::Spaced, _) => String::new(),
    };
    Ok(match conduct {
        Conduct::Careful | Conduct::Early => written(&thought, &window.answer(&best)),
        // The order as it is shown, and every passage alike.
        Conduct::Guess => written("", &window.answer(&window.rated(|_| 0))),
        // The best one alone.
        Conduct::Skim => written(&thought, &window.answer(&best[..best.len().min(1)])),
        Conduct::Silent => window.answer(&best),
        // Passages and scores that there are none of.
        Conduct::Undefined => {
            let beyond = |(number, _): &Rated| (number + best.len(), TOP as i32 + 1);
            let beyond: Vec<Rated> = best.iter().map(beyond).collect();
            written("", &window.answer(&beyond))
        }
        Conduct::Malformed => [Tag::Answer.opening(), &window.answer(&best)].concat(),
    })
}

/// Leaves passages as the first stage ranks them: what a ranking policy has to beat.
struct FirstStage;

impl Script for FirstStage {
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError> {
        let window = Window::last(view)?;
        Ok(written("", &window.answer(&window.rated(|_| 0))))
    }
}

/// Ranks by lot.
struct Random;

impl Script for Random {
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError> {
        let window = Window::last(view)?;
        let mut rng = view.seed.child("draw", &[]).rng();
        let mut drawn = window.rated(|_| 0);
        drawn.shuffle(&mut rng);
        for (_, rate) in &mut drawn {
            *rate = rng.random_range(0..=TOP as i32);
        }
        Ok(written("", &window.answer(&drawn)))
    }
}
