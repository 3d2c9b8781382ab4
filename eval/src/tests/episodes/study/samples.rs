//! Several samples of each question: the best and the majority of them, and pass@k.

use forage_contracts::Episode;
use forage_eval::{SeedEpisodes, Study};

use super::super::fixtures::{SETTINGS, episode, infra, truncated};
use super::{TestResult, study};

/// `count` samples of each of 30 questions, of which the first `right(index)` are right.
fn sampled(count: usize, right: impl Fn(usize) -> usize) -> Vec<Episode> {
    let questions = (0..30).flat_map(|index| {
        let right = right(index);
        (0..count).map(move |sample| episode(index, sample < right))
    });
    questions.collect()
}

#[test]
fn the_best_and_the_majority_of_the_first_samples_are_chosen() {
    // None, one, four or five of eight are right.
    let right = |index: usize| [0, 1, 4, 5][index % 4];
    let samples = sampled(10, right);
    let answers = |chosen: &[Episode]| -> Vec<bool> {
        let answer = chosen.iter().map(Episode::answer);
        answer.map(|answer| answer == Some("Varnholt")).collect()
    };
    let best = answers(&SeedEpisodes::best_of(8, &samples));
    // A tie of four falls to the answer that was given first, which is the right one here.
    let majority = answers(&SeedEpisodes::majority_of(8, &samples));
    for (index, (best, majority)) in best.into_iter().zip(majority).enumerate() {
        let right = right(index);
        assert_eq!((best, majority), (right > 0, right >= 4), "{index}");
    }
    let mut late = vec![episode(0, false); 8];
    late.push(episode(0, true));
    let chosen = SeedEpisodes::best_of(8, &late);
    assert_eq!(answers(&chosen), [false], "the ninth sample does not count");
    let lost = SeedEpisodes::majority_of(8, &[infra(0), infra(0)]);
    assert_eq!(
        lost.len(),
        1,
        "a question stays where all samples were lost"
    );
    let mut silent = truncated(0);
    silent.turns.pop();
    let none = SeedEpisodes::majority_of(8, &[infra(0), silent]);
    assert!(
        none[0].score.is_some(),
        "no majority is wrong, and no fault"
    );
    assert!(SeedEpisodes::best_of(8, &[]).is_empty());
}

/// `n` over `k`.
fn choose(n: u64, k: u64) -> f64 {
    (0..k).fold(1.0, |product, index| {
        product * (n as f64 - index as f64) / (index as f64 + 1.0)
    })
}

#[test]
fn pass_at_k_is_chens_over_the_questions_of_all_seeds() -> TestResult {
    let rights: [fn(usize) -> usize; 2] = [|index| index % 3, |index| 6 * (index % 2)];
    let seed = |number: u64| SeedEpisodes {
        seed: number,
        start: sampled(8, rights[0]),
        arms: vec![("trained".to_owned(), sampled(8, rights[1]))],
        baselines: Vec::new(),
    };
    let seeds: Vec<SeedEpisodes> = (1..=4).map(seed).collect();
    let found = Study::of(&seeds, SETTINGS)?;
    let curves = found.pass_at_k.as_ref().ok_or("no curves")?;
    assert_eq!(curves.questions, 30, "every seed asked the same ones");
    for (curve, right) in [&curves.a, &curves.b].into_iter().zip(rights) {
        let ks: Vec<usize> = curve.iter().map(|point| point.k).collect();
        assert_eq!(ks, [1, 2, 4, 8]);
        for point in curve {
            let k = point.k as u64;
            let none = |right: u64| choose(8 - right, k) / choose(8, k);
            let expected = (0..30).map(|index| 1.0 - none(right(index) as u64));
            let expected = expected.sum::<f64>() / 30.0;
            let found = point.value;
            assert!((found.estimate - expected).abs() < 1e-9, "pass@{k}");
            assert!(found.low <= found.estimate && found.estimate <= found.high);
        }
    }
    // Two thirds of the questions are solved by some sample of the start, half by some of the trained policy. Of one sample the gain is
    // 1/4 with a standard error of 0.0722 over questions: t is 3.46, where Student's quantile at 3 degrees of freedom is 3.18.
    let words = found.curve_words().ok_or("no words")?;
    assert!(words.contains("sharpens the start"), "{words}");
    assert!(found.words().contains(&words));
    assert_eq!(study(&[("trained", 6)])?.pass_at_k, None, "one sample");
    Ok(())
}

/// Faults left one sample of a question and eight of another.
#[test]
fn questions_weigh_the_same_in_the_parts_of_a_gain() -> TestResult {
    let right = |index: usize| vec![episode(index, true); 8];
    let seed = SeedEpisodes {
        seed: 1,
        start: [right(0), vec![episode(1, false)], vec![infra(1); 7]].concat(),
        arms: vec![("trained".to_owned(), [right(0), right(1)].concat())],
        baselines: Vec::new(),
    };
    let found = Study::of(&[seed], SETTINGS)?;
    let parts = found.parts.as_ref().ok_or("no parts")?;
    let shares = parts.shares.in_order().map(|share| share.estimate);
    let (gain, sum) = (found.arms[0].gain.estimate, shares.iter().sum::<f64>());
    assert!((gain - 0.5).abs() < 1e-9, "{gain}");
    assert!((sum - gain).abs() < 1e-9, "{shares:?}");
    Ok(())
}

/// Of four seeds two improve and two do not: however many questions each was asked, that is four observations.
#[test]
fn seeds_are_the_unit_of_pass_at_k() -> TestResult {
    let seed = |number: u64| SeedEpisodes {
        seed: number,
        start: sampled(8, |_| 1),
        arms: vec![(
            "trained".to_owned(),
            sampled(8, |_| if number < 3 { 4 } else { 1 }),
        )],
        baselines: Vec::new(),
    };
    let seeds: Vec<SeedEpisodes> = (1..=4).map(seed).collect();
    let found = Study::of(&seeds, SETTINGS)?;
    let curves = found.pass_at_k.as_ref().ok_or("no curves")?;
    let one = curves.differences[0].value;
    // Gains of 0.375, 0.375, 0 and 0; 3.182 is Student's quantile at 3 degrees of freedom.
    let half = 3.182_446_305 * (0.375_f64.powi(2) / 3.0).sqrt() / 2.0;
    assert!((one.estimate - 0.1875).abs() < 1e-9, "{one:?}");
    assert!((one.high - (0.1875 + half)).abs() < 1e-6, "{one:?} {half}");
    let words = found.curve_words().ok_or("no words")?;
    assert!(words.starts_with("No gain"), "{words}");
    let alone = Study::of(&seeds[..1], SETTINGS)?;
    let words = alone.curve_words().ok_or("no words")?;
    assert!(words.contains("sharpens the start"), "{words}");
    Ok(())
}
