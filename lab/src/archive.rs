//! Zip archives, the form in which BEIR's data sets are published.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::CrcWriter;
use flate2::read::DeflateDecoder;

use crate::error::{Context, Result, bail};
use crate::layout::make_folder;
use crate::lock::FileLock;

/// Bytes of the record at the end of an archive, and most bytes of the comment behind it.
const END: u64 = 22;
const COMMENT: u64 = 0xffff;
/// What the records of an archive begin with.
const END_MARK: u32 = 0x0605_4b50;
const ENTRY_MARK: u32 = 0x0201_4b50;
const FILE_MARK: u32 = 0x0403_4b50;
/// Bytes of an entry and of the record before a file's content, names aside.
const ENTRY: usize = 46;
const FILE: u64 = 30;

/// The file of an unpacked folder that says which archive it is of.
const MARK: &str = ".archive";

/// A file in an archive.
#[derive(Debug)]
struct Entry {
    name: String,
    deflated: bool,
    /// Checksum of the content.
    crc: u32,
    /// Bytes in the archive, and of the content.
    sizes: [u64; 2],
    /// Place of the record before its content.
    start: u64,
}

/// Tells whether a path names an archive.
pub(crate) fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "zip") && path.is_file()
}

/// The folder of an archive's files, beside the archive: unpacked when it is not there yet, whole or not at all. Where the
/// archive holds one folder, that folder.
///
/// # Errors
/// When it is not an archive, is damaged, cannot be unpacked, or its folder is of another archive.
pub(crate) fn unpacked(archive: &Path) -> Result<PathBuf> {
    let folder = archive.with_extension("unpacked");
    let cannot = || format!("{} cannot be unpacked", archive.display());
    let opened = File::open(archive).context("it cannot be read");
    let mut file = opened.with_context(cannot)?;
    let files = entries(&mut file).with_context(cannot)?;
    let of = identity(&files);
    if !folder.is_dir() {
        let _lock = FileLock::wait(&folder)?;
        // Another process may have been quicker.
        if !folder.is_dir() {
            let draft = archive.with_extension("unpacked.part");
            if draft.exists() {
                // A process that was killed left it.
                std::fs::remove_dir_all(&draft)
                    .with_context(|| format!("cannot remove {}", draft.display()))?;
            }
            let made = unpack(&mut file, &files, &draft, &of).with_context(cannot);
            let kept = made.and_then(|()| {
                std::fs::rename(&draft, &folder)
                    .with_context(|| format!("cannot write {}", folder.display()))
            });
            if kept.is_err() {
                // What is left of it takes space and nothing else.
                let _ = std::fs::remove_dir_all(&draft);
            }
            kept?;
        }
    }
    // Folders of earlier versions have no mark.
    if std::fs::read_to_string(folder.join(MARK)).is_ok_and(|mark| mark != of) {
        bail!(
            "{} is of another archive than {} is now; remove it, and it is unpacked anew",
            folder.display(),
            archive.display()
        );
    }
    let mut inside: Vec<PathBuf> = std::fs::read_dir(&folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .with_context(|| format!("cannot read {}", folder.display()))?;
    inside.retain(|path| !path.ends_with(MARK));
    Ok(match &inside[..] {
        [only] if only.is_dir() => only.clone(),
        _ => folder,
    })
}

/// What tells an archive from others: the names and checksums of its files.
fn identity(files: &[Entry]) -> String {
    let mut crc = flate2::Crc::new();
    for entry in files {
        crc.update(entry.name.as_bytes());
        crc.update(&entry.crc.to_le_bytes());
    }
    format!("{:08x}\n", crc.sum())
}

fn unpack(archive: &mut File, files: &[Entry], folder: &Path, of: &str) -> Result<()> {
    make_folder(folder)?;
    for entry in files {
        let path = folder.join(&entry.name);
        make_folder(path.parent().unwrap_or(folder))?;
        let content = File::create(&path).context("its folder cannot be written")?;
        let copied = entry.copy(archive, content);
        copied.with_context(|| format!("{} in it is damaged", entry.name))?;
    }
    std::fs::write(folder.join(MARK), of).context("its folder cannot be written")
}

impl Entry {
    /// Writes the content, which must be of the length and the checksum that the archive says.
    fn copy(&self, archive: &mut File, content: File) -> io::Result<()> {
        let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let mut head = [0; FILE as usize];
        archive.seek(SeekFrom::Start(self.start))?;
        archive.read_exact(&mut head)?;
        let names = number(&head, 26, 2).zip(number(&head, 28, 2));
        let Some((name, extra)) = names.filter(|_| number(&head, 0, 4) == Some(FILE_MARK)) else {
            return Err(damaged("there is no file where the archive says"));
        };
        archive.seek(SeekFrom::Current(i64::from(name) + i64::from(extra)))?;
        let [packed, plain] = self.sizes;
        let packed = archive.take(packed);
        let mut writer = CrcWriter::new(io::BufWriter::new(content));
        let copied = if self.deflated {
            io::copy(
                &mut DeflateDecoder::new(packed).take(plain + 1),
                &mut writer,
            )?
        } else {
            io::copy(&mut packed.take(plain + 1), &mut writer)?
        };
        writer.flush()?;
        if copied != plain || writer.crc().sum() != self.crc {
            return Err(damaged("its length or checksum is another"));
        }
        Ok(())
    }
}

/// The files of an archive, folders and what macOS adds aside.
fn entries(file: &mut File) -> Result<Vec<Entry>> {
    let length = file.seek(SeekFrom::End(0)).context("it cannot be read")?;
    let tail = part(file, length.saturating_sub(END + COMMENT), length)?;
    let is_end = |at: &usize| number(&tail, *at, 4) == Some(END_MARK);
    let Some(end) = (0..tail.len()).rev().find(is_end) else {
        bail!("it is not a zip archive; name one, or a folder");
    };
    let of_end = |at, bytes| u64::from(number(&tail, end + at, bytes).unwrap_or(u32::MAX));
    let (count, size, start) = (of_end(10, 2), of_end(12, 4), of_end(16, 4));
    if count == 0xffff || start == u64::from(u32::MAX) {
        bail!("it is of the kind above 4 GiB, which is not read; unpack it and name the folder");
    }
    let list = part(file, start, (start + size).min(length))?;
    let (mut at, mut found) = (0, Vec::new());
    for _ in 0..count {
        let field = |place: usize, bytes| number(&list, at + place, bytes);
        let read = || {
            let name = field(28, 2)? as usize;
            let rest = field(30, 2)? as usize + field(32, 2)? as usize;
            let text = list.get(at + ENTRY..at + ENTRY + name)?;
            let entry = Entry {
                name: String::from_utf8_lossy(text).into_owned(),
                deflated: field(10, 2)? == 8,
                crc: field(16, 4)?,
                sizes: [u64::from(field(20, 4)?), u64::from(field(24, 4)?)],
                start: u64::from(field(42, 4)?),
            };
            let usable = field(8, 2)? & 1 == 0 && matches!(field(10, 2)?, 0 | 8);
            (field(0, 4)? == ENTRY_MARK).then_some((entry, ENTRY + name + rest, usable))
        };
        let Some((entry, bytes, usable)) = read() else {
            bail!("its list of files is damaged");
        };
        at += bytes;
        let outside = |part: &str| ["", ".", ".."].contains(&part) || part.contains(['\\', ':']);
        match &entry.name {
            name if name.ends_with('/') || name.starts_with("__MACOSX/") => {}
            name if name.split('/').any(outside) => bail!("{name:?} in it leads out of its folder"),
            name if !usable => {
                bail!("{name} in it is encrypted or packed in a way that is not read")
            }
            _ => found.push(entry),
        }
    }
    Ok(found)
}

/// The bytes of a file between two places.
fn part(file: &mut File, from: u64, to: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file
        .seek(SeekFrom::Start(from))
        .and_then(|_| file.take(to.saturating_sub(from)).read_to_end(&mut bytes));
    read.context("it cannot be read")?;
    Ok(bytes)
}

/// A number of 2 or 4 bytes, the lowest first.
fn number(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + count)?.iter().rev();
    Some(bytes.fold(0, |number, &byte| (number << 8) | u32::from(byte)))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    use super::*;

    /// An archive of files, packed where they are longer than ten bytes.
    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let (mut bytes, mut list) = (Vec::new(), Vec::new());
        for (name, text) in files {
            let mut crc = flate2::Crc::new();
            crc.update(text.as_bytes());
            let deflated = text.len() > 10;
            let content = if deflated {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(text.as_bytes()).unwrap();
                encoder.finish().unwrap()
            } else {
                text.as_bytes().to_vec()
            };
            let short = |number: usize| (number as u16).to_le_bytes();
            let long = |number: usize| (number as u32).to_le_bytes();
            let mut common = Vec::new();
            common.extend(short(20));
            common.extend(short(0));
            common.extend(short(if deflated { 8 } else { 0 }));
            common.extend(long(0));
            common.extend(crc.sum().to_le_bytes());
            common.extend(long(content.len()));
            common.extend(long(text.len()));
            common.extend(short(name.len()));
            common.extend(short(0));
            list.extend(ENTRY_MARK.to_le_bytes());
            list.extend(short(20));
            list.extend(&common);
            list.extend([0; 10]);
            list.extend(long(bytes.len()));
            list.extend(name.as_bytes());
            bytes.extend(FILE_MARK.to_le_bytes());
            bytes.extend(&common);
            bytes.extend(name.as_bytes());
            bytes.extend(content);
        }
        let (start, size) = (bytes.len() as u32, list.len() as u32);
        bytes.extend(list);
        bytes.extend(END_MARK.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((files.len() as u16).to_le_bytes());
        bytes.extend((files.len() as u16).to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(start.to_le_bytes());
        bytes.extend([3, 0]);
        bytes.extend(b"ed.");
        bytes
    }

    #[test]
    fn an_archive_becomes_its_folder_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("scifact.zip");
        let long = "{\"_id\":\"1\"}\n".repeat(1000);
        let files = [
            ("scifact/", ""),
            ("scifact/corpus.jsonl", long.as_str()),
            ("scifact/qrels/test.tsv", "1\t2\t3"),
            ("__MACOSX/x", "junk"),
        ];
        std::fs::write(&path, archive(&files)).unwrap();
        assert!(is_archive(&path));
        // As a killed process leaves it.
        let left = place.path().join("scifact.unpacked.part/other");
        std::fs::create_dir_all(&left).unwrap();
        let folder = unpacked(&path).unwrap();
        assert_eq!(folder, place.path().join("scifact.unpacked/scifact"));
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("corpus.jsonl"), long);
        assert_eq!(read("qrels/test.tsv"), "1\t2\t3");
        std::fs::write(folder.join("mark"), "").unwrap();
        assert!(unpacked(&path).unwrap().join("mark").exists(), "not twice");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);

        // The archive is another one now, which is not unpacked over what may have been put beside its files.
        std::fs::write(&path, archive(&[("scifact/corpus.jsonl", "{}")])).unwrap();
        let error = unpacked(&path).unwrap_err().to_string();
        let what = "scifact.unpacked is of another archive than";
        assert!(
            error.contains(what) && folder.join("mark").exists(),
            "{error}"
        );
        std::fs::remove_dir_all(place.path().join("scifact.unpacked")).unwrap();
        let folder = unpacked(&path).unwrap();
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    }

    #[test]
    fn damage_is_named_and_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("bad.zip");
        let good = archive(&[("a/b.txt", "hello")]);
        let mut flipped = good.clone();
        let at = good.windows(5).position(|part| part == b"hello").unwrap();
        flipped[at] ^= 1;
        for (bytes, part) in [
            (b"text".to_vec(), "not a zip archive"),
            (flipped, "a/b.txt in it is damaged"),
            (archive(&[("../b", "x")]), "leads out of its folder"),
            (archive(&[("a/./b", "x")]), "leads out of its folder"),
            (archive(&[("C:\\b", "x")]), "leads out of its folder"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = unpacked(&path).unwrap_err();
            let mut words = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                words = format!("{words}: {cause}");
                source = cause.source();
            }
            assert!(words.contains(part), "{words}");
            assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
        }
        // Cut off, at every place before the comment.
        for length in 0..good.len() - 5 {
            std::fs::write(&path, &good[..length]).unwrap();
            assert!(unpacked(&path).is_err(), "{length}");
        }
    }
}
