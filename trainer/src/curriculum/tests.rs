//! Draws hold their formulas, which NumPy computes apart (`trainer/tests/fixtures/make_curriculum_fixtures.py`).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::tests::common;

fn questions(texts: Vec<String>) -> Vec<Arc<Task>> {
    let task = |(place, text): (usize, String)| Arc::new(Task::new(place.to_string(), text));
    texts.into_iter().enumerate().map(task).collect()
}

/// As many questions as asked for, with a word of their own each.
fn numbered(count: usize) -> Vec<Arc<Task>> {
    questions((0..count).map(|place| format!("word{place}")).collect())
}

fn inputs<'a>(
    questions: &'a [Arc<Task>],
    asked: &'a [Asked],
    count: usize,
) -> CurriculumInputs<'a> {
    CurriculumInputs {
        questions,
        asked,
        drawn: asked.len(),
        step: 100,
        count,
        seed: Seed::root(7),
    }
}

fn asked(value: &Value) -> Vec<Asked> {
    serde_json::from_value(value.clone()).unwrap()
}

/// What NumPy computed of difficulties, with the questions, what was asked of them, and the curriculum.
fn difficulties() -> (Value, Vec<Arc<Task>>, Vec<Asked>, Curriculum) {
    let fixture = common::json("curriculum.json")["difficulty"].clone();
    let texts = serde_json::from_value(fixture["questions"].clone()).unwrap();
    let curriculum = chosen(json!({ "difficulty": fixture["settings"] }));
    let asked = asked(&fixture["asked"]);
    (fixture, questions(texts), asked, curriculum)
}

fn close(found: f64, expected: &Value) {
    let expected = expected.as_f64().unwrap();
    assert!(
        (found - expected).abs() < 1e-12,
        "{found} is not {expected}"
    );
}

fn chosen(written: Value) -> Curriculum {
    serde_json::from_value(written).unwrap()
}

/// A draw, and the last figure of the row.
fn drawn(curriculum: &Curriculum, inputs: &CurriculumInputs<'_>) -> (Vec<usize>, Option<f64>) {
    let mut noted = None;
    let drawn = curriculum.draw(inputs, &mut |_, value| noted = Some(value));
    (drawn.unwrap(), noted)
}

#[test]
fn predicted_difficulties_equal_numpy() {
    let (fixture, questions, asked, curriculum) = difficulties();
    // Where all are drawn, the figure of the row is the mean of all.
    let (all, mean) = drawn(&curriculum, &inputs(&questions, &asked, questions.len()));
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), questions.len());
    let predicted = fixture["predicted"].as_array().unwrap();
    let sum: f64 = predicted.iter().filter_map(Value::as_f64).sum();
    close(mean.unwrap(), &json!(sum / questions.len() as f64));
    for (place, expected) in predicted.iter().enumerate() {
        let found = (0..)
            .map(|seed| CurriculumInputs {
                seed: Seed::root(seed),
                ..inputs(&questions, &asked, 1)
            })
            .find_map(|inputs| {
                let (one, difficulty) = drawn(&curriculum, &inputs);
                (one == [place]).then_some(difficulty.unwrap())
            });
        close(found.unwrap(), expected);
    }
}

#[test]
fn moderate_questions_come_as_often_as_their_weights_say() {
    const DRAWS: u64 = 20_000;
    let (fixture, questions, asked, curriculum) = difficulties();
    let mut counts = vec![0.0; questions.len()];
    for seed in 0..DRAWS {
        let inputs = CurriculumInputs {
            seed: Seed::root(seed),
            ..inputs(&questions, &asked, 2)
        };
        for place in drawn(&curriculum, &inputs).0 {
            counts[place] += 1.0;
        }
    }
    let expected = fixture["among_two"].as_array().unwrap();
    for (count, expected) in counts.iter().zip(expected) {
        let chance = expected.as_f64().unwrap();
        let deviation = (chance * (1.0 - chance) / DRAWS as f64).sqrt();
        let share: f64 = count / DRAWS as f64;
        assert!(
            (share - chance).abs() < 4.0 * deviation,
            "{share} is not {chance}"
        );
    }
}

