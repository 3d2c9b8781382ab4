//! The pages of an interpreter's memory, and the lines of them that differ from the snapshot it began with.

use std::iter;
use std::ops::Range;

/// The size in which the processor maps memory.
pub(crate) const PAGE: usize = 4096;
/// The size in which changes are kept. A page has as many lines as a [`Lines`] has bits.
pub(crate) const LINE: usize = PAGE / Lines::BITS as usize;

/// The lines of a page that differ from the snapshot, the first one in the lowest bit.
pub(crate) type Lines = u64;

/// A page of memory, or of zeros where the memory ends before it.
pub(crate) fn page(memory: &[u8], number: u32) -> &[u8] {
    let begin = number as usize * PAGE;
    memory.get(begin..begin + PAGE).unwrap_or(&[0; PAGE])
}

/// The lines in which two pages differ.
pub(crate) fn difference(one: &[u8], other: &[u8]) -> Lines {
    if one == other {
        return 0;
    }
    let (one, other) = (one.as_chunks::<LINE>().0, other.as_chunks::<LINE>().0);
    let mut lines = 0;
    for (at, (one, other)) in one.iter().zip(other).enumerate() {
        lines |= Lines::from(one != other) << at;
    }
    lines
}

/// The parts of a page that these lines are, in order; lines that follow one another are one part.
pub(crate) fn parts(mut lines: Lines) -> impl Iterator<Item = Range<usize>> {
    iter::from_fn(move || {
        let begin = lines.trailing_zeros();
        let end = begin + lines.checked_shr(begin)?.trailing_ones();
        lines = lines.checked_shr(end).map_or(0, |rest| rest << end);
        Some(begin as usize * LINE..end as usize * LINE)
    })
}

/// Numbers of the pages of `memory` that may have been written, in order: all of them where the system cannot tell.
///
/// The interpreter's memory is a private mapping of the snapshot. A page of it is anonymous once it was written, and Linux
/// says so in `/proc/self/pagemap`.
pub(crate) fn written(memory: &[u8]) -> Vec<u32> {
    let count = memory.len().div_ceil(PAGE);
    read_pagemap(memory, count).unwrap_or_else(|| (0..count as u32).collect())
}

#[cfg(target_os = "linux")]
fn read_pagemap(memory: &[u8], count: usize) -> Option<Vec<u32>> {
    use std::os::unix::fs::FileExt;

    /// Bits of an entry: in memory, in swap, of a file or shared.
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;

    let begin = memory.as_ptr().addr();
    if !begin.is_multiple_of(PAGE) {
        return None;
    }
    let file = std::fs::File::open("/proc/self/pagemap").ok()?;
    let mut entries = vec![0; count * 8];
    file.read_exact_at(&mut entries, (begin / PAGE * 8) as u64)
        .ok()?;
    let (entries, _) = entries.as_chunks::<8>();
    let written = entries.iter().zip(0_u32..).filter(|(bytes, _)| {
        let entry = u64::from_ne_bytes(**bytes);
        entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0
    });
    Some(written.map(|(_, page)| page).collect())
}

#[cfg(not(target_os = "linux"))]
fn read_pagemap(_: &[u8], _: usize) -> Option<Vec<u32>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_differ_make_one_page_of_the_other() {
        let parts_of = |lines| parts(lines).collect::<Vec<_>>();
        assert_eq!(parts_of(0), []);
        assert_eq!(parts(Lines::MAX).next(), Some(0..PAGE));
        assert_eq!(parts(Lines::MAX).count(), 1);
        assert_eq!(
            parts_of(1 << 63 | 0b1101),
            [0..LINE, 2 * LINE..4 * LINE, 63 * LINE..PAGE]
        );
        let from = [7; PAGE];
        let mut to = from;
        for at in [0, 63, 64, 2048, PAGE - 1] {
            to[at] = 1;
        }
        let lines = difference(&from, &to);
        assert_eq!(lines.count_ones(), 4);
        let mut made = from;
        for part in parts(lines) {
            made[part.clone()].copy_from_slice(&to[part]);
        }
        assert_eq!(made, to);
        assert_eq!(difference(&to, &made), 0);
    }

    #[test]
    fn behind_the_end_of_a_memory_are_zeros() {
        let memory = [1; PAGE];
        assert_eq!(page(&memory, 0), memory);
        assert_eq!(page(&memory, 1), [0; PAGE]);
    }
}
