//! Writes the event files of a run that was killed after step 9 and resumed at step 6, for checks against TensorBoard:
//! `tensorboard_events OUT_FOLDER`. In `OUT_FOLDER/canonical` and, under TRL's names, `OUT_FOLDER/trl`.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use forage_trainer::metrics::Row;
use forage_trainer::{Aliases, EventWriter};

/// Values tell the first process (0) from the resumed one (1).
fn row(step: u64, process: u8) -> Row {
    let mut row = Row::new(step);
    row.set("reward/mean", step as f64 + 100.0 * f64::from(process));
    row.set("policy/entropy", 0.5);
    row.set("policy/loss", if step == 8 { f64::NAN } else { -0.25 });
    if process == 0 {
        row.set("val/reward", 0.125);
    }
    row
}

fn main() {
    let out = std::env::args()
        .nth(1)
        .expect("usage: tensorboard_events OUT_FOLDER");
    for (folder, names) in [("canonical", Aliases::Canonical), ("trl", Aliases::Trl)] {
        let folder = Path::new(&out).join(folder);
        // Both start within one second: the order of the files must not depend on the clock.
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for (process, steps) in [(0, 0..10), (1, 6..12)] {
            let mut writer =
                EventWriter::create(&folder, steps.start, names, now).expect("a writable folder");
            for step in steps {
                writer
                    .write(&row(step, process), now + Duration::from_secs(step))
                    .expect("space on the disk");
            }
        }
    }
}
