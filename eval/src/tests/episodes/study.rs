//! Studies: gains, twins, baselines, data sets, hops.

mod samples;
mod sets;
mod words;

use forage_contracts::Episode;
use forage_eval::{Interval, SeedEpisodes, Study, StudyError, Verdict};

use super::fixtures::{SETTINGS, episode, episodes, infra};
use super::summary::two_sources;

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// About `tenths` of ten questions right, others under every seed.
fn share(seed: u64, tenths: u64) -> Vec<Episode> {
    episodes(120, |index| {
        (index as u64 * 7 + seed * 3 + index as u64 / 10) % 10 < tenths
    })
}

fn seed(seed: u64, arms: &[(&str, u64)]) -> SeedEpisodes {
    let arms = arms
        .iter()
        .map(|&(name, tenths)| (name.to_owned(), share(seed, tenths)))
        .collect();
    SeedEpisodes {
        seed,
        start: share(seed, 2),
        arms,
        baselines: Vec::new(),
    }
}

fn study(arms: &[(&str, u64)]) -> Result<Study, StudyError> {
    let seeds: Vec<SeedEpisodes> = (1..=5).map(|number| seed(number, arms)).collect();
    Study::of(&seeds, SETTINGS)
}

#[test]
fn a_real_gain_beside_flat_twins_holds() -> TestResult {
    let found = study(&[("trained", 6), ("random", 2), ("shuffled", 1)])?;
    assert!(found.holds());
    let [trained, random, shuffled] = found.arms.as_slice() else {
        panic!("{found:?}")
    };
    assert!(
        (trained.gain.estimate - 0.4).abs() < 0.02,
        "{:?}",
        trained.gain
    );
    assert!(random.gain.low <= 0.0 && shuffled.gain.is_negative());
    let lead = random.lead.as_ref().expect("a lead");
    assert!(
        lead.p_adjusted < 0.01
            && lead.p <= lead.p_adjusted
            && lead.improvement.is_some_and(|found| found.low > 0.99),
        "{lead:?}"
    );
    let words = found.words().join(" ");
    assert!(
        words.contains("The gain is real") && words.contains("Twin `random` shows no gain"),
        "{words}"
    );
    assert!(
        !words.contains("Only") && words.contains("at least +0.3"),
        "{words}"
    );
    assert!(
        found.to_text().contains("trained ahead by")
            && found.to_text().contains("120 questions, 5 seeds")
    );
    Ok(())
}

#[test]
fn twins_that_gain_take_their_share() -> TestResult {
    let partly = study(&[("trained", 6), ("format_only", 4)])?;
    assert!(!partly.holds());
    let words = partly.words().join(" ");
    assert!(
        words.contains(
            "The gain is real, and in part the reward's: +0.20 of +0.40, what exceeds the gain of `format_only`."
        ),
        "{words}"
    );
    let wholly = study(&[("trained", 6), ("random", 6)])?;
    assert!(
        !wholly.holds()
            && wholly
                .words()
                .join(" ")
                .contains("is not clearly ahead of `random`")
    );
    let none = study(&[("trained", 2), ("random", 2)])?;
    assert!(
        none.words()
            .join(" ")
            .contains("No gain is shown, so none can be attributed.")
    );
    Ok(())
}

