//! Who meets whom in a tournament, and what the standing at its end is worth.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde::Deserialize;

/// A scheme of a tournament, as `ArenaRL` compares them. A round robin scores the share that a member won of its games. The
/// others rank the members and score 1 - rank / (members - 1), where those of equal standing share the mean of their ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scheme {
    /// In round `d` member `i` meets member `i + d`, round the group, so that all meet equally many: all pairs where the rounds are half
    /// the group or more.
    #[default]
    RoundRobin,
    /// All meet the first member. The paper's anchor is a greedy rollout; here it is a sampled one, like the others.
    Anchor,
    /// After a round against the anchor, by which members are seeded, the best meets the worst of those who are left, and who
    /// loses is out; a tie goes to the better seed. Those who go out in the same round are ranked by the share that they won. Twice
    /// the members' number of games, less two.
    SingleElimination,
    /// The same, out after two losses: those without one meet each other, as do those with one, and the last of both.
    DoubleElimination,
    /// Members of equal standing meet, nobody twice.
    Swiss,
}

/// A game that was played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Game {
    /// The members.
    pub(super) pair: [usize; 2],
    /// What the first one won: 1, 0.5 or 0.
    pub(super) won: f32,
}

/// The members of a round robin that each one meets, unless settings say it.
const ROUNDS: usize = 4;

impl Scheme {
    /// The games of the next round, which can be played at once; none when the tournament is over. `rounds` as the settings say,
    /// `played` are the rounds so far.
    pub(super) fn pairs(
        self,
        count: usize,
        rounds: Option<usize>,
        played: &[Vec<Game>],
    ) -> Vec<[usize; 2]> {
        match self {
            Self::RoundRobin if played.is_empty() => circle(count, rounds.unwrap_or(ROUNDS)),
            Self::Anchor | Self::SingleElimination | Self::DoubleElimination
                if played.is_empty() =>
            {
                (1..count).map(|member| [0, member]).collect()
            }
            Self::RoundRobin | Self::Anchor => Vec::new(),
            Self::SingleElimination => knockout(&Bracket::of(count, played).standing(1)[0]),
            Self::DoubleElimination => {
                let standing = Bracket::of(count, played).standing(2);
                match (standing[0].as_slice(), standing[1].as_slice()) {
                    (&[unbeaten], &[last]) => vec![[unbeaten, last]],
                    (unbeaten, beaten) => [knockout(unbeaten), knockout(beaten)].concat(),
                }
            }
            Self::Swiss => {
                let rounds = rounds.unwrap_or_else(|| count.next_power_of_two().ilog2() as usize);
                if played.len() < rounds {
                    swiss(count, played)
                } else {
                    Vec::new()
                }
            }
        }
    }

    /// The score of each member once all is played.
    pub(super) fn scores(self, count: usize, played: &[Vec<Game>]) -> Vec<f32> {
        let shares = shares(count, played);
        match self {
            Self::RoundRobin => shares,
            Self::Anchor | Self::Swiss => quantiles(
                &shares
                    .into_iter()
                    .map(|share| (0, share))
                    .collect::<Vec<_>>(),
            ),
            Self::SingleElimination | Self::DoubleElimination => {
                let losses = if self == Self::SingleElimination {
                    1
                } else {
                    2
                };
                let last = Bracket::of(count, played).last_round(losses);
                quantiles(&last.into_iter().zip(shares).collect::<Vec<_>>())
            }
        }
    }
}

fn circle(count: usize, rounds: usize) -> Vec<[usize; 2]> {
    let meetings = (1..=rounds.min(count / 2))
        .flat_map(|round| (0..count).map(move |member| (member, (member + round) % count)));
    let pairs: BTreeSet<[usize; 2]> = meetings.map(|(a, b)| [a.min(b), a.max(b)]).collect();
    pairs.into_iter().collect()
}

/// Best against worst of those who are left, best first; the best ones rest where their number is not a power of two.
fn knockout(left: &[usize]) -> Vec<[usize; 2]> {
    if left.len() < 2 {
        return Vec::new();
    }
    let places = left.len().next_power_of_two();
    (places - left.len()..places / 2)
        .map(|place| [left[place], left[places - 1 - place]])
        .collect()
}

