use forage_contracts::{Episode, Score};
use forage_eval::{Course, SeedEpisodes, StepTelemetry, Study, StudyError, Verdict, VerdictError};

use super::fixtures::{SETTINGS, episodes, infra};

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn seed(start: &[Episode], trained: &[Episode], control: Option<&[Episode]>) -> SeedEpisodes {
    let control = control.map(|control| ("control".to_owned(), control.to_vec()));
    SeedEpisodes {
        seed: 3,
        start: start.to_vec(),
        arms: [("trained".to_owned(), trained.to_vec())]
            .into_iter()
            .chain(control)
            .collect(),
        baselines: Vec::new(),
    }
}

fn judge(
    start: &[Episode],
    trained: &[Episode],
    control: Option<&[Episode]>,
) -> Result<Verdict, StudyError> {
    Verdict::of(&seed(start, trained, control), None, 12.5, SETTINGS)
}

fn share(count: usize, tenths: usize) -> Vec<Episode> {
    episodes(count, |index| (index * 7) % 10 < tenths)
}

#[test]
fn a_real_gain_with_a_flat_control_holds() -> TestResult {
    let control = episodes(300, |index| {
        (index * 7) % 10 < 2 && index != 0 || index == 1
    });
    let verdict = judge(&share(300, 2), &share(300, 5), Some(&control))?;
    assert!(verdict.holds());
    let words = verdict.words().join(" ");
    assert!(
        words.contains("raised held-out exact match by +0.30 EM, from 0.20 to 0.50"),
        "{words}"
    );
    assert!(
        words.contains("shows no gain")
            && words.contains("ahead of the control by +0.30")
            && words.contains("The gain is real, and the reward's: at least +0.2"),
        "{words}"
    );
    assert!(
        words.contains("shows with 80 % probability") && !words.contains("rough"),
        "{words}"
    );
    Ok(())
}

#[test]
fn sampled_episodes_are_spoken_of_too() -> TestResult {
    let greedy = seed(&share(120, 0), &share(120, 6), Some(&share(120, 0)));
    let sampled = seed(&share(120, 2), &share(120, 5), Some(&share(120, 1)));
    let words = Verdict::of(&greedy, Some(&sampled), 1.0, SETTINGS)?.words();
    let said: Vec<&String> = words
        .iter()
        .filter(|sentence| sentence.starts_with("Sampled at temperature 1"))
        .collect();
    let [said] = said.as_slice() else {
        panic!("{words:?}")
    };
    assert!(
        said.contains("exact match went from 0.20 to 0.50: +0.30 (95 % interval")
            && said.contains("the control's change: −0.10 (95 % interval")
            && said.contains("trained less control: +0.40 (95 % interval"),
        "{said}"
    );
    let greedy_alone = judge(&share(120, 2), &share(120, 5), None)?.words();
    assert!(!greedy_alone.join(" ").contains("Sampled"));
    Ok(())
}

#[test]
fn the_reward_is_spoken_of_where_an_environment_pays_and_no_answer_is_right() -> TestResult {
    let played = |tenths: usize, right: bool| {
        let mut played = episodes(300, |_| right);
        let scores = played.iter_mut().filter_map(|one| one.score.as_mut());
        for (index, score) in scores.enumerate() {
            score.total = f32::from(u8::from((index * 7) % 10 < tenths));
            score.parts.insert("return".to_owned(), score.total);
        }
        played
    };
    let paid = seed(&played(2, false), &played(5, false), None);
    let verdict = Verdict::of(&paid, Some(&paid), 1.0, SETTINGS)?;
    let study = Study::of(std::slice::from_ref(&paid), SETTINGS)?;
    let words = verdict.words().join(" ");
    assert!(
        words.starts_with("Training raised held-out reward by +0.30 reward, from 0.20 to 0.50"),
        "{words}"
    );
    assert!(!words.contains("exact match"), "{words}");
    let words = study.words().join(" ");
    assert!(
        words.starts_with("Training gained +0.30 reward, "),
        "{words}"
    );
    assert!(!words.contains("scored 0"), "{words}");
    assert_eq!(verdict.json()["outcome"], "reward");
    let right = judge(&played(2, true), &played(5, true), None)?;
    assert_eq!(right.json()["outcome"], "answer");
    Ok(())
}