#[test]
fn seeds_that_disagree_widen_the_interval() -> TestResult {
    let seeds = |spread: &[u64]| -> Vec<SeedEpisodes> {
        (1..)
            .zip(spread)
            .map(|(number, &tenths)| seed(number, &[("trained", tenths)]))
            .collect()
    };
    let calm = Study::of(&seeds(&[5, 5, 5, 5, 5]), SETTINGS)?;
    let wild = Study::of(&seeds(&[2, 8, 2, 8, 5]), SETTINGS)?;
    assert!((calm.arms[0].gain.estimate - wild.arms[0].gain.estimate).abs() < 0.02);
    assert!(
        calm.arms[0].gain.is_positive() && !wild.arms[0].gain.is_positive(),
        "{:?}",
        wild.arms[0].gain
    );
    // Student's interval of the five gains: 2.776 is its quantile at 4 degrees of freedom.
    let gains: Vec<f64> = wild.arms[0]
        .seeds
        .iter()
        .map(|seed| seed.gain.estimate)
        .collect();
    let mean = gains.iter().sum::<f64>() / 5.0;
    let variance = gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / 4.0;
    let half = 2.776_445_105 * (variance / 5.0).sqrt();
    assert!(
        (wild.arms[0].gain.high - (mean + half)).abs() < 1e-6,
        "{:?} {half}",
        wild.arms[0].gain
    );
    Ok(())
}

/// Student's interval has no width where seeds agree to the last question, and that over questions is a comparison's: of few and
/// rare differences the ends of `BCa` are others.
#[test]
fn seeds_that_agree_have_the_interval_of_one() -> TestResult {
    let seed = |number| SeedEpisodes {
        seed: number,
        start: episodes(120, |_| false),
        arms: vec![("trained".to_owned(), episodes(120, |index| index < 5))],
        baselines: Vec::new(),
    };
    let one = Study::of(&[seed(1)], SETTINGS)?.arms[0].gain;
    let two = Study::of(&[seed(1), seed(2)], SETTINGS)?.arms[0].gain;
    for (one, two) in one.ends().into_iter().zip(two.ends()) {
        assert!((one - two).abs() < 1e-9, "{one} {two}");
    }
    Ok(())
}

/// Of 5 answers that are lost all go one way by chance in 2 of 32 cases, of 6 in 2 of 64, though the intervals of both leave 0 out.
#[test]
fn a_loss_takes_a_test_as_well() -> TestResult {
    let right = |count: usize| episodes(100, |index| index < count);
    let few = [
        "No gain can be shown: −0.05",
        "but p over questions is 0.062, and below 0.05 is asked.",
        "Twin `random` shows no gain: −0.05",
        "the trained policy is not clearly ahead of it: −0.05",
        "a meaningless reward, shows no gain: −0.05",
    ];
    let enough = [
        "Training made it worse: −0.06",
        "Training made held-out exact match worse: −0.06",
        "Twin `random` got worse: −0.06",
        "the trained policy is behind it: −0.06",
        "a meaningless reward, got worse: −0.06",
    ];
    for (lost, sentences) in [(5, few), (6, enough)] {
        let seed = SeedEpisodes {
            seed: 1,
            start: right(50),
            arms: ["trained", "random"]
                .map(|name| (name.to_owned(), right(50 - lost)))
                .into(),
            baselines: vec![("forced_search".to_owned(), right(50))],
        };
        let found = Study::of(std::slice::from_ref(&seed), SETTINGS)?;
        assert!(found.arms[0].gain.is_negative(), "{:?}", found.arms[0]);
        let verdict = Verdict::of(&seed, None, 1.0, SETTINGS)?;
        let words = [found.words(), verdict.words()].concat().join(" ");
        for said in sentences {
            assert!(words.contains(said), "{said}: {words}");
        }
    }
    Ok(())
}

