//! A file for the memory of idle sessions that the budget has no room for. It has no name and goes with the process. It lies
//! in the cache folder where that can be written: the folder for temporary files may itself be memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of the file for each of the budget's.
const SPILLED: u64 = 8;
/// A small piece is at most one in so many bytes of the file.
const SMALL: u64 = 1024;
/// One in so many bytes of the file is for small pieces alone: what a few sessions pile up takes no state of the others.
const SET_ASIDE: u64 = 8;

pub(crate) struct Spill {
    memory: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    folder: PathBuf,
    file: Option<File>,
    /// The most bytes of it: as were asked for, or half of what the disk had free, because others write there too.
    most: u64,
    /// True once the warning about a disk with little room was given.
    told: bool,
    /// The first byte that was never given out.
    end: u64,
    /// Lengths of the gaps before it, by where they begin; no two touch.
    gaps: BTreeMap<u64, u64>,
}

/// A piece of the file, given back when dropped.
pub(crate) struct Extent {
    spill: &'static Spill,
    at: u64,
    length: u64,
}

impl Spill {
    /// The file of a budget of so many bytes, made when it is first needed.
    pub(crate) fn new(memory: u64, folder: PathBuf) -> Self {
        let mut state = State {
            folder,
            ..State::default()
        };
        state.fit(memory.saturating_mul(SPILLED));
        Self {
            memory,
            state: Mutex::new(state),
        }
    }

    /// The folder of a file for which its disk has less room than one budget of memory, and the most MiB of it; once, so that it is
    /// said once.
    pub(crate) fn cramped(&self) -> Option<(PathBuf, u64)> {
        let mut state = self.state();
        let is_news = state.most < self.memory && !std::mem::replace(&mut state.told, true);
        is_news.then(|| (state.folder.clone(), state.most >> 20))
    }

    /// A piece of so many bytes.
    ///
    /// # Errors
    /// An error that [`is_full`] recognises where the piece finds no room; any other where no file can be made.
    pub(crate) fn reserve(&'static self, length: u64) -> io::Result<Extent> {
        let mut state = self.state();
        if state.file.is_none() {
            let made = tempfile::tempfile_in(&state.folder);
            let elsewhere = |_| {
                let made = tempfile::tempfile();
                made.inspect(|_| state.folder = std::env::temp_dir())
            };
            let file = made.or_else(elsewhere)?;
            let asked = self.memory.saturating_mul(SPILLED);
            state.fit(asked);
            if state.most < asked {
                state.tell();
            }
            state.file = Some(file);
        }
        let small = length <= state.most / SMALL;
        let aside = if small { 0 } else { state.most / SET_ASIDE };
        let most = state.most - aside;
        let gap = state
            .gaps
            .iter()
            .find(|&(at, gap)| *gap >= length && at.saturating_add(length) <= most);
        let at = if let Some((at, gap)) = gap.map(|(&at, &gap)| (at, gap)) {
            state.gaps.remove(&at);
            if gap > length {
                state.gaps.insert(at + length, gap - length);
            }
            at
        } else {
            let at = state.end;
            if at.saturating_add(length) > most {
                let why = format!("idle sessions would take more than {most} bytes");
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
            }
            state.end += length;
            at
        };
        let spill = self;
        Ok(Extent { spill, at, length })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true for want of room, in the file or on its disk: programs that keep much run into it, and may not fail their episodes by it.
/// Returns false for a disk that fails.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::QuotaExceeded | io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge
    )
}

impl State {
    /// Bounds the file by what its disk has free.
    fn fit(&mut self, asked: u64) {
        // A folder that is not there yet will be made on the disk of the one above it.
        let mut places = self.folder.ancestors();
        let free = places.find_map(|place| fs4::available_space(place).ok());
        self.most = asked.min(free.unwrap_or(u64::MAX) / 2);
    }

    /// Logs that the disk has little room, unless it was said before.
    fn tell(&mut self) {
        if !std::mem::replace(&mut self.told, true) {
            let (folder, most_mib) = (self.folder.display(), self.most >> 20);
            tracing::warn!(%folder, most_mib, "little free disk for what programs keep between turns");
        }
    }

    fn free(&mut self, mut at: u64, mut length: u64) {
        if let Some((&before, &gap)) = self.gaps.range(..at).next_back()
            && before + gap == at
        {
            self.gaps.remove(&before);
            (at, length) = (before, gap + length);
        }
        if let Some(gap) = self.gaps.remove(&(at + length)) {
            length += gap;
        }
        if at + length < self.end {
            self.gaps.insert(at, length);
            return;
        }
        self.end = at;
        if let Some(file) = &self.file {
            // Only room on the disk would be lost.
            let _ = file.set_len(at);
        }
    }

    fn seek(&mut self, at: u64) -> io::Result<&mut File> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        file.seek(SeekFrom::Start(at))?;
        Ok(file)
    }
}

