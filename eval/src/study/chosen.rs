//! Policies that are made of another one's samples: one of the first few is chosen for each question.

use forage_contracts::Episode;
use forage_contracts::environment::Outcome;
use forage_env::reward::normalize;

use super::SeedEpisodes;
use crate::measures::{by_question, score};

impl SeedEpisodes {
    /// The best of the first `k` samples of each question by the measure of the outcome, among equals the first: what a perfect
    /// judge of the answers would pick.
    pub fn best_of(k: usize, samples: &[Episode]) -> Vec<Episode> {
        let measure = Outcome::of(samples).measure();
        let value = |episode: &Episode| {
            let part = score(episode).and_then(|score| score.parts.get(measure).copied());
            part.unwrap_or(f32::NEG_INFINITY)
        };
        chosen(k, samples, |scored| {
            // Of equals the last is the greatest, so they come in reverse.
            let scored = scored.iter().rev().copied();
            scored.max_by(|a, b| value(a).total_cmp(&value(b)))
        })
    }

    /// Chooses, of the first `k` samples of each question, one with the answer that most of them give, the first given among equals (Wang
    /// et al. 2023, "Self-consistency"). Samples without an answer cast no vote.
    pub fn majority_of(k: usize, samples: &[Episode]) -> Vec<Episode> {
        chosen(k, samples, |scored| {
            // Each answer with its first sample, in the order in which they were given.
            let mut answers: Vec<(String, &Episode, usize)> = Vec::new();
            for &episode in scored {
                let Some(answer) = episode.answer().map(normalize) else {
                    continue;
                };
                match answers.iter_mut().find(|(known, ..)| *known == answer) {
                    Some((_, _, votes)) => *votes += 1,
                    None => answers.push((answer, episode, 1)),
                }
            }
            let most = answers.iter().map(|(_, _, votes)| *votes).max()?;
            let winner = answers.into_iter().find(|(_, _, votes)| *votes == most);
            winner.map(|(_, episode, _)| episode)
        })
    }
}

/// An episode of each question: that which `choose` takes of the first `k` that were scored, else the first of these, else that of all.
fn chosen<'a>(
    k: usize,
    samples: &'a [Episode],
    choose: impl Fn(&[&'a Episode]) -> Option<&'a Episode>,
) -> Vec<Episode> {
    let questions = by_question(samples).into_values();
    let one = |episodes: Vec<&'a Episode>| {
        let scored = episodes.iter().copied();
        let scored = scored.filter(|episode| score(episode).is_some());
        let scored: Vec<&Episode> = scored.take(k).collect();
        let first = scored.first().or(episodes.first()).copied();
        choose(&scored).or(first).cloned()
    };
    questions.filter_map(one).collect()
}