/// Neighbours in the standing who have not met. Nobody is left over but where the number is odd, or where all who are left have
/// met.
fn swiss(count: usize, played: &[Vec<Game>]) -> Vec<[usize; 2]> {
    let met: BTreeSet<[usize; 2]> = played.iter().flatten().map(|game| game.pair).collect();
    let shares = shares(count, played);
    let mut left: Vec<usize> = (0..count).collect();
    left.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
    let mut pairs = Vec::new();
    while left.len() > 1 {
        let first = left.remove(0);
        let other = left
            .iter()
            .position(|&other| !met.contains(&[first.min(other), first.max(other)]));
        if let Some(place) = other {
            let other = left.remove(place);
            pairs.push([first.min(other), first.max(other)]);
        }
    }
    pairs
}

/// The share that each member won of its games, ties counted half; 0.5 without a game.
fn shares(count: usize, played: &[Vec<Game>]) -> Vec<f32> {
    let mut records = vec![(0.0_f32, 0_u32); count];
    for Game { pair: [a, b], won } in played.iter().flatten() {
        for (member, won) in [(a, *won), (b, 1.0 - won)] {
            records[*member].0 += won;
            records[*member].1 += 1;
        }
    }
    let share = |(won, games): (f32, u32)| if games == 0 { 0.5 } else { won / games as f32 };
    records.into_iter().map(share).collect()
}

/// The knockout after the round against the anchor.
struct Bracket {
    /// Members, the best seed first.
    seeds: Vec<usize>,
    /// Rounds of the knockout in which each member lost.
    lost: Vec<Vec<usize>>,
    /// Rounds of the knockout.
    rounds: usize,
}

impl Bracket {
    fn of(count: usize, played: &[Vec<Game>]) -> Self {
        // What each won against the anchor. The anchor stands before those who tied with it.
        let mut against = vec![0.5; count];
        for game in played.first().into_iter().flatten() {
            against[game.pair[1]] = 1.0 - game.won;
        }
        let mut seeds: Vec<usize> = (0..count).collect();
        seeds.sort_by(|&a, &b| f32::total_cmp(&against[b], &against[a]));
        let rounds = played.get(1..).unwrap_or_default();
        let mut lost = vec![Vec::new(); count];
        for (round, games) in rounds.iter().enumerate() {
            for &Game { pair: [a, b], won } in games {
                let place = |member| seeds.iter().position(|&seed| seed == member);
                let first_wins = match won.total_cmp(&0.5) {
                    Ordering::Greater => true,
                    Ordering::Less => false,
                    Ordering::Equal => place(a) < place(b),
                };
                lost[if first_wins { b } else { a }].push(round);
            }
        }
        Self {
            seeds,
            lost,
            rounds: rounds.len(),
        }
    }

    /// The members with no loss, with one, and so on up to those with one loss less than `losses`, which end it for a member; the
    /// best seed first.
    fn standing(&self, losses: usize) -> Vec<Vec<usize>> {
        let with = |lost: usize| {
            let seeds = self.seeds.iter().copied();
            seeds
                .filter(|&member| self.lost[member].len() == lost)
                .collect()
        };
        (0..losses).map(with).collect()
    }

    /// The round in which each member went out; of the last one left the round after all.
    fn last_round(&self, losses: usize) -> Vec<usize> {
        let out = |lost: &Vec<usize>| lost.get(losses - 1).copied().unwrap_or(self.rounds);
        self.lost.iter().map(out).collect()
    }
}

/// 1 - rank / (members - 1) by these standings, the greatest first; 0.5 for a member alone.
fn quantiles(standings: &[(usize, f32)]) -> Vec<f32> {
    if standings.len() < 2 {
        return vec![0.5; standings.len()];
    }
    let order = |a: &(usize, f32), b: &(usize, f32)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1));
    let score = |own: &(usize, f32)| {
        let others = |wanted| {
            let others = standings.iter().filter(|other| order(other, own) == wanted);
            others.count() as f32
        };
        // Itself stands with its equals.
        let rank = others(Ordering::Greater) + (others(Ordering::Equal) - 1.0) / 2.0;
        1.0 - rank / (standings.len() - 1) as f32
    };
    standings.iter().map(score).collect()
}

#[cfg(test)]
mod tests {
    use forage_contracts::seed::Seed;
    use rand::RngExt;

    use super::*;

