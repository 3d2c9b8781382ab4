//! Format: 1 when the whole response has the structure think, (search, information, think)*, answer.
//!
//! Of a turn that ran code, the program or call stands in the place of the search, its output in that of the information.

use std::borrow::Cow;

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::{Episode, Tag, Task, Turn};

use super::{Make, Reward, RewardEntry, RewardError, UNIT, indicator};
use crate::chat::hermes::ToolCall;
use crate::protocol::{Author, PYTHON, Segment, is_valid_sequence, is_valid_text};

/// The registry's entry.
pub(crate) const ENTRY: RewardEntry = RewardEntry {
    name: "format",
    about: "the response is think, (search, information, think)*, answer",
    always: true,
    judges: Some(Outcome::Answer),
    range: UNIT,
    schema: None,
    make: Make::Plain(|_| Box::new(Format)),
};

/// Format: 1 when the whole response has the structure think, (search, information, think)*, answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Format;

#[async_trait]
impl Reward for Format {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(indicator(is_valid(episode)))
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}

/// The registry's entry of [`SelfSearchFormat`].
pub(crate) const SELF_SEARCH: RewardEntry = RewardEntry {
    name: "self_search_format",
    about: "the policy alone wrote think, (search, information, think)*, answer",
    always: false,
    judges: Some(Outcome::Answer),
    range: UNIT,
    schema: None,
    make: Make::Plain(|_| Box::new(SelfSearchFormat)),
};

/// The format-based reward of self-search (SSRL, arXiv 2508.10874): 1 where the response has the structure and the policy told itself the
/// information, for which [`Format`] pays nothing. Assumed, since the abstract leaves it open: the structure is that of Search-R1 v0.3,
/// and what stands between the tags does not matter. Anything that the environment wrote leaves 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SelfSearchFormat;

#[async_trait]
impl Reward for SelfSearchFormat {
    fn name(&self) -> &'static str {
        SELF_SEARCH.name
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(indicator(told_itself(&episode.turns)))
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}

fn told_itself(turns: &[Turn]) -> bool {
    let texts = turns.iter().map(|turn| turn.policy.as_str());
    turns.iter().all(|turn| turn.observation.is_empty())
        && is_valid_text(&texts.collect::<String>())
}

/// Whether the turns have the structure.
pub(super) fn is_valid(episode: &Episode) -> bool {
    holds(&episode.turns)
}

fn holds(turns: &[Turn]) -> bool {
    let texts: Vec<[Cow<'_, str>; 2]> = turns.iter().map(texts).collect();
    is_valid_sequence(texts.iter().flat_map(|[policy, environment]| {
        [
            Segment {
                author: Author::Policy,
                text: policy,
            },
            Segment {
                author: Author::Environment,
                text: environment,
            },
        ]
    }))
}

/// What the policy and the environment wrote in a turn, in the tags of searches.
fn texts(turn: &Turn) -> [Cow<'_, str>; 2] {
    let calls = turn.kind.calls();
    if calls.iter().all(|call| call.payload.is_null()) {
        return [
            Cow::Borrowed(&turn.policy),
            Cow::Borrowed(&turn.observation),
        ];
    }
    let mut policy = turn.policy.clone();
    for [open, close] in [PYTHON, ToolCall::TAGS] {
        policy = policy
            .replace(open, Tag::Search.opening())
            .replace(close, Tag::Search.closing());
    }
    let information = [Tag::Information.opening(), Tag::Information.closing()].concat();
    [Cow::Owned(policy), Cow::Owned(information)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use forage_contracts::environment::{Call, TurnKind};
    use forage_contracts::policy::Finish;

    fn turn(policy: &str, kind: TurnKind, observation: &str) -> Turn {
        Turn {
            policy: policy.to_owned(),
            finish: Finish::Stop,
            kind,
            observation: observation.to_owned(),
            reward: 0.0,
        }
    }

    #[test]
    fn information_may_be_the_policys_own_under_self_search() {
        let said = |text: &str| [turn(text, TurnKind::answer("c"), "")];
        let own = "<think>a</think><search>q</search><information>made up</information><think>b</think><answer>c</answer>";
        let spaced = own.replace("><", ">\n<");
        for valid in [own, &spaced, "<think>a</think><answer>c</answer>"] {
            assert!(told_itself(&said(valid)), "{valid}");
        }
        assert!(!holds(&said(own)), "the other part pays for what was read");
        for invalid in [
            "",
            "<answer>c</answer>",
            &own.replace("<information>made up</information>", ""),
            &own.replace("<search>q</search>", ""),
            &own.replace("<think>b</think>", ""),
            &own.replace("made up", "made <answer>up</answer>"),
            &own.replace("</information>", ""),
            &format!("{own}<search>q</search>"),
            &format!("so: {own}"),
        ] {
            assert!(!told_itself(&said(invalid)), "{invalid}");
        }
        let read = turn(own, TurnKind::answer("c"), "\nTry again.\n");
        assert!(!told_itself(&[read]));
    }

    #[test]
    fn code_stands_where_a_search_would() {
        let code = || {
            TurnKind::call(Call {
                payload: true.into(),
                ..Call::new("python")
            })
        };
        let answer = || {
            turn(
                "<think>b</think><answer>c</answer>",
                TurnKind::answer("c"),
                "",
            )
        };
        let output = "\n<python_output>\n</answer>\n</python_output>\n\nThis is your last turn.\n";
        assert!(holds(&[
            turn("<think>a</think><python>x < y</python>", code(), output),
            answer()
        ]));
        assert!(holds(&[
            turn(
                "<think>a</think>\n<tool_call>{}</tool_call>",
                code(),
                output
            ),
            answer()
        ]));
        assert!(!holds(&[
            turn("text<python>x</python>", code(), output),
            answer()
        ]));
        let invented = "<think>a</think><python>x</python><information>made up</information>";
        assert!(!holds(&[turn(invented, code(), output), answer()]));
    }
}
