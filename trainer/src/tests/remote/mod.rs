//! Rollouts from servers elsewhere: against a server of the test's own that speaks vLLM's and SGLang's published forms
//! and fails on demand, against servers that tell text alone, and against the policy server of this crate.

mod fake;
mod model;
mod pushes;
mod ready;
mod rollouts;
mod served;
mod several;
mod support;

mod faults;
mod own_server;
mod round_trip;
mod text;
mod training;
mod verified;
