//! The metrics row of a step.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use forage_contracts::{Ending, Episode, Metric, Provenance, Score};
use forage_env::registry;

use crate::metrics::Row;
use crate::update_stats::UpdateStats;

/// Rewards that differ by less are counted as equal.
const SAME_PAY: f64 = 1e-6;

/// Sets the metrics of a step's episodes: rewards, lengths and behaviour. Episodes lost to infrastructure faults are only counted.
/// `version`: optimizer steps done by the weights that are about to learn.
pub(super) fn describe_episodes(row: &mut Row, episodes: &[Episode], version: u64) {
    let scored: Vec<&Episode> = episodes
        .iter()
        .filter(|episode| !episode.ending.is_infra())
        .collect();
    let mean = |value: &dyn Fn(&Episode) -> f64| {
        scored.iter().map(|episode| value(episode)).sum::<f64>() / scored.len().max(1) as f64
    };
    let reward = |episode: &Episode| f64::from(episode.reward().unwrap_or(0.0));
    let average = mean(&reward);
    row.set(Metric::REWARD, average);
    row.set(
        Metric::REWARD_STD,
        mean(&|episode| (reward(episode) - average).powi(2)).sqrt(),
    );
    row.set(
        Metric::REWARD_ZERO,
        mean(&|episode| f64::from(u8::from(reward(episode) == 0.0))),
    );
    let scores = scored.iter().filter_map(|episode| episode.score.as_ref());
    let names: BTreeSet<&String> = scores.flat_map(|score| score.parts.keys()).collect();
    for name in names {
        let part = |episode: &Episode| {
            episode
                .score
                .as_ref()
                .and_then(|score| score.parts.get(name))
                .copied()
        };
        row.set(
            &Metric::REWARD_PART.replace('*', name),
            mean(&|episode| f64::from(part(episode).unwrap_or(0.0))),
        );
    }
    let excess = |episode: &Episode| {
        let score = episode.score.as_ref();
        score.and_then(Score::published_excess).map(f64::from)
    };
    if scored.iter().any(|episode| excess(episode).is_some()) {
        let differs = |excess: f64| f64::from(u8::from(excess.abs() > SAME_PAY));
        row.set(
            Metric::PUBLISHED_DIFFERS,
            mean(&|episode| excess(episode).map_or(0.0, differs)),
        );
        row.set(
            Metric::PUBLISHED_EXCESS,
            mean(&|episode| excess(episode).unwrap_or(0.0)),
        );
    }
    row.set(
        Metric::RESPONSE_TOKENS,
        mean(&|episode| episode.tokens.count(Provenance::Policy) as f64),
    );
    let response =
        |episode: &Episode| episode.tokens.len() - episode.tokens.count(Provenance::Prompt);
    row.set(
        Metric::RESPONSE_ALL_TOKENS,
        mean(&|episode| response(episode) as f64),
    );
    let truncated = |episode: &Episode| matches!(episode.ending, Ending::Truncated { .. });
    row.set(
        Metric::TRUNCATED,
        mean(&|episode| f64::from(u8::from(truncated(episode)))),
    );
    row.set(Metric::TURNS, mean(&|episode| episode.turns.len() as f64));
    row.set(Metric::SEARCHES, mean(&|episode| episode.searches() as f64));
    if let Some(share) = empty_frac(&scored) {
        row.set(Metric::SEARCH_EMPTY, share);
    }
    let turns: Vec<_> = scored.iter().flat_map(|episode| &episode.turns).collect();
    let valid = turns.iter().filter(|turn| !turn.kind.is_invalid()).count();
    row.set(Metric::VALID, valid as f64 / turns.len().max(1) as f64);
    row.set(
        Metric::POLICY_AGE,
        mean(&|episode| policy_age(episode, version)),
    );
    let paid = |episode: &Episode| episode.turn_rewards().map(f64::from).sum::<f64>();
    if scored.iter().any(|episode| paid(episode).abs() > 0.0) {
        row.set(Metric::REWARD_TURNS, mean(&paid));
    }
    if !scored.is_empty() {
        row.set(Metric::REPEATED, mean(&repeated_frac));
    }
    row.set(
        Metric::FINISHED,
        mean(&|episode| f64::from(u8::from(episode.ending == Ending::Answered))),
    );
    row.set(
        Metric::INFRA,
        (episodes.len() - scored.len()) as f64 / episodes.len().max(1) as f64,
    );
}

