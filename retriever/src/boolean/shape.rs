//! The parts that a query is written with.

use serde::{Deserialize, Serialize};

use super::lexer::{Issues, TokenKind, tokens};
use forage_contracts::retriever::Query;

/// The parts of a query in boolean syntax, counted as written, whether they are repaired or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryShape {
    /// Texts between white space; an operator that stands alone is one.
    pub words: usize,
    /// `AND`, `&&`, `+`.
    pub ands: usize,
    /// `OR`, `||`.
    pub ors: usize,
    /// `NOT`, `!`, `-`.
    pub nots: usize,
    /// Texts in quotes.
    pub phrases: usize,
    /// `name:`, for any name.
    pub fields: usize,
    /// `^boost`.
    pub boosts: usize,
    /// `prefix*`.
    pub prefixes: usize,
    /// Opening parentheses.
    pub groups: usize,
}

impl QueryShape {
    /// Counts the parts of a query; what is beyond 64 KiB is not read.
    ///
    /// ```
    /// use forage_retriever::QueryShape;
    ///
    /// let shape = QueryShape::of("(tides OR tidal) AND \"new moon\"");
    /// assert_eq!((shape.words, shape.ors, shape.ands, shape.phrases), (6, 1, 1, 1));
    /// assert!(shape.has_operators() && !QueryShape::of("tides and the moon").has_operators());
    /// ```
    pub fn of(text: &str) -> Self {
        let read = &text[..text.floor_char_boundary(Query::MAX_BYTES)];
        let mut shape = Self {
            words: text.split_whitespace().count(),
            ..Self::default()
        };
        for token in tokens(read, &|_| true, &mut Issues::default()) {
            let counted = match token.kind {
                TokenKind::And | TokenKind::Plus => &mut shape.ands,
                TokenKind::Or => &mut shape.ors,
                TokenKind::Not | TokenKind::Minus => &mut shape.nots,
                TokenKind::Quoted(_) => &mut shape.phrases,
                TokenKind::Field(_) => &mut shape.fields,
                TokenKind::Boost(_) => &mut shape.boosts,
                TokenKind::Open => &mut shape.groups,
                TokenKind::Word(word) if word.ends_with('*') => &mut shape.prefixes,
                TokenKind::Close
                | TokenKind::Word(_)
                | TokenKind::Words(_)
                | TokenKind::Slop(_) => continue,
            };
            *counted += 1;
        }
        shape
    }

    /// Tells whether it says more than a bag of words: an operator or a phrase.
    pub fn has_operators(&self) -> bool {
        self.ands + self.ors + self.nots + self.phrases > 0
    }

    /// Operators, phrases, fields, boosts, prefixes and groups together; 0 for a bag of words.
    pub fn complexity(&self) -> usize {
        let Self {
            ands,
            ors,
            nots,
            phrases,
            fields,
            boosts,
            prefixes,
            groups,
            ..
        } = self;
        ands + ors + nots + phrases + fields + boosts + prefixes + groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_counted_once() {
        let shape =
            QueryShape::of("+tides && title:(moon || sun)^2 -\"spring tide\"~1 NOT !mars tid* AND");
        let expected = QueryShape {
            words: 11,
            ands: 3,
            ors: 1,
            nots: 3,
            phrases: 1,
            fields: 1,
            boosts: 1,
            prefixes: 1,
            groups: 1,
        };
        assert_eq!(shape, expected);
        assert_eq!((shape.complexity(), shape.has_operators()), (12, true));
        let bag = QueryShape::of("statin drugs and breast cancer");
        assert_eq!(
            (bag.complexity(), bag.has_operators(), bag.words),
            (0, false, 5)
        );
        assert_eq!(QueryShape::of(""), QueryShape::default());
    }
}
