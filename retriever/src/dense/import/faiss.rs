//! Indexes of FAISS that hold plain vectors, as `write_index` of `faiss/impl/index_write.cpp` lays them out, little-endian.

use super::pieces::Pieces;
use super::{Header, Number, Places, VectorMetric, body, fill};
use crate::dense::Flaw;

/// What a place has that no row was put at.
const NOWHERE: u64 = u64::MAX;

/// Reads the header behind the first four bytes.
pub(super) fn header(source: &mut Pieces, magic: [u8; 4]) -> Result<Header, Flaw> {
    match &magic {
        b"IxFI" | b"IxF2" => flat(source),
        b"IwFl" => inverted(source),
        b"IxMp" | b"IxM2" => Err(Flaw::new(
            "is a FAISS index with ids of its own (IndexIDMap); write the flat index inside it, \
             `faiss.write_index(faiss.downcast_index(index.index), path)`, with rows in the order of the corpus",
        )),
        _ => Err(Flaw::new(format!(
            "is a FAISS index of kind `{}`, which does not hold plain vectors; write an IndexFlatIP",
            String::from_utf8_lossy(&magic)
        ))),
    }
}

/// Reads the header that every FAISS index has: dimension i32, rows i64, two unused i64, trained u8, metric i32.
fn common(source: &mut Pieces) -> Result<(u64, u64, VectorMetric), Flaw> {
    let dimension = i32::from_le_bytes(take(source)?);
    let rows = i64::from_le_bytes(take(source)?);
    let _: [u8; 16 + 1] = take(source)?;
    let metric = match i32::from_le_bytes(take(source)?) {
        0 => VectorMetric::InnerProduct,
        1 => VectorMetric::L2,
        other => {
            return Err(Flaw::new(format!(
                "ranks by FAISS metric {other}; write an IndexFlatIP"
            )));
        }
    };
    let (Ok(dimension), Ok(rows)) = (u64::try_from(dimension), u64::try_from(rows)) else {
        return Err(Flaw::new(format!(
            "has a FAISS header of {rows} rows of {dimension} numbers; write the index again"
        )));
    };
    Ok((rows, dimension, metric))
}

/// `IndexFlat`: how many numbers follow (u64), and they.
fn flat(source: &mut Pieces) -> Result<Header, Flaw> {
    let (rows, dimension, metric) = common(source)?;
    let count = u64::from_le_bytes(take(source)?);
    if rows.checked_mul(dimension) != Some(count) {
        return Err(Flaw::new(format!(
            "has a FAISS header of {rows} rows of {dimension} numbers, but {count} numbers; write the index again"
        )));
    }
    Ok(Header {
        number: Number::F32,
        rows,
        dimension,
        metric: Some(metric),
        places: Places::From(source.position()),
    })
}

/// `IndexIVFFlat`: lists u64, probes u64, an index of the centroids, where ids are (u8, then an array), and the lists.
fn inverted(source: &mut Pieces) -> Result<Header, Flaw> {
    let (rows, dimension, metric) = common(source)?;
    let row_bytes = body(1, dimension, Number::F32).unwrap_or(u64::MAX);
    // Each row is there with an id, which bounds what a header can ask for.
    let needed = row_bytes
        .checked_add(8)
        .and_then(|row| row.checked_mul(rows));
    if needed.is_none_or(|needed| needed > source.left()) {
        return Err(broken(&format!(
            "has a FAISS header of {rows} rows of {dimension} numbers, more than it holds"
        )));
    }
    let _: [u8; 16] = take(source)?;
    let magic = take(source)?;
    if !matches!(&magic, b"IxFI" | b"IxF2") {
        return Err(Flaw::new(
            "has centroids in an index that is not flat; write its vectors to an IndexFlatIP",
        ));
    }
    let centroids = flat(source)?;
    let bytes = body(centroids.rows, centroids.dimension, Number::F32);
    source.skip(bytes.unwrap_or(u64::MAX));
    let [map] = take(source)?;
    let entries = u64::from_le_bytes(take(source)?);
    source.skip(entries.saturating_mul(8));
    if map == 2 {
        // A table from ids to places, kept beside the array.
        let pairs = u64::from_le_bytes(take(source)?);
        source.skip(pairs.saturating_mul(16));
    }
    let places = lists(source, rows, row_bytes)?;
    Ok(Header {
        number: Number::F32,
        rows,
        dimension,
        metric: Some(metric),
        places: Places::Each(places),
    })
}