#[test]
fn what_cannot_be_claimed_is_said_or_refused() -> TestResult {
    let one = Study::of(&[seed(1, &[("trained", 6)])], SETTINGS)?;
    let words = one.words().join(" ");
    assert!(
        words.contains("One seed") && words.contains("without a control") && !one.holds(),
        "{words}"
    );
    let beside = Study::of(&[seed(1, &[("trained", 6), ("random", 2)])], SETTINGS)?;
    assert_eq!(
        beside.arms[1].lead.as_ref().map(|lead| lead.improvement),
        Some(None),
        "one pair of runs is not a share"
    );
    assert!(!beside.words().join(" ").contains("pairs of seeds"));
    let nothing = SeedEpisodes {
        seed: 1,
        start: share(1, 0),
        arms: vec![("trained".into(), share(1, 0))],
        baselines: Vec::new(),
    };
    assert!(
        Study::of(&[nothing], SETTINGS)?
            .words()
            .join(" ")
            .contains("scored 0 in")
    );
    assert!(matches!(Study::of(&[], SETTINGS), Err(StudyError::Empty)));
    let twice = [seed(1, &[("trained", 6)]), seed(1, &[("trained", 6)])];
    assert!(matches!(
        Study::of(&twice, SETTINGS),
        Err(StudyError::Twice(1))
    ));
    let other = Study::of(
        &[
            seed(1, &[("trained", 6)]),
            seed(2, &[("trained", 6), ("random", 2)]),
        ],
        SETTINGS,
    );
    assert!(
        other
            .unwrap_err()
            .to_string()
            .contains("train the same twins under every seed")
    );
    let mut short = seed(1, &[("trained", 6)]);
    short.arms[0].1.truncate(50);
    let error = Study::of(&[short], SETTINGS).unwrap_err();
    assert!(
        error.to_string().contains("seed 1, trained: cannot"),
        "{error}"
    );
    Ok(())
}

#[test]
fn questions_that_faults_took_are_said() -> TestResult {
    let seed = |number: u64, lost: usize| SeedEpisodes {
        seed: number,
        start: share(number, 2),
        arms: vec![(
            "trained".to_owned(),
            [
                (0..lost).map(infra).collect::<Vec<_>>(),
                share(number, 6).split_off(lost),
            ]
            .concat(),
        )],
        baselines: Vec::new(),
    };
    let two = Study::of(&[seed(1, 2), seed(2, 1)], SETTINGS)?.words();
    let said = "3 questions were lost to infrastructure faults and are left out.".to_owned();
    assert!(two.contains(&said), "{two:?}");
    let one = seed(1, 1);
    let verdict = Verdict::of(&one, None, 1.0, SETTINGS)?.words();
    let said = "1 question was lost to infrastructure faults and is left out.".to_owned();
    for words in [Study::of(&[one], SETTINGS)?.words(), verdict] {
        assert!(words.contains(&said), "{words:?}");
    }
    let none = Study::of(&[seed(1, 0)], SETTINGS)?.words().join(" ");
    assert!(!none.contains("lost"), "{none}");
    Ok(())
}

#[test]
fn data_sets_have_gains_of_their_own() -> TestResult {
    let lost = |mut set: Vec<Episode>| {
        set.extend([infra(99)]);
        set[40].task.data_source = "lost".to_owned();
        set
    };
    let seed = |number: u64| SeedEpisodes {
        seed: number,
        start: lost(two_sources(&|_| false, &|index| index < 5)),
        arms: vec![(
            "trained".to_owned(),
            lost(two_sources(&|index| index < 15, &|index| index < 4)),
        )],
        baselines: Vec::new(),
    };
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    for seeds in [vec![seed(1)], vec![seed(1), seed(2)]] {
        let found = Study::of(&seeds, SETTINGS)?;
        let gain = |source: &str| found.by_source[source][0].gain.estimate;
        assert!(near(gain("nq"), 0.5) && near(gain("hotpotqa"), -0.1));
        assert!(!found.by_source.contains_key("lost"), "nothing was scored");
        assert!(near(found.macro_gain["trained"].estimate, 0.2));
        // Of 0.4, 0.4, 0.5 and 0.5 the inner two; one seed has no other run to draw.
        let inner = found.interquartile_mean.get("trained");
        assert_eq!(inner.is_some(), seeds.len() > 1);
        assert!(inner.is_none_or(|inner| near(inner.estimate, 0.45)));
        let text = found.to_text();
        assert!(
            text.contains("gain by data set") && text.contains("macro average"),
            "{text}"
        );
        assert_eq!(text.contains("share of seeds"), seeds.len() > 1, "{text}");
    }
    let one = study(&[("trained", 6)])?;
    assert!(one.by_source.is_empty() && one.macro_gain.is_empty());
    Ok(())
}

