//! Event files: the bytes of TensorBoard's own writer, order of files, names. `bench/clients/tensorboard.sh` reads such
//! files with TensorBoard.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forage_trainer::metrics::Row;
use forage_trainer::{Aliases, EventWriter};

use crate::tests::common::fixtures;

fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_700_000_000_250)
}

#[test]
fn files_are_those_of_tensorboard_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = EventWriter::create(folder.path(), 300, Aliases::Canonical, start()).unwrap();
    for (number, values) in [
        [
            ("reward/mean", 0.375),
            ("policy/loss", -0.012),
            ("response/tokens_mean", 118.0),
            ("episode/infra_frac", 0.0),
        ]
        .as_slice(),
        &[("reward/mean", 0.5), ("policy/loss", f64::NAN)],
    ]
    .iter()
    .enumerate()
    {
        let mut row = Row::new(300 + number as u64);
        values
            .iter()
            .for_each(|(name, value)| row.set(name, *value));
        row.0
            .insert("note".to_owned(), "text is not a scalar".into());
        writer
            .write(&row, start() + Duration::from_secs(number as u64 + 1))
            .unwrap();
    }
    let expected = std::fs::read(fixtures().join("resumed.tfevents")).unwrap();
    assert_eq!(std::fs::read(writer.path()).unwrap(), expected);
}

/// TensorBoard reads the files of a folder in the order of their names.
#[test]
fn each_start_sorts_behind_those_before_even_if_the_clock_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("events.out.tfevents.strange"), "").unwrap();
    let mut names = Vec::new();
    for now in [
        start(),
        start(),
        start() - Duration::from_secs(500),
        start() + Duration::from_secs(9),
        UNIX_EPOCH,
    ] {
        let writer = EventWriter::create(folder.path(), 0, Aliases::Canonical, now).unwrap();
        names.push(writer.path().file_name().unwrap().to_owned());
    }
    assert_eq!(names[0], "events.out.tfevents.1700000000.forage");
    assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
}

#[test]
fn names_of_another_trainer() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = EventWriter::create(folder.path(), 0, Aliases::Verl, start()).unwrap();
    let mut row = Row::new(0);
    row.set("policy/entropy", 0.5);
    writer.write(&row, start()).unwrap();
    let bytes = std::fs::read(writer.path()).unwrap();
    let holds = |name: &str| {
        bytes
            .windows(name.len())
            .any(|part| part == name.as_bytes())
    };
    assert!(holds("actor/entropy") && !holds("policy/entropy"));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = EventWriter::create(&file.join("events"), 0, Aliases::Canonical, start())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("file/events") && error.contains("check the folder"),
        "{error}"
    );
}
