use forage_contracts::policy::Sampling;
use forage_contracts::{Episode, TokenLog};
use forage_eval::{CompareError, Comparison, Standings};

use super::fixtures::{SETTINGS, episodes, infra};
use super::summary::two_sources;

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[test]
fn a_clear_gain_is_said_in_words() -> TestResult {
    let start = episodes(500, |index| index % 5 == 0);
    let trained = episodes(500, |index| index % 5 < 2);
    let comparison = Comparison::from_episodes(&start, &trained, SETTINGS)?;
    let em = comparison.difference("em").ok_or("em")?;
    assert!(
        (em.a - 0.2).abs() < 1e-9
            && (em.b - 0.4).abs() < 1e-9
            && (em.difference.estimate - 0.2).abs() < 1e-9
    );
    let test = comparison.mcnemar.ok_or("mcnemar")?;
    assert_eq!((test.only_a, test.only_b), (0, 100));
    assert!(test.p < 1e-20);
    let words = comparison.words("em", "start", "trained");
    let table = comparison.to_text("start", "trained");
    insta::assert_snapshot!("clear_gain", format!("{words}\n\n{table}"));
    let backwards = Comparison::from_episodes(&trained, &start, SETTINGS)?;
    assert_eq!(backwards.words("em", "trained", "start"), words);
    Ok(())
}

#[test]
fn what_has_no_accepted_answers_is_compared_by_its_reward() -> TestResult {
    let paid = |right: fn(usize) -> bool| {
        let mut played = episodes(500, right);
        for score in played.iter_mut().filter_map(|one| one.score.as_mut()) {
            score.parts.clear();
        }
        played
    };
    let (start, trained) = (paid(|index| index % 5 == 0), paid(|index| index % 5 < 2));
    let comparison = Comparison::from_episodes(&start, &trained, SETTINGS)?;
    assert!(comparison.difference("em").is_none());
    let words = comparison.outcome("start", "trained");
    assert!(
        words.starts_with("trained beats start by +0.20 reward ("),
        "{words}"
    );
    Ok(())
}

#[test]
fn what_an_environment_pays_is_compared_where_no_answer_is_right() -> TestResult {
    let played = |paid: fn(usize) -> bool, right: bool| {
        let mut played = episodes(500, |_| right);
        let scores = played.iter_mut().filter_map(|one| one.score.as_mut());
        for (index, score) in scores.enumerate() {
            score.total = f32::from(u8::from(paid(index)));
            score.parts.insert("return".to_owned(), score.total);
        }
        played
    };
    let sides = |right: bool| {
        let start = played(|index| index % 5 == 0, right);
        let trained = played(|index| index % 5 < 2, right);
        Comparison::from_episodes(&start, &trained, SETTINGS)
    };
    let paid = sides(false)?;
    let words = paid.outcome("start", "trained");
    assert!(
        words.starts_with("trained beats start by +0.20 reward ("),
        "{words}"
    );
    let table = paid.to_text("start", "trained");
    assert!(
        table.contains("\nreward ") && !table.contains("\nem "),
        "{table}"
    );
    let right = sides(true)?;
    let words = right.outcome("start", "trained");
    assert!(words.starts_with("No difference in EM"), "{words}");
    assert!(right.to_text("start", "trained").contains("\nem "));
    Ok(())
}

#[test]
fn other_prompts_are_said() -> TestResult {
    let start = episodes(40, |index| index % 5 == 0);
    let mut trained = episodes(40, |index| index % 5 < 2);
    assert_eq!(
        Comparison::from_episodes(&start, &trained, SETTINGS)?.caveat(),
        None
    );
    for episode in &mut trained[..12] {
        episode.prompt.push_str(" Be brief.");
    }
    let caveat = Comparison::from_episodes(&start, &trained, SETTINGS)?.caveat();
    let caveat = caveat.ok_or("a caveat")?;
    assert!(caveat.contains("differ on 12 of the questions"), "{caveat}");
    Ok(())
}

