//! Sentences that hold no more than their figures.

use forage_eval::{SeedEpisodes, Verdict};

use super::super::fixtures::{SETTINGS, episodes};
use super::{TestResult, study};

/// The twin loses what the start had, so that the lead over it is larger than the gain.
#[test]
fn no_more_than_the_gain_is_the_rewards() -> TestResult {
    let found = study(&[("trained", 6), ("random", 0)])?;
    assert!(found.holds());
    let [trained, random] = found.arms.as_slice() else {
        panic!("{found:?}")
    };
    let lead = random.lead.as_ref().ok_or("a lead")?.difference;
    assert!(lead.low > trained.gain.high, "{lead:?} {:?}", trained.gain);
    let words = found.words().join(" ");
    assert!(words.contains("at least +0.3"), "{words}");
    assert!(
        words.contains("of it, the low end of the gain, since"),
        "{words}"
    );
    Ok(())
}

/// Of 5 answers more all go one way by chance in 2 of 32 cases, though the interval leaves 0 out.
#[test]
fn a_lead_is_said_to_lack_its_test() -> TestResult {
    let right = |count: usize| episodes(100, |index| index < count);
    let words = |beside: usize| -> Result<String, Box<dyn std::error::Error>> {
        let seed = SeedEpisodes {
            seed: 1,
            start: right(50),
            arms: vec![
                ("trained".to_owned(), right(50)),
                ("control".to_owned(), right(beside)),
            ],
            baselines: vec![("forced_search".to_owned(), right(beside))],
        };
        Ok(Verdict::of(&seed, None, 1.0, SETTINGS)?.words().join(" "))
    };
    let few = words(45)?;
    for said in [
        "not clearly ahead of the control: +0.05 EM",
        ", but p over questions is 0.062, and below 0.05 is asked.",
        "not clearly ahead of it: +0.05",
        ", but adjusted p over questions is 0.062, and below 0.05 is asked.",
    ] {
        assert!(few.contains(said), "{said}: {few}");
    }
    let behind = words(60)?;
    assert!(
        behind.contains("behind the control: −0.10 EM") && !behind.contains("is asked"),
        "{behind}"
    );
    Ok(())
}