    const ALL: [Scheme; 5] = [
        Scheme::RoundRobin,
        Scheme::Anchor,
        Scheme::SingleElimination,
        Scheme::DoubleElimination,
        Scheme::Swiss,
    ];

    /// Scores of `count` members and the games it took, where `won` says what the first of two wins.
    fn played(
        scheme: Scheme,
        count: usize,
        rounds: Option<usize>,
        mut won: impl FnMut([usize; 2]) -> f32,
    ) -> (Vec<f32>, Vec<Vec<Game>>) {
        let mut played = Vec::new();
        loop {
            let pairs = scheme.pairs(count, rounds, &played);
            if pairs.is_empty() {
                return (scheme.scores(count, &played), played);
            }
            let game = |pair| Game {
                pair,
                won: won(pair),
            };
            played.push(pairs.into_iter().map(game).collect());
        }
    }

    /// A judge that never errs: the greater number is better, equal ones tie.
    fn by(strengths: &[usize]) -> impl FnMut([usize; 2]) -> f32 {
        move |[a, b]| match strengths[a].cmp(&strengths[b]) {
            Ordering::Greater => 1.0,
            Ordering::Equal => 0.5,
            Ordering::Less => 0.0,
        }
    }

    fn orders(count: usize) -> Vec<Vec<usize>> {
        if count == 0 {
            return vec![Vec::new()];
        }
        let with = |order: Vec<usize>| {
            (0..count).map(move |place| {
                let mut order = order.clone();
                order.insert(place, count - 1);
                order
            })
        };
        orders(count - 1).into_iter().flat_map(with).collect()
    }

    #[test]
    fn all_meet_equally_many() {
        assert!(circle(1, 4).is_empty());
        assert_eq!(circle(2, 4), [[0, 1]]);
        for (count, rounds, each) in [(5, 4, 4), (8, 4, 7), (8, 2, 4), (8, 100, 7), (9, 3, 6)] {
            let pairs = circle(count, rounds);
            for member in 0..count {
                let met = pairs.iter().filter(|pair| pair.contains(&member)).count();
                assert_eq!(met, each, "{count} members, {rounds} rounds");
            }
        }
    }

    #[test]
    fn a_judge_that_never_errs_crowns_the_best() {
        for count in 2..=6 {
            for order in orders(count) {
                let place = |rank: usize| order.iter().position(|&own| own == rank).expect("all");
                for scheme in [Scheme::SingleElimination, Scheme::DoubleElimination] {
                    let (scores, games) = played(scheme, count, None, by(&order));
                    assert!(
                        scores[place(count - 1)] >= 1.0,
                        "{scheme:?} {order:?} {scores:?}"
                    );
                    let total: usize = games.iter().map(Vec::len).sum();
                    if scheme == Scheme::SingleElimination {
                        assert_eq!(total, 2 * (count - 1));
                    } else {
                        // Every member but the best loses twice. The second loses to nobody but the best, so it is second.
                        assert_eq!(total, count - 1 + 2 * (count - 1));
                        let second = 1.0 - 1.0 / (count - 1) as f32;
                        assert!(
                            (scores[place(count - 2)] - second).abs() < 1e-6,
                            "{order:?}"
                        );
                    }
                }
                let (scores, _) = played(Scheme::RoundRobin, count, Some(count), by(&order));
                for (score, &own) in scores.iter().zip(&order) {
                    assert!((score - own as f32 / (count - 1) as f32).abs() < 1e-6);
                }
            }
        }
    }

    #[test]
    fn who_is_equal_scores_the_same() {
        for scheme in ALL {
            assert_eq!(
                played(scheme, 1, None, |_| 1.0),
                (vec![0.5], Vec::new()),
                "{scheme:?}"
            );
            assert!(played(scheme, 0, None, |_| 1.0).0.is_empty());
        }
        for scheme in [Scheme::RoundRobin, Scheme::Anchor, Scheme::Swiss] {
            assert_eq!(played(scheme, 7, None, |_| 0.5).0, [0.5; 7], "{scheme:?}");
        }
        // By hand: against the anchor 2 and 3 win, 1 loses; 2 beats 1, 3 beats 0; 2 beats 3. Of the two that go out first, the
        // anchor has won one game of four, 1 none of two.
        let (scores, _) = played(Scheme::SingleElimination, 4, None, by(&[1, 0, 3, 2]));
        for (score, thirds) in scores.iter().zip([1.0, 0.0, 3.0, 2.0]) {
            assert!((score * 3.0 - thirds).abs() < 1e-6, "{scores:?}");
        }
    }

