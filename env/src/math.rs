//! `forage/math-v0`: a problem of mathematics, solved in one turn, whose answer stands in a box.
//!
//! The policy writes what it likes; its last `\boxed{}` holds the answer, and has to close. Problems are generated ([`problems`]) or read from
//! files (MATH-500, AMC, AIME).
//!
//! Rewards, labels and votes compare answers as texts, and `-3`, `3` and `.3` are one text to them. So an answer is recorded in a form
//! under which texts are equal where answers are ([`answer::recorded`]): exact match is then equivalence, for every reward and measure that
//! reads [`forage_contracts::Episode::answer`].

mod answer;
mod problems;
mod scripts;
mod settings;

use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnForm,
    TurnKind, TurnTool,
};
use forage_contracts::seed::Seed;
use forage_contracts::{
    Direction, EnvEntry, Episode, Metric, Passages, Pieces, Resolved, Tag, Task, Vocabulary,
};
use serde_json::{Map, Value};

use crate::reward::controls::boxed;
use crate::settings::{QUESTION, SettingsError, files, resolved};
use settings::MathSettings;

/// The registry's entry.
pub(crate) const ENTRY: EnvEntry = EnvEntry {
    last: in_box,
    gold: |task| in_box(task.golds.first().map_or("", String::as_str)),
    for_bytes: |settings| {
        let limits = Map::from_iter([
            ("max_turn_tokens".to_owned(), Value::from(4_000)),
            ("max_episode_tokens".to_owned(), Value::from(40_000)),
        ]);
        settings.into_iter().chain(limits).collect()
    },
    refuses: |reward, _| {
        OF_SEARCHES
            .contains(&reward)
            .then_some("nothing is searched in this environment: leave the reward out")
    },
    questions: Some(|settings, split, count, seed| {
        let settings: MathSettings = serde_json::from_value(settings)?;
        settings.check()?;
        let made = problems::questions(settings.difficulty, split, count, seed);
        Ok(made?)
    }),
    schema: Some(|| schemars::schema_for!(MathSettings).into()),
    resolve: |written| {
        let settings: MathSettings = serde_json::from_value(written)?;
        settings.check()?;
        let spelled = serde_json::to_value(&settings)?;
        Ok(Resolved {
            prompt: resolved(settings.prompt.read())?,
            wordings: settings.prompt.wordings(),
            files: files(&spelled, &["prompt"]),
            settings: spelled,
            passages: Passages::Unread {
                why: "nothing is searched",
                fix: "use --probe paraphrased-prompt",
            },
        })
    },
    scripts: scripts::SCRIPTS,
    vocabulary: Vocabulary {
        tags: &[BOX],
        pieces: Pieces::Code,
    },
    metrics: describe,
    measures,
    declares: DECLARED,
    ..EnvEntry::new(
        "forage/math-v0",
        "problems of mathematics, generated or of files, answered in a box",
        Outcome::Answer,
        "3 + 4 = 7, so \\boxed{7}",
        |settings, _resources| {
            let settings: MathSettings = serde_json::from_value(settings)?;
            Ok(Math::factory(&settings)?)
        },
    )
};

/// Rewards that are the same for every episode without a search.
const OF_SEARCHES: [&str; 4] = [
    "retrieval",
    "any_search",
    "search_cost",
    "redundant_searches",
];

/// Opens a box.
const BOX: &str = "\\boxed{";

/// The fault of a turn without an answer.
const UNBOXED: &str = "no answer in a closed \\boxed{}";

/// An answer in its box.
fn in_box(answer: &str) -> String {
    [BOX, answer, "}"].concat()
}

/// Reads a turn: the answer in its last box, in the form in which answers to these golds are recorded.
pub(crate) fn read(text: &str, golds: &[String]) -> TurnKind {
    let inside = boxed(text).filter(|inside| !answer::form(inside).is_empty());
    match inside {
        Some(inside) => TurnKind::answer(answer::recorded(inside, golds)),
        None => TurnKind::invalid(UNBOXED),
    }
}

/// The parts that all episodes share.
struct Shared {
    template: String,
    spec: EnvSpec,
}

/// The environment.
struct Math {
    shared: Arc<Shared>,
    golds: Option<Vec<String>>,
}

struct Factory(Arc<Shared>);

