//! One episode on the server: turns in, observations and rewards out.

use std::sync::Arc;

use forage_contracts::environment::TurnKind;
use forage_contracts::policy::Finish;
use forage_contracts::seed::Seed;
use forage_contracts::{Ending, Episode, Limit, Provenance, Score, Task, TokenLog};
use serde::Serialize;

use super::Served;
use super::memory::weight;
use crate::rollout::stage::{Fault, Stage, judge};

/// A turn as a client wrote it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) text: String,
    /// Why it ended, where the client says so.
    pub(super) finish: Option<Finish>,
}

/// What a client learns of a reset or a step, in every protocol.
#[derive(Clone, Debug, Serialize)]
pub(super) struct View {
    pub(super) episode_id: String,
    pub(super) task_id: String,
    pub(super) question: String,
    pub(super) data_source: String,
    /// Turns taken.
    pub(super) turn: usize,
    pub(super) max_turns: usize,
    /// Strings that end a turn.
    pub(super) stop: Vec<String>,
    /// Text the next turn begins with.
    pub(super) forced_prefix: Option<String>,
    pub(super) seed: u64,
    pub(super) terminated: bool,
    pub(super) truncated: bool,
    pub(super) info: Info,
}

/// What was understood of a turn, and of the episode once it is over.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Info {
    /// What the environment understood; `None` after a reset.
    pub(super) kind: Option<TurnKind>,
    /// How the episode ended.
    pub(super) ending: Option<Ending>,
    /// Total and parts, once it is over.
    pub(super) score: Option<Score>,
    /// Characters behind the stop string, which nobody read.
    pub(super) ignored_chars: usize,
}

/// The answer to a reset or a step.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// What the policy reads next.
    pub(super) text: String,
    /// Reward of the turn, with the score added to the last; `None` after a reset.
    pub(super) reward: Option<f32>,
    pub(super) view: View,
    /// The memory that it takes, about, and at least as many bytes as it has in JSON.
    pub(super) bytes: usize,
}

impl Reply {
    pub(super) fn new(text: String, reward: Option<f32>, view: View) -> Self {
        let bytes = weight(&text) + weight(&view);
        Self {
            text,
            reward,
            view,
            bytes,
        }
    }

    /// Whether the episode is over.
    pub(super) fn done(&self) -> bool {
        self.view.terminated || self.view.truncated
    }
}

/// How an episode is to be begun.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) id: String,
    /// What the server calls the task.
    pub(super) called: String,
    pub(super) task: Arc<Task>,
    pub(super) seed: u64,
    pub(super) member: u64,
}

/// An episode in the middle.
pub(super) struct Play {
    opening: Opening,
    stage: Stage,
    /// Numbers of tokens with their authors, as with every policy that writes text: ids would take many times its memory.
    log: TokenLog,
    forced_prefix: String,
    /// The memory that the prompt and the turns take, about.
    kept: usize,
}

impl Play {
    pub(super) async fn open(served: &Served, opening: Opening) -> Result<(Self, Reply), Fault> {
        let stage = Stage::open(
            served.factory.as_ref(),
            &served.rewards,
            &opening.task,
            Seed::root(opening.seed),
        )
        .await?;
        let mut play = Self {
            kept: stage.prompt().len(),
            opening,
            stage,
            log: TokenLog::default(),
            forced_prefix: String::new(),
        };
        let text = play.stage.prompt().to_owned();
        play.count(served, &text, Provenance::Prompt);
        let view = play.view(served, Info::default());
        Ok((play, Reply::new(text, None, view)))
    }

    /// The memory that it keeps, about.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Logs how many tokens a text has.
    fn count(&mut self, served: &Served, text: &str, author: Provenance) {
        let tokens = served.tokenizer.encode(text).len();
        // Nobody here knows by which weights a turn was drawn.
        let version = (author == Provenance::Policy).then_some(0);
        self.log.push_counted(tokens, author, version);
    }

