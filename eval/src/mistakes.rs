//! Mistakes: each episode without the right answer is of one class, read off its record.

use std::collections::BTreeMap;

use forage_contracts::Episode;
use forage_env::reward::{is_give_up, normalize};
use serde::{Deserialize, Serialize};

use crate::compare::interval_words;
use crate::measures::{QuestionKey, exact_match, is_searched, score};
use crate::pool::{Scores, by_seed, over_seeds};
use crate::stats::{Bootstrap, Interval, StatsError, mean};
use crate::telemetry::shown;
use crate::text::{figure, signed};

/// The mistake of an episode that was graded and is not right. The first that applies counts; answers, passages and questions are
/// compared normalised, as exact match does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mistake {
    /// There is no answer, or it says that nothing was found.
    NoAnswer,
    /// It answered with fewer searches than the question has hops (without any where they are unknown), and no gold had been shown.
    StoppedEarly,
    /// It searched as often as that, and no gold was shown.
    NotFound,
    /// It searched, and no gold was shown; nobody knows how many hops the question has.
    NotFoundOrStoppedEarly,
    /// A gold was shown, and the answer is something else that stands, word for word, in what was shown or in the question.
    WrongName,
    /// A gold was shown, and the answer stands in neither: it was copied wrongly, or made up.
    Copying,
}

impl Mistake {
    const ALL: [Self; 6] = [
        Self::NoAnswer,
        Self::StoppedEarly,
        Self::NotFound,
        Self::NotFoundOrStoppedEarly,
        Self::WrongName,
        Self::Copying,
    ];

    /// The name of the class in sentences.
    fn name(self) -> &'static str {
        match self {
            Self::NoAnswer => "no answer or gave up",
            Self::StoppedEarly => "stopped early",
            Self::NotFound => "not found",
            Self::NotFoundOrStoppedEarly => "not found or stopped early (hops unknown)",
            Self::WrongName => "wrong name",
            Self::Copying => "copying",
        }
    }

    /// The class of an episode that is not right, in which a gold was `found` or not.
    fn of(episode: &Episode, found: bool) -> Self {
        let answer = episode.answer().filter(|answer| !is_give_up(answer));
        let answer = answer.map(normalize).unwrap_or_default();
        let hops = usize::from(episode.task.hops);
        if answer.is_empty() {
            Self::NoAnswer
        } else if found {
            let passages = episode.turns.iter().map(shown);
            let mut read = passages.chain([episode.task.question.clone()]);
            if read.any(|text| stands_in(&answer, &normalize(&text))) {
                Self::WrongName
            } else {
                Self::Copying
            }
        } else if episode.searches() < hops.max(1) {
            Self::StoppedEarly
        } else if hops == 0 {
            Self::NotFoundOrStoppedEarly
        } else {
            Self::NotFound
        }
    }
}

/// Returns whether words stand side by side in a text, both normalised.
fn stands_in(words: &str, text: &str) -> bool {
    format!(" {text} ").contains(&format!(" {words} "))
}

/// The share of all episodes in which the start and the trained policy make a mistake: the shares of all classes and exact match add
/// up to one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MistakeShare {
    /// The class.
    pub mistake: Mistake,
    /// The start's share; of several seeds the mean of theirs.
    pub start: f64,
    /// The trained policy's.
    pub trained: f64,
    /// The difference, with an interval as that of a study's gains.
    pub change: Interval,
}

/// The classes of a question's episodes.
type Classes = BTreeMap<QuestionKey, Vec<Option<Mistake>>>;

