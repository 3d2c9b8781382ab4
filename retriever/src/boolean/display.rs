//! The canonical form of a query, with as few parentheses as parse back to the same query: what tests of the parser read.

use std::fmt::{self, Display, Formatter, Write as _};

use super::lexer::{is_plain, is_quote};
use super::{BooleanQuery, Clause, Kind, Leaf, Node, Occur, Part};
use crate::analyzer::has_word;

impl Display for BooleanQuery {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Some(root) = &self.root else {
            return Ok(());
        };
        match bare_group(root) {
            Some(clauses) => list(clauses, out),
            None => operand(root, out),
        }
    }
}

/// The inside of parentheses.
fn list(clauses: &[Clause], out: &mut Formatter<'_>) -> fmt::Result {
    if is_chain(clauses) {
        return chain(clauses, out);
    }
    // Explicit `OR`s around a `NOT` make it a set of its own; without them it takes away from the list.
    let only_should = clauses.iter().all(|clause| clause.occur == Occur::Should);
    let separator = if only_should || clauses.iter().any(is_complement) {
        " OR "
    } else {
        " "
    };
    for (number, clause) in clauses.iter().enumerate() {
        if number > 0 {
            out.write_str(separator)?;
        }
        match (clause.occur, bare_group(&clause.node)) {
            (Occur::Should, Some(inner)) if is_chain(inner) => chain(inner, out)?,
            (Occur::Should, Some([inner])) => negated(&inner.node, out)?,
            (Occur::Should, _) => operand(&clause.node, out)?,
            (Occur::MustNot, _) if clauses.len() == 1 => negated(&clause.node, out)?,
            (sign, _) => {
                out.write_char(if sign == Occur::Must { '+' } else { '-' })?;
                operand(&clause.node, out)?;
            }
        }
    }
    Ok(())
}

fn chain(clauses: &[Clause], out: &mut Formatter<'_>) -> fmt::Result {
    for (number, clause) in clauses.iter().enumerate() {
        if number > 0 {
            out.write_str(" AND ")?;
        }
        if clause.occur == Occur::MustNot {
            negated(&clause.node, out)?;
        } else {
            operand(&clause.node, out)?;
        }
    }
    Ok(())
}

fn negated(node: &Node, out: &mut Formatter<'_>) -> fmt::Result {
    out.write_str("NOT ")?;
    operand(node, out)
}

fn bare_group(node: &Node) -> Option<&[Clause]> {
    match node {
        Node {
            kind: Kind::Group(clauses),
            boost: 1.0,
        } => Some(clauses),
        _ => None,
    }
}

/// Tells whether `AND`s alone can express the group.
fn is_chain(clauses: &[Clause]) -> bool {
    clauses.len() > 1 && clauses.iter().all(|clause| clause.occur != Occur::Should)
}

/// Tells whether the clause stands for all passages without something.
fn is_complement(clause: &Clause) -> bool {
    clause.occur == Occur::Should && bare_group(&clause.node).is_some_and(|inner| inner.len() == 1)
}

fn operand(node: &Node, out: &mut Formatter<'_>) -> fmt::Result {
    match &node.kind {
        Kind::Leaf(leaf) => self::leaf(leaf, out)?,
        Kind::Group(clauses) => {
            out.write_char('(')?;
            list(clauses, out)?;
            out.write_char(')')?;
        }
    }
    if node.boost.to_bits() == 1.0_f32.to_bits() {
        Ok(())
    } else {
        write!(out, "^{}", node.boost)
    }
}

fn leaf(leaf: &Leaf, out: &mut Formatter<'_>) -> fmt::Result {
    match leaf {
        Leaf::Word { part, text } => {
            out.write_str(field_of(*part))?;
            plain_or_quoted(text, out)
        }
        Leaf::Prefix { part, text } => write!(out, "{}{text}*", field_of(*part)),
        Leaf::Phrase { part, text, slop } => {
            out.write_str(field_of(*part))?;
            quoted(text, out)?;
            if *slop > 0 {
                write!(out, "~{slop}")
            } else {
                Ok(())
            }
        }
        Leaf::Exact { field, value } => {
            write!(out, "{field}:")?;
            // Without quotes a field such as `_` and a value without a letter would read as punctuation.
            if has_word(value) {
                plain_or_quoted(value, out)
            } else {
                quoted(value, out)
            }
        }
    }
}

fn field_of(part: Part) -> &'static str {
    match part {
        Part::Anywhere => "",
        Part::Title => "title:",
        Part::Text => "text:",
    }
}

fn plain_or_quoted(text: &str, out: &mut Formatter<'_>) -> fmt::Result {
    if is_plain(text) {
        out.write_str(text)
    } else {
        quoted(text, out)
    }
}

fn quoted(text: &str, out: &mut Formatter<'_>) -> fmt::Result {
    out.write_char('"')?;
    for letter in text.chars() {
        if is_quote(letter) || letter == '\\' {
            out.write_char('\\')?;
        }
        out.write_char(letter)?;
    }
    out.write_char('"')
}
