//! Files of strangers, read whole within bounds.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use crate::values::count_values;

/// The most that a file of a stranger may hold for it to be read.
#[derive(Debug, Clone, Copy)]
pub struct FileBounds {
    bytes: u64,
    /// Values and keys of its JSON, as [`count_values`] counts them.
    values: Option<usize>,
}

impl FileBounds {
    /// Text, a chat template for instance.
    pub const TEXT: Self = Self {
        bytes: 64 << 20,
        values: None,
    };
    /// JSON with an entry for each token or tensor: a tokenizer, the index of a checkpoint's shards. A published vocabulary of
    /// 900,000 tokens counts 2.7 million values.
    pub const LIST: Self = Self {
        bytes: 64 << 20,
        values: Some(4_000_000),
    };
    /// JSON of settings, which becomes a tree of values.
    pub const JSON: Self = Self {
        bytes: 16 << 20,
        values: Some(1_000_000),
    };

    /// Reads a file.
    ///
    /// # Errors
    /// When the file cannot be read, is not a regular one ([`ErrorKind::InvalidInput`]) or exceeds a bound, which the error names
    /// ([`ErrorKind::FileTooLarge`]). The caller adds the name of the file.
    pub fn read(self, path: &Path) -> io::Result<Vec<u8>> {
        // Opening a pipe would wait for a writer, so the path is checked first. The file may be another one once it is open.
        self.check(&fs::metadata(path)?)?;
        let file = File::open(path)?;
        let found = file.metadata()?;
        self.check(&found)?;
        let mut bytes = Vec::with_capacity(found.len() as usize);
        // The file may grow while it is read.
        file.take(self.bytes + 1).read_to_end(&mut bytes)?;
        self.check_length(bytes.len() as u64)?;
        match self.values {
            Some(most) if count_values(&bytes) > most => {
                let fault = format!("it holds more than {most} values");
                Err(io::Error::new(ErrorKind::FileTooLarge, fault))
            }
            _ => Ok(bytes),
        }
    }

    /// Reads a file of UTF-8.
    ///
    /// # Errors
    /// As [`Self::read`], and [`ErrorKind::InvalidData`] when the content is not UTF-8.
    pub fn read_text(self, path: &Path) -> io::Result<String> {
        String::from_utf8(self.read(path)?)
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
    }

    fn check(self, found: &Metadata) -> io::Result<()> {
        if !found.is_file() {
            let fault = "it is not a regular file";
            return Err(io::Error::new(ErrorKind::InvalidInput, fault));
        }
        self.check_length(found.len())
    }

    fn check_length(self, bytes: u64) -> io::Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let fault = format!("it has more than {} MiB", self.bytes >> 20);
        Err(io::Error::new(ErrorKind::FileTooLarge, fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: [FileBounds; 3] = [FileBounds::TEXT, FileBounds::LIST, FileBounds::JSON];

    #[test]
    fn regular_files_alone_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let kind = |bounds: FileBounds| bounds.read(&file).unwrap_err().kind();
        for bounds in EVERY {
            assert_eq!(kind(bounds), ErrorKind::NotFound);
        }
        fs::create_dir(&file).unwrap();
        for bounds in EVERY {
            assert_eq!(kind(bounds), ErrorKind::InvalidInput);
        }
        fs::remove_dir(&file).unwrap();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
            for bounds in EVERY {
                assert_eq!(kind(bounds), ErrorKind::InvalidInput);
            }
            fs::remove_file(&file).unwrap();
        }
        fs::write(&file, "{\"a\": [1, 2]}").unwrap();
        for bounds in EVERY {
            assert_eq!(bounds.read_text(&file).unwrap(), "{\"a\": [1, 2]}");
        }
        fs::write(&file, b"\xFF").unwrap();
        let text = FileBounds::TEXT.read_text(&file).unwrap_err();
        assert_eq!(text.kind(), ErrorKind::InvalidData);
        assert_eq!(FileBounds::TEXT.read(&file).unwrap(), b"\xFF");
    }

    #[test]
    fn files_beyond_a_bound_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        for (bounds, told) in EVERY.into_iter().zip(["64 MiB", "64 MiB", "16 MiB"]) {
            file.set_len(bounds.bytes + 1).unwrap();
            let error = bounds.read(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            assert!(error.to_string().contains(told), "{error}");
        }
        let few = FileBounds {
            bytes: 12,
            values: Some(7),
        };
        fs::write(&path, "[[],[],[]]").unwrap();
        assert_eq!(few.read(&path).unwrap(), b"[[],[],[]]");
        fs::write(&path, "[[],[],[7,8]]").unwrap();
        assert!(few.read(&path).unwrap_err().to_string().contains("MiB"));
        fs::write(&path, "[[],[],[,]]").unwrap();
        let error = few.read(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("more than 7 values"), "{error}");
    }
}
