//! The environment of `docs/tutorial-environment.md` in Rust: questions to a card index.
//!
//! `<search>WORDS</search>` draws the card that shares the most words with the search, `<answer>NAME</answer>` ends the episode. Cards and
//! questions are files of `forage world`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnKind,
};
use forage_contracts::seed::Seed;
use forage_contracts::{EnvEntry, RegistryError, Task};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The registry's entry.
pub(crate) const ENTRY: EnvEntry = EnvEntry {
    questions: Some(|settings, split, count, _seed| {
        let settings: Settings = serde_json::from_value(settings)?;
        let tasks: Vec<Task> = settings.rows("questions.jsonl")?;
        let asked = tasks.into_iter().filter(|task| task.split == split);
        Ok(asked.take(count).collect())
    }),
    ..EnvEntry::new(
        "lab/cards-v0",
        "questions to a card index",
        Outcome::Answer,
        "<search>river</search>",
        |settings, _resources| {
            let settings: Settings = serde_json::from_value(settings)?;
            let passages: Vec<Passage> = settings.rows("beir/corpus.jsonl")?;
            if passages.is_empty() {
                return Err(broken("there are no cards in beir/corpus.jsonl".to_owned()));
            }
            let cards = passages.into_iter().map(Card::new).collect();
            Ok(Arc::new(Cards {
                spec: spec(),
                cards,
            }))
        },
    )
};

/// Settings of `lab/cards-v0`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Folder of a generated world.
    world: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        let world = PathBuf::from("worlds/cards");
        Self { world }
    }
}

impl Settings {
    fn rows<T: DeserializeOwned>(&self, file: &str) -> Result<Vec<T>, RegistryError> {
        let path = self.world.join(file);
        let shown = path.display();
        let text = std::fs::read_to_string(&path)
            .map_err(|error| broken(format!("{shown}: {error}; make it with `forage world`")))?;
        let row = |(number, line): (usize, &str)| {
            serde_json::from_str(line)
                .map_err(|error| broken(format!("{shown}, line {number}: {error}")))
        };
        (1..).zip(text.lines()).map(row).collect()
    }
}

fn broken(what: String) -> RegistryError {
    RegistryError::Own(what.into())
}

fn spec() -> EnvSpec {
    EnvSpec {
        id: ENTRY.id.to_owned(),
        outcome: ENTRY.outcome,
        max_turns: 3,
        max_turn_tokens: 24,
        max_episode_tokens: 320,
        stop: vec!["</search>".to_owned(), "</answer>".to_owned()],
        append_eos_after_stop: false,
        tools: Vec::new(),
    }
}

#[derive(Deserialize)]
struct Passage {
    #[serde(rename = "_id")]
    id: String,
    title: String,
    text: String,
}

struct Card {
    id: String,
    text: String,
    words: HashSet<String>,
}

impl Card {
    fn new(passage: Passage) -> Self {
        let text = format!("{}: {}", passage.title, passage.text);
        let (id, words) = (passage.id, words(&text));
        Self { id, text, words }
    }
}

fn words(text: &str) -> HashSet<String> {
    let text = text.to_lowercase();
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// What stands in the last pair of these tags, where the turn ends with it.
fn inside<'a>(turn: &'a str, [open, close]: [&str; 2]) -> Option<&'a str> {
    let before = turn.trim_end().strip_suffix(close)?;
    let (_, found) = before.rsplit_once(open)?;
    Some(found.trim())
}

/// The factory, and an episode as well: nothing changes from turn to turn.
#[derive(Clone)]
struct Cards {
    spec: EnvSpec,
    cards: Arc<[Card]>,
}

impl EnvFactory for Cards {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(self.clone())
    }

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }
}

#[async_trait]
impl Environment for Cards {
    async fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        Ok(Observation::new(format!("Question: {}\n", task.question)))
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        if let Some(answer) = inside(&action.text, ["<answer>", "</answer>"]) {
            return Ok(Step::end(TurnKind::answer(answer)));
        }
        let Some(query) = inside(&action.text, ["<search>", "</search>"]) else {
            return Ok(Step::end(TurnKind::invalid(
                "neither <search> nor <answer>",
            )));
        };
        let asked = words(query);
        // Of equals the first, as Python's `max` takes it; `max_by_key` takes the last.
        let cards = self.cards.iter().rev();
        let best = cards.max_by_key(|card| card.words.intersection(&asked).count());
        let card = best.ok_or_else(|| EnvError::own("there are no cards"))?;
        let observation = format!("<information> {}\n</information>", card.text);
        let call = TurnKind::search(query, vec![card.id.clone()]);
        Ok(Step::reply(Observation::new(observation), call))
    }

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }
}
