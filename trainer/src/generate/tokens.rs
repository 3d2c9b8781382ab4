//! The tokens of a sequence.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// The tokens that a sequence came with, which completions of one prompt share, and those drawn since.
#[derive(Debug)]
pub(super) struct Tokens {
    prompt: Arc<[u32]>,
    drawn: Vec<u32>,
}

impl Tokens {
    pub(super) fn new(prompt: Arc<[u32]>) -> Self {
        Self {
            prompt,
            drawn: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.prompt.len() + self.drawn.len()
    }

    pub(super) fn push(&mut self, token: u32) {
        self.drawn.push(token);
    }

    /// The number of tokens with which `other` begins in the same way.
    pub(super) fn in_common(&self, other: &[u32]) -> usize {
        let own = self.prompt.iter().chain(&self.drawn);
        own.zip(other).take_while(|(a, b)| a == b).count()
    }

    /// The tokens at these places; copied only where some are of the prompt and some are not.
    pub(super) fn at(&self, places: Range<usize>) -> Cow<'_, [u32]> {
        let Range { start, end } = places;
        let prompt = self.prompt.len();
        if end <= prompt {
            Cow::Borrowed(&self.prompt[start..end])
        } else if start >= prompt {
            Cow::Borrowed(&self.drawn[start - prompt..end - prompt])
        } else {
            Cow::Owned([&self.prompt[start..], &self.drawn[..end - prompt]].concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_and_drawn_tokens_are_one_row() {
        let whole: Vec<u32> = (0..9).collect();
        let mut tokens = Tokens::new(Arc::from(&whole[..5]));
        for &token in &whole[5..] {
            tokens.push(token);
        }
        assert_eq!(tokens.len(), whole.len());
        for start in 0..whole.len() {
            for end in start..=whole.len() {
                assert_eq!(*tokens.at(start..end), whole[start..end]);
            }
        }
        for common in 0..=whole.len() {
            assert_eq!(tokens.in_common(&whole[..common]), common);
            let other = [&whole[..common], &[77]].concat();
            assert_eq!(tokens.in_common(&other), common);
        }
    }
}
