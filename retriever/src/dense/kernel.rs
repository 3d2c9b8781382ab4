//! Inner products, the inner loop of everything dense.
//!
//! Every product sums the same sixteen lanes in the same order, without fused multiply-add, whatever instructions the
//! processor has and however rows are grouped: a score has the same bits on every machine, alone or in a batch.

/// Partial sums per product: one AVX-512 register, two of AVX2.
const LANES: usize = 16;
/// Products computed side by side, so that loads are shared and additions overlap.
pub(super) const GROUP: usize = 4;

/// `<one, other>`.
pub(super) fn product(one: &[f32], other: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(product) = x86::product(one, other) {
        return product;
    }
    single(one, other)
}

/// `<one, m>` for each `m` of a group. All must be as long as `one`.
pub(super) fn products(one: &[f32], many: [&[f32]; GROUP]) -> [f32; GROUP] {
    #[cfg(target_arch = "x86_64")]
    if let Some(products) = x86::products(one, many) {
        return products;
    }
    group(one, many)
}

/// `<one, m>` for each row `m` of `many`, one row after another, each as long as `one`; `visit` gets its number.
pub(super) fn each_product(one: &[f32], many: &[f32], mut visit: impl FnMut(u32, f32)) {
    let whole = many.len() / (GROUP * one.len()) * (GROUP * one.len());
    let (groups, rest) = many.split_at(whole);
    let mut row = 0;
    for group in groups.chunks_exact(GROUP * one.len()) {
        let rows = std::array::from_fn(|at| &group[at * one.len()..(at + 1) * one.len()]);
        for product in products(one, rows) {
            visit(row, product);
            row += 1;
        }
    }
    for other in rest.chunks_exact(one.len()) {
        visit(row, product(one, other));
        row += 1;
    }
}

/// `<query, codes>` in whole numbers, exact in any order; the caller keeps the sum within an `i32`.
pub(super) fn code_product(query: &[i16], codes: &[i8]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(product) = x86::code_product(query, codes) {
        return product;
    }
    codes_single(query, codes)
}

/// Compilers turn this into multiplications of pairs with a sum (`pmaddwd` and its like).
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must be compiled with the instructions of its caller"
)]
fn codes_single(query: &[i16], codes: &[i8]) -> i32 {
    let pairs = query.iter().zip(codes);
    pairs
        .map(|(&one, &other)| i32::from(one) * i32::from(other))
        .sum()
}

type Lanes = [f32; LANES];

#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must be compiled with the instructions of its caller"
)]
fn single(one: &[f32], other: &[f32]) -> f32 {
    // Both vectors in pieces of sixteen numbers, and what is left of each.
    let ((ones, one_tail), (others, other_tail)) = (one.as_chunks(), other.as_chunks());
    // Lane i sums the products of the coordinates i, i + 16, i + 32, ...
    let mut sum = [0.0; LANES];
    for (one, other) in ones.iter().zip(others) {
        add(&mut sum, one, other);
    }
    total(sum, one_tail, other_tail)
}

// The four sums are variables of their own: as an array of arrays they would not stay in registers.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must be compiled with the instructions of its caller"
)]
fn group(one: &[f32], [a, b, c, d]: [&[f32]; GROUP]) -> [f32; GROUP] {
    let (ones, one_tail) = one.as_chunks();
    let ((a, a_tail), (b, b_tail), (c, c_tail), (d, d_tail)) =
        (a.as_chunks(), b.as_chunks(), c.as_chunks(), d.as_chunks());
    let (mut of_a, mut of_b, mut of_c, mut of_d) =
        ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
    // A piece of `one` is loaded once for four products, whose additions do not wait for each other.
    for ((((one, a), b), c), d) in ones.iter().zip(a).zip(b).zip(c).zip(d) {
        add(&mut of_a, one, a);
        add(&mut of_b, one, b);
        add(&mut of_c, one, c);
        add(&mut of_d, one, d);
    }
    [
        total(of_a, one_tail, a_tail),
        total(of_b, one_tail, b_tail),
        total(of_c, one_tail, c_tail),
        total(of_d, one_tail, d_tail),
    ]
}

