//! Singular values of matrices, and what sums them up: nuclear norm and effective rank.
//!
//! They are roots of the eigenvalues of the matrix' smaller Gram matrix, in f64: a Householder reduction to three diagonals, n^3
//! multiplications for n rows, and QL steps with implicit shifts on those, some 30 n^2 (Golub and Van Loan, *Matrix Computations*,
//! section 8.3). What is below rounding is 0: a singular value of less than sqrt(n) 1.5e-8 of the largest.

/// Rotations of a diagonal after which an eigenvalue is taken as it is; two or three are usual.
const MOST_STEPS: usize = 60;

/// Inner products of the rows of a matrix with each other, `[n, n]`.
pub(crate) struct Gram {
    size: usize,
    products: Vec<f64>,
}

impl Gram {
    /// The Gram matrix of the rows of a matrix, `[rows, width]`.
    pub(crate) fn of_rows(matrix: &[f32], width: usize) -> Self {
        let wide: Vec<f64> = matrix.iter().map(|&number| f64::from(number)).collect();
        let rows: Vec<&[f64]> = wide.chunks_exact(width.max(1)).collect();
        let size = rows.len();
        let mut products = vec![0.0; size * size];
        for (place, row) in rows.iter().enumerate() {
            for (before, other) in rows[..=place].iter().enumerate() {
                let product = dot(row, other);
                products[place * size + before] = product;
                products[before * size + place] = product;
            }
        }
        Self { size, products }
    }

    /// Singular values of the matrix, in no order; as many as it has rows.
    pub(crate) fn singular_values(&self) -> Vec<f64> {
        roots(self.products.clone(), self.size)
    }

    /// The Gram matrix of its first `count` rows less their mean.
    pub(crate) fn centred(&self, count: usize) -> Vec<f64> {
        let row = |place: usize| &self.products[place * self.size..][..count];
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / count as f64;
        let means: Vec<f64> = (0..count).map(|place| mean(row(place))).collect();
        let all = mean(&means);
        let centred = (0..count).flat_map(|place| {
            let pairs = row(place).iter().zip(&means);
            let own = means[place];
            pairs.map(move |(product, other)| product - own - other + all)
        });
        roots(centred.collect(), count)
    }
}

/// Singular values of a matrix, `[rows, width]`, by its smaller Gram matrix, in no order.
pub(crate) fn singular_values(matrix: &[f32], width: usize) -> Vec<f64> {
    let rows = matrix.len() / width.max(1);
    if rows <= width {
        return Gram::of_rows(matrix, width).singular_values();
    }
    let columns = (0..width).flat_map(|column| matrix[column..].iter().step_by(width).copied());
    let turned: Vec<f32> = columns.collect();
    Gram::of_rows(&turned, rows).singular_values()
}

/// The exponential of the entropy of singular values over their sum: how many directions they take up, from 1 to their number (Roy
/// and Vetterli 2007); 0 where there is none above 0.
pub(crate) fn effective_rank(values: &[f64]) -> f64 {
    let total: f64 = values.iter().sum();
    if total == 0.0 {
        return 0.0;
    }
    let shares = values.iter().map(|value| value / total);
    let surprise = |share: f64| {
        if share == 0.0 {
            0.0
        } else {
            -share * share.ln()
        }
    };
    shares.map(surprise).sum::<f64>().exp()
}

/// Roots of the eigenvalues of a Gram matrix, `[n, n]`.
fn roots(mut gram: Vec<f64>, size: usize) -> Vec<f64> {
    let scale = gram
        .iter()
        .fold(0.0_f64, |most, value| most.max(value.abs()));
    if scale == 0.0 || gram.iter().any(|number| !number.is_finite()) {
        return vec![gram.iter().sum::<f64>() * 0.0; size];
    }
    for number in &mut gram {
        *number /= scale;
    }
    let (mut diagonal, mut beside) = three_diagonals(&mut gram, size);
    diagonalise(&mut diagonal, &mut beside);
    let largest = diagonal.iter().copied().fold(0.0, f64::max);
    let noise = size as f64 * f64::EPSILON * largest;
    let root = |value: f64| {
        if value <= noise {
            0.0
        } else {
            (value * scale).sqrt()
        }
    };
    diagonal.into_iter().map(root).collect()
}

/// The diagonal and what stands beside it, with a 0 at its end, of a matrix of three diagonals with the eigenvalues of a symmetric one:
/// one mirror image after the other leaves a column with two numbers.
fn three_diagonals(matrix: &mut [f64], size: usize) -> (Vec<f64>, Vec<f64>) {
    let mut beside = vec![0.0; size];
    for place in 0..size.saturating_sub(2) {
        let first = place + 1;
        let mut normal = matrix[place * size + first..first * size].to_vec();
        let norm = dot(&normal, &normal).sqrt();
        beside[place] = norm;
        if norm == 0.0 {
            continue;
        }
        normal[0] += norm.copysign(normal[0]);
        let length = dot(&normal, &normal);
        let rows = matrix[first * size..].chunks_exact(size);
        let image = rows.map(|row| dot(&row[first..], &normal) * 2.0 / length);
        let mut image: Vec<f64> = image.collect();
        let along = dot(&image, &normal) / length;
        for (number, part) in image.iter_mut().zip(&normal) {
            *number -= along * part;
        }
        let rows = matrix[first * size..].chunks_exact_mut(size);
        for (row, (own, moved)) in rows.zip(normal.iter().zip(&image)) {
            let numbers = row[first..].iter_mut().zip(normal.iter().zip(&image));
            for (number, (part, other)) in numbers {
                *number -= own * other + moved * part;
            }
        }
    }
    if size > 1 {
        beside[size - 2] = matrix[(size - 1) * size - 1];
    }
    let diagonal = (0..size).map(|place| matrix[place * (size + 1)]);
    (diagonal.collect(), beside)
}

