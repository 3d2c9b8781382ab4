//! The lexer of boolean queries. What is not an operator is a word: apostrophes are letters, an unknown `name:` is a word.

use std::ops::Range;

use forage_contracts::retriever::ParseIssue;

use super::{MAX_BOOST, MAX_ISSUES};
use crate::analyzer::has_word;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) at: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TokenKind {
    Open,
    Close,
    And,
    Or,
    /// `NOT` and `!`.
    Not,
    Plus,
    Minus,
    /// `name:`; its value or group comes next.
    Field(String),
    /// A run of characters, perhaps with a `*`.
    Word(String),
    /// A run in which a colon means nothing: each of its words counts for itself.
    Words(String),
    /// The inside of quotes, escapes undone.
    Quoted(String),
    /// `^boost` right after a word, phrase or group.
    Boost(f32),
    /// `~slop` right after a phrase.
    Slop(u32),
}

/// Collects issues, at most [`MAX_ISSUES`] one by one.
#[derive(Debug, Default)]
pub(super) struct Issues {
    list: Vec<ParseIssue>,
    more: usize,
}

impl Issues {
    pub(super) fn add(&mut self, at: Range<usize>, message: impl Into<String>) {
        if self.list.len() < MAX_ISSUES {
            self.list.push(ParseIssue {
                at,
                message: message.into(),
            });
        } else {
            self.more += 1;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len() + self.more
    }

    /// The issues by place.
    pub(super) fn finish(mut self, text_len: usize) -> Vec<ParseIssue> {
        self.list
            .sort_by_key(|issue| (issue.at.start, issue.at.end));
        if self.more > 0 {
            self.list.push(ParseIssue {
                at: 0..text_len,
                message: format!("{} more repairs are not listed", self.more),
            });
        }
        self.list
    }
}

/// The straight and the curly double quotes, any of which opens and closes.
pub(super) fn is_quote(letter: char) -> bool {
    matches!(letter, '"' | '\u{201c}' | '\u{201d}')
}

fn is_delimiter(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '(' | ')') || is_quote(letter)
}

/// Tells whether a word or value can stand in a query without quotes.
pub(super) fn is_plain(text: &str) -> bool {
    let special = |letter: char| {
        is_delimiter(letter) || matches!(letter, ':' | '*' | '^' | '~' | '&' | '|' | '\\')
    };
    !text.is_empty()
        && !text.starts_with(['+', '-', '!', '/'])
        && !matches!(text, "AND" | "OR" | "NOT")
        && !text.contains(special)
}

fn is_field_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|first| first.is_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.'))
}

/// A boost as it is written: digits, perhaps with a fraction.
fn boost_of(digits: &str) -> Option<f32> {
    let plain = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { digits.parse().ok() } else { None }
}

/// Splits a text into tokens; `is_field` says which names before a colon are fields.
pub(super) fn tokens(
    text: &str,
    is_field: &dyn Fn(&str) -> bool,
    issues: &mut Issues,
) -> Vec<Token> {
    let mut lexer = Lexer {
        text,
        at: 0,
        tokens: Vec::new(),
        is_field,
        issues,
    };
    while let Some(letter) = lexer.peek() {
        lexer.step(letter);
    }
    lexer.tokens
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    tokens: Vec<Token>,
    is_field: &'t dyn Fn(&str) -> bool,
    issues: &'t mut Issues,
}

impl<'t> Lexer<'t> {
    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Takes `bytes` of the text as one token.
    fn push(&mut self, kind: TokenKind, bytes: usize) {
        let start = self.at;
        self.at += bytes;
        self.tokens.push(Token {
            kind,
            at: start..self.at,
        });
    }

    fn step(&mut self, letter: char) {
        if letter.is_whitespace() {
            self.at += letter.len_utf8();
        } else if letter == '(' {
            self.push(TokenKind::Open, 1);
        } else if letter == ')' {
            self.push(TokenKind::Close, 1);
            self.suffixes(false);
        } else if is_quote(letter) {
            self.quoted(letter);
            self.suffixes(true);
        } else if self.rest().starts_with("&&") {
            self.push(TokenKind::And, 2);
        } else if self.rest().starts_with("||") {
            self.push(TokenKind::Or, 2);
        } else {
            self.run();
        }
    }