#[test]
fn other_temperatures_are_said() -> TestResult {
    let drawn = |temperature: f32| {
        let mut set = episodes(40, |index| index % 5 == 0);
        for episode in &mut set {
            let sampling = Sampling {
                temperature,
                ..Sampling::FULL
            };
            episode.tokens = TokenLog::with_prompt(&[1]);
            let drawn = Some(sampling);
            episode.tokens.push_policy(&[7], &[-0.1], 3, drawn);
        }
        set
    };
    let caveat = |a: &[Episode], b: &[Episode]| -> Result<Option<String>, CompareError> {
        Ok(Comparison::from_episodes(a, b, SETTINGS)?.caveat())
    };
    let (greedy, sampled) = (drawn(0.0), drawn(1.0));
    assert_eq!(caveat(&sampled, &sampled)?, None);
    // Records of another program may not say it.
    assert_eq!(caveat(&greedy, &episodes(40, |_| true))?, None);
    let caveat = caveat(&greedy, &sampled)?.ok_or("a caveat")?;
    assert!(
        caveat.contains("first side are greedy, those of the second sampled at temperature 1:"),
        "{caveat}"
    );
    Ok(())
}

#[test]
fn other_accepted_answers_are_said() -> TestResult {
    let start = episodes(40, |index| index % 5 == 0);
    let mut trained = episodes(40, |index| index % 5 < 2);
    // In another order they are the same.
    trained[0].task.golds.reverse();
    let caveat = |trained: &[Episode]| -> Result<Option<String>, CompareError> {
        Ok(Comparison::from_episodes(&start, trained, SETTINGS)?.caveat())
    };
    assert_eq!(caveat(&trained)?, None);
    for episode in &mut trained[..3] {
        episode.task.golds = vec!["Eastmere".to_owned()];
    }
    let said = caveat(&trained)?.ok_or("a caveat")?;
    assert!(
        said.starts_with("The accepted answers differ on 3 of the questions"),
        "{said}"
    );
    Ok(())
}

#[test]
fn different_questions_are_an_error_with_counts() {
    let result =
        Comparison::from_episodes(&episodes(10, |_| true), &episodes(7, |_| true), SETTINGS);
    let Err(error) = result else {
        panic!("must fail")
    };
    assert!(matches!(
        &error,
        CompareError::Questions {
            missing_in_a: 0,
            missing_in_b: 3,
            ..
        }
    ));
    assert!(
        error.to_string().contains("3 of A's are missing in B")
            && error
                .to_string()
                .ends_with("B has a part of A's: evaluate both with the same --limit"),
        "{error}"
    );
    let mut other_source = episodes(10, |_| true);
    other_source[4].task.data_source = "elsewhere".into();
    let result = Comparison::from_episodes(&episodes(10, |_| true), &other_source, SETTINGS);
    assert!(matches!(
        result,
        Err(CompareError::Questions {
            missing_in_a: 1,
            missing_in_b: 1,
            ..
        })
    ));
}

#[test]
fn questions_of_other_worlds_under_the_same_ids_are_refused() {
    let mut other = episodes(10, |_| true);
    other[4].task.question = "Who else?".into();
    let Err(error) = Comparison::from_episodes(&episodes(10, |_| true), &other, SETTINGS) else {
        panic!("must fail")
    };
    assert!(matches!(
        &error,
        CompareError::Questions {
            missing_in_a: 1,
            missing_in_b: 1,
            ..
        }
    ));
    assert!(
        error.to_string().contains("world/q0004, \"Who else?\""),
        "{error}"
    );
    assert_eq!(
        Comparison::from_episodes(&[], &[], SETTINGS),
        Err(CompareError::Empty)
    );
}

#[test]
fn small_differences_and_few_questions_are_said() -> TestResult {
    let mut said = String::new();
    let mut say = |a: &[Episode], b: &[Episode], metric: &str| -> Result<(), CompareError> {
        let words = Comparison::from_episodes(a, b, SETTINGS)?.words(metric, "A", "B");
        said.push_str(&words);
        said.push('\n');
        Ok(())
    };
    for (count, right) in [(1, 1), (4, 4), (200, 4), (200, 8)] {
        let b = episodes(count, |index| index < right);
        say(&episodes(count, |_| false), &b, "em")?;
    }
    let searches = |count: usize| {
        let mut set = episodes(120, |_| true);
        for episode in &mut set {
            episode.turns.drain(..2 - count);
        }
        set
    };
    say(&searches(1), &searches(2), "searches")?;
    say(&searches(2), &searches(1), "searches")?;
    say(&searches(2), &searches(2), "ndcg")?;
    let (a, b) = (
        episodes(80, |index| index % 4 == 0),
        episodes(80, |index| index % 4 == 1),
    );
    say(&a, &b, "em")?;
    insta::assert_snapshot!("words", said);
    Ok(())
}