/// A run that gains more on one data set gains more on the other too: two data sets show no more of other seeds than one does.
#[test]
fn data_sets_that_share_their_runs_are_not_independent() -> TestResult {
    let seed = |number: usize| SeedEpisodes {
        seed: number as u64,
        start: two_sources(&|_| false, &|_| false),
        arms: vec![(
            "trained".to_owned(),
            two_sources(&|index| index < 3 * number, &|index| index < number),
        )],
        baselines: Vec::new(),
    };
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
    // Gains of 0.1, 0.2 and 0.3 on each. Student's quantile at 2 degrees of freedom is 0.95 sqrt(2 / (4 * 0.975 * 0.025)) = 4.302653,
    // and 4.302653 * 0.1 / sqrt(3) = 0.248414.
    let found = Study::of(&[seed(1), seed(2), seed(3)], SETTINGS)?.macro_gain["trained"];
    assert!(
        near(found.estimate, 0.2) && near(found.low, -0.048_414) && near(found.high, 0.448_414),
        "{found:?}"
    );
    // Where seeds agree, questions alone are left, and those of two data sets are independent.
    let one = Study::of(&[seed(2)], SETTINGS)?;
    let twice = [seed(2), SeedEpisodes { seed: 5, ..seed(2) }];
    let two = Study::of(&twice, SETTINGS)?.macro_gain["trained"];
    let squares = one.by_source.values().map(|arms| {
        let gain = arms[0].gain;
        (gain.high - gain.estimate).powi(2)
    });
    let half = squares.sum::<f64>().sqrt() / 2.0;
    let one = one.macro_gain["trained"];
    assert!(
        near(one.high, 0.2 + half) && near(two.high, one.high) && near(two.low, one.low),
        "{one:?} {two:?} {half}"
    );
    Ok(())
}

#[test]
fn an_erratic_twin_is_named_with_its_seeds() -> TestResult {
    let seeds: Vec<SeedEpisodes> = (1..=5)
        .map(|number| {
            let twin = if number == 3 { 6 } else { 2 };
            seed(number, &[("trained", 6), ("shuffled", twin)])
        })
        .collect();
    let found = Study::of(&seeds, SETTINGS)?;
    let words = found.words().join(" ");
    assert!(
        words.contains("Twin `shuffled` is erratic: +0.08")
            && words.contains("Seeds under which it gained by itself: 3 (+0.40)."),
        "{words}"
    );
    assert!(!words.contains("shows no gain"), "{words}");
    // Leads of 0.4, 0.4, 0, 0.4, 0.4: t is 4 at 4 degrees of freedom, whatever the number of questions.
    let lead = found.arms[1].lead.as_ref().ok_or("a lead")?;
    assert!((lead.p - 0.016_130_089_900_092_5).abs() < 1e-6, "{lead:?}");
    assert!(words.contains("adjusted p over seeds 0.016"), "{words}");
    Ok(())
}