/// The name of the reward among the measures of a validation.
const REWARD: &str = "reward";

/// Sets the means of a part of the score and of the reward over the development questions and, where there are several data sets, those of
/// each and the means of these; then the number of questions with that part, or else with a score. Returns the mean of the part; `None`
/// without an episode that has it, as where questions have no answers.
pub(super) fn describe_validation(
    row: &mut Row,
    episodes: &[Episode],
    measure: &str,
) -> Option<f64> {
    let part = |score: &Score| score.parts.get(measure).copied();
    let rewarded = describe_scores(row, episodes, REWARD, |score| Some(score.total));
    let measured = describe_scores(row, episodes, measure, part);
    let (_, questions) = measured.or(rewarded)?;
    row.set(Metric::VAL_QUESTIONS, questions as f64);
    measured.map(|(mean, _)| mean)
}

/// Sets the means of what `value` reads from the scores, under `name`. Returns the one over all questions, and how many have it.
fn describe_scores(
    row: &mut Row,
    episodes: &[Episode],
    name: &str,
    value: impl Fn(&Score) -> Option<f32>,
) -> Option<(f64, usize)> {
    let mut sources: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for episode in episodes {
        if let Some(value) = episode.score.as_ref().and_then(&value) {
            let source = sources.entry(episode.task.data_source.as_str());
            source.or_default().push(f64::from(value));
        }
    }
    let mean = |values: &[f64]| {
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let values: Vec<f64> = sources.values().flatten().copied().collect();
    let all = mean(&values)?;
    let mut set = |name: &str, value: f64| row.set(&Metric::VAL.replace('*', name), value);
    set(name, all);
    if sources.len() > 1 {
        let means: Vec<f64> = sources.values().filter_map(|values| mean(values)).collect();
        for (source, mean) in sources.keys().zip(&means) {
            set(&format!("{source}/{name}"), *mean);
        }
        set(&format!("{name}_macro"), mean(&means)?);
    }
    Some((all, values.len()))
}

/// Share of searches that showed no document; `None` without a search. Left out are the searches of programs, whose output is all that
/// the policy sees, and of turns that a limit cut. Also `None` where no search shows any in an environment whose entry does not say that
/// policies search: a server need not name what it shows.
fn empty_frac(episodes: &[&Episode]) -> Option<f64> {
    let searches = |episode: &Episode| {
        let id = episode.environment.as_str();
        id.is_empty() || registry::find(id).is_ok_and(|entry| entry.telemetry.searches)
    };
    let names = |episode: &Episode| episode.calls().any(|call| !call.shown.is_empty());
    if !episodes
        .iter()
        .any(|episode| searches(episode) || names(episode))
    {
        return None;
    }
    let searched = episodes
        .iter()
        .filter(|episode| !matches!(episode.ending, Ending::Truncated { .. }))
        .flat_map(|episode| episode.calls())
        .filter(|call| !call.queries.is_empty() && call.tool != "python");
    let (all, empty) = searched.fold((0_u64, 0_u64), |(all, empty), call| {
        (all + 1, empty + u64::from(call.shown.is_empty()))
    });
    (all > 0).then(|| empty as f64 / all as f64)
}

/// Share of an episode's 4-grams of policy tokens that occurred in it before. A loop comes close to 1; the tags of a protocol alone stay
/// well below a third. 4-grams do not cross an observation.
fn repeated_frac(episode: &Episode) -> f64 {
    let ids = episode.tokens.ids();
    let (mut seen, mut total) = (HashSet::new(), 0_usize);
    let spans = episode.tokens.spans().iter();
    for span in spans.filter(|span| span.provenance == Provenance::Policy) {
        for gram in ids[span.start..span.end].windows(4) {
            seen.insert(gram);
            total += 1;
        }
    }
    (total - seen.len()) as f64 / total.max(1) as f64
}

/// Sets the number of replayed groups and the age of their episodes, those lost to infrastructure faults aside.
pub(super) fn describe_replay(row: &mut Row, groups: &[&[Episode]], version: u64) {
    row.set(Metric::REPLAY_GROUPS, groups.len() as f64);
    let ages: Vec<f64> = groups
        .iter()
        .copied()
        .flatten()
        .filter(|episode| !episode.ending.is_infra())
        .map(|episode| policy_age(episode, version))
        .collect();
    if !ages.is_empty() {
        row.set(
            Metric::REPLAY_AGE,
            ages.iter().sum::<f64>() / ages.len() as f64,
        );
        row.set(
            Metric::REPLAY_AGE_MAX,
            ages.iter().copied().fold(0.0, f64::max),
        );
    }
}

/// Optimizer steps between the oldest weights that wrote in an episode and those of `version`.
fn policy_age(episode: &Episode, version: u64) -> f64 {
    let oldest = episode
        .tokens
        .spans()
        .iter()
        .filter_map(|span| span.version)
        .min();
    oldest.map_or(0, |oldest| version.saturating_sub(oldest)) as f64
}

/// Sets the figures of the update.
pub(super) fn describe_update(row: &mut Row, stats: &UpdateStats) {
    let groups = stats.groups.groups.max(1) as f64;
    row.set(
        Metric::NO_VARIANCE,
        stats.groups.zero_variance as f64 / groups,
    );
    row.set(Metric::FILTERED, stats.groups.filtered as f64 / groups);
    if let Some(values) = stats.values.filter(|values| values.updates > 0) {
        row.set(Metric::VALUE_LOSS, values.loss);
        row.set(Metric::VALUE_CLIP, values.clip_frac);
        row.set(Metric::VALUE_EXPLAINED, values.explained_variance);
        row.set(Metric::VALUE_GRADIENT, values.grad_norm);
    }
    if let Some([rank, velocity, acceleration]) = stats.ranks {
        row.set(Metric::HIDDEN_RANK, rank.into());
        row.set(Metric::HIDDEN_VELOCITY, velocity.into());
        row.set(Metric::HIDDEN_ACCELERATION, acceleration.into());
    }
    row.set(Metric::UPDATES, stats.updates as f64);
    if stats.updates == 0 {
        return;
    }
    row.set(Metric::LOSS, stats.policy_loss);
    row.set(Metric::LOSS_WITH_PENALTIES, stats.loss);
    row.set(Metric::CLIP, stats.clip_frac);
    row.set(Metric::KL_OLD, stats.approx_kl_old);
    if stats.penalised {
        row.set(Metric::KL_REFERENCE, stats.kl_reference);
    }
    row.set(Metric::ENTROPY, stats.entropy);
    if !stats.masked {
        row.set(Metric::MISMATCH, stats.mismatch);
        row.set(Metric::RATIO_DEVIATION, stats.ratio_deviation_max);
    }
    row.set(Metric::CORRECTION_CUT, stats.correction_truncated_frac);
    row.set(Metric::CORRECTION_MASKED, stats.correction_masked_frac);
    row.set(Metric::GRADIENT, stats.grad_norm);
    row.set(Metric::LEARNING_RATE, stats.learning_rate);
    row.set(Metric::OPTIM_TOKENS, stats.tokens as f64);
}

#[cfg(test)]
mod tests {
    use forage_contracts::environment::{Call, TurnKind};
    use forage_contracts::policy::Finish;
    use forage_contracts::{Boundary, Split, Task, TokenLog, Turn};

    use super::*;

    #[test]
    fn the_distance_from_a_reference_is_not_written_where_nothing_penalises_it() {
        let distance = |penalised: bool| {
            let mut row = Row::new(0);
            let stats = UpdateStats {
                penalised,
                updates: 1,
                ..UpdateStats::default()
            };
            describe_update(&mut row, &stats);
            row.get(Metric::KL_REFERENCE)
        };
        assert_eq!((distance(true), distance(false)), (Some(0.0), None));
    }

    /// An episode whose policy wrote `spans`, with an observation of equal tokens behind each.
    fn episode(spans: &[&[u32]], kinds: Vec<TurnKind>) -> Episode {
        let mut tokens = TokenLog::with_prompt(&[1, 1, 1, 1, 1, 1, 1, 1]);
        for span in spans {
            tokens.push_policy(span, &vec![-0.5; span.len()], 0, None);
            tokens.push_environment(&[2, 2, 2, 2, 2, 2]);
        }
        let turn = |kind| Turn {
            policy: String::new(),
            finish: Finish::Stop,
            kind,
            observation: String::new(),
            reward: 0.25,
        };
        let task = Task {
            id: "1".into(),
            question: "Who?".into(),
            golds: vec!["Ada".into()],
            evidence: Vec::new(),
            qrels: std::collections::BTreeMap::new(),
            hops: 0,
            oracle: Vec::new(),
            data_source: "test".into(),
            split: Split::Train,
        };
        let turns = kinds.into_iter().map(turn).collect();
        let (prompt, ending) = (String::new(), Ending::Answered);
        Episode {
            task,
            group: 0,
            member: 0,
            branch: None,
            hinted: 0,
            environment: String::new(),
            prompt,
            turns,
            tokens,
            conversation: None,
            ending,
            score: None,
            seed: None,
        }
    }

    fn invalid() -> TurnKind {
        TurnKind::invalid("no tag")
    }

    #[test]
    fn a_row_describes_the_policys_own_tokens_and_leaves_lost_episodes_out() {
        let search = TurnKind::search("ada", Vec::new());
        let found = TurnKind::search("ada", vec!["7".to_owned()]);
        let answer = TurnKind::answer("Ada");
        // 4-grams of the first: 5, then 3 of which 2 were seen before: 2/8. Those of the second: 7, all alike but one: 6/7.
        let first = episode(
            &[&[1, 2, 3, 4, 5, 6, 7, 8], &[1, 2, 3, 4, 5, 9]],
            vec![search, answer],
        );
        let second = episode(&[&[7; 10]], vec![invalid()]);
        let third = episode(&[&[7; 10]], vec![found]);
        let program = Call {
            queries: vec!["ada".to_owned()],
            ..Call::new("python")
        };
        let fourth = episode(&[&[7; 10]], vec![TurnKind::call(program)]);
        let share = |episodes: &[&Episode]| empty_frac(episodes);
        assert_eq!(share(&[&first, &second]), Some(1.0));
        assert_eq!(share(&[&first, &second, &third, &fourth]), Some(0.5));
        assert_eq!(share(&[&second, &fourth]), None);
        let served = |episode: &Episode| Episode {
            environment: "forage/external-v0".to_owned(),
            ..episode.clone()
        };
        let (empty, shown) = (served(&first), served(&third));
        assert_eq!(share(&[&empty]), None);
        assert_eq!(share(&[&empty, &shown]), Some(0.5));
        let mut lost = episode(&[&[3; 100]], vec![invalid(), invalid()]);
        lost.ending = Ending::Infra {
            boundary: Boundary::Retriever,
            message: "down".into(),
        };
        let mut row = Row::new(0);
        describe_episodes(&mut row, &[first, lost.clone(), second], 0);
        for (name, expected) in [
            (Metric::REPEATED, f64::midpoint(2.0 / 8.0, 6.0 / 7.0)),
            (Metric::RESPONSE_TOKENS, 12.0),
            (Metric::SEARCHES, 0.5),
            (Metric::SEARCH_EMPTY, 1.0),
            (Metric::VALID, 2.0 / 3.0),
            (Metric::REWARD_TURNS, 0.375),
            (Metric::INFRA, 1.0 / 3.0),
        ] {
            let found = row.get(name).unwrap();
            assert!(
                (found - expected).abs() < 1e-12,
                "{name}: {found} is not {expected}"
            );
        }
        let mut nothing = Row::new(1);
        describe_episodes(&mut nothing, &[lost], 0);
        assert_eq!(nothing.get(Metric::REPEATED), None);
    }

    #[test]
    fn replayed_episodes_are_as_old_as_their_weights_and_lost_ones_have_no_age() {
        let [first, mut second] = [0, 1].map(|_| episode(&[&[1, 2]], vec![invalid()]));
        second.tokens = TokenLog::with_prompt(&[1]);
        second.tokens.push_policy(&[2], &[-0.5], 4, None);
        let mut lost = episode(&[], Vec::new());
        lost.ending = Ending::Infra {
            boundary: Boundary::Policy,
            message: "down".into(),
        };
        let mut row = Row::new(0);
        describe_replay(&mut row, &[&[first, lost.clone()], &[lost, second]], 10);
        let names = [
            Metric::REPLAY_GROUPS,
            Metric::REPLAY_AGE,
            Metric::REPLAY_AGE_MAX,
        ];
        let found = names.map(|name| row.get(name));
        assert_eq!(found, [Some(2.0), Some(8.0), Some(10.0)]);
    }

    #[test]
    fn what_a_published_grader_overpays_stands_in_the_row() {
        let scored = |published: f32, correct: f32| {
            let mut found = episode(&[&[1, 2]], vec![TurnKind::answer("Ada")]);
            let parts = [("published", published), ("published_correct", correct)];
            found.score = Some(Score {
                total: published,
                parts: parts.map(|(name, part)| (name.to_owned(), part)).into(),
                ..Score::default()
            });
            found
        };
        let episodes = [
            scored(1.0, 0.0),
            scored(1.0, 1.0),
            scored(0.0, 0.5),
            scored(0.5, 0.5),
        ];
        let mut row = Row::new(0);
        describe_episodes(&mut row, &episodes, 0);
        let names = [Metric::PUBLISHED_DIFFERS, Metric::PUBLISHED_EXCESS];
        assert_eq!(names.map(|name| row.get(name)), [Some(0.5), Some(0.125)]);
        let mut plain = Row::new(0);
        let none = episode(&[&[1, 2]], vec![TurnKind::answer("Ada")]);
        describe_episodes(&mut plain, &[none], 0);
        assert_eq!(plain.get(Metric::PUBLISHED_DIFFERS), None);
    }

    #[test]
    fn a_validation_has_a_figure_for_each_data_set() {
        let scored = |source: &str, em: f32| {
            let parts = [("em".to_owned(), em)].into();
            let mut found = episode(&[], Vec::new());
            source.clone_into(&mut found.task.data_source);
            found.score = Some(Score {
                total: em,
                parts,
                ..Score::default()
            });
            found
        };
        let (nq, hotpotqa) = (scored("nq", 1.0), scored("hotpotqa", 0.0));
        let mut lost = nq.clone();
        lost.score = None;
        let mut row = Row::new(0);
        let asked = [nq.clone(), nq.clone(), nq.clone(), hotpotqa, lost];
        assert_eq!(describe_validation(&mut row, &asked, "em"), Some(0.75));
        let names = ["val/em", "val/nq/em", "val/hotpotqa/em", "val/em_macro"];
        let found = names.map(|name| row.get(name));
        assert_eq!(found, [Some(0.75), Some(1.0), Some(0.0), Some(0.5)]);
        assert_eq!(row.get(Metric::VAL_QUESTIONS), Some(4.0), "one was lost");
        let mut one = Row::new(0);
        assert_eq!(describe_validation(&mut one, &[nq], "em"), Some(1.0));
        assert_eq!(one.get("val/nq/em"), None, "it is val/em");
        assert_eq!(describe_validation(&mut Row::new(0), &[], "em"), None);
    }

    #[test]
    fn a_validation_has_the_reward_also_where_nothing_is_measured() {
        let scored = |source: &str, total: f32, em: Option<f32>| {
            let mut found = episode(&[], Vec::new());
            source.clone_into(&mut found.task.data_source);
            found.score = Some(Score {
                total,
                parts: em.map(|em| ("em".to_owned(), em)).into_iter().collect(),
                ..Score::default()
            });
            found
        };
        let mut row = Row::new(0);
        let asked = [scored("own", 0.25, None), scored("own", 0.75, None)];
        assert_eq!(describe_validation(&mut row, &asked, "em"), None);
        let names = [Metric::VAL_REWARD, Metric::VAL_QUESTIONS, Metric::VAL_EM];
        assert_eq!(
            names.map(|name| row.get(name)),
            [Some(0.5), Some(2.0), None]
        );

        let mut row = Row::new(0);
        let asked = [
            scored("nq", 0.5, Some(1.0)),
            scored("nq", 1.0, Some(0.0)),
            scored("own", 0.0, None),
        ];
        assert_eq!(describe_validation(&mut row, &asked, "em"), Some(0.5));
        assert_eq!(
            names.map(|name| row.get(name)),
            [Some(0.5), Some(2.0), Some(0.5)]
        );
        let split = [
            "val/nq/reward",
            "val/own/reward",
            "val/reward_macro",
            "val/nq/em",
        ];
        let found = split.map(|name| row.get(name));
        assert_eq!(found, [Some(0.75), Some(0.0), Some(0.375), None]);
    }
}