#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must be compiled with the instructions of its caller"
)]
fn add(sum: &mut Lanes, one: &Lanes, other: &Lanes) {
    // One multiplication and one addition of a whole register (two of AVX2), rounded after each: never a fused step, whose
    // bits would differ.
    for lane in 0..LANES {
        sum[lane] += one[lane] * other[lane];
    }
}

/// Adds what is left over, then lanes pairwise; adding zero turns -0 into 0, so that equal scores have equal bits.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "must be compiled with the instructions of its caller"
)]
fn total(mut sum: Lanes, one_tail: &[f32], other_tail: &[f32]) -> f32 {
    // The coordinates after the last whole piece go to the first lanes.
    for ((sum, one), other) in sum.iter_mut().zip(one_tail).zip(other_tail) {
        *sum += one * other;
    }
    // Sixteen sums to eight, four, two, one: lane i takes lane i + width, the same tree on every processor.
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sum[lane] += sum[lane + width];
        }
        width /= 2;
    }
    sum[0] + 0.0
}

/// The same code compiled for wider registers, chosen by the features that the processor reports.
#[cfg(target_arch = "x86_64")]
#[allow(
    unsafe_code,
    reason = "functions compiled for instructions that not every processor has are unsafe to call"
)]
mod x86 {
    use super::GROUP;

    pub(super) fn product(one: &[f32], other: &[f32]) -> Option<f32> {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F, the only thing the function asks for.
            return Some(unsafe { single_avx512(one, other) });
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, the only thing the function asks for.
            return Some(unsafe { single_avx2(one, other) });
        }
        None
    }

    pub(super) fn products(one: &[f32], many: [&[f32]; GROUP]) -> Option<[f32; GROUP]> {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F, the only thing the function asks for.
            return Some(unsafe { group_avx512(one, many) });
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, the only thing the function asks for.
            return Some(unsafe { group_avx2(one, many) });
        }
        None
    }

    pub(super) fn code_product(query: &[i16], codes: &[i8]) -> Option<i32> {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, the only thing the function asks for.
            return Some(unsafe { codes_avx2(query, codes) });
        }
        None
    }

    #[target_feature(enable = "avx2")]
    fn codes_avx2(query: &[i16], codes: &[i8]) -> i32 {
        super::codes_single(query, codes)
    }

    #[target_feature(enable = "avx512f")]
    fn single_avx512(one: &[f32], other: &[f32]) -> f32 {
        super::single(one, other)
    }

    #[target_feature(enable = "avx2")]
    fn single_avx2(one: &[f32], other: &[f32]) -> f32 {
        super::single(one, other)
    }

    #[target_feature(enable = "avx512f")]
    fn group_avx512(one: &[f32], many: [&[f32]; GROUP]) -> [f32; GROUP] {
        super::group(one, many)
    }

    #[target_feature(enable = "avx2")]
    fn group_avx2(one: &[f32], many: [&[f32]; GROUP]) -> [f32; GROUP] {
        super::group(one, many)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn products_of_codes_are_exact(
            pairs in prop::collection::vec((-4000_i16..4000, any::<i8>()), 0..300),
        ) {
            let (query, codes): (Vec<i16>, Vec<i8>) = pairs.iter().copied().unzip();
            let exact: i64 = pairs.iter().map(|&(one, other)| i64::from(one) * i64::from(other)).sum();
            prop_assert_eq!(i64::from(code_product(&query, &codes)), exact);
        }

        #[test]
        fn bits_depend_on_nothing_but_the_two_vectors(
            rows in (1_usize..70).prop_flat_map(|dimension| {
                prop::collection::vec(prop::collection::vec(-10.0_f32..10.0, dimension), 5)
            }),
        ) {
            let one = &rows[0];
            let many = [&rows[1][..], &rows[2], &rows[3], &rows[4]];
            let together = products(one, many);
            prop_assert_eq!(together.map(f32::to_bits), group(one, many).map(f32::to_bits), "instructions");
            for (other, grouped) in many.iter().zip(together) {
                prop_assert_eq!(product(one, other).to_bits(), grouped.to_bits(), "grouping");
                prop_assert_eq!(product(other, one).to_bits(), grouped.to_bits(), "order");
                let exact: f64 = one.iter().zip(*other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                prop_assert!((f64::from(grouped) - exact).abs() < 1e-2 * one.len() as f64 * 1e-3 + 1e-3);
            }
        }
    }
}
