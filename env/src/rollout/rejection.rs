//! Rejection sampling: which of a policy's episodes it should imitate (Yuan et al. 2023, as RFT).

use std::cmp::Reverse;
use std::collections::HashSet;

use forage_contracts::{Episode, Provenance};
use serde::{Deserialize, Serialize};

/// The rule by which episodes of a question that earned enough are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// The one of the highest reward; among equals the one in which the policy wrote the fewest tokens, then the first.
    Best,
    /// All distinct ones of the highest reward, whatever their length.
    Bests,
    /// All distinct ones.
    All,
}

/// Counts of the episodes so far, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectionCounts {
    /// Questions played.
    pub questions: usize,
    /// Episodes of them.
    pub episodes: usize,
    /// Episodes kept.
    pub kept: usize,
    /// Questions with at least one kept episode.
    pub answered: usize,
    /// Episodes dropped because one of the same question and text was kept.
    pub duplicates: usize,
    /// Episodes ended by infrastructure faults: never kept.
    pub faults: usize,
}

/// Chooses episodes question by question.
#[derive(Clone, Debug)]
pub struct Rejection {
    keep: Keep,
    min_reward: f32,
    /// Question and policy text of everything kept, with white space normalised.
    seen: HashSet<(String, String)>,
    counts: RejectionCounts,
}

impl Rejection {
    /// Keeps nothing that earned less than `min_reward`.
    pub fn new(keep: Keep, min_reward: f32) -> Self {
        Self {
            keep,
            min_reward,
            seen: HashSet::new(),
            counts: RejectionCounts::default(),
        }
    }

    /// Continues from another process's counts and kept episodes.
    #[must_use]
    pub fn after(mut self, counts: RejectionCounts, kept: &[Episode]) -> Self {
        self.seen.extend(kept.iter().map(key));
        self.counts = counts;
        self
    }

    /// Chooses the episodes of one question to keep, in their order.
    pub fn choose(&mut self, episodes: Vec<Episode>) -> Vec<Episode> {
        self.counts.questions += 1;
        self.counts.episodes += episodes.len();
        self.counts.faults += episodes
            .iter()
            .filter(|episode| episode.reward().is_none())
            .count();
        let mut kept: Vec<Episode> = episodes
            .into_iter()
            .filter(|episode| {
                episode
                    .reward()
                    .is_some_and(|reward| reward >= self.min_reward)
            })
            .collect();
        match self.keep {
            Keep::Best => kept = best(kept).into_iter().collect(),
            Keep::Bests => {
                let highest = kept
                    .iter()
                    .filter_map(Episode::reward)
                    .max_by(f32::total_cmp);
                kept.retain(|episode| episode.reward() == highest);
            }
            Keep::All => {}
        }
        let before = kept.len();
        kept.retain(|episode| self.seen.insert(key(episode)));
        self.counts.duplicates += before - kept.len();
        self.counts.kept += kept.len();
        self.counts.answered += usize::from(!kept.is_empty());
        kept
    }

    /// Counts of the episodes so far, by what became of them.
    pub fn counts(&self) -> RejectionCounts {
        self.counts
    }
}

/// `max_by` returns the last of equals, so places count backwards.
fn best(episodes: Vec<Episode>) -> Option<Episode> {
    let rank = |place: usize, episode: &Episode| {
        (
            Reverse(episode.tokens.count(Provenance::Policy)),
            Reverse(place),
        )
    };
    let ranked = episodes.into_iter().enumerate().max_by(|(i, a), (j, b)| {
        let rewards = a
            .reward()
            .unwrap_or(f32::NEG_INFINITY)
            .total_cmp(&b.reward().unwrap_or(f32::NEG_INFINITY));
        rewards.then_with(|| rank(*i, a).cmp(&rank(*j, b)))
    });
    ranked.map(|(_, episode)| episode)
}

fn key(episode: &Episode) -> (String, String) {
    let normal = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let turns: Vec<String> = episode
        .turns
        .iter()
        .map(|turn| normal(&turn.policy))
        .collect();
    // A line break is in no turn by now, so it keeps turns apart.
    (normal(&episode.task.question), turns.join("\n"))
}

#[cfg(test)]
mod tests {

    use super::*;
    use forage_contracts::environment::TurnKind;
    use forage_contracts::policy::Finish;
    use forage_contracts::{Boundary, Ending, Score, Task, TokenLog, Turn};

