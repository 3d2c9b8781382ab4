//! The command line of forage with plug-ins of somebody else's in it.

mod by_hops;
mod cards;
mod median;
mod mistral;
mod notes;
mod quiz;
mod rows_match;
mod sql;
mod tapered;
mod trigrams;

use std::process::ExitCode;

use forage::Plugins;

fn main() -> ExitCode {
    forage::main_with(plugins())
}

/// A line registers each of them.
fn plugins() -> Plugins {
    Plugins::new()
        .environment(sql::ENTRY)
        .environment(cards::ENTRY)
        .reward(rows_match::ENTRY)
        .corpus_format(notes::ENTRY)
        .question_format(quiz::ENTRY)
        .retriever(trigrams::ENTRY)
        .mode(trigrams::MODE)
        .loss(tapered::ENTRY)
        .advantage(median::ENTRY)
        .curriculum(by_hops::ENTRY)
        .family(mistral::ENTRY)
}

#[cfg(test)]
mod tests;