    #[test]
    fn nobody_meets_twice_in_a_swiss_tournament() {
        for count in 2..=9 {
            for order in orders(count.min(5)) {
                let strengths: Vec<usize> = (0..count).map(|at| order[at % order.len()]).collect();
                let (_, games) = played(Scheme::Swiss, count, Some(count), by(&strengths));
                let all: Vec<[usize; 2]> = games.iter().flatten().map(|game| game.pair).collect();
                let distinct: BTreeSet<_> = all.iter().collect();
                assert_eq!(distinct.len(), all.len(), "{all:?}");
            }
        }
        let (_, games) = played(Scheme::Swiss, 8, None, by(&[3, 1, 4, 1, 5, 9, 2, 6]));
        assert_eq!(games.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4]);
    }

    /// A tournament that `tests/fixtures/tournament.py` plays.
    #[derive(Deserialize)]
    struct Case {
        scheme: Scheme,
        rounds: Option<usize>,
        /// Points of the first member against the second.
        won: Vec<Vec<f32>>,
        /// The games of each round, in order.
        pairs: Vec<Vec<[usize; 2]>>,
        scores: Vec<f32>,
    }

    fn in_order(round: &[Game]) -> Vec<[usize; 2]> {
        let mut pairs: Vec<[usize; 2]> = round
            .iter()
            .map(|&Game { pair: [a, b], .. }| [a.min(b), a.max(b)])
            .collect();
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn games_and_scores_equal_those_of_python() {
        let text = include_str!("../../../tests/fixtures/tournament.json");
        let cases: Vec<Case> = serde_json::from_str(text).expect("a fixture");
        assert!(cases.len() > 50);
        for case in cases {
            let Case { scheme, rounds, .. } = case;
            let count = case.won.len();
            let (scores, games) = played(scheme, count, rounds, |[a, b]| case.won[a][b]);
            let pairs: Vec<_> = games.iter().map(|round| in_order(round)).collect();
            assert_eq!(pairs, case.pairs, "{scheme:?}, {count} members, {rounds:?}");
            assert_eq!(scores.len(), case.scores.len());
            for (found, expected) in scores.iter().zip(&case.scores) {
                assert!(
                    (found - expected).abs() < 1e-6,
                    "{scheme:?}, {count} members: {scores:?}"
                );
            }
        }
    }

    /// With a judge that errs: correlations of scores with the true quality. `tests/fixtures/tournament.py` finds .96, .77 and .66.
    #[test]
    fn a_knockout_orders_a_group_better_than_its_anchor_with_a_quarter_of_all_pairs() {
        let (count, groups) = (16, 400);
        let agreement = |scheme: Scheme| {
            let (mut sum, mut games) = (0.0, 0);
            for group in 0..groups {
                let mut rng = Seed::root(7).child("group", &[group]).rng();
                let quality: Vec<f32> = (0..count).map(|_| rng.random::<f32>()).collect();
                let (scores, played) = played(scheme, count, Some(count), |[a, b]| {
                    let noise = rng.random::<f32>() + rng.random::<f32>() - 1.0;
                    f32::from(quality[a] - quality[b] + noise * 0.4 > 0.0)
                });
                games += played.iter().map(Vec::len).sum::<usize>();
                sum += correlation(&quality, &scores);
            }
            (sum / groups as f32, games as u64 / groups)
        };
        for (scheme, expected, games) in [
            (Scheme::RoundRobin, 0.96, 120),
            (Scheme::SingleElimination, 0.77, 30),
            (Scheme::Anchor, 0.66, 15),
        ] {
            let (found, played) = agreement(scheme);
            assert_eq!(played, games);
            assert!((found - expected).abs() < 0.03, "{scheme:?}: {found}");
        }
    }

    fn correlation(a: &[f32], b: &[f32]) -> f32 {
        let centred = |numbers: &[f32]| -> Vec<f32> {
            let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
            numbers.iter().map(|number| number - mean).collect()
        };
        let (a, b) = (centred(a), centred(b));
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        product(&a, &b) / (product(&a, &a) * product(&b, &b)).sqrt().max(1e-9)
    }
}
