//! A body that must bring so many bytes in a time.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

/// Fewest bytes of a body in its time: one that comes drop by drop would come for ever. A try of a download that brings less has
/// failed.
pub(super) const LEAST: u64 = 1 << 20;

/// A body that ends in an error when it brings too little in a time.
pub(super) struct Paced<R> {
    body: R,
    time: Duration,
    begun: Instant,
    found: u64,
}

impl<R: Read> Paced<R> {
    pub(super) fn new(body: R, time: Duration) -> Self {
        Self {
            body,
            time,
            begun: Instant::now(),
            found: 0,
        }
    }
}

impl<R: Read> Read for Paced<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.body.read(buffer)?;
        self.found += read as u64;
        // The end of a body is not a pause.
        if read > 0 && self.begun.elapsed() >= self.time {
            if self.found < LEAST {
                let what = format!("{} bytes in {:?} are too few", self.found, self.time);
                return Err(std::io::Error::new(ErrorKind::TimedOut, what));
            }
            (self.begun, self.found) = (Instant::now(), 0);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_comes_drop_by_drop_ends() {
        let mut paced = Paced::new(std::io::repeat(7), Duration::ZERO);
        let mut buffer = vec![0; LEAST as usize];
        for _ in 0..2 {
            assert_eq!(paced.read(&mut buffer).unwrap(), buffer.len());
        }
        let slow = paced.read(&mut buffer[1..]).unwrap_err();
        assert_eq!(slow.kind(), ErrorKind::TimedOut);
        let mut ended = Paced::new(std::io::empty(), Duration::ZERO);
        assert_eq!(ended.read(&mut buffer).unwrap(), 0);
        let mut begun = Paced::new(std::io::repeat(7), Duration::from_mins(1));
        assert_eq!(begun.read(&mut buffer[1..]).unwrap(), buffer.len() - 1);
    }
}
