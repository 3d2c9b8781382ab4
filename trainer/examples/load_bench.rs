//! Time and memory of making, saving and loading a checkpoint of a published shape.
//!
//! `load_bench random SHAPE full|half`, `load_bench save SHAPE FOLDER`, `load_bench load FOLDER full|half|stored`
#![expect(clippy::print_stdout, reason = "prints what it measures")]

use std::path::Path;
use std::time::Instant;

use burn::tensor::Device;
use forage_env::seed::Seed;
use forage_trainer::weights::{Checkpoint, FileType, Precision, SaveOptions};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [action, first, second] = arguments.as_slice() else { panic!("see the first lines of this file") };
    let precision = match second.as_str() {
        "full" => Precision::Full,
        "stored" => Precision::Stored,
        _ => Precision::Half,
    };
    let device = Device::flex();
    let start = Instant::now();
    if action == "load" {
        let checkpoint = Checkpoint::load_as(Path::new(first), precision, &device).unwrap();
        report(&format!("load {precision:?}"), start);
        drop(checkpoint);
        return;
    }
    let checkpoint = Checkpoint::random(first, None, Seed::root(1), precision, &device).unwrap();
    report(&format!("random {precision:?}"), start);
    if action == "save" {
        let start = Instant::now();
        let options = SaveOptions { file_type: FileType::Bf16, ..SaveOptions::default() };
        checkpoint.save_as(Path::new(second), options).unwrap();
        report("save bf16", start);
    }
}

fn report(what: &str, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory: Vec<String> = ["VmHWM", "VmRSS", "RssAnon", "RssFile"]
        .iter()
        .filter_map(|key| status.lines().find(|line| line.starts_with(key)))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    println!("{what}: {seconds:.2} s; {}", memory.join(", "));
}