#[test]
fn an_oracle_among_the_baselines_is_no_upper_bound() -> TestResult {
    let mut sets = seed(&share(120, 2), &share(120, 5), None);
    let words = |sets: &SeedEpisodes| -> Result<String, StudyError> {
        let study = Study::of(std::slice::from_ref(sets), SETTINGS)?;
        let verdict = Verdict::of(sets, None, 1.0, SETTINGS)?;
        Ok([study.words(), verdict.words()].concat().join(" "))
    };
    assert!(!words(&sets)?.contains("upper bound"));
    sets.baselines = vec![("oracle".to_owned(), share(120, 4))];
    assert_eq!(words(&sets)?.matches("not an upper bound").count(), 2);
    Ok(())
}

#[test]
fn a_control_that_gains_takes_the_credit_away() -> TestResult {
    let mut verdict = judge(&share(300, 2), &share(300, 5), Some(&share(300, 4)))?;
    assert!(!verdict.holds());
    let words = verdict.words().join(" ");
    assert!(
        words.contains("gained as well")
            && words.contains("This part of the trained policy's gain is not its reward's.")
            && words.contains("The gain is real, and in part the reward's: +0.10 of +0.30, ")
            && words.contains("ahead of the control by +0.10"),
        "{words}"
    );
    verdict.control_reward = Some("any_search".to_owned());
    let words = verdict.words().join(" ");
    assert!(
        words.contains("The control, trained on the reward `any_search` alone, gained as well"),
        "{words}"
    );
    Ok(())
}

#[test]
fn no_gain_few_questions_and_no_control_are_said() -> TestResult {
    let trained = episodes(30, |index| index % 10 == 1);
    let words = judge(&episodes(30, |index| index % 10 == 0), &trained, None)?
        .words()
        .join(" ");
    assert!(
        words.contains("No gain can be shown") && words.contains("Only 30 questions"),
        "{words}"
    );
    assert!(words.contains("no control run"), "{words}");
    let worse = judge(&share(200, 6), &share(200, 2), None)?;
    assert!(worse.words()[0].contains("worse") && !worse.holds());
    let same = judge(&share(200, 6), &share(200, 6), None)?;
    assert_eq!(same.minimum_detectable_effect, None);
    assert!(
        same.words()
            .join(" ")
            .contains("or all by as much: the interval says little")
    );
    let few = judge(
        &share(200, 0),
        &episodes(200, |index| index % 50 == 0),
        None,
    )?;
    let words = few.words().join(" ");
    assert!(
        words.contains("Fewer than five questions changed, or") && !words.contains("with 80 %"),
        "{words}"
    );
    Ok(())
}

#[test]
fn the_file_has_its_keys_and_is_read_back() -> TestResult {
    let (start, trained, control) = (share(120, 2), share(120, 5), share(120, 2));
    let sets = seed(&start, &trained, Some(&control));
    let verdict = Verdict::of(&sets, Some(&sets), 12.5, SETTINGS)?;
    let study = Study::of(&[sets], SETTINGS)?;
    assert_eq!(
        (study.arms[0].gain.ends(), study.holds()),
        (verdict.gain_interval, verdict.holds()),
        "a verdict is the study of one seed"
    );
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("verdict.json");
    verdict.write(&path)?;
    let back = Verdict::read(&path)?;
    assert_eq!(
        (back.words(), back.holds(), back.n),
        (verdict.words(), verdict.holds(), 120)
    );
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    assert_eq!(json["holds"], verdict.holds());
    assert_eq!(json["words"], serde_json::json!(verdict.words()));
    for key in ["start", "trained", "gain", "control_gain", "minutes"] {
        assert!(json[key].is_f64(), "{key}");
    }
    for key in ["gain_interval", "control_interval"] {
        assert_eq!(json[key].as_array().map(Vec::len), Some(2), "{key}");
    }
    assert_eq!(
        (json["n"].as_u64(), json["seed"].as_u64()),
        (Some(120), Some(3))
    );
    assert!(json["greedy"]["gain"]["mcnemar"]["p"].is_f64() && json["sampled"].is_object());
    std::fs::write(&path, "{}")?;
    assert!(matches!(
        Verdict::read(&path),
        Err(VerdictError::Format { .. })
    ));
    assert!(matches!(
        verdict.write(&folder.path().join("no/verdict.json")),
        Err(VerdictError::File { .. })
    ));
    Ok(())
}

