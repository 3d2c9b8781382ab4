//! The turn at which an episode branches off another of its group.

use std::sync::Arc;

use forage_contracts::environment::Outcome;
use forage_contracts::seed::Seed;
use forage_contracts::{Branch, SettingError};
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
    /// After a turn of the episode from the beginning that earned most, the first of equals: after i of its turns, the last apart, with a
    /// weight of `alpha`^(i - 1), where it earned at least `least`; else at its beginning. These are the partial states that ReST-GRPO
    /// (arXiv 2508.19576) adds to the questions, by the values of its code over the lines of a program. Parts of the reward that compare
    /// the episodes of a group are not known yet.
    Best {
        /// The factor by which each further turn is less likely, above 0 and at most 1.
        #[serde(default = "alpha")]
        alpha: f64,
        /// Least reward of an episode that is begun with.
        #[serde(default = "least")]
        least: f64,
    },
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

const fn alpha() -> f64 {
    0.95
}

const fn least() -> f64 {
    0.9
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
        let from_zero = |key, number: f64| {
            let is_fit = number >= 0.0 && number.is_finite();
            (key, number, is_fit, "0 or more")
        };
        let settings = match self {
            Self::Random => Vec::new(),
            Self::Best { alpha, least } => {
                let is_fit = alpha > 0.0 && alpha <= 1.0;
                vec![
                    ("best.alpha", alpha, is_fit, "above 0 and at most 1"),
                    ("best.least", least, least.is_finite(), "a number"),
                ]
            }
            Self::Frontier {
                value,
                uncertainty,
                depth,
                floor,
            } => {
                let is_fit = (0.0..=1.0).contains(&floor);
                vec![
                    from_zero("frontier.value", value),
                    from_zero("frontier.uncertainty", uncertainty),
                    from_zero("frontier.depth", depth),
                    ("frontier.floor", floor, is_fit, "in [0, 1]"),
                ]
            }
        };
        for (key, number, is_fit, must) in settings {
            if !is_fit {
                let key = format!("branching.{key}");
                return Err(SettingError::range(key, number, must));
            }
        }
        Ok(())
    }

    /// Chooses the episode to branch from, as its index in `played`, and the number of turns to share with it; `None` where no episode
    /// can be branched from. `seed` is the branch's; `most` is the most turns that an episode can have.
    pub(super) fn choose(
        self,
        played: &[Option<Arc<Root>>],
        seed: Seed,
        most: usize,
    ) -> Option<(usize, usize)> {
        match self {
            Self::Random => {
                let last = played.first()?.as_ref()?.turns();
                let turns = if last > 1 {
                    seed.child("branch", &[]).rng().random_range(1..last)
                } else {
                    0
                };
                Some((0, turns))
            }
            Self::Best { alpha, least } => {
                let earned = |(place, root): (usize, &Option<Arc<Root>>)| {
                    let root = root.as_ref()?;
                    Some((place, root.turns(), root.episode.reward()?))
                };
                let earned = played.iter().enumerate().filter_map(earned);
                let (place, last, reward) =
                    earned.reduce(|best, next| if next.2 > best.2 { next } else { best })?;
                let turns = if last > 1 && reward >= least as f32 {
                    let share = seed.child("branch", &[]).rng().random::<f64>();
                    decayed(last - 1, alpha, share)
                } else {
                    0
                };
                Some((place, turns))
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
                let least = open().map(|state| state.branches).min();
                let mut best: Option<(f64, &State)> = None;
                for state in open().filter(|state| Some(state.branches) == least) {
                    let score = score(state);
                    // Among equals the first wins.
                    if best.is_none_or(|(highest, _)| score > highest) {
                        best = Some((score, state));
                    }
                }
                // Where every episode has a single turn, the branch starts over from the prompt.
                let started_over =
                    || Some((tree.paths.iter().position(|path| !path.is_empty())?, 0));
                best.map(|(_, state)| (state.place, state.turns))
                    .or_else(started_over)
            }
        }
    }
}

/// The number from 1 to `most`, under weights 1, `alpha`, `alpha`^2, ...: at which their running sum first exceeds `share` of the
/// total.
fn decayed(most: usize, alpha: f64, share: f64) -> usize {
    let weights = (0..most).map(|turn| alpha.powi(turn as i32));
    let most_weight = share * weights.clone().sum::<f64>();
    let mut sum = 0.0;
    let passed = weights.take_while(|weight| {
        sum += weight;
        sum <= most_weight
    });
    (passed.count() + 1).min(most)
}

