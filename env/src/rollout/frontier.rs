//! Where an episode leaves another of its group.

use std::sync::Arc;

use forage_contracts::environment::Outcome;
use forage_contracts::seed::Seed;
use forage_contracts::{Branch, Provenance, SettingError, Span, TokenLog};
use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::running::Root;

/// The rule by which branches of a tree leave the episodes that were played before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Branching {
    /// After a turn of an episode that was played from the beginning, drawn evenly from all but its last (Tree-GRPO, arXiv 2509.21240).
    #[default]
    Random,
    /// At the best state of the whole tree, one branch after another: `value` tanh(Q) + `uncertainty` H + `depth` sqrt(d / most), where d
    /// is the number of turns before the state, `most` the environment's, H the mean surprisal of the tokens of the turn that led there,
    /// nats, and Q the mean value of the state before that turn (`DeepSearch`, arXiv 2509.25454, weights of its code by default). A finished
    /// episode of l turns gives the state after i of them max((i + 1) / (l + 1), `floor`) v, v from -1 for a wrong answer to 1 for a right
    /// one; nothing where v < 0 and the state's sum is above 0, in the place of the sum where v > 0 and that is below 0. Only states that
    /// were left least often are candidates, neither the prompt nor an end is one.
    Frontier {
        /// Weight of the value, 0 or more.
        #[serde(default = "value")]
        value: f64,
        /// Weight of the uncertainty, 0 or more.
        #[serde(default = "uncertainty")]
        uncertainty: f64,
        /// Weight of the depth, 0 or more.
        #[serde(default = "depth")]
        depth: f64,
        /// Least share of an outcome that a state on its way gets, 0 to 1.
        #[serde(default = "floor")]
        floor: f64,
    },
}

const fn value() -> f64 {
    0.4
}

const fn uncertainty() -> f64 {
    0.4
}

const fn depth() -> f64 {
    0.01
}

const fn floor() -> f64 {
    0.1
}

impl Branching {
    /// Tells whether branches leave at random turns.
    pub fn is_random(&self) -> bool {
        *self == Self::Random
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`SettingError`], which names the key at fault and what it must be.
    pub fn check(self) -> Result<(), SettingError> {
        let Self::Frontier {
            value,
            uncertainty,
            depth,
            floor,
        } = self
        else {
            return Ok(());
        };
        let from_zero = |number: f64| number >= 0.0 && number.is_finite();
        for (key, number, is_fit, must) in [
            ("value", value, from_zero(value), "0 or more"),
            (
                "uncertainty",
                uncertainty,
                from_zero(uncertainty),
                "0 or more",
            ),
            ("depth", depth, from_zero(depth), "0 or more"),
            ("floor", floor, (0.0..=1.0).contains(&floor), "in [0, 1]"),
        ] {
            if !is_fit {
                let key = format!("branching.frontier.{key}");
                return Err(SettingError::range(key, number, must));
            }
        }
        Ok(())
    }

    /// Chooses, of the episodes `played` so far, the place of the one to leave and the turns that both share; `None` where there is none
    /// to leave. `seed` is the branch's, `most` the turns that an episode can have.
    pub(super) fn choose(
        self,
        played: &[Option<Arc<Root>>],
        seed: Seed,
        most: usize,
    ) -> Option<(usize, usize)> {
        match self {
            Self::Random => {
                let last = played.first()?.as_ref()?.last();
                let turns = if last > 1 {
                    seed.child("branch", &[]).rng().random_range(1..last)
                } else {
                    0
                };
                Some((0, turns))
            }
            Self::Frontier {
                value,
                uncertainty,
                depth,
                floor,
            } => {
                let tree = Tree::of(played, floor);
                let score = |state: &State| {
                    let before = state.before.map(|before| &tree.states[before]);
                    let mean = before.map_or(0.0, |before| before.value / before.visits as f64);
                    value * mean.tanh()
                        + uncertainty * state.surprisal
                        + depth * (state.turns as f64 / most as f64).sqrt()
                };
                let open = || tree.states.iter().filter(|state| state.is_open);
                let least = open().map(|state| state.left).min();
                let mut best: Option<(f64, &State)> = None;
                for state in open().filter(|state| Some(state.left) == least) {
                    let score = score(state);
                    // The first of equals.
                    if best.is_none_or(|(highest, _)| score > highest) {
                        best = Some((score, state));
                    }
                }
                // Where every episode is a single turn, one is started over.
                let started_over =
                    || Some((tree.paths.iter().position(|path| !path.is_empty())?, 0));
                best.map(|(_, state)| (state.place, state.turns))
                    .or_else(started_over)
            }
        }
    }
}