impl EnvFactory for Factory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(Math {
            shared: Arc::clone(&self.0),
            golds: None,
        })
    }

    fn spec(&self) -> &EnvSpec {
        &self.0.spec
    }

    fn tools(&self) -> Vec<TurnTool> {
        vec![TurnTool {
            name: "answer",
            about: "Ends the episode with the answer, in LaTeX.",
            parameter: "answer",
            // An answer may hold braces of its own, so nothing in it ends the box.
            form: TurnForm::Tags {
                open: BOX,
                before_close: "}",
                close: "",
            },
        }]
    }
}

impl Math {
    /// Checks the settings, reads the prompt template and returns a maker of environments.
    ///
    /// # Errors
    /// When a setting has no meaning or the prompt template cannot be read.
    fn factory(settings: &MathSettings) -> Result<Arc<dyn EnvFactory>, SettingsError> {
        settings.check()?;
        let spec = EnvSpec {
            id: ENTRY.id.to_owned(),
            outcome: ENTRY.outcome,
            max_turns: 1,
            max_turn_tokens: settings.max_turn_tokens,
            max_episode_tokens: settings.max_episode_tokens,
            // A box may be corrected by another: the policy ends its turn itself.
            stop: Vec::new(),
            append_eos_after_stop: false,
            tools: Vec::new(),
        };
        let template = settings.prompt.read()?;
        Ok(Arc::new(Factory(Arc::new(Shared { template, spec }))))
    }
}

#[async_trait]
impl Environment for Math {
    async fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        self.golds = Some(task.golds.clone());
        let prompt = self.shared.template.replace(QUESTION, task.question.trim());
        Ok(Observation::new(prompt))
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let golds = self.golds.as_ref().ok_or(EnvError::NotReset)?;
        Ok(Step::end(read(&action.text, golds)))
    }

    fn spec(&self) -> &EnvSpec {
        &self.shared.spec
    }
}

/// Returns whether an episode reasons in code: it writes `python`, in any case of letters, as Spurious Rewards counts it (Shao et al. 2025).
/// `None` of an episode that is not of this environment.
fn in_code(episode: &Episode) -> Option<bool> {
    let [turn] = episode.turns.as_slice() else {
        return None;
    };
    let own = match &turn.kind {
        TurnKind::Answer { .. } => {
            boxed(&turn.policy).is_some() && !turn.policy.contains(Tag::Answer.opening())
        }
        TurnKind::Invalid { fault } => fault == UNBOXED,
        TurnKind::Calls { .. } => false,
    };
    own.then(|| turn.policy.to_lowercase().contains("python"))
}

const DECLARED: &[Metric] = &[
    Metric::new(
        "math/code_frac",
        ["share", "episodes"],
        Direction::Neither,
        "Episodes that reason in code",
    ),
    Metric::new(
        "math/boxed_frac",
        ["share", "episodes"],
        Direction::Higher,
        "Episodes with an answer in a box",
    ),
    Metric::new(
        "code_reasoning",
        ["share", "episodes"],
        Direction::Neither,
        "Episodes that reason in code",
    ),
    Metric::new(
        "code_em",
        ["share", "episodes in code"],
        Direction::Higher,
        "Exact match of the episodes that reason in code",
    ),
    Metric::new(
        "words_em",
        ["share", "episodes in words"],
        Direction::Higher,
        "Exact match of the episodes that do not reason in code",
    ),
];

/// Hands over the metrics of a step's episodes.
fn describe(episodes: &[&Episode], set: &mut dyn FnMut(&str, f64)) {
    let own = episodes
        .iter()
        .filter_map(|episode| Some((in_code(episode)?, episode.answer().is_some())));
    let own: Vec<(bool, bool)> = own.collect();
    if own.is_empty() {
        return;
    }
    let mut share = |name: &str, holds: fn(&(bool, bool)) -> bool| {
        let count = own.iter().filter(|episode| holds(episode)).count();
        set(name, count as f64 / own.len() as f64);
    };
    share("math/code_frac", |(in_code, _)| *in_code);
    share("math/boxed_frac", |(_, is_boxed)| *is_boxed);
}

/// Hands over the measures of an episode.
fn measures(episode: &Episode, set: &mut dyn FnMut(&'static str, f64)) {
    let Some(in_code) = in_code(episode) else {
        return;
    };
    set("code_reasoning", f64::from(u8::from(in_code)));
    let scores = episode.score.as_ref();
    if let Some(em) = scores.and_then(|score| score.parts.get(ENTRY.outcome.measure())) {
        let name = if in_code { "code_em" } else { "words_em" };
        set(name, f64::from(*em));
    }
}

#[cfg(test)]
mod tests;