#[test]
fn a_step_asks_no_question_twice_before_it_has_asked_all() {
    let questions = numbered(6);
    let curriculum = chosen(json!({"difficulty": {
        "target": 0.5, "temperature": 1e-3, "reference": 4, "attention": 0.1,
    }}));
    // The first three are moderate, the fourth is easy, and of the others their mean is expected.
    let asked = |step| {
        [(0, 0.5), (1, 0.5), (2, 0.5), (3, 1.0)].map(|(question, accuracy)| Asked {
            question,
            step,
            accuracy: Some(accuracy),
        })
    };
    let set = |places: &[usize]| places.iter().copied().collect::<BTreeSet<_>>();
    let before = asked(99);
    let (first, _) = drawn(&curriculum, &inputs(&questions, &before, 3));
    assert_eq!(set(&first), BTreeSet::from([0, 1, 2]));
    let now = asked(100);
    let (more, _) = drawn(&curriculum, &inputs(&questions, &now, 8));
    assert_eq!(set(&more[..2]), BTreeSet::from([4, 5]));
    assert_eq!((set(&more[2..5]), more[5]), (BTreeSet::from([0, 1, 2]), 3));
    assert_eq!(more[..2], more[6..], "then from the beginning");
}

#[test]
fn too_few_outcomes_predict_nothing() {
    let questions = numbered(5);
    let curriculum = chosen(
        json!({"difficulty": {"target": 0.5, "temperature": 0.1, "reference": 3, "attention": 0.1}}),
    );
    let mut asked: Vec<Asked> = [0, 1, 2]
        .map(|question| Asked {
            question,
            step: 0,
            accuracy: Some(0.0),
        })
        .to_vec();
    asked[1].accuracy = None;
    let inputs = inputs(&questions, &asked, 2);
    let even = drawn(&Curriculum::uniform(), &inputs);
    assert_eq!(drawn(&curriculum, &inputs), even);
    assert_eq!(even.1, None);
}

#[test]
fn alignment_equals_numpy() {
    let fixture = &common::json("curriculum.json")["alignment"];
    let count = |name: &str| fixture[name].as_u64().unwrap() as usize;
    let asked = asked(&fixture["asked"]);
    let found = alignment::scores(&asked, count("questions"), count("epochs"));
    let expected = fixture["scores"].as_array().unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        match found {
            Some(found) => close(*found, expected),
            None => assert!(expected.is_null()),
        }
    }
}

#[test]
fn questions_that_do_not_learn_with_the_others_are_left_out_after_the_measured_epochs() {
    let questions = numbered(4);
    // Three go up together, one stays at 0.
    let outcome = |place: usize| Asked {
        question: place % 4,
        step: 0,
        accuracy: Some(if place % 4 == 2 {
            0.0
        } else {
            (place / 4) as f32 * 0.5 + 0.25
        }),
    };
    let measured: Vec<Asked> = (0..8).map(outcome).collect();
    let curriculum =
        |threshold: f64| chosen(json!({"alignment": {"epochs": 2, "threshold": threshold}}));
    let (during, left) = drawn(&curriculum(0.6), &inputs(&questions, &measured[..7], 4));
    let even = drawn(
        &Curriculum::uniform(),
        &inputs(&questions, &measured[..7], 4),
    );
    assert_eq!((during, left), (even.0, Some(4.0)));
    let (after, left) = drawn(&curriculum(0.6), &inputs(&questions, &measured, 6));
    assert_eq!(left, Some(3.0));
    for epoch in after.chunks(3) {
        assert_eq!(BTreeSet::from_iter(epoch), BTreeSet::from([&0, &1, &3]));
    }
    let (_, left) = drawn(&curriculum(0.999), &inputs(&questions, &measured, 6));
    assert_eq!(
        left,
        Some(4.0),
        "none is above, and something has to be asked"
    );
}

/// Two questions of each data set, in their order.
fn of_sources(sources: &[&str]) -> Vec<Arc<Task>> {
    let task = |place: usize| {
        Arc::new(Task {
            data_source: sources[place / 2].to_owned(),
            ..Task::new(place.to_string(), format!("word{place}"))
        })
    };
    (0..2 * sources.len()).map(task).collect()
}

