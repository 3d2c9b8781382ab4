//! Tokens of files, held against the policy that is to learn from them.

use forage_contracts::{Episode, Provenance, Tokenizer};

use crate::lesson_error::Fault;
use crate::sequence::Sequence;

/// The fault of an episode whose tokens are those of another policy, or bytes.
const FOREIGN: &str = "has tokens of another tokenizer, in which they are not the text of its turns; learn it with a policy that has that \
                       tokenizer, or record a script with `forage eval --policy SCRIPT --tokens-of POLICY --out FILE`";

/// Checks that every token is one of the model's.
pub(crate) fn check_vocabulary(sequence: &Sequence, vocab_size: usize) -> Result<(), Fault> {
    match sequence.ids.iter().find(|&&id| id as usize >= vocab_size) {
        Some(id) => Err(format!(
            "has the token {id}, and the model's vocabulary ends at {vocab_size}"
        )
        .into()),
        None => Ok(()),
    }
}

/// Checks that the policy's tokens are the text of its turns, of one at least: tokens of another tokenizer are that of none. The last
/// token of a turn may be an end that its text leaves out, and the last character before it may be cut.
pub(crate) fn check_tokenizer(episode: &Episode, tokenizer: &dyn Tokenizer) -> Result<(), Fault> {
    let (turns, ids) = (&episode.turns, episode.tokens.ids());
    let spans = episode.tokens.spans().iter();
    let written = spans.filter(|span| span.provenance == Provenance::Policy);
    let mut texts = written
        .map(|span| tokenizer.decode(&ids[span.start..span.end.max(span.start + 1) - 1]))
        .map(|text| text.trim_end_matches('\u{FFFD}').trim().to_owned())
        .filter(|text| !text.is_empty())
        .peekable();
    let is_own = texts.peek().is_none()
        || texts.any(|text| turns.iter().any(|turn| turn.policy.contains(&text)));
    if is_own { Ok(()) } else { Err(FOREIGN.into()) }
}
