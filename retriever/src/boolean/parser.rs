//! From tokens to a query. Every text has one; what does not fit the grammar is repaired and reported.
//!
//! ```text
//! list    = chain { ["OR"] chain }
//! chain   = operand { "AND" operand }
//! operand = { "+" | "-" | "!" | "NOT" } [ field ":" ] ( word | phrase | "(" list ")" ) [ "^" boost ]
//! ```

mod leaves;

use std::ops::Range;

use forage_contracts::retriever::{ParseIssue, Query};

use super::lexer::{Issues, Token, TokenKind, tokens};
use super::{BooleanQuery, Clause, Kind, MAX_BOOST, MAX_DEPTH, Node, Occur};

/// Parses a query; `is_field` says which names besides `id`, `title` and `text` are fields.
pub(crate) fn parse_with(
    text: &str,
    is_field: &dyn Fn(&str) -> bool,
) -> (BooleanQuery, Vec<ParseIssue>) {
    let mut issues = Issues::default();
    let read = &text[..text.floor_char_boundary(Query::MAX_BYTES)];
    if read.len() < text.len() {
        issues.add(
            read.len()..text.len(),
            "the query is longer than 64 KiB; the rest is ignored",
        );
    }
    let is_field = |name: &str| matches!(name, "id" | "title" | "text") || is_field(name);
    let tokens = tokens(read, &is_field, &mut issues);
    let mut parser = Parser {
        text: read,
        tokens: &tokens,
        next: 0,
        terms: 0,
        prefixes: 0,
        full: false,
        issues,
        ignored_opens: 0,
    };
    let root = parser.list(0, None);
    let whole = 0..text.len();
    match &root {
        None => parser
            .issues
            .add(whole, "nothing to search for is left; no passage matches"),
        Some(node) if is_negative(node) => {
            parser.issues.add(
                whole,
                "the query only says what to leave out; all other passages match, in order of id",
            );
        }
        Some(_) => {}
    }
    (BooleanQuery { root }, parser.issues.finish(text.len()))
}

