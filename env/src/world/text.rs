//! Lines of training text, for a tokenizer or a language model's first steps.

use forage_contracts::Split;

use super::entity::{World, stream};
use super::hash::{Shuffle, hash};

impl World {
    /// `lines` lines of the training split: passages with their titles in quotes, and a question after every page.
    ///
    /// Starts over with the same pages when more lines are asked for than the split has.
    pub fn text(&self, lines: u64) -> impl Iterator<Item = String> + '_ {
        let size: u64 = self.counts[Split::Train as usize].iter().sum();
        let order = Shuffle::new(size, hash(self.key, stream::TEXT, 0));
        let pages = (0_u64..).flat_map(move |turn| {
            let page = self.page_of(self.entity_in(Split::Train, order.at(turn)));
            let question = self.question(Split::Train, turn).question;
            page.passages()
                .map(|passage| format!("\"{}\" {}", passage.title, passage.text))
                .chain(std::iter::once(question))
        });
        pages.take(usize::try_from(lines).unwrap_or(usize::MAX))
    }
}