    /// An episode of `question` in which the policy wrote `text` in `tokens` tokens; without a reward a fault ended it.
    fn episode(question: &str, text: &str, tokens: usize, reward: Option<f32>) -> Episode {
        let task = Task {
            golds: vec!["gold".to_owned()],
            data_source: "test".to_owned(),
            ..Task::new(question, question)
        };
        let mut log = TokenLog::with_prompt(&[1]);
        log.push_policy(&vec![2; tokens], &vec![-0.5; tokens], 0, None);
        let kind = TurnKind::answer(text);
        let fault = Ending::Infra {
            boundary: Boundary::Policy,
            message: "down".to_owned(),
        };
        Episode {
            prompt: question.to_owned(),
            turns: vec![Turn {
                policy: text.to_owned(),
                finish: Finish::Stop,
                kind,
                observation: String::new(),
                reward: 0.0,
            }],
            tokens: log,
            ending: if reward.is_some() {
                Ending::Answered
            } else {
                fault
            },
            score: reward.map(|total| Score {
                total,
                ..Score::default()
            }),
            ..Episode::new(task)
        }
    }

    fn texts(episodes: &[Episode]) -> Vec<&str> {
        episodes
            .iter()
            .map(|episode| episode.turns[0].policy.as_str())
            .collect()
    }

    #[test]
    fn the_best_is_the_highest_then_the_shortest_then_the_first() {
        let mut rejection = Rejection::new(Keep::Best, 0.5);
        let found = rejection.choose(vec![
            episode("q", "low", 1, Some(0.6)),
            episode("q", "long", 9, Some(1.0)),
            episode("q", "first", 4, Some(1.0)),
            episode("q", "second", 4, Some(1.0)),
            episode("q", "down", 1, None),
        ]);
        assert_eq!(texts(&found), ["first"]);
        assert!(
            rejection
                .choose(vec![episode("r", "poor", 1, Some(0.4))])
                .is_empty()
        );
        let counts = RejectionCounts {
            questions: 2,
            episodes: 6,
            kept: 1,
            answered: 1,
            duplicates: 0,
            faults: 1,
        };
        assert_eq!(rejection.counts(), counts);
    }

    #[test]
    fn all_of_the_highest_reward_are_kept_however_long() {
        let mut rejection = Rejection::new(Keep::Bests, f32::MIN_POSITIVE);
        let found = rejection.choose(vec![
            episode("q", "guess", 1, Some(1.0)),
            episode("q", "poor", 1, Some(0.2)),
            episode("q", "search and read", 9, Some(1.0)),
            episode("q", "guess", 1, Some(1.0)),
            episode("q", "down", 1, None),
        ]);
        assert_eq!(texts(&found), ["guess", "search and read"]);
        assert!(
            rejection
                .choose(vec![episode("r", "nothing", 1, Some(0.0))])
                .is_empty()
        );
    }

    #[test]
    fn the_same_text_is_kept_once_per_question() {
        let mut rejection = Rejection::new(Keep::All, 1.0);
        let found = rejection.choose(vec![
            episode("q", "a b", 2, Some(1.0)),
            episode("q", " a\n b ", 3, Some(1.0)),
            episode("q", "c", 2, Some(1.0)),
            episode("q", "d", 2, Some(0.9)),
        ]);
        assert_eq!(texts(&found), ["a b", "c"]);
        assert_eq!(
            texts(&rejection.choose(vec![episode("r", "a b", 2, Some(1.0))])),
            ["a b"]
        );
        // The same question under another id.
        assert!(
            rejection
                .choose(vec![episode(" q ", "c", 2, Some(1.0))])
                .is_empty()
        );
        assert_eq!(
            (rejection.counts().kept, rejection.counts().duplicates),
            (3, 2)
        );
    }

    #[test]
    fn choosing_goes_on_where_another_process_stopped() {
        let groups = || {
            vec![
                vec![episode("q", "a", 1, Some(1.0)), episode("q", "b", 1, None)],
                vec![episode("q", " a ", 1, Some(1.0))],
                vec![episode("r", "c", 1, Some(1.0))],
            ]
        };
        let mut whole = Rejection::new(Keep::All, 1.0);
        let all: Vec<Episode> = groups()
            .into_iter()
            .flat_map(|group| whole.choose(group))
            .collect();
        let mut groups = groups().into_iter();
        let mut begun = Rejection::new(Keep::All, 1.0);
        let mut kept: Vec<Episode> = groups
            .by_ref()
            .take(1)
            .flat_map(|group| begun.choose(group))
            .collect();
        let mut after = Rejection::new(Keep::All, 1.0).after(begun.counts(), &kept);
        kept.extend(groups.flat_map(|group| after.choose(group)));
        assert_eq!(kept, all);
        assert_eq!(after.counts(), whole.counts());
        assert_eq!(after.counts().duplicates, 1);
    }

    #[test]
    fn a_fault_is_kept_at_no_reward() {
        let mut rejection = Rejection::new(Keep::All, f32::NEG_INFINITY);
        assert!(
            rejection
                .choose(vec![episode("q", "right", 1, None)])
                .is_empty()
        );
        assert_eq!(rejection.counts().faults, 1);
    }
}
