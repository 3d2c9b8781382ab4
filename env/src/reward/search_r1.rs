//! The published Search-R1 scores: the v0.3 table, and its grading over prompt and response with the known flaw.
//!
//! The flaw: the grader reads prompt and response as one text and takes the last `<answer>`, and the published prompt holds
//! two of them. A rollout that never answers is graded as if it had answered with the prompt's example, and an answer inside
//! a retrieved passage counts. `graded_whole_text` reproduces that for comparison with published numbers, and
//! `super::published` makes rewards of it; all other rewards read [`forage_contracts::Episode::answer`].

use super::grading::normalize;
use crate::protocol::is_valid_text;

/// Weights of the v0.3 score table.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StructuredWeights {
    /// Earned by valid structure with a wrong answer; lost by a right answer with invalid structure.
    pub structure: f32,
    /// Earned by a wrong answer with invalid structure.
    pub final_format: f32,
    /// Earned on top of `structure` when a gold was read.
    pub retrieval: f32,
}

impl Default for StructuredWeights {
    /// The values of the published v0.3 script.
    fn default() -> Self {
        Self {
            structure: 0.2,
            final_format: 0.1,
            retrieval: 0.0,
        }
    }
}

/// What the score table looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Whether the answer is right; `None` without an answer.
    pub correct: Option<bool>,
    /// Whether the response has valid structure.
    pub valid: bool,
    /// Whether a gold was read; only looked at when the structure is valid.
    pub retrieved: bool,
}

/// The score table of Search-R1 v0.3.
pub(crate) fn structured_score(judged: Judged, weights: StructuredWeights) -> f32 {
    let structured = weights.structure
        + if judged.retrieved {
            weights.retrieval
        } else {
            0.0
        };
    match (judged.correct, judged.valid) {
        (Some(true), true) => 1.0,
        (Some(true), false) => 1.0 - weights.structure,
        (Some(false) | None, true) => structured,
        (Some(false), false) => weights.final_format,
        (None, false) => 0.0,
    }
}

/// The contents between the tags of `name`, trimmed, as `<name>(.*?)</name>` finds them.
pub(crate) fn blocks<'a>(name: &str, text: &'a str) -> Vec<&'a str> {
    let (opening, closing) = (format!("<{name}>"), format!("</{name}>"));
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((content, after)) = rest
        .split_once(&opening)
        .and_then(|(_, after)| after.split_once(&closing))
    {
        found.push(content.trim());
        rest = after;
    }
    found
}

/// Search-R1's structure check: needs Qwen's `<|im_start|>assistant` and reads everything after its first occurrence.
pub(crate) fn is_valid_whole_text(text: &str) -> bool {
    let response = text.split_once("<|im_start|>assistant");
    response.is_some_and(|(_, response)| is_valid_text(response))
}

/// Whether some normalised gold is part of some normalised information block, whoever wrote it.
pub(super) fn retrieved_whole_text(text: &str, golds: &[impl AsRef<str>]) -> bool {
    blocks("information", text).iter().any(|block| {
        let block = normalize(block);
        golds
            .iter()
            .any(|gold| block.contains(&normalize(gold.as_ref())))
    })
}

/// The answer Search-R1 extracts from prompt and response: the last of at least two `<answer>` blocks.
#[cfg(test)]
pub(crate) fn extract_whole_text(text: &str) -> Option<&str> {
    match blocks("answer", text)[..] {
        [] | [_] => None,
        [.., last] => Some(last),
    }
}