#[test]
fn data_sets_are_asked_as_often_as_numpy_weighs_them() {
    const COUNT: usize = 7;
    const DRAWS: u64 = 4_000;
    let fixture = &common::json("curriculum.json")["recap"];
    let sources: Vec<&str> = fixture["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| source.as_str().unwrap())
        .collect();
    let weights: Vec<f64> = fixture["weights"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_f64)
        .collect();
    let (questions, asked) = (of_sources(&sources), asked(&fixture["asked"]));
    let curriculum = chosen(json!({ "recap": fixture["settings"] }));
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let mut means = vec![0.0; sources.len()];
    for seed in 0..DRAWS {
        let inputs = CurriculumInputs {
            seed: Seed::root(seed),
            ..inputs(&questions, &asked, COUNT)
        };
        let (places, noted) = drawn(&curriculum, &inputs);
        close(noted.unwrap(), &json!(largest));
        for (source, weight) in weights.iter().enumerate() {
            let count = places.iter().filter(|&&place| place / 2 == source).count();
            let apart = (count as f64 - weight * COUNT as f64).abs();
            assert!(apart < 1.0, "{}: {count}", sources[source]);
            means[source] += count as f64 / (COUNT as u64 * DRAWS) as f64;
        }
    }
    for (mean, weight) in means.iter().zip(&weights) {
        // A count is one of two neighbours, so it deviates by at most one half.
        let deviation = 0.5 / COUNT as f64 / (DRAWS as f64).sqrt();
        assert!((mean - weight).abs() < 4.0 * deviation, "{mean}, {weight}");
    }
    // Settled comes least, forgotten most.
    let place = |name: &str| sources.iter().position(|source| *source == name).unwrap();
    let ranked = ["settled", "learned", "never", "forgotten"].map(|name| weights[place(name)]);
    assert!(ranked.is_sorted(), "{ranked:?}");
}

#[test]
fn a_step_counts_once_though_it_fills_its_batch_after_later_steps_have_begun() {
    let questions = of_sources(&["a", "b"]);
    let curriculum = chosen(json!({"recap": {"window": 4, "temperature": 0.5}}));
    let outcome = |question: usize, step: u64| Asked {
        question,
        step,
        accuracy: Some((question as f32 + 1.0) * (step as f32 + 1.0) / 40.0),
    };
    // The second question of each data set is what a step fills its batch with.
    let first = |step: u64| [outcome(0, step), outcome(2, step)];
    let filled = |step: u64| [outcome(1, step), outcome(3, step)];
    let alone = |steps: u64| -> Vec<Asked> {
        let step = |step| [first(step), filled(step)].concat();
        (0..steps).flat_map(step).collect()
    };
    let ahead = |steps: u64| -> Vec<Asked> {
        let begun = |step: u64| {
            if step < steps {
                first(step).to_vec()
            } else {
                Vec::new()
            }
        };
        let step = |step: u64| [filled(step).to_vec(), begun(step + 3)].concat();
        let begins = (0..3).flat_map(begun);
        begins.chain((0..steps).flat_map(step)).collect()
    };
    let share = |asked: &[Asked]| drawn(&curriculum, &inputs(&questions, asked, 4)).1;
    // Three steps do not fill the window.
    close(share(&ahead(3)).unwrap(), &json!(0.5));
    let (in_order, ahead) = (alone(8), ahead(8));
    assert_eq!(in_order.len(), ahead.len());
    assert_ne!(in_order, ahead);
    assert!(share(&in_order).unwrap() > 0.5);
    assert_eq!(share(&in_order), share(&ahead));
}

#[test]
fn data_sets_are_asked_alike_until_the_window_of_each_is_full_and_each_in_epochs_of_its_own() {
    let questions = of_sources(&["a", "b", "c"]);
    let curriculum = chosen(json!({"recap": {"window": 2, "temperature": 0.1}}));
    // `c` was asked in one step alone.
    let outcome = |question, step, accuracy| Asked {
        question,
        step,
        accuracy: Some(accuracy),
    };
    let mut asked = vec![
        outcome(0, 0, 1.0),
        outcome(2, 0, 0.5),
        outcome(4, 0, 0.0),
        outcome(1, 1, 1.0),
        outcome(3, 1, 0.5),
    ];
    let (places, share) = drawn(&curriculum, &inputs(&questions, &asked, 6));
    close(share.unwrap(), &json!(1.0 / 3.0));
    for source in 0..3 {
        let of_source: Vec<&usize> = places
            .iter()
            .filter(|&&place| place / 2 == source)
            .collect();
        assert_eq!(of_source.len(), 2);
    }
    asked.push(outcome(5, 1, 0.0));
    let (_, share) = drawn(&curriculum, &inputs(&questions, &asked, 6));
    assert!(share.unwrap() > 0.49, "a is settled, b and c are not");
    // Two questions were drawn of each, so the next two of one are an epoch.
    let (places, _) = drawn(&curriculum, &inputs(&questions, &asked, 12));
    for source in 1..3 {
        let of_source: Vec<usize> = places
            .iter()
            .copied()
            .filter(|place| place / 2 == source)
            .collect();
        assert!(of_source.len() >= 4);
        for epoch in of_source.chunks_exact(2) {
            assert_ne!(epoch[0], epoch[1]);
        }
    }
}

#[test]
fn an_epoch_has_every_question_once_however_it_is_cut_into_steps() {
    let seed = Seed::root(3);
    let whole = walk(5, 0, 15, seed);
    let pieces: Vec<usize> = (0..5).flat_map(|step| walk(5, step * 3, 3, seed)).collect();
    assert_eq!(whole, pieces);
    for epoch in whole.chunks(5) {
        assert_eq!(epoch.iter().collect::<BTreeSet<_>>().len(), 5);
    }
    assert_ne!(whole[..5], whole[5..10]);
}

#[test]
fn settings_out_of_range_and_draws_that_cannot_be_are_refused() {
    const BAD: CurriculumEntry = CurriculumEntry::new("bad", "beyond the end", |_, inputs, _| {
        vec![inputs.questions.len(); inputs.count]
    });
    for (written, expected) in [
        (
            json!({"difficulty": {"target": 1.5, "temperature": 1.0, "reference": 8, "attention": 1.0}}),
            "curriculum.difficulty.target is 1.5",
        ),
        (
            json!({"difficulty": {"target": 0.5, "temperature": 0.0, "reference": 8, "attention": 1.0}}),
            "curriculum.difficulty.temperature is 0",
        ),
        (
            json!({"difficulty": {"target": 0.5, "temperature": 1.0, "reference": 0.5, "attention": 1.0}}),
            "reference is 0.5: it must be a whole number",
        ),
        (
            json!({"alignment": {"epochs": 0, "threshold": 0.6}}),
            "curriculum.alignment.epochs is 0",
        ),
        (
            json!({"alignment": {"epochs": 1, "threshold": 1}}),
            "threshold is 1: it must be below 1",
        ),
        (
            json!({"recap": {"window": 3, "temperature": 1.0}}),
            "curriculum.recap.window is 3: it must be an even number",
        ),
        (
            json!({"recap": {"window": 2, "temperature": 0}}),
            "curriculum.recap.temperature is 0",
        ),
    ] {
        let error = chosen(written).check().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let bad = Curriculum {
        entry: &BAD,
        settings: Settings::of(&[], &[]),
    };
    let questions = numbered(3);
    let error = bad
        .draw(&inputs(&questions, &[], 2), &mut |_, _| {})
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`bad` must draw 2 of the 3 questions"),
        "{error}"
    );
}

#[test]
fn what_was_asked_of_other_questions_is_forgotten() {
    let one = Asked {
        question: 1,
        step: 0,
        accuracy: None,
    };
    let mut kept = Memory::of(&numbered(3));
    kept.ask(0, &[1]);
    let text = serde_json::to_string(&kept).unwrap();
    let kept: Memory = serde_json::from_str(&text).unwrap();
    let (mut same, mut other) = (Memory::of(&numbered(3)), Memory::of(&numbered(4)));
    same.restore(kept.clone());
    other.restore(kept);
    assert_eq!((same.asked(), other.is_empty()), ([one].as_slice(), true));
}

#[test]
fn a_draw_sees_what_was_known_when_it_was_made() {
    let of = |question, step, accuracy| Asked {
        question,
        step,
        accuracy,
    };
    let mut memory = Memory::of(&numbered(9));
    assert_eq!(memory.ask_once(0, vec![3, 4]), [3, 4]);
    memory.learn(0, 0, [Some(0.5), None].into_iter());
    // Two steps are played ahead before the first of them fills its batch.
    memory.ask_once(1, vec![5, 6]);
    assert_eq!(memory.ask_once(2, vec![7, 8]), [7, 8]);
    let then = memory.before(2, 0);
    memory.learn(1, 0, [Some(1.0), Some(0.0)].into_iter());
    memory.ask(1, &[0]);
    memory.learn(1, 2, std::iter::once(Some(0.25)));
    memory.learn(2, 0, [Some(0.75), Some(1.0)].into_iter());
    let first = [of(3, 0, Some(0.5)), of(4, 0, None)];
    let played = [of(5, 1, None), of(6, 1, None)];
    assert_eq!(then, [first, played].concat());
    assert_eq!(memory.before(2, 0), then, "later outcomes change nothing");
    // What was asked once stays, whatever a later draw would give.
    assert_eq!(memory.ask_once(2, vec![1, 2]), [7, 8]);
    assert!(memory.before(0, 0).is_empty());
    let all = [
        first[0],
        first[1],
        of(5, 1, Some(1.0)),
        of(6, 1, Some(0.0)),
        of(7, 2, Some(0.75)),
        of(8, 2, Some(1.0)),
        of(0, 1, Some(0.25)),
    ];
    assert_eq!(memory.asked(), all.as_slice());
    assert_eq!(memory.before(3, 2), all);
}

#[test]
fn the_guide_lists_every_curriculum() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/training.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    for CurriculumEntry { name, about, .. } in CURRICULA {
        assert!(guide.contains(&format!("| `{name}` | {about} |")), "{name}");
    }
}
