//! What a few groups of rollouts say of an experiment.

use std::collections::BTreeMap;

use forage_contracts::environment::Outcome;
use forage_contracts::{Ending, EnvEntry, Episode, Provenance, Tokenizer};
use forage_env::registry::rewards;
use forage_trainer::Sample;
use forage_trainer::doctor::Check;

use super::{failed, noted};
use crate::config::Resolved;
use crate::evaluate::fault_budget;

/// Share of episodes that a limit may end.
const CUT: f64 = 0.5;

/// Groups of episodes, as they were played.
pub(super) struct Played<'a> {
    pub(super) config: &'a Resolved,
    pub(super) entry: &'a EnvEntry,
    pub(super) episodes: &'a [Episode],
    pub(super) tokenizer: &'a dyn Tokenizer,
}

impl Played<'_> {
    pub(super) fn checks(&self) -> Vec<Check> {
        vec![
            self.faults(),
            self.groups(),
            self.text(),
            self.loss_mask(),
            self.endings(),
            self.searches(),
            self.rewards(),
            self.variance(),
        ]
    }

    fn count(&self, holds: impl Fn(&Episode) -> bool) -> usize {
        self.episodes
            .iter()
            .filter(|episode| holds(episode))
            .count()
    }

    fn faults(&self) -> Check {
        let total = self.episodes.len();
        let fix = "mend what failed: a run stops where a step loses more than grpo.fault_share of its episodes";
        match fault_budget(self.config).check(self.episodes) {
            Ok(0) => failed("faults", format!("none in {total} episodes"), false, fix),
            Ok(lost) => noted("faults", format!("{lost} of {total} episodes"), true, fix),
            Err(error) => failed("faults", error.to_string(), true, fix),
        }
    }

    /// Each group is one question, every member an episode of its own.
    fn groups(&self) -> Check {
        let size = self.config.grpo.group_size;
        let groups = self.episodes.chunks(size);
        let whole = |group: &[Episode]| {
            group.len() == size
                && group.iter().enumerate().all(|(place, one)| {
                    one.member == place as u64
                        && one.group == group[0].group
                        && one.task == group[0].task
                        && one.prompt == group[0].prompt
                })
        };
        let torn = groups.clone().filter(|group| !whole(group)).count();
        let name = "groups";
        if torn > 0 {
            let found = format!(
                "{torn} of {} are not of one question and prompt",
                groups.len()
            );
            let fix = "the environment draws its prompt: it must follow from the task alone";
            return failed(name, found, true, fix);
        }
        let alike = |group: &&[Episode]| {
            let first = group[0].tokens.ids();
            group.iter().all(|one| one.tokens.ids() == first)
        };
        let same = groups.clone().filter(alike).count();
        let found = format!(
            "{} of {size} episodes each, {same} of them one episode again and again",
            groups.len()
        );
        let fix = "members that are alike teach nothing: raise grpo.update.temperature, or begin with a policy that is less sure";
        noted(name, found, same * 2 > groups.len(), fix)
    }

    /// The tokens of an episode read as its record says: prompt, then turn by turn.
    fn text(&self) -> Check {
        let differs = |episode: &Episode| {
            let text = self.tokenizer.decode(episode.tokens.ids());
            let mut rest = text.as_str();
            let turns = episode.turns.iter().map(|turn| turn.policy.as_str());
            !std::iter::once(episode.prompt.as_str())
                .chain(turns)
                .map(str::trim)
                .all(|part| match rest.find(part) {
                    Some(place) => {
                        rest = &rest[place + part.len()..];
                        true
                    }
                    None => false,
                })
        };
        let differing = self.count(|episode| !episode.ending.is_infra() && differs(episode));
        let found = format!(
            "the tokens of {} of {} episodes read as prompt and turns",
            self.episodes.len() - differing,
            self.episodes.len()
        );
        let fix =
            "template or tokenizer change text: play one with `forage play --policy` and look";
        noted("tokens and text", found, differing > 0, fix)
    }

    /// Exactly the tokens that the policy sampled carry loss.
    fn loss_mask(&self) -> Check {
        let (mut trained, mut all, mut wrong) = (0, 0, 0);
        for episode in self.episodes {
            let Some(sample) = Sample::of(episode) else {
                continue;
            };
            let mask = episode.tokens.loss_mask();
            let targets = &sample.sequence.targets;
            trained += targets.len();
            all += episode.tokens.len();
            // Before the first token there is nothing that it could follow from.
            let sampled = mask.iter().skip(1).filter(|sampled| **sampled).count();
            let written = episode.tokens.count(Provenance::Policy);
            let inside = targets.iter().all(|&target| mask[target]);
            wrong += usize::from(!inside || targets.len() != sampled || written < sampled);
        }
        let found = format!("{trained} of {all} tokens carry loss, those that the policy sampled");
        let fix = if wrong > 0 {
            "this is a fault of the program: report it"
        } else {
            "nothing would be learned: prompts leave no room for a turn (raise environment.settings.max_episode_tokens, or show less in \
             the prompt), or the policy wrote nothing (`forage play --policy` shows an episode)"
        };
        failed("loss mask", found, wrong > 0 || trained == 0, fix)
    }

    fn endings(&self) -> Check {
        let mut endings: BTreeMap<&str, usize> = BTreeMap::new();
        for episode in self.episodes {
            *endings.entry(episode.ending.name()).or_default() += 1;
        }
        let found: Vec<String> = endings
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let cut = self.count(|episode| matches!(episode.ending, Ending::Truncated { .. }));
        let fix = "most episodes meet a limit before they answer: raise the limits of environment.settings, or begin with a policy \
                   that knows the protocol (forage sft)";
        let many = cut as f64 > CUT * self.episodes.len() as f64;
        noted("endings", found.join(", "), many, fix)
    }

    fn searches(&self) -> Check {
        let searches: usize = self.episodes.iter().map(Episode::searches).sum();
        let mean = searches as f64 / self.episodes.len().max(1) as f64;
        // An environment that brings its questions may have nothing to search.
        let is_due = self.entry.outcome == Outcome::Answer && self.entry.questions.is_none();
        let none = searches == 0 && is_due;
        let fix = "the policy never searches, so nothing rewards searching: describe the protocol in the prompt, or show it first \
                   (forage sft, warm start)";
        noted("searches", format!("{mean:.1} an episode"), none, fix)
    }

    /// The reward of every scored episode.
    fn earned(&self) -> impl Iterator<Item = f32> + Clone {
        self.episodes.iter().filter_map(Episode::reward)
    }

    fn rewards(&self) -> Check {
        let (mut low, mut high) = (0.0_f32, 0.0_f32);
        let weighed = self.config.reward.iter();
        for (name, weighting) in weighed.filter(|(_, weighting)| weighting.weight() != 0.0) {
            let Some(entry) = rewards().find(|entry| entry.name == name) else {
                continue;
            };
            let ends = entry.range.map(|end| end * weighting.weight());
            low += ends[0].min(ends[1]);
            high += ends[0].max(ends[1]);
        }
        let earned = self.earned();
        let least = earned.clone().fold(f32::INFINITY, f32::min);
        let most = earned.clone().fold(f32::NEG_INFINITY, f32::max);
        let count = earned.clone().count();
        let mean = earned.clone().sum::<f32>() / count.max(1) as f32;
        let room = low - 1e-4..=high + 1e-4;
        let wrong = earned.filter(|reward| !room.contains(reward)).count();
        let found = if count == 0 {
            "no episode has one".to_owned()
        } else {
            let bounds = match (low.is_finite(), high.is_finite()) {
                (true, true) => format!("of {low} to {high} that can be earned"),
                (true, false) => format!("of {low} or more that can be earned"),
                (false, true) => format!("of {high} or less that can be earned"),
                (false, false) => "without bounds to what can be earned".to_owned(),
            };
            format!("mean {mean:.3}, from {least:.3} to {most:.3}, {bounds}")
        };
        let fix = "a reward outside of its range is a fault of the reward: look at the episodes with `forage eval`";
        failed("reward", found, wrong > 0 || count == 0, fix)
    }

    fn variance(&self) -> Check {
        let groups = self.episodes.chunks(self.config.grpo.group_size);
        let varies = |group: &&[Episode]| {
            let mut earned = group.iter().filter_map(Episode::reward);
            let first = earned.next();
            earned.any(|reward| Some(reward.to_bits()) != first.map(f32::to_bits))
        };
        let varying = groups.clone().filter(varies).count();
        let found = format!("in {varying} of {} groups", groups.len());
        let best = self.earned().fold(f32::NEG_INFINITY, f32::max);
        let fix = if best > 0.0 {
            "most groups earn the same in every episode and teach nothing: filter the questions, or raise the temperature"
        } else {
            "no episode earned anything, and nothing would be learned: use easier questions, a reward in parts, or show the task \
             first (forage sft)"
        };
        noted("reward varies", found, varying * 10 < groups.len() * 3, fix)
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::{ByteTokenizer, Score, Task, TokenLog};
    use forage_env::registry;

    use super::*;
    use crate::config::RunConfig;

    /// Groups of the size of the smoke config, every episode with this prompt, its bytes as tokens, and a reward of its own.
    fn episodes(groups: u64, reward: impl Fn(u64) -> f32) -> Vec<Episode> {
        let episode = |group: u64, member: u64| {
            let mut tokens = TokenLog::with_prompt(&ByteTokenizer.encode("Who?"));
            let answer = ByteTokenizer.encode(&format!("{member}"));
            tokens.push_policy(&answer, &vec![-0.5; answer.len()], 0, None);
            Episode {
                group,
                member,
                prompt: "Who?".to_owned(),
                tokens,
                score: Some(Score {
                    total: reward(member),
                    ..Score::default()
                }),
                ..Episode::new(Task::new(format!("{group}"), "Who?"))
            }
        };
        (0..groups)
            .flat_map(|group| (0..4).map(move |member| (group, member)))
            .map(|(group, member)| episode(group, member))
            .collect()
    }

    /// The status of each check by its name.
    fn statuses(episodes: &[Episode]) -> BTreeMap<&'static str, &'static str> {
        statuses_in("search-r1", episodes)
    }

    fn statuses_in(
        environment: &str,
        episodes: &[Episode],
    ) -> BTreeMap<&'static str, &'static str> {
        let config = RunConfig::parse(include_str!("../../../configs/smoke.toml"), &[]).unwrap();
        let config = config.resolve(None).unwrap();
        let played = Played {
            config: &config,
            entry: registry::find(environment).unwrap(),
            episodes,
            tokenizer: &ByteTokenizer,
        };
        let status = |check: Check| match (check.holds, check.fix) {
            (true, None) => (check.name, "pass"),
            (true, Some(_)) => (check.name, "warn"),
            (false, _) => (check.name, "fail"),
        };
        played.checks().into_iter().map(status).collect()
    }

    #[test]
    fn groups_that_teach_something_pass() {
        let found = statuses(&episodes(3, |member| (member % 2) as f32));
        for name in [
            "faults",
            "groups",
            "tokens and text",
            "loss mask",
            "endings",
            "reward",
            "reward varies",
        ] {
            assert_eq!(found[name], "pass", "{name}");
        }
        // Nobody searches, and in `math` nobody can.
        assert_eq!(found["searches"], "warn");
        let found = statuses_in("math", &episodes(3, |member| (member % 2) as f32));
        assert_eq!(found["searches"], "pass");
    }

    #[test]
    fn what_is_wrong_with_episodes_is_said() {
        let found = statuses(&episodes(3, |_| 0.0));
        assert_eq!((found["reward"], found["reward varies"]), ("pass", "warn"));
        let found = statuses(&episodes(3, |_| 7.0));
        assert_eq!(found["reward"], "fail");
        let mut torn = episodes(2, |_| 1.0);
        torn[1].prompt = "Where?".to_owned();
        let found = statuses(&torn);
        assert_eq!(
            (found["groups"], found["tokens and text"]),
            ("fail", "warn")
        );
        let mut silent = episodes(2, |_| 0.0);
        for episode in &mut silent {
            episode.tokens = TokenLog::with_prompt(&ByteTokenizer.encode("Who?"));
        }
        assert_eq!(statuses(&silent)["loss mask"], "fail");
        let mut lost = episodes(2, |_| 1.0);
        for episode in &mut lost {
            episode.score = None;
            episode.ending = Ending::Infra {
                boundary: forage_contracts::Boundary::Retriever,
                message: "gone".to_owned(),
            };
        }
        let found = statuses(&lost);
        assert_eq!((found["faults"], found["reward"]), ("fail", "fail"));
    }
}