#[test]
fn baselines_stand_beside_the_arms() -> TestResult {
    let with = |number: u64, tenths: u64| SeedEpisodes {
        baselines: vec![("forced_search".to_owned(), share(number, tenths))],
        ..seed(number, &[("trained", 6), ("random", 2)])
    };
    let seeds: Vec<SeedEpisodes> = (1..=5).map(|number| with(number, 4)).collect();
    let found = Study::of(&seeds, SETTINGS)?;
    assert_eq!((found.arms.len(), found.baselines.len()), (2, 1));
    let alone = study(&[("trained", 6), ("random", 2)])?;
    assert_eq!(
        found.arms, alone.arms,
        "a baseline changes nothing of the twins"
    );
    assert!(found.holds(), "a baseline that gains takes no credit away");
    let lead = found.baselines[0].lead.as_ref().ok_or("a lead")?;
    assert!((lead.difference.estimate - 0.2).abs() < 1e-9, "{lead:?}");
    let words = found.words().join(" ");
    assert!(
        words.contains("Baseline `forced_search` reaches 0.40 EM, +0.20")
            && words.contains("the trained policy is ahead of it: +0.20"),
        "{words}"
    );
    let text = found.to_text();
    assert!(text.contains("forced_search") && !text.contains("seconds of it"));
    let json = serde_json::to_value(&found)?;
    assert_eq!(json["baselines"][0]["name"], "forced_search");
    assert!(json["baselines"][0].get("cost").is_none());
    let cost = |name: &str, seconds| (name.to_owned(), [100.0, seconds]);
    let costs = ["trained", "forced_search"].map(|name| [cost(name, 3.0), cost(name, 5.0)]);
    let dear = found.clone().with_costs(costs.as_flattened());
    assert!(dear.to_text().contains("seconds of it"));
    let words = dear.words().join(" ");
    assert!(
        words.contains("reaches 0.40 EM after 100 episodes and 4.000 s of training, +0.20"),
        "{words}"
    );
    let json = serde_json::to_value(&dear)?;
    assert_eq!(json["arms"][0]["cost"]["seconds"], 4.0);
    let better: Vec<SeedEpisodes> = (1..=5).map(|number| with(number, 8)).collect();
    let words = Study::of(&better, SETTINGS)?.words().join(" ");
    assert!(
        words.contains("the trained policy is behind it: −0.20"),
        "{words}"
    );
    let other = [with(1, 4), seed(2, &[("trained", 6), ("random", 2)])];
    let error = Study::of(&other, SETTINGS).unwrap_err().to_string();
    assert!(error.contains("ask for the same baselines"), "{error}");
    Ok(())
}

#[test]
fn searches_are_held_against_hops() -> TestResult {
    // As many searches as hops; the fixtures search twice whatever is asked.
    let follows = |index: usize| {
        let mut episode = episode(index, true);
        match episode.task.hops {
            1 => {
                episode.turns.remove(0);
            }
            3 => episode.turns.insert(0, episode.turns[0].clone()),
            _ => {}
        }
        episode
    };
    let seed = SeedEpisodes {
        seed: 1,
        start: share(1, 2),
        arms: vec![("trained".to_owned(), (0..120).map(follows).collect())],
        baselines: Vec::new(),
    };
    let found = Study::of(&[seed], SETTINGS)?;
    let effort = found.effort.ok_or("no effort")?;
    assert_eq!(effort.start, None, "always two searches");
    let after = effort.trained.ok_or("no correlation")?;
    assert!((after.estimate - 1.0).abs() < 1e-9 && after.low > 0.99);
    let words = found.words().join(" ");
    assert!(
        words.contains("no correlation (one of the two does not vary) at the start, r = +1.00"),
        "{words}"
    );
    assert_eq!(study(&[("trained", 6)])?.effort, None);
    Ok(())
}

/// Questions that were asked under several seeds are drawn with all of them: what each seed repeats shows no more.
#[test]
fn a_question_of_several_seeds_counts_once_against_hops() -> TestResult {
    // One search in the place of two on half of the questions of one hop.
    let hasty = |index: usize| {
        let mut episode = episode(index, true);
        if index.is_multiple_of(6) {
            episode.turns.remove(0);
        }
        episode
    };
    let seed = |number| SeedEpisodes {
        seed: number,
        start: share(1, 2),
        arms: vec![("trained".to_owned(), (0..120).map(hasty).collect())],
        baselines: Vec::new(),
    };
    let trained = |seeds: &[SeedEpisodes]| -> Result<Interval, Box<dyn std::error::Error>> {
        let effort = Study::of(seeds, SETTINGS)?.effort.ok_or("no effort")?;
        Ok(effort.trained.ok_or("no correlation")?)
    };
    let one = trained(&[seed(1)])?;
    let five = trained(&(1..=5).map(seed).collect::<Vec<_>>())?;
    // Sums of squares 80 and 50 / 3, of products 20.
    assert!((one.estimate - 0.3_f64.sqrt()).abs() < 1e-9, "{one:?}");
    for (one, five) in one.ends().into_iter().zip(five.ends()) {
        assert!((one - five).abs() < 1e-9, "{one} {five}");
    }
    Ok(())
}