#[test]
fn sets_that_do_not_fit_are_named() {
    let start = share(20, 2);
    let error = judge(&start, &start, Some(&start[..4])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "seed 3, control: cannot be compared with the start"
    );
    let lost: Vec<Episode> = (0..20).map(infra).collect();
    assert!(judge(&start, &lost, None).is_err());
    let mut unscored = start.clone();
    for episode in &mut unscored {
        episode.score = Some(Score::default());
    }
    assert!(judge(&unscored, &unscored, None).is_err());
}

/// A file of an earlier build: other names of the figures, no outcome, alarms by name.
#[test]
fn verdicts_of_earlier_builds_are_read() -> TestResult {
    let verdict = judge(&share(120, 2), &share(120, 5), Some(&share(120, 2)))?;
    let mut json = serde_json::to_value(&verdict)?;
    let keys = json.as_object_mut().ok_or("an object")?;
    keys.remove("outcome");
    for (key, old) in [("start", "em_start"), ("trained", "em_trained")] {
        let value = keys.remove(key).ok_or(key)?;
        keys.insert(old.to_owned(), value);
    }
    let alarm = serde_json::json!({"name": "keyword_bag", "value": 0.99, "threshold": 0.9, "first_step": 6,
        "examples": [], "explanation": "Bags."});
    keys.insert("alarms".to_owned(), serde_json::json!([alarm]));
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("verdict.json");
    std::fs::write(&path, json.to_string())?;
    let read = Verdict::read(&path)?;
    assert_eq!(
        (read.words(), read.holds()),
        (verdict.words(), verdict.holds())
    );
    assert_eq!(read.alarms[0].kind, "keyword_bag");
    Ok(())
}

#[test]
fn baselines_curves_and_the_time_of_the_gain_are_kept_and_said() -> TestResult {
    let mut greedy = seed(&share(120, 2), &share(120, 6), None);
    greedy.baselines = vec![("best_of_8".to_owned(), share(120, 4))];
    let twice = |tenths| [share(120, tenths), share(120, tenths)].concat();
    let sampled = seed(&twice(2), &twice(6), None);
    let steps: Vec<StepTelemetry> = (0..40)
        .map(|number| {
            let reward = 0.1 + 0.02 * number as f32;
            let mut episodes = share(20, 5);
            for episode in &mut episodes {
                episode.score = Some(Score {
                    total: reward,
                    ..Score::default()
                });
            }
            StepTelemetry::of(number, &episodes)
        })
        .collect();
    let course = Course::of(&steps, SETTINGS)?;
    let verdict = Verdict::of(&greedy, Some(&sampled), 1.0, SETTINGS)?.with_course(&course);
    assert_eq!(
        verdict.control_gain, None,
        "a baseline is not taken for the control"
    );
    let words = verdict.words().join(" ");
    for said in [
        "Baseline `best_of_8` reaches 0.40 EM, +0.20",
        "the trained policy is ahead of it: +0.20",
        "adds capability",
        "came after the first quarter of the steps.",
    ] {
        assert!(words.contains(said), "{said}: {words}");
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("verdict.json");
    verdict.write(&path)?;
    assert_eq!(Verdict::read(&path)?.words(), verdict.words());
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    assert_eq!(json["greedy"]["baselines"][0]["name"], "best_of_8");
    assert_eq!(json["pass_at_k"]["finding"], "capability");
    assert!(json["late_gain"]["estimate"].is_f64());
    Ok(())
}
