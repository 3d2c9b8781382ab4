//! Lines of training text, for a tokenizer or a language model's first steps.

use super::entity::{World, stream};
use super::hash::{Shuffle, hash};
use crate::task::Split;

/// `lines` lines of the training split: passages with their titles in quotes, and a question after every page.
///
/// Starts over with the same pages when more lines are asked for than the split has.
pub fn text(world: &World, lines: u64) -> impl Iterator<Item = String> + '_ {
    let size: u64 = world.counts[Split::Train as usize].iter().sum();
    let order = Shuffle::new(size, hash(world.key, stream::TEXT, 0));
    let pages = (0_u64..).flat_map(move |turn| {
        let page = world.page_of(world.entity_in(Split::Train, order.at(turn)));
        let question = world.question(Split::Train, turn).question;
        page.passages()
            .map(|passage| format!("\"{}\" {}", passage.title, passage.text))
            .chain(std::iter::once(question))
    });
    pages.take(usize::try_from(lines).unwrap_or(usize::MAX))
}
