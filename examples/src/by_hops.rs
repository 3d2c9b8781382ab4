//! A curriculum from outside: every epoch begins with the questions that chain the fewest facts.

use forage_contracts::{CurriculumEntry, CurriculumInputs};

/// The registry's entry.
pub(crate) const ENTRY: CurriculumEntry = CurriculumEntry::new(
    "by_hops",
    "every question once per epoch, those of fewer hops first",
    |_settings, inputs, _note| draw(inputs),
);

fn draw(inputs: &CurriculumInputs) -> Vec<usize> {
    let mut order: Vec<usize> = (0..inputs.questions.len()).collect();
    order.sort_by_key(|&place| inputs.questions[place].hops);
    let places = inputs.drawn..inputs.drawn + inputs.count;
    places.map(|place| order[place % order.len()]).collect()
}