/// Of 2,000 questions 8 and 5 more are right: two decimals would leave nothing of either.
/// With 0 of 40 questions different, up to one in twelve of other questions may differ (Wilson's interval).
#[test]
fn no_interval_is_said_where_no_question_differs() -> TestResult {
    let same = episodes(40, |index| index % 3 == 0);
    let found = Comparison::from_episodes(&same, &same, SETTINGS)?;
    let shown = found.words("em", "A", "B");
    let evidence = "between A and B (no question differs, n = 40 questions, McNemar p = 1.000)";
    assert!(
        shown.contains(evidence) && !shown.contains("interval"),
        "{shown}"
    );
    Ok(())
}

#[test]
fn differences_of_less_than_a_hundredth_are_said_with_two_digits() -> TestResult {
    let right = |count: usize| episodes(2000, |index| index < count);
    let said = |count: usize| -> Result<String, CompareError> {
        Ok(Comparison::from_episodes(&right(0), &right(count), SETTINGS)?.words("em", "A", "B"))
    };
    let shown = said(8)?;
    assert!(
        shown.starts_with("B beats A by +0.0040 EM (95 % interval +0.00"),
        "{shown}"
    );
    let hidden = said(5)?;
    assert!(
        hidden.ends_with(" A true difference of 0.0031 or more would probably have shown."),
        "{hidden}"
    );
    let few = said(4)?;
    assert!(few.ends_with("McNemar p = 0.125)."), "{few}");
    Ok(())
}

#[test]
fn infra_faults_drop_their_question_from_both_sides() -> TestResult {
    let a = episodes(40, |index| index < 10);
    let mut b = episodes(40, |index| index < 20);
    b[0] = infra(0);
    let comparison = Comparison::from_episodes(&a, &b, SETTINGS)?;
    assert_eq!((comparison.questions, comparison.lost_to_infra), (39, 1));
    let caveat = comparison.caveat().ok_or("a caveat")?;
    assert!(caveat.starts_with("1 question was lost"), "{caveat}");
    let em = comparison.difference("em").ok_or("em")?;
    assert!((em.a - 9.0 / 39.0).abs() < 1e-9);
    let all: Vec<_> = (0..40).map(infra).collect();
    assert_eq!(
        Comparison::from_episodes(&a, &all, SETTINGS),
        Err(CompareError::NothingScored { infra: 40 })
    );
    Ok(())
}

#[test]
fn several_samples_have_no_mcnemar() -> TestResult {
    let a = episodes(20, |index| index < 5);
    let twice = [a.clone(), episodes(20, |index| index < 9)].concat();
    let comparison = Comparison::from_episodes(&a, &twice, SETTINGS)?;
    assert_eq!(comparison.mcnemar, None);
    assert!(
        comparison
            .difference("em")
            .is_some_and(|em| (em.difference.estimate - 0.1).abs() < 1e-9)
    );
    Ok(())
}

#[test]
fn data_sets_are_compared_by_themselves() -> TestResult {
    let start = two_sources(&|_| false, &|index| index < 5);
    let trained = two_sources(&|index| index < 15, &|index| index < 4);
    let found = Comparison::from_episodes(&start, &trained, SETTINGS)?;
    let em = |source: &str| found.by_source[source]["em"];
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert_eq!((em("nq").questions, em("hotpotqa").questions), (30, 10));
    assert!(near(em("nq").difference.estimate, 0.5));
    assert!(near(em("hotpotqa").difference.estimate, -0.1));
    let average = found.macro_average["em"];
    assert!(near(average.a, 0.25) && near(average.b, 0.45));
    assert!(near(average.difference.estimate, 0.2) && average.sources == 2);
    assert!(near(found.metrics["em"].difference.estimate, 14.0 / 40.0));
    let text = found.to_text("start", "trained");
    assert!(
        text.contains("em, hotpotqa ") && text.contains("em, macro average "),
        "{text}"
    );
    let one = Comparison::from_episodes(&start[..30], &trained[..30], SETTINGS)?;
    assert!(one.by_source.is_empty() && one.macro_average.is_empty());
    Ok(())
}