impl Extent {
    /// Gives back all but the first bytes.
    pub(crate) fn shrink(&mut self, length: u64) {
        if length < self.length {
            let (at, spare) = (self.at + length, self.length - length);
            self.spill.state().free(at, spare);
            self.length = length;
        }
    }

    /// A reader or writer from the beginning on.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        Cursor {
            extent: self,
            done: 0,
        }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if self.length > 0 {
            self.spill.state().free(self.at, self.length);
        }
    }
}

/// A place in an [`Extent`].
pub(crate) struct Cursor<'a> {
    extent: &'a Extent,
    pub(crate) done: u64,
}

impl Cursor<'_> {
    fn room(&self, wanted: usize) -> usize {
        (self.extent.length - self.done).min(wanted as u64) as usize
    }
}

impl Write for Cursor<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.room(bytes.len());
        let mut state = self.extent.spill.state();
        let file = state.seek(self.extent.at + self.done)?;
        let written = file.write(&bytes[..room]);
        // Others have filled the disk since the file was made.
        if written.as_ref().is_err_and(is_full) {
            state.tell();
        }
        let written = written?;
        self.done += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Cursor<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let room = self.room(bytes.len());
        let mut state = self.extent.spill.state();
        let file = state.seek(self.extent.at + self.done)?;
        let read = file.read(&mut bytes[..room])?;
        self.done += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_gaps_are_used_again() {
        let spill: &'static Spill = Box::leak(Box::new(Spill::new(15, std::env::temp_dir())));
        let fill = |length: u64, with: u8| {
            let extent = spill.reserve(length).unwrap();
            extent
                .cursor()
                .write_all(&vec![with; length as usize])
                .unwrap();
            extent
        };
        let holds = |extent: &Extent, with: u8| {
            let mut bytes = Vec::new();
            extent.cursor().read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, vec![with; extent.length as usize]);
        };
        let (a, mut b, c) = (fill(40, 1), fill(40, 2), fill(25, 3));
        assert!(spill.reserve(1).is_err(), "the file is full");
        b.shrink(10);
        let d = fill(30, 4);
        for (extent, with) in [(&a, 1), (&b, 2), (&c, 3), (&d, 4)] {
            holds(extent, with);
        }
        drop((a, d));
        drop(b);
        let whole = fill(80, 5);
        holds(&c, 3);
        drop((whole, c));
        let state = spill.state();
        assert_eq!((state.end, state.gaps.len()), (0, 0));
        assert_eq!(state.file.as_ref().unwrap().metadata().unwrap().len(), 0);
    }

    #[test]
    fn large_pieces_leave_room_for_small_ones() {
        let spill: &'static Spill = Box::leak(Box::new(Spill::new(1024, std::env::temp_dir())));
        let refused = |length: u64| spill.reserve(length).err().expect("no room");
        let large = spill.reserve(7168).unwrap();
        assert!(is_full(&refused(9)), "a program's doing");
        let mut small: Vec<Extent> = (0..128).map(|_| spill.reserve(8).unwrap()).collect();
        assert!(
            is_full(&refused(8)),
            "many small ones are programs' doing too"
        );
        // What small ones give back of the room set aside is not room for a large one.
        let later = small.split_off(64);
        drop(small);
        assert!(is_full(&refused(9)));
        assert!(spill.reserve(8).is_ok());
        drop((large, later));
        assert!(spill.reserve(7168).is_ok());
    }

    #[test]
    fn a_small_disk_bounds_the_file_and_says_so_once() {
        // The folder is not there yet.
        let folder = std::env::temp_dir().join("none/of/these");
        let spill: &'static Spill = Box::leak(Box::new(Spill::new(u64::MAX, folder.clone())));
        let (place, most_mib) = spill.cramped().expect("less than was asked for");
        assert_eq!(place, folder);
        assert!(most_mib < u64::MAX >> 21, "{most_mib}");
        assert!(spill.cramped().is_none(), "it was said");
        let most = fs4::available_space(std::env::temp_dir()).unwrap();
        let error = spill.reserve(most).err().expect("half of the disk");
        assert!(is_full(&error), "{error}");
        let roomy = Spill::new(1, std::env::temp_dir());
        assert!(roomy.cramped().is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_others_have_filled_is_full_and_one_that_fails_is_not() {
        let spill: &'static Spill = Box::leak(Box::new(Spill::new(1 << 20, std::env::temp_dir())));
        let write_to = |device: &str| {
            let mut options = File::options();
            let file = options.read(true).write(true).open(device).unwrap();
            spill.state().file = Some(file);
            let extent = spill.reserve(8).unwrap();
            extent.cursor().write_all(&[1; 8])
        };
        let error = write_to("/dev/full").unwrap_err();
        assert!(is_full(&error), "{error}");
        assert!(spill.state().told);
        let lost = io::Error::from_raw_os_error(5);
        assert!(!is_full(&lost), "{lost}");
        assert!(write_to("/dev/null").is_ok());
    }
}
