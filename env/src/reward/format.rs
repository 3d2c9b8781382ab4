//! Format: 1 when the whole response has the structure think, (search, information, think)*, answer.
//!
//! A program, and calls of tools that are made together, stand in the place of a search, and whatever answers them in that of the
//! information; a message that is the answer stands for one between tags.

use std::borrow::Cow;

use async_trait::async_trait;
use forage_contracts::environment::{Outcome, TurnKind};
use forage_contracts::{Episode, Tag, Task, Turn};

use super::{Make, Reward, RewardEntry, RewardError, UNIT, indicator};
use crate::chat::hermes::ToolCall;
use crate::chat::tools::after_thoughts;
use crate::protocol::{ANSWER_PREFIX, Author, PYTHON, Segment, is_valid_sequence, is_valid_text};

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

/// What the policy and the environment wrote in a turn, in the tags of searches. Which part of an observation is information follows from
/// the turn: the text around it, what a limit cut off and what follows it are not the policy's doing.
fn texts(turn: &Turn) -> [Cow<'_, str>; 2] {
    let said = after_thoughts(&turn.policy);
    let thoughts = &turn.policy[..turn.policy.len() - said.len()];
    let written = match &turn.kind {
        TurnKind::Calls { .. } => {
            let rest = behind_calls(said);
            rest.map(|rest| [thoughts, &Tag::Search.both().concat(), rest].concat())
        }
        TurnKind::Answer { answer } => {
            let [open, close] = Tag::Answer.both();
            is_message(said, answer).then(|| [thoughts, open, answer, close].concat())
        }
        TurnKind::Invalid { .. } => None,
    };
    let policy = written.map_or(Cow::Borrowed(turn.policy.as_str()), Cow::Owned);
    let observation = if turn.kind.calls().is_empty() {
        Cow::Borrowed(turn.observation.as_str())
    } else {
        Cow::Owned(Tag::Information.both().concat())
    };
    [policy, observation]
}

/// The text behind the program or the calls that a text begins with; `None` where it begins with neither.
fn behind_calls(text: &str) -> Option<&str> {
    let program = behind(text, PYTHON);
    program.or_else(|| {
        let mut rest = behind(text, ToolCall::TAGS)?;
        while let Some(further) = behind(rest, ToolCall::TAGS) {
            rest = further;
        }
        Some(rest)
    })
}

/// The text behind a block that a text begins with, white space aside.
fn behind<'a>(text: &'a str, [open, close]: [&str; 2]) -> Option<&'a str> {
    let inside = text.trim_start().strip_prefix(open)?;
    inside.split_once(close).map(|(_, rest)| rest)
}

/// Tells whether a message without tags, or what follows the `Answer:` that it begins with, is the answer.
fn is_message(message: &str, answer: &str) -> bool {
    let message = message.trim();
    let announced = message.strip_prefix(ANSWER_PREFIX).map(str::trim_start);
    let is_all = message == answer || announced == Some(answer);
    is_all && !answer.contains(Tag::Answer.opening())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forage_contracts::environment::Call;
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

    #[test]
    fn calls_and_messages_have_the_structure_of_tags() {
        let search = || TurnKind::search("q", Vec::new());
        let call =
            "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"q\"}}\n</tool_call>";
        let calls = format!("<think>a <tool_call></think>\n{call}\n{call}\n");
        let answer = |text: &str, answer: &str| turn(text, TurnKind::answer(answer), "");
        let tags = || answer("<think>b</think>\n<answer>c</answer>", "c");
        let wrapped = "\n\n<information>Doc 1</information>\n\n";
        let several = format!("{wrapped}\n{wrapped}\nNo searches are left. Answer now.\n");
        for shown in [wrapped, &several, "{\"result\": \"Doc 1\"}", ""] {
            assert!(holds(&[turn(&calls, search(), shown), tags()]), "{shown}");
        }
        // What ends an observation is not a fault of tags either.
        for shown in [several.as_str(), "\n\n<information>Doc 1 and a li"] {
            let searched = turn("<think>a</think><search>q</search>", search(), shown);
            assert!(holds(&[searched, tags()]), "{shown}");
        }
        for (message, said) in [
            ("<think>b</think>\n\nVelm.\n", "Velm."),
            ("<think>b</think>Answer: Velm", "Velm"),
            ("<think>b</think>Answer: Velm", "Answer: Velm"),
        ] {
            let searched = turn(&calls, search(), wrapped);
            assert!(holds(&[searched, answer(message, said)]), "{message}");
        }
        let unthought = format!("{call}\n");
        let spoken = format!("<think>a</think>I look.\n{call}");
        let trailing = format!("<think>a</think>{call} So be it.");
        for invalid in [&unthought, &spoken, &trailing] {
            let searched = turn(invalid, search(), wrapped);
            assert!(!holds(&[searched, tags()]), "{invalid}");
        }
        for (message, said) in [
            ("Velm", "Velm"),
            ("<think>b</think>It is so. Answer: Velm", "Velm"),
            ("<think>b</think>\\boxed{7}", "7"),
        ] {
            assert!(!holds(&[answer(message, said)]), "{message}");
        }
        let refused = turn(&calls, TurnKind::invalid("no such tool"), wrapped);
        assert!(!holds(&[refused, tags()]));
        let unread = turn(&calls, search(), "");
        assert!(!holds(&[unread]), "no answer");
    }
}