#[test]
fn several_policies_are_ranked_over_data_sets() -> TestResult {
    let set =
        |nq: usize, hotpotqa: usize| two_sources(&|index| index < nq, &|index| index < hotpotqa);
    let mut weak = set(3, 1);
    // A question that is lost for one policy counts for none.
    weak[0] = Episode {
        task: weak[0].task.clone(),
        ..infra(0)
    };
    let sets = [set(12, 8), set(24, 4), set(15, 9), weak];
    let found = Standings::of(&sets, SETTINGS)?;
    assert_eq!(
        (found.measure, &found.rounds[..]),
        ("em", &["hotpotqa".to_owned(), "nq".to_owned()][..])
    );
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(
        near(found.scores[1][1], 23.0 / 29.0) && near(found.scores[0][0], 0.8),
        "{found:?}"
    );
    // By hand: of three ways to pair the first round two leave a and c ahead, of whom c wins the second; one leaves b and c, of whom b does.
    let expected = [1.0, 4.0 / 3.0, 5.0 / 3.0, 0.0];
    let mut pairs = found.points.iter().zip(expected);
    assert!(
        pairs.all(|(found, expected)| (found - expected).abs() < 0.02),
        "{found:?}"
    );
    assert_eq!(found, Standings::of(&sets, SETTINGS)?);
    let names = ["a", "b", "c", "d"].map(str::to_owned);
    let text = found.to_text(&names);
    assert!(
        text.contains("expected points")
            && text.contains("em on hotpotqa")
            && text.contains("with elimination: "),
        "{text}"
    );
    let mut lost = set(3, 1);
    for episode in &mut lost[30..] {
        *episode = Episode {
            task: episode.task.clone(),
            ..infra(0)
        };
    }
    let lost = Standings::of(&[set(12, 8), lost], SETTINGS);
    assert!(
        matches!(&lost, Err(CompareError::DataSet { data_set }) if data_set == "hotpotqa"),
        "{lost:?}"
    );
    let other = [set(12, 8), episodes(7, |_| true)];
    assert!(matches!(
        Standings::of(&other, SETTINGS),
        Err(CompareError::Questions { .. })
    ));
    assert!(matches!(
        Standings::of(&[], SETTINGS),
        Err(CompareError::Empty)
    ));
    Ok(())
}

/// Questions without an accepted answer, which another reward than exact match pays for.
#[test]
fn what_is_not_graded_is_in_no_round() -> TestResult {
    let ungraded = |from: usize, right: usize| {
        let mut set = two_sources(&|index| index < right, &|_| false);
        for episode in &mut set[from..] {
            if let Some(score) = &mut episode.score {
                score.parts.remove("em");
            }
        }
        set
    };
    let found = Standings::of(&[12, 24, 15].map(|right| ungraded(30, right)), SETTINGS)?;
    assert_eq!(found.rounds, ["nq"]);
    let none = Standings::of(&[12, 24, 15].map(|right| ungraded(0, right)), SETTINGS);
    assert_eq!(none, Err(CompareError::NoMetric("em")));
    Ok(())
}

/// Of 8 answers more all have one sign by chance in 2 of 256 cases, which is shown of one policy and not of the best of seven.
#[test]
fn several_policies_are_compared_with_the_first_together() -> TestResult {
    let right = |count: usize| episodes(100, |index| index < count);
    let mut sets = vec![right(20), right(28)];
    let said = |sets: &[Vec<Episode>]| -> Result<String, CompareError> {
        let found = Standings::of(sets, SETTINGS)?;
        Ok(found.against_first[0].words(found.measure, "A", "B"))
    };
    let two = said(&sets)?;
    assert!(
        two.starts_with("B beats A by +0.08 EM") && two.contains("adjusted p = 0.008"),
        "{two}"
    );
    sets.extend(vec![right(20); 6]);
    let eight = said(&sets)?;
    assert!(
        eight.starts_with("No difference in EM can be shown")
            && eight.contains("adjusted p = 0.055")
            && !eight.contains("would probably have shown"),
        "{eight}"
    );
    Ok(())
}
