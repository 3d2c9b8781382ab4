//! Thrift's compact form, as far as a parquet file describes itself in it.

use std::io::{BufRead, Read, Seek};

use parquet::errors::ParquetError;

use super::check::damaged;

type Result<T> = std::result::Result<T, ParquetError>;

/// What a field or a part of a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    True = 1,
    False,
    Byte,
    I16,
    I32,
    I64,
    Double,
    Binary,
    List,
    Set,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn of(number: u8) -> Result<Self> {
        Ok(match number {
            1 => Self::True,
            2 => Self::False,
            3 => Self::Byte,
            4 => Self::I16,
            5 => Self::I32,
            6 => Self::I64,
            7 => Self::Double,
            8 => Self::Binary,
            9 => Self::List,
            10 => Self::Set,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return Err(damaged(format!("a part of the unknown type {number}"))),
        })
    }
}

/// Reads values, at most so many bytes.
pub(super) struct Reader<R> {
    from: R,
    left: u64,
}

impl<R: Read + Seek> Reader<R> {
    pub(super) fn new(from: R, left: u64) -> Self {
        Self { from, left }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| damaged("a part is longer than what is left"))?;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8> {
        self.take(1)?;
        let mut byte = [0];
        self.from.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(damaged("a number without an end"))
    }

    /// A number of any width.
    pub(super) fn signed(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A number of 32 bits; others are cut, as the crate does.
    pub(super) fn number(&mut self) -> Result<i32> {
        Ok(self.signed()? as i32)
    }

    /// The next field's number and type; none at the end of the structure.
    pub(super) fn field(&mut self, last: i16) -> Result<Option<(i16, Kind)>> {
        let byte = self.byte()?;
        if byte.trailing_zeros() >= 4 {
            return Ok(None);
        }
        let kind = Kind::of(byte & 0x0f)?;
        let id = match byte >> 4 {
            0 => self.signed()? as i16,
            more => last
                .checked_add(more.into())
                .ok_or_else(|| damaged("a field beyond the last"))?,
        };
        Ok(Some((id, kind)))
    }

    /// The length of a list and the type of its parts.
    pub(super) fn list(&mut self) -> Result<(u64, Kind)> {
        let byte = self.byte()?;
        // Some writers give an empty list no type.
        if byte == 0 {
            return Ok((0, Kind::Struct));
        }
        let count = match byte >> 4 {
            15 => self.varint()?,
            few => few.into(),
        };
        Ok((count, Kind::of(byte & 0x0f)?))
    }

    pub(super) fn binary(&mut self) -> Result<Vec<u8>> {
        let length = self.varint()?;
        self.take(length)?;
        let mut bytes = Vec::new();
        (&mut self.from).take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Passes over bytes.
    pub(super) fn pass(&mut self, bytes: u64) -> Result<()> {
        self.take(bytes)?;
        let bytes = i64::try_from(bytes).map_err(|_| damaged("a part without an end"))?;
        Ok(self.from.seek_relative(bytes)?)
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self, kind: Kind, depth: usize) -> Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(damaged("too many parts within each other"));
        };
        match kind {
            Kind::True | Kind::False => Ok(()),
            Kind::Byte => self.pass(1),
            Kind::I16 | Kind::I32 | Kind::I64 => self.varint().map(drop),
            Kind::Double => self.pass(8),
            Kind::Uuid => self.pass(16),
            Kind::Binary => {
                let length = self.varint()?;
                self.pass(length)
            }
            Kind::Struct => {
                while let Some((_, kind)) = self.field(0)? {
                    self.skip(kind, depth)?;
                }
                Ok(())
            }
            Kind::List | Kind::Set => {
                let (count, kind) = self.list()?;
                self.parts(count, &[kind], depth)
            }
            Kind::Map => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                self.parts(
                    count,
                    &[Kind::of(kinds >> 4)?, Kind::of(kinds & 0x0f)?],
                    depth,
                )
            }
        }
    }

    fn parts(&mut self, count: u64, kinds: &[Kind], depth: usize) -> Result<()> {
        for _ in 0..count {
            for kind in kinds {
                // Outside of a structure a truth value is a byte.
                let kind = match kind {
                    Kind::True | Kind::False => Kind::Byte,
                    other => *other,
                };
                self.skip(kind, depth)?;
            }
        }
        Ok(())
    }
}

impl<R: BufRead + Seek> Reader<R> {
    /// Lets `read` see the next bytes and goes on behind them.
    pub(super) fn within(
        &mut self,
        bytes: u64,
        read: impl FnOnce(std::io::Take<&mut R>) -> Result<()>,
    ) -> Result<()> {
        self.take(bytes)?;
        let begin = self.from.stream_position()?;
        read((&mut self.from).take(bytes))?;
        self.from.seek(std::io::SeekFrom::Start(begin + bytes))?;
        Ok(())
    }
}

/// Writes values.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(super) fn signed(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    /// A field's number and type; `last` is the one before it.
    pub(super) fn field(&mut self, last: i16, id: i16, kind: Kind) {
        if let Ok(more @ 1..=15) = u8::try_from(id - last) {
            self.0.push((more << 4) | kind as u8);
        } else {
            self.0.push(kind as u8);
            self.signed(id.into());
        }
    }

    pub(super) fn list(&mut self, count: u64, kind: Kind) {
        self.0.push(0xf0 | kind as u8);
        self.varint(count);
    }

    pub(super) fn binary(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn stop(&mut self) {
        self.0.push(0);
    }
}