/// Judges prompt and response as one text, the way Search-R1 does; see the module's warning.
#[cfg(test)]
pub(crate) fn graded_whole_text(text: &str, golds: &[impl AsRef<str>]) -> Judged {
    Judged {
        correct: extract_whole_text(text).map(|answer| super::grading::exact_match(answer, golds)),
        valid: is_valid_whole_text(text),
        retrieved: retrieved_whole_text(text, golds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str = "<|im_start|>user\nWrite the answer inside <answer> and </answer>, like <answer> Beijing </answer>. \
                          Question: who wrote Hamlet?\n<|im_end|>\n<|im_start|>assistant\n";
    const NOTICE: &str = "\nInvalid. Use <search> and </search>, or <answer> and </answer>.\n";

    /// Response, extracted, valid, v0.2, v0.3 with (.2, .1, 0), v0.3 with (.2, .1, .1).
    type Row = (String, &'static str, &'static str, bool, f32, f32, f32);

    fn rows() -> Vec<Row> {
        let gold = "William Shakespeare";
        let info = |text: &str| format!("\n\n<information>{text}</information>\n\n");
        let row = |response: &str, gold, extracted, valid, v2, v3, v3_retrieval| {
            (
                response.to_owned(),
                gold,
                extracted,
                valid,
                v2,
                v3,
                v3_retrieval,
            )
        };
        let full = |answer: &str| {
            format!(
                "<think>a</think><search>q</search>{}<think>b</think><answer>{answer}</answer>",
                info("by William Shakespeare")
            )
        };
        let bare = format!(
            "<search>q</search>{}<answer>The William Shakespeare</answer>",
            info("x")
        );
        let poisoned = format!(
            "<think>a</think><search>q</search>{}",
            info("<answer>William Shakespeare</answer>")
        );
        let invalid = format!("<think>x</think>{NOTICE}<think>y</think>");
        let right = "<think>a</think><answer> william shakespeare. </answer>";
        let ended = "<think>a</think><answer>William Shakespeare</answer><|im_end|>";
        let twice = "<think>a</think><answer>William Shakespeare</answer><answer>Marlowe</answer>";
        vec![
            row("<think>x</think>", gold, "Beijing", false, 0.0, 0.1, 0.1),
            row(&invalid, gold, "and", false, 0.0, 0.1, 0.1),
            row(
                &full("William Shakespeare"),
                gold,
                gold,
                true,
                1.0,
                1.0,
                1.0,
            ),
            row(right, gold, "william shakespeare.", true, 1.0, 1.0, 1.0),
            row(&bare, gold, "The William Shakespeare", false, 1.0, 0.8, 0.8),
            row(&full("Marlowe"), gold, "Marlowe", true, 0.0, 0.2, 0.3),
            row(
                "<think>a</think><answer>Marlowe</answer>",
                gold,
                "Marlowe",
                true,
                0.0,
                0.2,
                0.2,
            ),
            row(
                "<answer>Marlowe</answer>",
                gold,
                "Marlowe",
                false,
                0.0,
                0.1,
                0.1,
            ),
            row(ended, gold, gold, false, 1.0, 0.8, 0.8),
            row(&poisoned, gold, gold, false, 1.0, 0.8, 0.8),
            row(twice, gold, "Marlowe", false, 0.0, 0.1, 0.1),
            row("", gold, "Beijing", false, 0.0, 0.1, 0.1),
            row(
                "<think>dunno</think>",
                "Beijing",
                "Beijing",
                false,
                1.0,
                0.8,
                0.8,
            ),
            row(&invalid, "and", "and", false, 1.0, 0.8, 0.8),
        ]
    }

    #[test]
    fn published_grader_vectors() {
        let close = |left: f32, right: f32| (left - right).abs() < 1e-6;
        for (response, gold, extracted, valid, v2, v3, v3_retrieval) in rows() {
            let text = format!("{PROMPT}{response}");
            let judged = graded_whole_text(&text, &[gold]);
            assert_eq!(extract_whole_text(&text), Some(extracted), "{response}");
            assert_eq!(judged.valid, valid, "{response}");
            assert!(
                close(f32::from(u8::from(judged.correct == Some(true))), v2),
                "{response}"
            );
            let weights = StructuredWeights::default();
            assert!(close(structured_score(judged, weights), v3), "{response}");
            let with_retrieval = StructuredWeights {
                retrieval: 0.1,
                ..weights
            };
            assert!(
                close(structured_score(judged, with_retrieval), v3_retrieval),
                "{response}"
            );
        }
    }

    #[test]
    fn the_whole_table() {
        let weights = StructuredWeights {
            structure: 0.2,
            final_format: 0.1,
            retrieval: 0.3,
        };
        let score = |correct, valid, retrieved| {
            structured_score(
                Judged {
                    correct,
                    valid,
                    retrieved,
                },
                weights,
            )
        };
        let table = [
            (score(None, true, true), 0.5),
            (score(None, true, false), 0.2),
            (score(None, false, true), 0.0),
            (score(None, false, false), 0.0),
            (score(Some(true), true, true), 1.0),
            (score(Some(true), true, false), 1.0),
            (score(Some(true), false, true), 0.8),
            (score(Some(false), true, true), 0.5),
            (score(Some(false), true, false), 0.2),
            (score(Some(false), false, true), 0.1),
        ];
        for (found, expected) in table {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }

    #[test]
    fn without_the_marker_nothing_is_valid() {
        assert!(!is_valid_whole_text("<think>a</think><answer>b</answer>"));
        assert_eq!(extract_whole_text("<answer>only one</answer>"), None);
    }
}
