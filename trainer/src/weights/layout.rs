//! Bytes of a file to numbers in memory, on all cores.

use burn::tensor::{bf16, f16};
use rayon::prelude::*;
use safetensors::Dtype;

/// Elements per parallel piece of a conversion.
const PIECE: usize = 1 << 16;
/// Side of the square that a transposition moves at once: both sides of it stay in the first-level cache.
const TILE: usize = 64;

/// A number that weights can be kept as.
pub(crate) trait Kept: Copy + Default + Send + Sync {
    fn from_f32(value: f32) -> Self;
}

impl Kept for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Kept for bf16 {
    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }
}

fn from_f32_bytes(bytes: [u8; 4]) -> f32 {
    f32::from_le_bytes(bytes)
}

fn from_f16_bytes(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32()
}

fn from_bf16_bytes(bytes: [u8; 2]) -> f32 {
    // A shift, where the library's conversion asks for NaN payloads first.
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// A stored matrix as f32, transposed or in the order of the file; `None` for a type that is not read.
pub(crate) fn floats(stored: &super::Stored, transpose: bool) -> Option<Vec<f32>> {
    if transpose {
        return transposed(stored.dtype, &stored.bytes, stored.shape[0]);
    }
    converted(stored.dtype, &stored.bytes)
}

/// Values in the order of the file; `None` for a type that is not read.
pub(crate) fn converted<T: Kept>(dtype: Dtype, bytes: &[u8]) -> Option<Vec<T>> {
    Some(match dtype {
        Dtype::F32 => in_order(bytes.as_chunks::<4>().0, from_f32_bytes),
        Dtype::F16 => in_order(bytes.as_chunks::<2>().0, from_f16_bytes),
        Dtype::BF16 => in_order(bytes.as_chunks::<2>().0, from_bf16_bytes),
        _ => return None,
    })
}

/// Values of a `[rows, columns]` matrix as `[columns, rows]`; `None` for a type that is not read.
pub(super) fn transposed<T: Kept>(dtype: Dtype, bytes: &[u8], rows: usize) -> Option<Vec<T>> {
    Some(match dtype {
        Dtype::F32 => turned(bytes.as_chunks::<4>().0, rows, |value| {
            T::from_f32(from_f32_bytes(value))
        }),
        Dtype::F16 => turned(bytes.as_chunks::<2>().0, rows, |value| {
            T::from_f32(from_f16_bytes(value))
        }),
        Dtype::BF16 => turned(bytes.as_chunks::<2>().0, rows, |value| {
            T::from_f32(from_bf16_bytes(value))
        }),
        _ => return None,
    })
}

fn in_order<S: Copy + Sync, T: Kept>(source: &[S], number: impl Fn(S) -> f32 + Sync) -> Vec<T> {
    let mut values = vec![T::default(); source.len()];
    values
        .par_chunks_mut(PIECE)
        .zip(source.par_chunks(PIECE))
        .for_each(|(values, source)| {
            for (value, &source) in values.iter_mut().zip(source) {
                *value = T::from_f32(number(source));
            }
        });
    values
}

/// The transpose of a row-major matrix of `rows` rows.
pub(crate) fn turned<S: Copy + Sync, T: Copy + Default + Send>(
    source: &[S],
    rows: usize,
    number: impl Fn(S) -> T + Sync,
) -> Vec<T> {
    let mut values = vec![T::default(); source.len()];
    if source.is_empty() {
        return values;
    }
    let columns = source.len() / rows;
    values
        .par_chunks_mut(TILE * rows)
        .enumerate()
        .for_each(|(band, values)| {
            let first = band * TILE;
            let width = values.len() / rows;
            for start in (0..rows).step_by(TILE) {
                let end = (start + TILE).min(rows);
                for column in 0..width {
                    let target = &mut values[column * rows + start..column * rows + end];
                    for (row, value) in (start..end).zip(target) {
                        *value = number(source[row * columns + first + column]);
                    }
                }
            }
        });
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32], dtype: Dtype) -> Vec<u8> {
        match dtype {
            Dtype::F32 => values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
            Dtype::F16 => values
                .iter()
                .flat_map(|&value| f16::from_f32(value).to_le_bytes())
                .collect(),
            _ => values
                .iter()
                .flat_map(|&value| bf16::from_f32(value).to_le_bytes())
                .collect(),
        }
    }

    #[test]
    fn every_type_and_shape_is_converted_and_transposed() {
        for (rows, columns) in [(1, 1), (3, 200), (200, 3), (65, 129), (128, 64)] {
            // Small integers are exact in every type.
            let values: Vec<f32> = (0..rows * columns)
                .map(|index| (index % 251) as f32 - 125.0)
                .collect();
            for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
                let bytes = bytes(&values, dtype);
                assert_eq!(converted::<f32>(dtype, &bytes).unwrap(), values);
                let turned = transposed::<f32>(dtype, &bytes, rows).unwrap();
                let half = transposed::<bf16>(dtype, &bytes, rows).unwrap();
                for row in 0..rows {
                    for column in 0..columns {
                        let (found, expected) =
                            (turned[column * rows + row], values[row * columns + column]);
                        assert_eq!(
                            found.to_bits(),
                            expected.to_bits(),
                            "{rows} {columns} {dtype:?}"
                        );
                        assert_eq!(
                            half[column * rows + row].to_f32().to_bits(),
                            expected.to_bits()
                        );
                    }
                }
            }
        }
        assert!(converted::<f32>(Dtype::I8, &[1, 2]).is_none());
    }

    #[test]
    fn infinities_and_nan_survive() {
        let values = converted::<f32>(
            Dtype::BF16,
            &bytes(&[f32::INFINITY, f32::NAN, -0.0], Dtype::BF16),
        )
        .unwrap();
        assert!(
            values[0] == f32::INFINITY
                && values[1].is_nan()
                && values[2].to_bits() == (-0.0_f32).to_bits()
        );
    }
}
