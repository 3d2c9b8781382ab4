//! Arrays of NumPy.

use std::io::Read;

use super::{Header, Number, Places, fill};
use crate::dense::Flaw;

pub(super) const MAGIC: [u8; 6] = *b"\x93NUMPY";
/// Longest header; `numpy.save` writes less than 200 bytes for a plain array.
const MAX_HEADER_BYTES: u64 = 1 << 16;

/// `numpy/lib/format.py`: magic, version, length of the header (u16, from version 2 u32), a Python dictionary.
pub(super) fn header(source: &mut impl Read) -> Result<Header, Flaw> {
    let mut start = [0; 4];
    fill(source, &mut start)?;
    let [_, _, version, _] = start;
    if start[..2] != MAGIC[4..] {
        return Err(Flaw::new("is not a .npy array; write it with `numpy.save`"));
    }
    let (length, length_bytes) = match version {
        1 => {
            let mut bytes = [0; 2];
            fill(source, &mut bytes)?;
            (u64::from(u16::from_le_bytes(bytes)), 2)
        }
        2 | 3 => {
            let mut bytes = [0; 4];
            fill(source, &mut bytes)?;
            (u64::from(u32::from_le_bytes(bytes)), 4)
        }
        other => {
            return Err(Flaw::new(format!(
                ".npy version {other} is unknown; write the array with `numpy.save`"
            )));
        }
    };
    if length > MAX_HEADER_BYTES {
        return Err(Flaw::new(format!(
            "has a header of {length} bytes; write a plain array with `numpy.save`"
        )));
    }
    let mut text = vec![0; length as usize];
    fill(source, &mut text)?;
    let text = std::str::from_utf8(&text)
        .map_err(|_| Flaw::new("has a header that is not text; write it again"))?;
    let number = number(text)?;
    if entry(text, "fortran_order")?.starts_with("True") {
        return Err(Flaw::new(
            "is in Fortran order; save `numpy.ascontiguousarray(array)`",
        ));
    }
    let (rows, dimension) = shape(text)?;
    Ok(Header {
        number,
        rows,
        dimension,
        metric: None,
        places: Places::From(8 + length_bytes + length),
    })
}

/// The text behind a key of the header's dictionary.
fn entry<'t>(header: &'t str, key: &str) -> Result<&'t str, Flaw> {
    let behind = [format!("'{key}'"), format!("\"{key}\"")]
        .iter()
        .find_map(|quoted| header.split_once(quoted.as_str()))
        .and_then(|(_, rest)| rest.trim_start().strip_prefix(':'));
    behind.map(str::trim_start).ok_or_else(|| {
        Flaw::new(format!(
            "has a .npy header without `{key}`; write it with `numpy.save`"
        ))
    })
}

fn number(header: &str) -> Result<Number, Flaw> {
    let value = entry(header, "descr")?;
    let name = value
        .strip_prefix(['\'', '"'])
        .and_then(|rest| rest.split(['\'', '"']).next())
        .unwrap_or("structured");
    match name {
        "<f2" => Ok(Number::F16),
        "<f4" => Ok(Number::F32),
        "<f8" => Ok(Number::F64),
        _ if name.starts_with(">f") => Err(Flaw::new(format!(
            "holds big-endian numbers (`{name}`); save `array.astype('<f4')`"
        ))),
        _ => Err(Flaw::new(format!(
            "holds `{name}`, not floating-point numbers; save `array.astype('<f4')`"
        ))),
    }
}

fn shape(header: &str) -> Result<(u64, u64), Flaw> {
    let value = entry(header, "shape")?;
    let inside = value
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
        .map(|(inside, _)| inside);
    let shapeless = "has a .npy header without a shape; write it with `numpy.save`";
    let inside = inside.ok_or_else(|| Flaw::new(shapeless))?;
    let sizes = inside
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(str::parse::<u64>);
    let sizes = sizes.collect::<Result<Vec<_>, _>>();
    match sizes.as_deref() {
        Ok(&[rows, dimension]) => Ok((rows, dimension)),
        Ok(other) => Err(Flaw::new(format!(
            "has {} dimensions where 2 are needed; save one row per passage",
            other.len()
        ))),
        Err(_) => Err(Flaw::new(format!(
            "has the shape ({inside}); write it with `numpy.save`"
        ))),
    }
}