    /// Takes a turn; gives the episode back unless it is over.
    pub(super) async fn step(
        mut self,
        served: &Served,
        turn: Turn,
    ) -> Result<(Reply, Option<Self>), Fault> {
        let (text, finish, ignored_chars) = self.written(served, turn);
        let written = text.len();
        let reaction = self.stage.react(text, finish).await?;
        let mut info = Info {
            kind: Some(reaction.step.kind.clone()),
            ignored_chars,
            ..Info::default()
        };
        let (text, reward) = (reaction.step.observation.text.clone(), reaction.step.reward);
        let prefix = reaction.step.forced_prefix.clone().unwrap_or_default();
        if let Some(ending) = self.stage.keep(reaction) {
            info.kind = self.stage.turns().last().map(|turn| turn.kind.clone());
            return self
                .end(served, ending, info, reward)
                .await
                .map(|reply| (reply, None));
        }
        self.count(served, &text, Provenance::Environment);
        self.kept += written + text.len() + weight(&info.kind);
        self.forced_prefix = prefix;
        let view = self.view(served, info);
        Ok((Reply::new(text, Some(reward), view), Some(self)))
    }

    /// Ends the episode before the policy did.
    pub(super) async fn stop(self, served: &Served, limit: Limit) -> Result<Reply, Fault> {
        self.end(served, Ending::Truncated { limit }, Info::default(), 0.0)
            .await
    }

    /// The turn as an engine would have ended it, logged, and how many characters stand behind its end.
    fn written(&mut self, served: &Served, turn: Turn) -> (String, Finish, usize) {
        let Turn { mut text, finish } = turn;
        if !text.starts_with(&self.forced_prefix) {
            text.insert_str(0, &self.forced_prefix);
        }
        // What the prefix holds ended no turn.
        let (forced, stops) = (self.forced_prefix.len(), &served.factory.spec().stop);
        let end_of = |stop: &String| {
            let start = text[forced..].find(stop.as_str())?;
            Some(forced + start + stop.len())
        };
        let end = stops.iter().filter_map(end_of).min();
        let ignored = end.map_or(0, |end| text[end..].chars().count());
        text.truncate(end.unwrap_or(text.len()));
        let finish = if end.is_some() {
            Finish::Stop
        } else {
            finish.unwrap_or(Finish::Eos)
        };
        let (forced, written) = text.split_at(forced);
        self.count(served, forced, Provenance::Forced);
        self.count(served, written, Provenance::Policy);
        (text, finish, ignored)
    }

    async fn end(
        self,
        served: &Served,
        ending: Ending,
        info: Info,
        reward: f32,
    ) -> Result<Reply, Fault> {
        let mut view = self.view(served, info);
        let (prompt, turns) = self.stage.into_record();
        let episode = Episode {
            member: self.opening.member,
            prompt,
            turns,
            tokens: self.log,
            ending,
            seed: Some(Seed::root(self.opening.seed)),
            ..Episode::new(Task::clone(&self.opening.task))
        };
        let Episode { ending, score, .. } = judge(&served.rewards, episode).await;
        let total = match (&ending, &score) {
            (Ending::Infra { boundary, message }, _) => {
                return Err(Fault {
                    boundary: *boundary,
                    message: message.clone(),
                });
            }
            (_, score) => score.as_ref().map_or(0.0, |score| score.total),
        };
        view.truncated = matches!(ending, Ending::Truncated { .. });
        view.terminated = !view.truncated;
        view.info.ending = Some(ending);
        view.info.score = score;
        view.forced_prefix = None;
        Ok(Reply::new(String::new(), Some(reward + total), view))
    }

    fn view(&self, served: &Served, info: Info) -> View {
        let spec = served.factory.spec();
        let Opening {
            id,
            called,
            task,
            seed,
            ..
        } = &self.opening;
        View {
            episode_id: id.clone(),
            task_id: called.clone(),
            question: task.question.clone(),
            data_source: task.data_source.clone(),
            turn: self.stage.turns().len(),
            max_turns: spec.max_turns,
            stop: spec.stop.clone(),
            forced_prefix: (!self.forced_prefix.is_empty()).then(|| self.forced_prefix.clone()),
            seed: *seed,
            terminated: false,
            truncated: false,
            info,
        }
    }
}