/// What a policy had read and written before one of its turns, or at the end.
struct State {
    /// The state before the turn that led here; none of a prompt.
    before: Option<usize>,
    /// The place of the episode that came here first.
    place: usize,
    /// Turns until here.
    turns: usize,
    /// Mean surprisal of the turn that led here, nats.
    surprisal: f64,
    /// Whether a branch can leave here.
    is_open: bool,
    /// Branches that left here.
    left: usize,
    /// The sum of what episodes gave back.
    value: f64,
    /// Episodes that came through.
    visits: usize,
}

/// The states of a group's scored episodes.
#[derive(Default)]
struct Tree {
    states: Vec<State>,
    /// `[episodes][turns + 1]`: the states of each; empty where it was lost or has no score.
    paths: Vec<Vec<usize>>,
}

impl Tree {
    fn of(played: &[Option<Arc<Root>>], floor: f64) -> Self {
        let mut tree = Self::default();
        for (place, root) in played.iter().enumerate() {
            let found = root.as_ref().and_then(|root| {
                let score = root.episode.score.as_ref()?;
                let outcome = 2.0 * f64::from(Outcome::accuracy(score)) - 1.0;
                let path = tree.grow(place, root, played);
                tree.give_back(&path, outcome.clamp(-1.0, 1.0), floor);
                Some(path)
            });
            tree.paths.push(found.unwrap_or_default());
        }
        tree
    }

    /// Adds the states that an episode was the first to come to; returns all of its states.
    fn grow(&mut self, place: usize, root: &Root, played: &[Option<Arc<Root>>]) -> Vec<usize> {
        let Root { episode, starts } = root;
        let mut path = episode
            .branch
            .and_then(|branch| self.shared(branch, played))
            .unwrap_or_default();
        if let Some(&state) = path.last() {
            self.states[state].left += 1;
        }
        for turns in path.len()..=episode.turns.len() {
            let start = turns.checked_sub(1).and_then(|turn| starts.get(turn));
            path.push(self.states.len());
            self.states.push(State {
                before: turns.checked_sub(1).map(|before| path[before]),
                place,
                turns,
                surprisal: start.map_or(0.0, |&start| surprisal(&episode.tokens, start)),
                is_open: turns > 0 && turns < root.last(),
                left: 0,
                value: 0.0,
                visits: 0,
            });
        }
        path
    }

    /// The states that a branch shares with the episode that it left.
    fn shared(&self, branch: Branch, played: &[Option<Arc<Root>>]) -> Option<Vec<usize>> {
        let is_left = |root: &Option<Arc<Root>>| {
            let root = root.as_ref();
            root.is_some_and(|root| root.episode.member == branch.member)
        };
        let path = self.paths.get(played.iter().position(is_left)?)?;
        Some(path.get(..=branch.turns)?.to_vec())
    }

    /// Backs an outcome up along a path. A state on the way to a right answer never turns bad: a wrong end takes nothing from it, and a
    /// right one wipes out what wrong ones left.
    fn give_back(&mut self, path: &[usize], outcome: f64, floor: f64) {
        for (turns, &state) in path.iter().enumerate() {
            let share = ((turns + 1) as f64 / path.len() as f64).max(floor);
            let state = &mut self.states[state];
            state.visits += 1;
            if state.value * outcome >= 0.0 {
                state.value += share * outcome;
            } else if outcome > 0.0 {
                state.value = share * outcome;
            }
        }
    }
}