impl MistakeShare {
    /// Every class over the questions that both policies have under a seed; empty where there are none, where being right and
    /// finding are not graded, and where nothing is searched.
    ///
    /// # Errors
    /// [`StatsError`] for settings out of range.
    pub(crate) fn all(
        seeds: &[(&[Episode], &[Episode])],
        bootstrap: Bootstrap,
    ) -> Result<Vec<Self>, StatsError> {
        let both = seeds.iter().map(|(start, trained)| {
            let (mut before, mut after) = (classes(start), classes(trained));
            before.retain(|asked, _| after.contains_key(asked));
            after.retain(|asked, _| before.contains_key(asked));
            [before, after]
        });
        let both: Vec<[Classes; 2]> = both.filter(|[before, _]| !before.is_empty()).collect();
        if both.is_empty() || !is_searched(seeds) {
            return Ok(Vec::new());
        }
        let share = |mistake: Mistake| {
            let [start, trained] = [0, 1].map(|policy: usize| -> Vec<Scores> {
                let seeds = both.iter().map(|seed| &seed[policy]);
                seeds.map(|classes| shares(classes, mistake)).collect()
            });
            Ok(Self {
                mistake,
                start: mean(&by_seed(&start)),
                trained: mean(&by_seed(&trained)),
                change: over_seeds(&start, &trained, bootstrap)?,
            })
        };
        Mistake::ALL.into_iter().map(share).collect()
    }

    /// The classes that occur at all.
    pub(crate) fn made(all: &[Self]) -> impl Iterator<Item = &Self> {
        let made = |share: &&Self| share.start > 0.0 || share.trained > 0.0;
        all.iter().filter(made)
    }

    /// Its class in words.
    pub(crate) fn name(&self) -> &'static str {
        self.mistake.name()
    }

    /// A sentence about the classes that occur; `None` where none does.
    pub(crate) fn words(all: &[Self], confidence: f64) -> Option<String> {
        let one = |share: &Self| {
            format!(
                "{} {} and {} (change {}, {})",
                share.name(),
                figure(share.start),
                figure(share.trained),
                signed(share.change.estimate),
                interval_words(share.change, confidence)
            )
        };
        let made: Vec<String> = Self::made(all).map(one).collect();
        (!made.is_empty()).then(|| {
            format!(
                "Mistakes, as shares of all episodes at the start and after training: {}.",
                made.join("; ")
            )
        })
    }
}

/// The class of every graded episode, `None` of one that is right; episodes in which being right and finding are not graded are left
/// out.
fn classes(episodes: &[Episode]) -> Classes {
    let mut questions = Classes::new();
    for episode in episodes {
        let found = score(episode).and_then(|score| score.parts.get("retrieval"));
        if let Some((found, right)) = found.zip(exact_match(episode)) {
            let class = (right <= 0.0).then(|| Mistake::of(episode, *found > 0.0));
            let asked = questions.entry(QuestionKey::of(episode));
            asked.or_default().push(class);
        }
    }
    questions
}