/// A node of the tree: what the policy had read and written before one of its turns, or at the end.
struct State {
    /// The parent, before the turn that led here; `None` at the prompt.
    before: Option<usize>,
    /// Index of the episode that reached it first.
    place: usize,
    /// Depth in turns.
    turns: usize,
    /// Mean surprisal of the turn that led here, nats.
    surprisal: f64,
    /// Whether an episode can branch off here.
    is_open: bool,
    /// Episodes that branched off here.
    branches: usize,
    /// Sum of the values backed up by episodes.
    value: f64,
    /// Episodes through it.
    visits: usize,
}

/// The states of a group's scored episodes.
#[derive(Default)]
struct Tree {
    states: Vec<State>,
    /// `[episodes][turns + 1]`: the states of each episode; empty where the episode was lost or has no score.
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

    /// Adds the states that an episode reached first; returns all of its states.
    fn grow(&mut self, place: usize, root: &Root, played: &[Option<Arc<Root>>]) -> Vec<usize> {
        let Root { episode, starts } = root;
        let mut path = episode
            .branch
            .and_then(|branch| self.shared(branch, played))
            .unwrap_or_default();
        if let Some(&state) = path.last() {
            self.states[state].branches += 1;
        }
        let surprisal = |&start: &usize| episode.tokens.surprisal(|span| span.start == start);
        for turns in path.len()..=episode.turns.len() {
            let start = turns.checked_sub(1).and_then(|turn| starts.get(turn));
            path.push(self.states.len());
            self.states.push(State {
                before: turns.checked_sub(1).map(|before| path[before]),
                place,
                turns,
                surprisal: start.and_then(surprisal).unwrap_or(0.0),
                is_open: turns > 0 && turns < root.turns(),
                branches: 0,
                value: 0.0,
                visits: 0,
            });
        }
        path
    }

    /// The states that a branch shares with the episode that it branched from.
    fn shared(&self, branch: Branch, played: &[Option<Arc<Root>>]) -> Option<Vec<usize>> {
        let is_parent = |root: &Option<Arc<Root>>| {
            let root = root.as_ref();
            root.is_some_and(|root| root.episode.member == branch.member)
        };
        let path = self.paths.get(played.iter().position(is_parent)?)?;
        Some(path.get(..=branch.turns)?.to_vec())
    }

    /// Backs an outcome up along a path. A state on the way to a right answer never turns negative: a wrong outcome subtracts nothing
    /// there, and a right one replaces whatever wrong ones left.
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

#[cfg(test)]
mod tests {
    use forage_contracts::environment::TurnKind;
    use forage_contracts::policy::Finish;
    use forage_contracts::{Boundary, Ending, Episode, Score, Task, TokenLog, Turn};
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
    fn beginnings_of_the_best_are_drawn_as_python_draws_them() {
        let fixture = include_str!("../../tests/fixtures/best.json");
        let fixture: Value = serde_json::from_str(fixture).unwrap();
        for draw in fixture["draws"].as_array().unwrap() {
            let (alpha, share) = (draw["alpha"].as_f64(), draw["share"].as_f64());
            let most = draw["most"].as_u64().unwrap() as usize;
            let found = decayed(most, alpha.unwrap(), share.unwrap());
            assert_eq!(Some(found as u64), draw["turns"].as_u64(), "{draw}");
        }
        let groups = fixture["groups"].as_array().unwrap();
        for group in groups {
            let best: Branching =
                serde_json::from_value(json!({"best": group["settings"]})).unwrap();
            let written = (0..).zip(group["episodes"].as_array().unwrap());
            let played: Vec<_> = written
                .map(|(member, written)| Some(Arc::new(root(member, written))))
                .collect();
            let choose = |seed| best.choose(&played, Seed::root(seed), 8);
            let Some(place) = group["place"].as_u64() else {
                assert_eq!(choose(0), None);
                continue;
            };
            let shares: Vec<f64> = serde_json::from_value(group["shares"].clone()).unwrap();
            let mut counts = vec![0; shares.len()];
            for seed in 0..2000 {
                let (left, turns) = choose(seed).unwrap();
                assert_eq!(left as u64, place, "{group}");
                counts[turns] += 1;
            }
            for (count, share) in counts.into_iter().zip(shares) {
                let found = f64::from(count) / 2000.0;
                assert!((found - share).abs() < 0.05, "{found} is not {share}");
            }
        }
        assert!(groups.len() > 8);
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
        let best: Branching = serde_json::from_value(json!({"best": {}})).unwrap();
        assert_eq!(best.check(), Ok(()));
        for alpha in [0.0, 1.5] {
            let best: Branching =
                serde_json::from_value(json!({"best": {"alpha": alpha}})).unwrap();
            let error = best.check().unwrap_err().to_string();
            assert!(error.starts_with("branching.best.alpha is"), "{error}");
        }
        for branching in [frontier, best, Branching::Random] {
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
