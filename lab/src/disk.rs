//! The disk that the checkpoints and policies of a run take, told before time is spent on it.

use std::path::Path;

use crate::config::Resolved;
use crate::memory::{self, Start};

/// What makes room, or does with less.
pub(crate) const FIX: &str = "write elsewhere (--out), keep fewer (grpo.keep_checkpoints), or train an adapter ([policy.lora])";

/// Bytes of what a run and its twins write beside their index and their episodes.
pub(crate) struct Disk {
    checkpoint: u64,
    /// The trained policy.
    policy: u64,
    /// Checkpoints that stay.
    kept: u64,
    /// True where another one is written before one of them goes.
    replaces: bool,
    /// The run and its twins.
    runs: u64,
}

impl Disk {
    /// The disk of a run of `config` from `start`, with so many `twins`.
    pub(crate) fn of_run(config: &Resolved, start: &Start, twins: usize) -> Self {
        let [checkpoint, policy] = memory::saved_bytes(config, start);
        let grpo = &config.grpo;
        let written = match grpo.checkpoint_every {
            0 => 1,
            every => grpo.steps.div_ceil(every),
        };
        let kept = written.min(grpo.keep_checkpoints.max(1) as u64);
        Self {
            checkpoint,
            policy,
            kept,
            replaces: written > kept,
            runs: 1 + twins as u64,
        }
    }

    /// The most bytes that are there at a time.
    fn most(&self) -> u64 {
        // The last run has no policy yet while it replaces a checkpoint.
        let partial = if self.replaces {
            self.checkpoint - self.policy
        } else {
            0
        };
        self.runs * (self.kept * self.checkpoint + self.policy) + partial
    }

    /// The most that is there at a time, and its parts.
    pub(crate) fn words(&self) -> String {
        let plural = if self.kept == 1 { "" } else { "s" };
        let another = if self.replaces {
            ", another while it is written"
        } else {
            ""
        };
        let runs = match self.runs {
            1 => String::new(),
            runs => format!(", in {runs} runs"),
        };
        format!(
            "about {} beside index and episodes: {} checkpoint{plural} of {}{another}, and the policy of {}{runs}",
            size(self.most()),
            self.kept,
            size(self.checkpoint),
            size(self.policy)
        )
    }

    /// Says what the disk of `folder`, which need not be there yet, has free, where that is too little.
    pub(crate) fn lack(&self, folder: &Path) -> Option<String> {
        let place = folder.ancestors().find(|place| place.exists());
        let place = place.unwrap_or(Path::new("."));
        self.lack_of(fs4::available_space(place).ok()?, folder)
    }

    fn lack_of(&self, free: u64, folder: &Path) -> Option<String> {
        let needed = self.most();
        (needed > free).then(|| {
            format!(
                "checkpoints and policy take about {}, and the disk of {} has {} free",
                size(needed),
                folder.display(),
                size(free)
            )
        })
    }

    /// A warning where the disk of `folder` has too little free.
    pub(crate) fn warning(&self, folder: &Path) -> Option<String> {
        let lack = self.lack(folder)?;
        Some(format!("warning: {lack}; {FIX}"))
    }
}

/// Bytes in words.
fn size(bytes: u64) -> String {
    let mb = bytes as f64 / 1e6;
    if mb < 1000.0 {
        format!("{mb:.0} MB")
    } else {
        format!("{:.1} GB", mb / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;

    fn of(overrides: &[&str], twins: usize) -> Disk {
        let text = include_str!("../../configs/recipes/search_r1_v02.toml");
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let config = RunConfig::parse(text, &overrides).unwrap();
        let config = config.resolve(None).unwrap();
        Disk::of_run(&config, &Start::published("Qwen2.5-3B"), twins)
    }

    /// Weights in f32, with two moments in checkpoints.
    #[test]
    fn checkpoints_and_policies_are_counted() {
        let weights = Start::published("Qwen2.5-3B").shape().parameters() as u64;
        let many = [
            "grpo.steps=100",
            "grpo.checkpoint_every=10",
            "grpo.keep_checkpoints=2",
        ];
        let disk = of(&many, 0);
        assert_eq!(disk.most(), weights * 4 * 3 * 3);
        assert_eq!(
            disk.words(),
            "about 111.1 GB beside index and episodes: 2 checkpoints of 37.0 GB, another while it is written, and the policy of \
             12.3 GB"
        );
        // Whoever begins a twin has the policy of the run, and two checkpoints of it.
        assert_eq!(of(&many, 1).most() - disk.most(), weights * 4 * (3 + 3 + 1));
        assert!(of(&many, 1).words().ends_with(", in 2 runs"));
        // The end alone.
        let one = of(&["grpo.steps=100", "grpo.checkpoint_every=0"], 0);
        assert_eq!(one.most(), weights * 4 * (3 + 1));
        assert!(one.words().contains(": 1 checkpoint of 37.0 GB, and"));
        // Every rank's moments are in the one checkpoint, and those of 8 bits take less of it.
        let small = "grpo.update.optimizer.moments_in_8_bits=true";
        assert!(of(&[small], 0).checkpoint < weights * 7);
        let adapter = [
            "policy.base=bf16",
            "policy.lora.rank=16",
            "policy.lora.alpha=32",
        ];
        assert!(of(&adapter, 0).most() < 2_000_000_000);
    }

    #[test]
    fn a_disk_with_too_little_room_is_named() {
        let disk = of(&["grpo.steps=100", "grpo.checkpoint_every=0"], 0);
        let folder = Path::new("runs/mine");
        assert_eq!(
            disk.lack_of(40_000_000_000, folder).unwrap(),
            "checkpoints and policy take about 49.4 GB, and the disk of runs/mine has 40.0 GB free"
        );
        assert_eq!(disk.lack_of(50_000_000_000, folder), None);
        let none = Disk {
            checkpoint: 0,
            policy: 0,
            kept: 1,
            replaces: false,
            runs: 1,
        };
        assert_eq!(none.warning(folder), None);
        let huge = Disk {
            policy: u64::MAX,
            ..none
        };
        let warning = huge.warning(folder).unwrap();
        assert!(warning.starts_with("warning: checkpoints and policy take about "));
        assert!(warning.ends_with(FIX), "{warning}");
    }
}
