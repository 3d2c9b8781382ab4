//! An estimate: the parts that are in memory all the time and in turn, their sums, and the table of them.

use super::MIB;

/// One thing in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Name in the table.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// The settings that make it smaller, as a config names them.
    pub fix: &'static str,
}

/// A part of a run with what it holds besides what is always there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Name in the table.
    pub name: &'static str,
    /// The things it holds.
    pub parts: Vec<Part>,
    /// True where the kernel can take its memory back at once: pages of a mapped file count as the process's, but need no memory
    /// of their own.
    pub reclaimable: bool,
}

impl Moment {
    /// Bytes.
    pub(super) fn bytes(&self) -> u64 {
        sum(&self.parts)
    }
}

/// Memory of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// Held from the first step to the last.
    pub(super) always: Vec<Part>,
    /// Held in turn.
    pub(super) moments: Vec<Moment>,
    /// Layers whose activations are kept of the largest micro-batch, and all.
    layers_kept: [usize; 2],
}

impl MemoryEstimate {
    /// The parts that take any memory.
    pub(super) fn of(
        mut always: Vec<Part>,
        mut moments: Vec<Moment>,
        layers_kept: [usize; 2],
    ) -> Self {
        always.retain(|part| part.bytes > 0);
        for moment in &mut moments {
            moment.parts.retain(|part| part.bytes > 0);
        }
        Self {
            always,
            moments,
            layers_kept,
        }
    }

    /// Peak resident memory, bytes.
    pub fn peak(&self) -> u64 {
        sum(&self.always) + self.moments.iter().map(Moment::bytes).max().unwrap_or(0)
    }

    /// The memory that must be there, bytes.
    pub fn needed(&self) -> u64 {
        sum(&self.always) + self.most().map_or(0, Moment::bytes)
    }

    /// Name of the part of a run that needs most.
    pub fn largest_moment(&self) -> &'static str {
        self.most().map_or("", |moment| moment.name)
    }

    /// The moment of the largest need.
    fn most(&self) -> Option<&Moment> {
        self.moments
            .iter()
            .filter(|moment| !moment.reclaimable)
            .max_by_key(|moment| moment.bytes())
    }

    /// The largest of all parts at the moment of the largest need, and the settings that make it smaller.
    pub fn advice(&self) -> String {
        let then = self.most().into_iter().flat_map(|moment| &moment.parts);
        let largest = self.always.iter().chain(then).max_by_key(|part| part.bytes);
        largest.map_or(String::new(), |part| {
            let fix = match part.fix {
                "" => "grpo.update.micro_batch_tokens, engine.cache_mib, engine.context_tokens, [policy.lora], policy.base",
                fix => fix,
            };
            let mib = part.bytes / MIB as u64;
            format!("the largest part is {} ({mib} MiB): change {fix}", part.name)
        })
    }

    /// All parts as a table.
    pub fn table(&self) -> String {
        let mut lines = vec!["# memory, MiB".to_owned()];
        let mut row = |name: &str, bytes: u64| {
            lines.push(format!("# {:>9.1}  {name}", bytes as f64 / MIB as f64));
        };
        for part in &self.always {
            row(part.name, part.bytes);
        }
        for moment in &self.moments {
            row(&format!("{}:", moment.name), moment.bytes());
            for part in &moment.parts {
                row(&format!("    {}", part.name), part.bytes);
            }
        }
        row(
            "at the peak: what is always held, and the largest of the rest",
            self.peak(),
        );
        let [kept, all] = self.layers_kept;
        lines.push(format!("# activations of {kept} of {all} layers are kept"));
        lines.join("\n")
    }
}

pub(super) fn sum(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.bytes).sum()
}

pub(super) fn part(name: &'static str, bytes: usize, fix: &'static str) -> Part {
    Part {
        name,
        bytes: bytes as u64,
        fix,
    }
}
