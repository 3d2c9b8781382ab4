//! The program: commands, runs and what they leave, the guide, the rules of the repository.

mod audit;
mod bad_input;
mod config;
mod doctor;
mod errors;
mod guide;
mod help;
mod log;
mod openapi;
mod papers;
mod policy;
mod python;
mod ranking;
mod ranks;
mod recipes;
mod replay;
mod runs;
mod shape;
mod support;
mod tidy;
mod troubleshooting;
mod typed;
mod words;