    /// The longest piece without a delimiter or a doubled operator.
    fn run_at(&self, from: usize) -> &'t str {
        let rest = &self.text[from..];
        let mut before = ' ';
        for (at, letter) in rest.char_indices() {
            if is_delimiter(letter) {
                return &rest[..at];
            }
            if letter == before && matches!(letter, '&' | '|') {
                return &rest[..at - 1];
            }
            before = letter;
        }
        rest
    }

    /// A run: the signs before it, and what they are about.
    fn run(&mut self) {
        let mut run = self.run_at(self.at);
        let followed =
            self.text[self.at + run.len()..].starts_with(|next| next == '(' || is_quote(next));
        let signs = run.len() - run.trim_start_matches(['+', '-', '!']).len();
        // No word begins with a sign or joins two of them, so one look is enough for all signs: with one each, thousands of
        // signs would take a square of that.
        if signs > 0 && (followed || has_word(run)) {
            for sign in run[..signs].bytes() {
                let kind = match sign {
                    b'+' => TokenKind::Plus,
                    b'-' => TokenKind::Minus,
                    _ => TokenKind::Not,
                };
                self.push(kind, 1);
            }
            run = &run[signs..];
        }
        match run {
            "" => {}
            "AND" => self.push(TokenKind::And, run.len()),
            "OR" => self.push(TokenKind::Or, run.len()),
            "NOT" => self.push(TokenKind::Not, run.len()),
            // A dash between words, an ellipsis: nothing to look for and nothing to obey.
            _ if !followed && !has_word(run) => {
                self.push(TokenKind::Word(run.to_owned()), run.len());
            }
            _ => match run.find(':') {
                Some(colon) => self.colon(run, colon),
                None => self.word(run, false),
            },
        }
    }

    /// A run with a colon: a field and its value, or words.
    fn colon(&mut self, run: &str, colon: usize) {
        let (name, value) = (&run[..colon], &run[colon + 1..]);
        if !is_field_name(name) || value.starts_with("//") || !(self.is_field)(name) {
            if run.starts_with(|first: char| first.is_alphabetic() || first == '_') {
                self.issues.add(
                    self.at..self.at + run.len(),
                    format!("`{name}` is not a field; taken as words"),
                );
                return self.push(TokenKind::Words(run.to_owned()), run.len());
            }
            return self.word(run, false);
        }
        let after = self.at + run.len();
        let next = self.text[after..].chars().next();
        if value.is_empty() && !next.is_some_and(|next| next == '(' || is_quote(next)) {
            self.issues.add(
                self.at..after,
                format!("`{name}:` has no value; taken as a word"),
            );
            return self.push(TokenKind::Words(run.to_owned()), run.len());
        }
        self.push(TokenKind::Field(name.to_owned()), colon + 1);
        if !value.is_empty() {
            self.word(value, !matches!(name, "title" | "text"));
        }
    }

    /// A word and what is attached to its end. The value of an exact field keeps a `~`.
    fn word(&mut self, run: &str, exact: bool) {
        let mut word = run;
        let mut boost = None;
        if let Some((before, digits)) = run
            .rsplit_once('^')
            .filter(|(before, _)| !before.is_empty())
        {
            match boost_of(digits) {
                Some(value) => (word, boost) = (before, Some((value, digits.len() + 1))),
                None => self.no_boost(self.at + before.len()..self.at + run.len()),
            }
        }
        let mut ignored = 0;
        if let Some((before, digits)) = word
            .rsplit_once('~')
            .filter(|(before, _)| !exact && !before.is_empty())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
        {
            ignored = digits.len() + 1;
            word = before;
            let start = self.at + word.len();
            self.issues.add(
                start..start + ignored,
                "`~` only works after a phrase; ignored",
            );
        }
        self.push(TokenKind::Word(word.to_owned()), word.len());
        self.at += ignored;
        if let Some((value, bytes)) = boost {
            self.boost(value, bytes);
        }
    }

    fn boost(&mut self, value: f32, bytes: usize) {
        let range = self.at..self.at + bytes;
        if value > MAX_BOOST {
            self.issues.add(
                range,
                format!("the boost is above {MAX_BOOST}; taken as {MAX_BOOST}"),
            );
        }
        self.push(TokenKind::Boost(value.min(MAX_BOOST)), bytes);
    }

    fn no_boost(&mut self, at: Range<usize>) {
        let found = self.text[at.clone()].to_owned();
        self.issues.add(
            at,
            format!("`{found}` is not a boost such as `^2`; ignored as a boost"),
        );
    }

    fn quoted(&mut self, opening: char) {
        let start = self.at;
        let inside = start + opening.len_utf8();
        let mut content = String::new();
        let mut letters = self.text[inside..].char_indices().peekable();
        let mut end = None;
        while let Some((offset, letter)) = letters.next() {
            match letter {
                '\\' => match letters.next_if(|&(_, next)| is_quote(next) || next == '\\') {
                    Some((_, escaped)) => content.push(escaped),
                    None => content.push('\\'),
                },
                _ if is_quote(letter) => {
                    end = Some(inside + offset + letter.len_utf8());
                    break;
                }
                _ => content.push(letter),
            }
        }
        if end.is_none() {
            self.issues.add(
                start..inside,
                "the quote is never closed; taken as a phrase up to the end",
            );
        }
        self.push(
            TokenKind::Quoted(content),
            end.unwrap_or(self.text.len()) - start,
        );
    }

    /// `^boost`, `~slop` and stray `*` right after a quote or a parenthesis.
    fn suffixes(&mut self, after_phrase: bool) {
        loop {
            match self.peek() {
                Some('^') => {
                    let rest = &self.rest()[1..];
                    let digits = rest.len()
                        - rest
                            .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                            .len();
                    if let Some(value) = boost_of(&rest[..digits]) {
                        self.boost(value, digits + 1);
                    } else {
                        let run = self.run_at(self.at);
                        self.no_boost(self.at..self.at + run.len());
                        self.at += run.len();
                    }
                }
                Some('~') => self.slop(after_phrase),
                Some('*') => {
                    self.issues.add(
                        self.at..self.at + 1,
                        "`*` only works at the end of a word; ignored",
                    );
                    self.at += 1;
                }
                _ => return,
            }
        }
    }

    fn slop(&mut self, after_phrase: bool) {
        let rest = &self.rest()[1..];
        let digits = rest.len()
            - rest
                .trim_start_matches(|letter: char| letter.is_ascii_digit())
                .len();
        let range = self.at..self.at + 1 + digits;
        match rest[..digits].parse() {
            Ok(slop) if after_phrase => self.push(TokenKind::Slop(slop), digits + 1),
            Ok(_) => {
                self.issues
                    .add(range, "`~` only works after a phrase; ignored");
                self.at += digits + 1;
            }
            Err(_) => {
                self.issues.add(
                    range,
                    "`~` needs a number of extra words, such as `~2`; ignored",
                );
                self.at += digits + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
