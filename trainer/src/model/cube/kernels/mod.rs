//! The kernels, in the language of `CubeCL`: no tensor of Burn, no shape that is not passed in.
//!
//! A cube (a block of threads in CUDA) works on one row, one head or one tile of queries; its units (threads) share sums through
//! shared memory. Sums are taken in f32 whatever the type `F` that numbers are stored in. No kernel depends on how many rows
//! there are, so that a row has the same bits in any company.

#![allow(
    clippy::cast_possible_truncation,
    clippy::too_many_arguments,
    clippy::explicit_counter_loop,
    clippy::assign_op_pattern,
    clippy::collapsible_if,
    clippy::manual_div_ceil,
    clippy::used_underscore_binding,
    missing_docs,
    reason = "the attribute writes functions around each kernel that take its arguments one by one, and knows fewer operations than Rust"
)]

pub(super) mod attention;
pub(super) mod bytes;
pub(super) mod loss;
pub(super) mod moments;
pub(super) mod packed;
pub(super) mod pointwise;
pub(super) mod rotation;
pub(super) mod sampling;
pub(super) mod sum;
