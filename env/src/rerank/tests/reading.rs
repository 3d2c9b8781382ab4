//! Windows over the candidates, and what is read of a turn.

use super::*;

#[test]
fn windows_slide_as_published() {
    let windows = |written: Value, count| settings(written).windows(count);
    let only = |range: Range<usize>| vec![range];
    let listwise =
        |window: usize, step: usize, count| windows(json!({"window": window, "step": step}), count);
    // RankGPT's own setting: nine windows of twenty over a hundred passages.
    let published: Vec<Range<usize>> = (0..9)
        .rev()
        .map(|place| place * 10..place * 10 + 20)
        .collect();
    assert_eq!(listwise(20, 10, 100), published);
    assert_eq!(listwise(20, 10, 25), [5..25, 0..15]);
    assert_eq!(listwise(20, 10, 7), only(0..7));
    let setwise = json!({"form": "setwise", "window": 4, "passes": 2});
    assert_eq!(
        windows(setwise.clone(), 9),
        [5..9, 2..6, 0..3, 5..9, 2..6, 1..3]
    );
    assert_eq!(windows(setwise, 2), only(0..2));
    let pairwise = json!({"form": "pairwise", "passes": 2});
    assert_eq!(windows(pairwise, 4), [2..4, 1..3, 0..2, 2..4, 1..3]);
    let groupwise = json!({"form": "groupwise", "window": 4});
    assert_eq!(windows(groupwise, 9), [0..4, 4..8, 8..9]);
    assert_eq!(windows(json!({"form": "pointwise"}), 3), [0..1, 1..2, 2..3]);
    // The turns that `docs/rerank.md` gives for a hundred candidates and windows of twenty.
    for (form, turns) in [
        ("listwise", 9),
        ("setwise", 6),
        ("pairwise", 99),
        ("groupwise", 5),
        ("pointwise", 100),
    ] {
        assert_eq!(windows(json!({"form": form}), 100).len(), turns, "{form}");
        assert_eq!(windows(json!({"form": form}), 0), only(0..0), "{form}");
    }
}

proptest! {
    #[test]
    fn every_passage_is_seen_and_fewer_take_no_more_turns(
        form in 0..5_usize, window in 2..9_usize, passes in 1..4_usize, count in 1..40_usize, step in 1..9_usize,
    ) {
        let form = Form::ALL[form];
        let step = match form {
            Form::Listwise => Some(step.min(window)),
            Form::Setwise => Some(step.min(window - 1)),
            _ => None,
        };
        let passes = if form.is_scored() { 1 } else { passes };
        let settings = RerankSettings { form, window, step, passes, ..RerankSettings::default() };
        prop_assert!(settings.check().is_ok());
        let windows = settings.windows(count);
        let seen: BTreeSet<usize> = windows.iter().cloned().flatten().collect();
        prop_assert!(seen.into_iter().eq(0..count));
        prop_assert!(windows.iter().all(|one| !one.is_empty() && one.len() <= window.max(2)));
        prop_assert!(settings.windows(count - 1).len() <= windows.len());
        if form.picks() {
            // What was picked last is shown again, until the front is reached.
            for pair in windows.windows(2).filter(|pair| pair[1].start < pair[0].start) {
                prop_assert!(pair[1].contains(&pair[0].start));
            }
        }
    }

    #[test]
    fn any_turn_leads_to_an_order_of_all_passages(text in "(<answer>)?[\\[\\]0-9a-d>, .-]{0,30}(</answer>)?", count in 0..6_usize) {
        let ids = &["a", "b", "c", "d", "7", "1"][..count];
        for form in Form::ALL {
            let verdict = form.read(&text, ids);
            let order: BTreeSet<usize> = verdict.order.iter().copied().collect();
            prop_assert!(verdict.order.len() == count && order.into_iter().eq(0..count));
            prop_assert!(!form.is_scored() || verdict.scores.len() == count || form == Form::Pointwise);
            prop_assert!(verdict.scores.iter().flatten().all(|score| (0.0..=10.0).contains(score)));
        }
    }
}

#[test]
fn turns_are_read_as_far_as_they_can_be() {
    use Fault::{Extra, Missing, NoAnswer, Range, Unknown};
    let ids = ["a", "3", "c d"];
    let read = |form: Form, answer: &str| form.read(&format!("<answer>{answer}</answer>"), &ids);
    for (answer, order, faults) in [
        ("[2] > [1] > [3]", [1, 0, 2], vec![]),
        ("2>1,3", [1, 0, 2], vec![]),
        ("[c d] > [a] > [2]", [2, 0, 1], vec![]),
        // The number three goes before the id.
        ("[3]", [2, 0, 1], vec![Missing, Missing]),
        (
            "[3] > [3] > [9]",
            [2, 0, 1],
            vec![Extra, Unknown, Missing, Missing],
        ),
        (
            "[0] best",
            [0, 1, 2],
            vec![Unknown, Unknown, Missing, Missing, Missing],
        ),
        ("", [0, 1, 2], vec![Missing, Missing, Missing]),
    ] {
        let verdict = read(Form::Listwise, answer);
        assert_eq!(
            (verdict.order.as_slice(), verdict.faults),
            (&order[..], faults),
            "{answer}"
        );
    }
    for (answer, order, faults) in [
        ("[2]", [1, 0, 2], vec![]),
        ("[2] > [1]", [1, 0, 2], vec![Extra]),
        ("[8]", [0, 1, 2], vec![Unknown, Missing]),
    ] {
        let verdict = read(Form::Setwise, answer);
        assert_eq!(
            (verdict.order.as_slice(), verdict.faults),
            (&order[..], faults),
            "{answer}"
        );
    }
    for (answer, scores, faults) in [
        (
            "[1] 7, [2] 0, [3] 2.5",
            [Some(7.0), Some(0.0), Some(2.5)],
            vec![],
        ),
        (
            r#"{"[2]": 4, "[1]": 10, "[3]": 1}"#,
            [Some(10.0), Some(4.0), Some(1.0)],
            vec![],
        ),
        (
            "[1] 11, [2] -1, [1] 3",
            [Some(10.0), Some(0.0), None],
            vec![Range, Range, Extra, Missing],
        ),
        (
            "[4] 1 [2",
            [None; 3],
            vec![Unknown, Unknown, Missing, Missing, Missing],
        ),
    ] {
        let verdict = read(Form::Groupwise, answer);
        assert_eq!(
            (verdict.scores.as_slice(), verdict.faults),
            (&scores[..], faults),
            "{answer}"
        );
    }
    for (answer, score, faults) in [
        ("7", Some(7.0), vec![]),
        ("Score: 6/10.", Some(6.0), vec![]),
        ("99", Some(10.0), vec![Range]),
        ("good", None, vec![Missing]),
    ] {
        let verdict = Form::Pointwise.read(&format!("<answer>{answer}</answer>"), &ids[..1]);
        assert_eq!(
            (verdict.scores, verdict.faults),
            (vec![score], faults),
            "{answer}"
        );
    }
    for form in Form::ALL {
        let verdict = form.read("[2] > [1] <answer>[2]", &ids);
        assert_eq!(
            (verdict.order, verdict.faults),
            (vec![0, 1, 2], vec![NoAnswer]),
            "{form:?}"
        );
    }
}