/// The episode without its searches.
fn silent(mut episode: Episode) -> Episode {
    episode.turns.retain(|turn| turn.kind.calls().is_empty());
    if let Some(score) = &mut episode.score {
        score.parts.insert("retrieval".to_owned(), 0.0);
    }
    episode
}

/// Under one seed the start never searches and the trained policy does; under the other both search, and the trained one reads better.
#[test]
fn a_gain_is_taken_apart_over_seeds() -> TestResult {
    let learned = seed(2, &[("trained", 6)]);
    let found = Study::of(
        &[
            SeedEpisodes {
                start: share(1, 0).into_iter().map(silent).collect(),
                ..seed(1, &[("trained", 6)])
            },
            learned.clone(),
        ],
        SETTINGS,
    )?;
    let parts = found.parts.as_ref().ok_or("no parts")?;
    let [search, find, read, guess] = parts.shares.in_order();
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
    assert!(near(search.estimate, 0.3) && near(read.estimate, 0.2));
    assert!(near(find.estimate, 0.0) && near(guess.estimate, 0.0));
    // Shares of 0.6 and 0 by seed: Student's quantile at 1 degree of freedom is 12.706.
    assert!(
        near(search.low, 0.3 - 12.706_204_736 * 0.3),
        "a seed is one observation: {search:?}"
    );
    let searched = |policy: usize| parts.policies[policy].parts.in_order()[0];
    assert_eq!((searched(0), searched(1)), (Some(0.5), Some(1.0)));
    assert_eq!((parts.policies[0].questions, parts.by_hops.len()), (240, 3));
    let words = found.words().join(" ");
    assert!(
        words.contains("Of the change in exact match, searching at all explains +0.30")
            && words.contains("found +0.20"),
        "{words}"
    );
    let text = found.to_text();
    assert!(
        text.contains("how it comes to be right") && text.contains("P(search), 2 hops"),
        "{text}"
    );

    let silent = Study::of(
        &[SeedEpisodes {
            start: share(1, 0).into_iter().map(silent).collect(),
            ..seed(1, &[("trained", 6)])
        }],
        SETTINGS,
    )?;
    let words = silent.sampled_words().join(" ");
    assert!(
        words.starts_with("Of the change in sampled exact match, searching at all explains +0.60")
            && words.contains("The start never searched"),
        "{words}"
    );

    // Of several samples each counts.
    let sampled = SeedEpisodes {
        start: [share(1, 2), share(1, 4)].concat(),
        ..learned
    };
    let parts = Study::of(&[sampled], SETTINGS)?.parts.ok_or("no parts")?;
    assert!(near(parts.policies[0].right, 0.3), "{parts:?}");
    assert_eq!(parts.policies[0].questions, 120);
    Ok(())
}

/// An episode that fails where nothing is searched, as in mathematics, has not stopped searching early.
#[test]
fn without_anything_to_find_no_gain_is_taken_apart() -> TestResult {
    let unsearched =
        |tenths| -> Vec<Episode> { share(1, tenths).into_iter().map(silent).collect() };
    let mut seed = SeedEpisodes {
        start: unsearched(2),
        arms: vec![("trained".to_owned(), unsearched(6))],
        ..seed(1, &[])
    };
    let both = |seed: &SeedEpisodes| Study::of(std::slice::from_ref(seed), SETTINGS);
    let found = both(&seed)?;
    assert!(found.parts.is_none() && found.mistakes.is_empty());
    for episode in &mut seed.start {
        episode.task.evidence = vec!["p1".to_owned()];
    }
    let found = both(&seed)?;
    assert!(found.parts.is_some() && !found.mistakes.is_empty());
    Ok(())
}