/// The share of each question's episodes that make a mistake.
fn shares(classes: &Classes, mistake: Mistake) -> Scores {
    let share = |(asked, classes): (&QuestionKey, &Vec<Option<Mistake>>)| {
        let made = classes.iter().filter(|class| **class == Some(mistake));
        (asked.clone(), made.count() as f64 / classes.len() as f64)
    };
    classes.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use forage_contracts::environment::TurnKind;
    use forage_contracts::policy::Finish;
    use forage_contracts::{Score, Task, Turn};

    use super::*;

    /// Searches so often, is shown a passage of Ana Brel and Varnholt each time, and says `answer`.
    fn episode(searches: usize, found: bool, answer: &str) -> Episode {
        let turn = |kind: TurnKind, observation: &str| Turn {
            policy: String::new(),
            finish: Finish::Stop,
            kind,
            observation: observation.to_owned(),
            reward: 0.0,
        };
        let passage = "<information>The works were founded by Ana Brel of Varnholt.</information>";
        let search = || turn(TurnKind::search("works", vec!["p1".to_owned()]), passage);
        let mut turns: Vec<Turn> = (0..searches).map(|_| search()).collect();
        turns.push(turn(TurnKind::answer(answer), ""));
        let right = answer == "Varnholt";
        let parts = [("em", right), ("retrieval", found)];
        let parts = parts.map(|(name, holds)| (name.to_owned(), f32::from(u8::from(holds))));
        Episode {
            turns,
            score: Some(Score {
                parts: parts.into(),
                ..Score::default()
            }),
            ..Episode::new(Task {
                golds: vec!["Varnholt".to_owned()],
                hops: 2,
                ..Task::new("q1", "Where was the founder of the Eastmere works born?")
            })
        }
    }

    /// The class of one episode; nothing where it is not graded.
    fn class_of(episode: Episode) -> Vec<Option<Mistake>> {
        classes(&[episode]).into_values().flatten().collect()
    }

    #[test]
    fn every_failed_episode_is_of_one_class() {
        let class = |searches, found, answer| class_of(episode(searches, found, answer));
        let failed = |mistake| vec![Some(mistake)];
        assert_eq!(class(1, true, "Varnholt"), [None], "right");
        assert_eq!(class(2, true, "The!"), failed(Mistake::NoAnswer), "no word");
        let gives_up = class(2, true, "I don't know");
        assert_eq!(gives_up, failed(Mistake::NoAnswer), "gives up");
        assert_eq!(class(0, false, "Ana Brel"), failed(Mistake::StoppedEarly));
        assert_eq!(class(1, false, "Ana Brel"), failed(Mistake::StoppedEarly));
        assert_eq!(class(2, false, "Ana Brel"), failed(Mistake::NotFound));
        assert_eq!(class(1, true, "ana brel"), failed(Mistake::WrongName));
        let of_the_question = class(1, true, "Eastmere");
        assert_eq!(of_the_question, failed(Mistake::WrongName));
        assert_eq!(class(1, true, "Varnhol"), failed(Mistake::Copying));
        assert_eq!(class(1, true, "Ana Breld"), failed(Mistake::Copying));

        let mut silent = episode(2, true, "Ana Brel");
        silent.turns.pop();
        assert_eq!(class_of(silent), failed(Mistake::NoAnswer));
        for (searches, class) in [
            (0, Mistake::StoppedEarly),
            (1, Mistake::NotFoundOrStoppedEarly),
        ] {
            let mut unknown = episode(searches, false, "Ana Brel");
            unknown.task.hops = 0;
            assert_eq!(class_of(unknown), failed(class), "hops unknown");
        }
        let mut lost = episode(1, false, "Ana Brel");
        lost.score = None;
        assert!(class_of(lost).is_empty(), "not graded");
    }

    #[test]
    fn shares_and_exact_match_add_up_to_one() -> Result<(), StatsError> {
        let bootstrap = Bootstrap {
            resamples: 200,
            ..Bootstrap::new(1)
        };
        let asked = |episodes: [Episode; 4]| -> Vec<Episode> {
            let mut episodes = Vec::from(episodes);
            for (number, episode) in episodes.iter_mut().enumerate() {
                episode.task.id = number.to_string();
            }
            episodes
        };
        let start = asked([
            episode(0, false, "Brel"),
            episode(0, false, "Brel"),
            episode(1, true, "Varnhol"),
            episode(1, true, "Varnholt"),
        ]);
        let trained = asked([
            episode(1, true, "Varnholt"),
            episode(1, true, "Ana Brel"),
            episode(1, true, "Varnholt"),
            episode(1, true, "Varnholt"),
        ]);
        let all = MistakeShare::all(&[(start.as_slice(), trained.as_slice())], bootstrap)?;
        let shown: Vec<_> = MistakeShare::made(&all)
            .map(|share| (share.mistake, share.start, share.trained))
            .collect();
        let expected = [
            (Mistake::StoppedEarly, 0.5, 0.0),
            (Mistake::WrongName, 0.0, 0.25),
            (Mistake::Copying, 0.25, 0.0),
        ];
        assert_eq!(shown, expected);
        assert!((all[1].change.estimate + 0.5).abs() < 1e-12);
        assert_eq!(all[0].name(), "no answer or gave up");
        let words = MistakeShare::words(&all, 0.95).unwrap_or_default();
        assert!(
            words.contains("training: stopped early 0.50 and 0.00 (change −0.50, 95 % interval"),
            "{words}"
        );
        let nothing = MistakeShare::all(&[(start.as_slice(), &[][..])], bootstrap)?;
        assert!(nothing.is_empty());
        Ok(())
    }
}
