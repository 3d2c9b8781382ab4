//! The passages themselves, memory-mapped, fetched by ordinal in constant time.

use std::collections::BTreeMap;
use std::io::{self, Write};

use forage_contracts::Passage;
use rayon::slice::ParallelSliceMut;
use tantivy::directory::OwnedBytes;

use crate::corpus::CorpusHasher;

/// Bytes of the lengths before each record: id, title and fields, u32 LE each; the text takes the rest.
const HEADER_BYTES: usize = 12;

/// A passage as stored, borrowed from the mapped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a> {
    /// External id.
    pub id: &'a str,
    /// May be empty.
    pub title: &'a str,
    /// Body, without the title.
    pub text: &'a str,
    /// A JSON object, empty when there are no fields.
    fields: &'a str,
}

impl Document<'_> {
    /// Further columns of the corpus, as given in [`Passage::fields`].
    pub(crate) fn fields(&self) -> BTreeMap<String, String> {
        if self.fields.is_empty() {
            return BTreeMap::new();
        }
        // The build wrote it from such a map; a flipped byte is for `Index::verify` to find.
        serde_json::from_str(self.fields).unwrap_or_default()
    }

    /// The value of a field; `id` and `title` are fields of every passage.
    pub fn field(&self, name: &str) -> Option<String> {
        match name {
            "id" => Some(self.id.to_owned()),
            "title" => Some(self.title.to_owned()),
            _ if self.fields.is_empty() => None,
            _ => self.fields().remove(name),
        }
    }

    /// An owned copy.
    pub fn to_passage(&self) -> Passage {
        Passage {
            id: self.id.to_owned(),
            title: self.title.to_owned(),
            text: self.text.to_owned(),
            fields: self.fields(),
        }
    }
}

/// Writes records and their offsets, and computes the digest meanwhile.
pub(super) struct StoreWriter<D, O> {
    docs: D,
    offsets: O,
    position: u64,
    count: u64,
    hasher: CorpusHasher,
}

impl<D: Write, O: Write> StoreWriter<D, O> {
    pub(super) fn new(docs: D, offsets: O) -> Self {
        Self {
            docs,
            offsets,
            position: 0,
            count: 0,
            hasher: CorpusHasher::new(),
        }
    }

    pub(super) fn add(&mut self, passage: &Passage) -> io::Result<()> {
        let Passage {
            id,
            title,
            text,
            fields,
        } = passage;
        self.hasher.update(id, title, text, fields);
        let fields = if fields.is_empty() {
            String::new()
        } else {
            serde_json::to_string(fields)?
        };
        self.offsets.write_all(&self.position.to_le_bytes())?;
        for part in [id, title, &fields] {
            self.docs.write_all(&length(part)?.to_le_bytes())?;
        }
        for part in [id, title, &fields, text] {
            self.docs.write_all(part.as_bytes())?;
        }
        self.position += (HEADER_BYTES + id.len() + title.len() + fields.len() + text.len()) as u64;
        self.count += 1;
        Ok(())
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Closes the offsets; gives the two writers and the corpus digest.
    pub(super) fn finish(mut self) -> io::Result<(D, O, String)> {
        self.offsets.write_all(&self.position.to_le_bytes())?;
        self.docs.flush()?;
        self.offsets.flush()?;
        Ok((self.docs, self.offsets, self.hasher.finish()))
    }
}

fn length(field: &str) -> io::Result<u32> {
    u32::try_from(field.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a field of 4 GiB or more"))
}

/// Read side; cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    docs: OwnedBytes,
    offsets: OwnedBytes,
}

impl Store {
    pub(super) fn new(docs: OwnedBytes, offsets: OwnedBytes) -> Self {
        Self { docs, offsets }
    }

    pub(super) fn len(&self) -> usize {
        (self.offsets.len() / 8).saturating_sub(1)
    }

    /// The passage with this ordinal; `None` when there is none or its bytes make no sense.
    pub(super) fn get(&self, ordinal: u32) -> Option<Document<'_>> {
        let start = usize::try_from(read_u64(&self.offsets, ordinal as usize)?).ok()?;
        let end = usize::try_from(read_u64(&self.offsets, ordinal as usize + 1)?).ok()?;
        let record = self.docs.get(start..end)?;
        let (header, body) = record.split_at_checked(HEADER_BYTES)?;
        let (id, rest) = body.split_at_checked(read_u32(header, 0)? as usize)?;
        let (title, rest) = rest.split_at_checked(read_u32(header, 1)? as usize)?;
        let (fields, text) = rest.split_at_checked(read_u32(header, 2)? as usize)?;
        let as_text = |bytes| std::str::from_utf8(bytes).ok();
        Some(Document {
            id: as_text(id)?,
            title: as_text(title)?,
            text: as_text(text)?,
            fields: as_text(fields)?,
        })
    }
}

fn read_u64(bytes: &[u8], slot: usize) -> Option<u64> {
    let raw = bytes.get(slot * 8..)?.first_chunk()?;
    Some(u64::from_le_bytes(*raw))
}

/// The `slot`-th little-endian u32 of a table.
pub(super) fn read_u32(bytes: &[u8], slot: usize) -> Option<u32> {
    let raw = bytes.get(slot * 4..)?.first_chunk()?;
    Some(u32::from_le_bytes(*raw))
}

/// Ordinals in the byte order of their ids.
///
/// # Errors
/// The two ordinals, ascending, of the first id that occurs twice.
pub(super) fn sort_by_id(store: &Store) -> Result<Vec<u32>, (u32, u32)> {
    let id = |ordinal: u32| store.get(ordinal).map_or("", |document| document.id);
    // The first eight bytes decide most comparisons without a look into the store.
    let mut keyed: Vec<(u64, u32)> = (0..store.len() as u32)
        .map(|ordinal| (prefix(id(ordinal)), ordinal))
        .collect();
    keyed.par_sort_unstable_by(|one, other| {
        one.0
            .cmp(&other.0)
            .then_with(|| id(one.1).cmp(id(other.1)))
            .then(one.1.cmp(&other.1))
    });
    for pair in keyed.windows(2) {
        if pair[0].0 == pair[1].0 && id(pair[0].1) == id(pair[1].1) {
            return Err((pair[0].1, pair[1].1));
        }
    }
    Ok(keyed.into_iter().map(|(_, ordinal)| ordinal).collect())
}

fn prefix(id: &str) -> u64 {
    let mut first = [0_u8; 8];
    for (slot, byte) in first.iter_mut().zip(id.bytes()) {
        *slot = byte;
    }
    u64::from_be_bytes(first)
}
