//! Sentences that hold no more than their figures.

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