/// The mean of -ln p over the tokens that the policy drew from `start` on, an estimate of the entropy at them; 0 where it drew none.
fn surprisal(log: &TokenLog, start: usize) -> f64 {
    let drawn = |span: &&Span| span.start == start && span.provenance == Provenance::Policy;
    let Some(span) = log.spans().iter().find(drawn) else {
        return 0.0;
    };
    let logprobs = &log.logprobs()[span.start..span.end];
    let sum: f64 = logprobs.iter().map(|&logprob| f64::from(logprob)).sum();
    -sum / logprobs.len() as f64
}

#[cfg(test)]
mod tests {
    use forage_contracts::environment::TurnKind;
    use forage_contracts::policy::Finish;
    use forage_contracts::{Boundary, Ending, Episode, Score, Task, Turn};
    use serde_json::{Value, json};

    use super::*;

    fn branching(weights: &Value) -> Branching {
        serde_json::from_value(json!({"frontier": weights})).unwrap()
    }

    /// An episode of the fixture, and where its turns begin.
    fn root(member: u64, written: &Value) -> Root {
        let turns: Vec<Vec<f32>> = serde_json::from_value(written["logprobs"].clone()).unwrap();
        let mut tokens = TokenLog::with_prompt(&[1]);
        let mut starts = Vec::new();
        for logprobs in &turns {
            starts.push(tokens.len());
            tokens.push_policy(&vec![2; logprobs.len()], logprobs, 0, None);
            tokens.push_environment(&[3]);
        }
        let turn = |_: &Vec<f32>| Turn {
            policy: String::new(),
            finish: Finish::Stop,
            kind: TurnKind::invalid("none"),
            observation: String::new(),
            reward: 0.0,
        };
        let lost = Ending::Infra {
            boundary: Boundary::Policy,
            message: String::new(),
        };
        let accuracy = written["accuracy"].as_f64();
        let branch: Option<(u64, usize)> =
            serde_json::from_value(written["branch"].clone()).unwrap();
        let episode = Episode {
            member,
            branch: branch.map(|(member, turns)| Branch {
                member,
                turns,
                root: None,
            }),
            turns: turns.iter().map(turn).collect(),
            tokens,
            score: accuracy.map(|accuracy| Score {
                total: accuracy as f32,
                ..Score::default()
            }),
            ending: accuracy.map_or(lost, |_| Ending::Answered),
            ..Episode::new(Task::new("1", "Who?"))
        };
        Root { episode, starts }
    }

    #[test]
    fn the_order_of_the_frontier_equals_a_plain_model() {
        let fixture = include_str!("../../tests/fixtures/frontier.json");
        let trees: Vec<Value> = serde_json::from_str(fixture).unwrap();
        let mut deep = 0;
        for (number, tree) in trees.iter().enumerate() {
            let branching = branching(&tree["weights"]);
            let most = tree["most"].as_u64().unwrap() as usize;
            let mut played = Vec::new();
            for (member, written) in (0..).zip(tree["episodes"].as_array().unwrap()) {
                played.push(Some(Arc::new(root(member, written))));
                let found = branching.choose(&played, Seed::root(0), most);
                let expected: Option<(usize, usize)> =
                    serde_json::from_value(written["choice"].clone()).unwrap();
                assert_eq!(found, expected, "tree {number} after member {member}");
                deep += usize::from(expected.is_some_and(|(place, turns)| place > 0 && turns > 1));
            }
        }
        assert!(deep > 50, "{deep}");
    }

    #[test]
    fn what_is_missing_is_not_left() {
        let frontier = branching(&json!({}));
        assert_eq!(frontier, branching(&json!({"value": 0.4, "floor": 0.1})));
        let written = json!({"branch": null, "logprobs": [[-1.0], [-1.0]], "accuracy": 1.0});
        let whole = || Some(Arc::new(root(1, &written)));
        assert_eq!(
            frontier.choose(&[None, whole()], Seed::root(0), 4),
            Some((1, 1))
        );
        for branching in [frontier, Branching::Random] {
            assert_eq!(branching.choose(&[None], Seed::root(0), 4), None);
        }
        assert_eq!(
            Branching::Random.choose(&[whole()], Seed::root(0), 4),
            Some((0, 1))
        );
        let wrong = serde_json::from_value::<Branching>(json!({"frontier": {"values": 1.0}}));
        assert!(wrong.is_err());
    }
}
