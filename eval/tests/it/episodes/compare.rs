use forage_eval::{CompareError, Comparison};

use super::fixtures::{SETTINGS, episodes, infra};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[test]
fn a_clear_gain_is_said_in_words() -> TestResult {
    let start = episodes(500, |index| index % 5 == 0);
    let trained = episodes(500, |index| index % 5 < 2);
    let comparison = Comparison::from_episodes(&start, &trained, SETTINGS)?;
    let em = comparison.difference("em").ok_or("em")?;
    assert!((em.a - 0.2).abs() < 1e-9 && (em.b - 0.4).abs() < 1e-9 && (em.difference.estimate - 0.2).abs() < 1e-9);
    let test = comparison.mcnemar.ok_or("mcnemar")?;
    assert_eq!((test.only_a, test.only_b), (0, 100));
    assert!(test.p < 1e-20);
    let words = comparison.words("em", "start", "trained");
    assert!(words.starts_with("trained beats start by +0.20 EM (95 % interval +0.1"), "{words}");
    assert!(words.ends_with("n = 500 questions, McNemar p < 0.001)."), "{words}");
    let backwards = Comparison::from_episodes(&trained, &start, SETTINGS)?.words("em", "trained", "start");
    assert!(backwards.starts_with("trained beats start by +0.20 EM (95 % interval +0.1"), "{backwards}");
    Ok(())
}

#[test]
fn no_difference_is_not_called_equality() -> TestResult {
    let a = episodes(80, |index| index % 4 == 0);
    let b = episodes(80, |index| index % 4 == 1);
    let words = Comparison::from_episodes(&a, &b, SETTINGS)?.words("em", "A", "B");
    assert!(words.starts_with("No difference in EM can be shown between A and B"), "{words}");
    assert!(words.contains("A true difference of 0."), "{words}");
    Ok(())
}

#[test]
fn different_questions_are_an_error_with_counts() {
    let result = Comparison::from_episodes(&episodes(10, |_| true), &episodes(7, |_| true), SETTINGS);
    let Err(error) = result else { panic!("must fail") };
    assert!(matches!(&error, CompareError::Questions { missing_in_a: 0, missing_in_b: 3, .. }));
    assert!(error.to_string().contains("3 of A's are missing in B"), "{error}");
    let mut other_source = episodes(10, |_| true);
    other_source[4].task.data_source = "elsewhere".into();
    let result = Comparison::from_episodes(&episodes(10, |_| true), &other_source, SETTINGS);
    assert!(matches!(result, Err(CompareError::Questions { missing_in_a: 1, missing_in_b: 1, .. })));
}

#[test]
fn questions_of_other_worlds_under_the_same_ids_are_refused() {
    let mut other = episodes(10, |_| true);
    other[4].task.question = "Who else?".into();
    let Err(error) = Comparison::from_episodes(&episodes(10, |_| true), &other, SETTINGS) else { panic!("must fail") };
    assert!(matches!(&error, CompareError::Questions { missing_in_a: 1, missing_in_b: 1, .. }));
    assert!(error.to_string().contains("world/q0004, \"Who else?\""), "{error}");
    assert_eq!(Comparison::from_episodes(&[], &[], SETTINGS), Err(CompareError::Empty));
}

#[test]
fn few_questions_that_differ_show_nothing() -> TestResult {
    let words = |count, right: usize| -> Result<String, CompareError> {
        let (a, b) = (episodes(count, |_| false), episodes(count, |index| index < right));
        Ok(Comparison::from_episodes(&a, &b, SETTINGS)?.words("em", "A", "B"))
    };
    for (count, right) in [(1, 1), (4, 4), (200, 4)] {
        assert!(words(count, right)?.starts_with("No difference in EM can be shown"), "{}", words(count, right)?);
    }
    assert!(words(200, 8)?.starts_with("B beats A by +0.04 EM"), "{}", words(200, 8)?);
    assert!(words(4, 4)?.ends_with("Only 4 questions: take every figure here as rough."));
    Ok(())
}

#[test]
fn infra_faults_drop_their_question_from_both_sides() -> TestResult {
    let a = episodes(40, |index| index < 10);
    let mut b = episodes(40, |index| index < 20);
    b[0] = infra(0);
    let comparison = Comparison::from_episodes(&a, &b, SETTINGS)?;
    assert_eq!((comparison.questions, comparison.lost_to_infra), (39, 1));
    let em = comparison.difference("em").ok_or("em")?;
    assert!((em.a - 9.0 / 39.0).abs() < 1e-9);
    let all: Vec<_> = (0..40).map(infra).collect();
    assert_eq!(Comparison::from_episodes(&a, &all, SETTINGS), Err(CompareError::NothingScored { infra: 40 }));
    Ok(())
}

#[test]
fn several_samples_have_no_mcnemar() -> TestResult {
    let a = episodes(20, |index| index < 5);
    let twice = [a.clone(), episodes(20, |index| index < 9)].concat();
    let comparison = Comparison::from_episodes(&a, &twice, SETTINGS)?;
    assert_eq!(comparison.mcnemar, None);
    assert!(comparison.difference("em").is_some_and(|em| (em.difference.estimate - 0.1).abs() < 1e-9));
    Ok(())
}