/// Turns the numbers beside the diagonal of a matrix of three diagonals to 0, and the diagonal to its eigenvalues.
fn diagonalise(diagonal: &mut [f64], beside: &mut [f64]) {
    let small = |diagonal: &[f64], beside: &[f64], place: usize| {
        let near = diagonal[place].abs() + diagonal[place + 1].abs() + 1.0;
        beside[place].abs() <= f64::EPSILON * near
    };
    for first in 0..diagonal.len() {
        for _ in 0..MOST_STEPS {
            let end = diagonal.len() - 1;
            let last = (first..end).find(|&place| small(diagonal, beside, place));
            let last = last.unwrap_or(end);
            if last == first {
                break;
            }
            turn(diagonal, beside, first, last);
        }
    }
}

/// One QL step, with the shift of Wilkinson, on the block from `first` to `last`.
fn turn(diagonal: &mut [f64], beside: &mut [f64], first: usize, last: usize) {
    let half = (diagonal[first + 1] - diagonal[first]) / (2.0 * beside[first]);
    let shift = beside[first] / (half + half.hypot(1.0).copysign(half));
    let mut bulge = diagonal[last] - diagonal[first] + shift;
    let (mut sine, mut cosine, mut moved) = (1.0, 1.0, 0.0);
    for place in (first..last).rev() {
        let (far, near) = (sine * beside[place], cosine * beside[place]);
        let length = bulge.hypot(far);
        beside[place + 1] = length;
        if length == 0.0 {
            // The block falls apart here.
            diagonal[place + 1] -= moved;
            beside[last] = 0.0;
            return;
        }
        (sine, cosine) = (far / length, bulge / length);
        let below = diagonal[place + 1] - moved;
        let turned = (diagonal[place] - below) * sine + 2.0 * cosine * near;
        moved = sine * turned;
        diagonal[place + 1] = below + moved;
        bulge = cosine * turned - near;
    }
    diagonal[first] -= moved;
    beside[first] = bulge;
    beside[last] = 0.0;
}

/// Inner product, in eight sums that a processor makes side by side.
fn dot(one: &[f64], other: &[f64]) -> f64 {
    const LANES: usize = 8;
    let (ones, others) = (one.chunks_exact(LANES), other.chunks_exact(LANES));
    let rest = ones.remainder().iter().zip(others.remainder());
    let rest: f64 = rest.map(|(one, other)| one * other).sum();
    let mut sums = [0.0; LANES];
    for (one, other) in ones.zip(others) {
        for (sum, (one, other)) in sums.iter_mut().zip(one.iter().zip(other)) {
            *sum += one * other;
        }
    }
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::common::{floats, json};
    use crate::tests::reference::assert_close;

    #[test]
    fn singular_values_equal_those_of_jacobi_rotations() {
        let fixture = json("shaping.json");
        let cases = fixture["matrices"].as_array().unwrap();
        assert!(cases.len() > 5);
        for case in cases {
            let (name, width) = (case["name"].as_str().unwrap(), &case["width"]);
            let width = width.as_u64().unwrap() as usize;
            let matrix: Vec<f32> = floats(&case["numbers"])
                .into_iter()
                .map(|number| number as f32)
                .collect();
            let mut found = singular_values(&matrix, width);
            found.sort_by(|one, other| other.total_cmp(one));
            let expected = floats(&case["values"]);
            assert_eq!(found.len(), expected.len(), "{name}");
            for (found, value) in found.iter().zip(&expected) {
                let gap = (found - value).abs();
                assert!(gap <= 1e-7 * expected[0], "{name}: {found} is not {value}");
            }
            let sums = [found.iter().sum(), effective_rank(&found)];
            for (found, key) in sums.into_iter().zip(["nuclear_norm", "effective_rank"]) {
                assert_close(found, case[key].as_f64().unwrap(), 1e-5, name);
            }
        }
    }

    #[test]
    fn nothing_has_no_directions() {
        assert_eq!(effective_rank(&[]).to_bits(), 0.0_f64.to_bits());
        assert!(singular_values(&[], 0).is_empty());
        let flat = Gram::of_rows(&[1.0, 2.0, 1.0, 2.0], 2);
        assert_eq!(flat.centred(2), [0.0; 2]);
        assert_eq!(
            effective_rank(&flat.centred(1)).to_bits(),
            0.0_f64.to_bits()
        );
        assert!(
            singular_values(&[f32::NAN; 9], 3)
                .iter()
                .all(|value| value.is_nan())
        );
    }
}