/// `ArrayInvertedLists`: `ilar`, lists u64, bytes of a vector u64, the sizes of all lists (`full`) or of some (`sprs`), then the
/// vectors and the ids (i64) of each.
fn lists(source: &mut Pieces, rows: u64, row_bytes: u64) -> Result<Vec<u64>, Flaw> {
    let magic: [u8; 4] = take(source)?;
    let (count, found_bytes) = (
        u64::from_le_bytes(take(source)?),
        u64::from_le_bytes(take(source)?),
    );
    if magic != *b"ilar" || found_bytes != row_bytes {
        return Err(Flaw::new(
            "keeps its vectors outside of the file or in codes; write an IndexFlatIP",
        ));
    }
    let form: [u8; 4] = take(source)?;
    let words = u64::from_le_bytes(take(source)?);
    let pairs = match &form {
        b"full" if words == count => 1,
        b"sprs" if words.is_multiple_of(2) => 2,
        _ => return Err(broken("gives the sizes of its lists in an unknown form")),
    };
    if words > source.left() / 8 {
        return Err(broken(&format!(
            "speaks of {count} lists, more than it holds"
        )));
    }
    let mut sizes = Vec::with_capacity((words / pairs) as usize);
    for _ in 0..words / pairs {
        // Of a pair the first says which list it is; lists follow in that order.
        source.skip(8 * (pairs - 1));
        sizes.push(u64::from_le_bytes(take(source)?));
    }
    let mut places = vec![NOWHERE; rows as usize];
    for size in sizes {
        let first = source.position();
        let (codes, ids) = (size.checked_mul(row_bytes), size.checked_mul(8));
        let (Some(codes), Some(ids)) = (codes, ids) else {
            return Err(broken(&format!(
                "has a list of {size} rows, more than it holds"
            )));
        };
        if codes
            .checked_add(ids)
            .is_none_or(|bytes| bytes > source.left())
        {
            return Err(broken(&format!(
                "has a list of {size} rows, more than it holds"
            )));
        }
        source.skip(codes);
        let mut raw = vec![0; ids as usize];
        fill(source, &mut raw)?;
        for (at, &id) in raw.as_chunks().0.iter().enumerate() {
            let id = i64::from_le_bytes(id);
            let place = usize::try_from(id).ok().and_then(|id| places.get_mut(id));
            match place {
                Some(place) if *place == NOWHERE => *place = first + at as u64 * row_bytes,
                _ => {
                    return Err(Flaw::new(format!(
                        "has a row with id {id}; ids must be the numbers of the {rows} rows in the order of the corpus"
                    )));
                }
            }
        }
    }
    if source.left() > 0 {
        return Err(broken("goes on after its lists"));
    }
    match places.iter().position(|&place| place == NOWHERE) {
        None => Ok(places),
        Some(row) => Err(Flaw::new(format!(
            "has no row with id {row}; ids must be the numbers of the {rows} rows in the order of the corpus"
        ))),
    }
}

fn broken(what: &str) -> Flaw {
    Flaw::new(format!(
        "{what}; fetch or write the file again (all pieces of it, in order)"
    ))
}

fn take<const N: usize>(source: &mut Pieces) -> Result<[u8; N], Flaw> {
    let mut bytes = [0; N];
    fill(source, &mut bytes)?;
    Ok(bytes)
}
