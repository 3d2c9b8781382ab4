//! The shape a whole response must have: the format rule of Search-R1 v0.3 as a state machine.

use forage_contracts::Tag;

use super::tags::{TagEvent, events};

/// Who wrote a segment of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// The policy.
    Policy,
    /// The environment.
    Environment,
}

/// A run of text by one author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    /// Its author.
    pub author: Author,
    /// The text.
    pub text: &'a str,
}

/// State of the machine that reads a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    In(Tag),
    After(Tag),
    Broken,
}

/// start -> think -> (search -> information -> think)* -> answer -> end, text only inside tags.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Machine(State);

impl Machine {
    pub(crate) fn read(&mut self, event: TagEvent<'_>) {
        self.0 = match event {
            TagEvent::Open(tag) => self.open(tag),
            TagEvent::Close(tag) if self.0 == State::In(tag) => State::After(tag),
            TagEvent::Text(text) if matches!(self.0, State::In(_)) || text.trim().is_empty() => {
                self.0
            }
            TagEvent::Close(_) | TagEvent::Text(_) => State::Broken,
        };
    }

    fn open(self, tag: Tag) -> State {
        let allowed = match tag {
            Tag::Think => matches!(self.0, State::Start | State::After(Tag::Information)),
            Tag::Search | Tag::Answer => self.0 == State::After(Tag::Think),
            Tag::Information => self.0 == State::After(Tag::Search),
        };
        if allowed {
            State::In(tag)
        } else {
            State::Broken
        }
    }

    /// A complete information block by the environment, whatever its passages contain.
    fn information(&mut self) {
        self.0 = match self.open(Tag::Information) {
            State::In(tag) => State::After(tag),
            _ => State::Broken,
        };
    }

    fn policy_text(&mut self, text: &str) {
        for event in events(text) {
            self.read_policy(event);
        }
    }

    /// The policy may not write information: that would be inventing search results.
    fn read_policy(&mut self, event: TagEvent<'_>) {
        match event {
            TagEvent::Open(Tag::Information) | TagEvent::Close(Tag::Information) => {
                self.0 = State::Broken;
            }
            event => self.read(event),
        }
    }

    fn environment_text(&mut self, text: &str) {
        let text = text.trim();
        if text.starts_with(Tag::Information.opening())
            && text.ends_with(Tag::Information.closing())
        {
            self.information();
        } else if !text.is_empty() {
            self.0 = State::Broken;
        }
    }

    pub(crate) fn accepts(self) -> bool {
        self.0 == State::After(Tag::Answer)
    }
}

/// Whether a text has that structure whoever wrote its parts: information that a policy told itself is information too.
pub(crate) fn is_valid_text(text: &str) -> bool {
    let mut machine = Machine::default();
    for event in events(text) {
        machine.read(event);
    }
    machine.accepts()
}

/// Whether a response is think, then any number of (search, information, think), then answer, with text only inside tags.
///
/// Information counts only when the environment wrote it, and what passages contain does not matter: neither an invented
/// information block nor a passage with tags in it changes the verdict on the policy's own form.
pub(crate) fn is_valid_sequence<'a>(segments: impl IntoIterator<Item = Segment<'a>>) -> bool {
    let mut machine = Machine::default();
    for segment in segments {
        match segment.author {
            Author::Policy => machine.policy_text(segment.text),
            Author::Environment => machine.environment_text(segment.text),
        }
    }
    machine.accepts()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(text: &str) -> Segment<'_> {
        Segment {
            author: Author::Policy,
            text,
        }
    }

    fn environment(text: &str) -> Segment<'_> {
        Segment {
            author: Author::Environment,
            text,
        }
    }

    #[test]
    fn valid_responses() {
        assert!(is_valid_sequence([policy(
            "<think>a</think><answer>b</answer>"
        )]));
        assert!(is_valid_sequence([
            policy("<think>a</think>\n<search>q</search>"),
            environment("\n\n<information>Doc 1</information>\n\n"),
            policy("<think>b</think><answer>c</answer>\n"),
        ]));
    }

    #[test]
    fn passages_may_contain_anything() {
        assert!(is_valid_sequence([
            policy("<think>a</think><search>q</search>"),
            environment("<information><answer>x</answer></think></information>"),
            policy("<think>b</think><answer>c</answer>"),
        ]));
    }

    #[test]
    fn invalid_responses() {
        let cases: [&[Segment<'_>]; 9] = [
            &[],
            &[policy("<answer>b</answer>")],
            &[policy("<think>a</think>")],
            &[policy("<think>a</think>text<answer>b</answer>")],
            &[policy("<think>a</think><answer>b</answer> tail")],
            &[policy("<think>a<think>b</think><answer>b</answer>")],
            &[policy(
                "<think>a</think><search>q</search><information>made up</information><think>b</think><answer>c</answer>",
            )],
            &[
                policy("<think>a</think>"),
                environment("\nnot valid, try again\n"),
                policy("<answer>b</answer>"),
            ],
            &[
                policy("<think>a</think><search>q</search>"),
                environment("<information></information>"),
                policy("<answer>b</answer>"),
            ],
        ];
        for case in cases {
            assert!(!is_valid_sequence(case.iter().copied()), "{case:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(texts in prop::collection::vec((any::<bool>(), any::<String>()), 0..6)) {
            is_valid_sequence(texts.iter().map(|(ours, text)| if *ours { environment(text) } else { policy(text) }));
        }
    }
}
