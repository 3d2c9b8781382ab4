//! The guide's program, compiled and run; policies of servers; baselines; audits, of judges too.

mod audit;
mod baselines;
mod judge;
mod servers;

#[path = "../../examples/train_and_evaluate.rs"]
mod train_and_evaluate;

#[test]
fn the_program_of_the_guide_trains_and_evaluates() {
    train_and_evaluate::main().unwrap();
    let guide = include_str!("../../../docs/library.md");
    assert!(guide.contains("{{#include ../lab/examples/train_and_evaluate.rs}}"));
}
