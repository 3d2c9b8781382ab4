//! The pages of an interpreter's memory that differ from the snapshot it began with.

/// The size in which the processor maps memory, and in which checkpoints are kept.
pub(crate) const PAGE: usize = 4096;

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