fn is_negative(node: &Node) -> bool {
    matches!(&node.kind, Kind::Group(clauses) if clauses.iter().all(|clause| clause.occur == Occur::MustNot))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connective {
    /// Juxtaposition.
    None,
    And,
    Or,
}

/// An operand with its modifiers.
struct Item {
    node: Node,
    before: Connective,
    modifiers: Modifiers,
}

/// The signs before an operand.
#[derive(Clone, Default)]
struct Modifiers {
    at: Option<Range<usize>>,
    must: bool,
    negated: bool,
    /// `+` or `-` is among them: then it applies to the whole list, whatever is around it.
    signed: bool,
}

enum Operand {
    Node(Node),
    /// The words of a run that is not a field, each for itself.
    Words(Vec<Node>),
    /// Something without a term, its range, and whether it is reported as an issue.
    Nothing(Range<usize>, bool),
    /// No operand begins here.
    Missing,
}

/// A list as far as it is read.
#[derive(Default)]
struct Partial {
    items: Vec<Item>,
    connective: Option<(Connective, Range<usize>)>,
    /// What stood between the last item and an operand behind it that was left out.
    left_out: Option<Connective>,
}

impl Partial {
    /// What joins the next operand to the last item. An `AND` with an operand that was left out joins nothing else: in
    /// `tides OR the AND moon` it goes with `the`.
    fn before(&self) -> Connective {
        let written = self.connective.as_ref();
        let written = written.map_or(Connective::None, |(found, _)| *found);
        match self.left_out {
            Some(earlier) if written == Connective::And => earlier,
            _ => written,
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    tokens: &'t [Token],
    next: usize,
    /// Parentheses that were too deep to count and are still open.
    ignored_opens: usize,
    terms: usize,
    prefixes: usize,
    /// The limit on terms was met and reported.
    full: bool,
    issues: Issues,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t TokenKind> {
        self.tokens.get(self.next).map(|token| &token.kind)
    }

    /// The range of the next token; empty at the end.
    fn here(&self) -> Range<usize> {
        self.tokens
            .get(self.next)
            .map_or(self.text.len()..self.text.len(), |token| token.at.clone())
    }

    /// Reads up to the parenthesis that closes the list, which it leaves, or to the end.
    fn list(&mut self, depth: usize, field: Option<&str>) -> Option<Node> {
        let mut partial = Partial::default();
        while let Some(kind) = self.peek() {
            match kind {
                TokenKind::Close if self.ignored_opens > 0 => {
                    self.ignored_opens -= 1;
                    self.next += 1;
                }
                TokenKind::Close if depth > 0 => break,
                TokenKind::And => self.connective(Connective::And, &mut partial),
                TokenKind::Or => self.connective(Connective::Or, &mut partial),
                _ => self.item(depth, field, &mut partial),
            }
        }
        if let Some((_, at)) = partial.connective {
            self.dangling(at, "after it");
        }
        group(partial.items)
    }

    fn connective(&mut self, found: Connective, partial: &mut Partial) {
        let at = self.here();
        self.next += 1;
        if partial.items.is_empty() {
            self.dangling(at, "before it");
        } else if partial.connective.is_some() {
            self.dangling(at, "between it and the operator before");
        } else {
            partial.connective = Some((found, at));
        }
    }

    fn dangling(&mut self, at: Range<usize>, side: &str) {
        let operator = &self.text[at.clone()];
        self.issues
            .add(at, format!("`{operator}` has nothing {side}; ignored"));
    }

    /// Reads modifiers and the operand they are about.
    fn item(&mut self, depth: usize, field: Option<&str>, partial: &mut Partial) {
        let modifiers = self.modifiers();
        let operand = self.operand(depth, field);
        let before = partial.before();
        let chained = before == Connective::And || self.peek() == Some(&TokenKind::And);
        let joined = chained || partial.connective.is_some() || modifiers.at.is_some();
        let left_out = matches!(operand, Operand::Nothing(..)).then_some(before);
        let item = |node, before, modifiers| Item {
            node,
            before,
            modifiers,
        };
        let plain = |before| move |node| item(node, before, Modifiers::default());
        match operand {
            Operand::Node(node) => partial.items.push(item(node, before, modifiers)),
            Operand::Words(words) if chained || modifiers.at.is_some() => {
                let words = words.into_iter().map(plain(Connective::None)).collect();
                let together = group(words).map(|node| item(node, before, modifiers));
                partial.items.extend(together);
            }
            Operand::Words(words) => partial.items.extend(words.into_iter().map(plain(before))),
            Operand::Nothing(at, report) => {
                if report || joined {
                    let found = &self.text[at.clone()];
                    self.issues.add(
                        at,
                        format!("`{found}` holds no word to search for; left out"),
                    );
                }
            }
            Operand::Missing => return self.missing(modifiers),
        }
        partial.connective = None;
        partial.left_out = left_out;
    }

    fn missing(&mut self, modifiers: Modifiers) {
        if let Some(at) = modifiers.at {
            return self.dangling(at, "after it");
        }
        // Otherwise only what no operand and no list can take is here; parentheses that were ignored may come before it.
        let message = match self.peek() {
            Some(TokenKind::Close) if self.ignored_opens == 0 => {
                "the parenthesis closes nothing; ignored"
            }
            Some(TokenKind::Boost(_) | TokenKind::Slop(_)) => {
                "this has nothing to apply to; ignored"
            }
            _ => return,
        };
        self.issues.add(self.here(), message);
        self.next += 1;
    }

    fn modifiers(&mut self) -> Modifiers {
        let mut found = Modifiers::default();
        loop {
            match self.peek() {
                Some(TokenKind::Not) => found.negated = !found.negated,
                Some(TokenKind::Plus) => (found.must, found.signed) = (true, true),
                Some(TokenKind::Minus) => (found.negated, found.signed) = (!found.negated, true),
                _ => return found,
            }
            let here = self.here();
            let start = found.at.map_or(here.start, |range| range.start);
            found.at = Some(start..here.end);
            self.next += 1;
        }
    }

    fn operand(&mut self, depth: usize, field: Option<&str>) -> Operand {
        let start = self.here();
        let mut field = field;
        while let Some(TokenKind::Field(name)) = self.peek() {
            field = Some(name);
            self.next += 1;
        }
        while depth == MAX_DEPTH && self.peek() == Some(&TokenKind::Open) {
            let message =
                format!("parentheses are nested deeper than {MAX_DEPTH}; this one is ignored");
            self.issues.add(self.here(), message);
            self.ignored_opens += 1;
            self.next += 1;
        }
        let at = start.start..self.here().end;
        let Some(kind) = self.peek() else {
            return Operand::Missing;
        };
        let found = match kind {
            TokenKind::Open => self.parenthesis(depth, field),
            TokenKind::Word(run) => {
                self.next += 1;
                self.word(run, field, at)
            }
            TokenKind::Words(run) => {
                self.next += 1;
                self.words(run, depth, at)
            }
            TokenKind::Quoted(content) => {
                self.next += 1;
                let slop = self.slop();
                self.phrase(content, field, slop, at)
            }
            _ => return Operand::Missing,
        };
        self.boosted(found)
    }

    fn parenthesis(&mut self, depth: usize, field: Option<&str>) -> Operand {
        let open = self.here();
        self.next += 1;
        let issues_before = self.issues.len();
        let inside = self.list(depth + 1, field);
        let close = self.here();
        if self.peek().is_some() {
            self.next += 1;
        } else {
            self.issues.add(
                open.clone(),
                "the parenthesis is never closed; closed at the end",
            );
        }
        match inside {
            Some(node) => Operand::Node(node),
            None => Operand::Nothing(open.start..close.end, self.issues.len() == issues_before),
        }
    }

    /// Takes a slop and warns of further ones.
    fn slop(&mut self) -> u32 {
        let mut slop = 0;
        while let Some(TokenKind::Slop(found)) = self.peek() {
            slop = *found;
            self.next += 1;
        }
        slop
    }

    fn boosted(&mut self, operand: Operand) -> Operand {
        let mut boost = 1.0;
        while let Some(kind) = self.peek() {
            match kind {
                TokenKind::Boost(value) => boost *= value,
                TokenKind::Slop(_) => self
                    .issues
                    .add(self.here(), "`~` has to come before `^`; ignored"),
                _ => break,
            }
            self.next += 1;
        }
        let apply = |node: Node| Node {
            boost: (node.boost * boost).min(MAX_BOOST),
            ..node
        };
        match operand {
            Operand::Node(node) => Operand::Node(apply(node)),
            Operand::Words(words) => Operand::Words(words.into_iter().map(apply).collect()),
            nothing => nothing,
        }
    }
}

/// Puts the operands of a list together: `AND` first, then the rest.
fn group(items: Vec<Item>) -> Option<Node> {
    let mut chains: Vec<Vec<Item>> = Vec::new();
    for item in items {
        match chains.last_mut() {
            Some(chain) if item.before == Connective::And => chain.push(item),
            _ => chains.push(vec![item]),
        }
    }
    let after: Vec<Connective> = chains.iter().skip(1).map(|chain| chain[0].before).collect();
    let mut clauses = Vec::with_capacity(chains.len());
    for (number, mut chain) in chains.into_iter().enumerate() {
        if chain.len() > 1 {
            let node = Node::group(chain.into_iter().map(in_chain).collect());
            clauses.push(Occur::Should.clause(node));
            continue;
        }
        let Some(item) = chain.pop() else {
            continue;
        };
        let beside_or = item.before == Connective::Or || after.get(number) == Some(&Connective::Or);
        clauses.push(alone_in_list(item, beside_or));
    }
    collapse(clauses)
}

fn in_chain(item: Item) -> Clause {
    let occur = if item.modifiers.negated {
        Occur::MustNot
    } else {
        Occur::Must
    };
    occur.clause(item.node)
}

fn alone_in_list(item: Item, beside_or: bool) -> Clause {
    let Item {
        node, modifiers, ..
    } = item;
    match (modifiers.negated, modifiers.must) {
        (true, _) if beside_or && !modifiers.signed => {
            Occur::Should.clause(Node::group(vec![Occur::MustNot.clause(node)]))
        }
        (true, _) => Occur::MustNot.clause(node),
        (false, true) => Occur::Must.clause(node),
        (false, false) => Occur::Should.clause(node),
    }
}

fn collapse(mut clauses: Vec<Clause>) -> Option<Node> {
    match clauses.as_slice() {
        [] => None,
        [only] if only.occur != Occur::MustNot => clauses.pop().map(|clause| clause.node),
        _ => Some(Node::group(clauses)),
    }
}

#[cfg(test)]
mod tests;
