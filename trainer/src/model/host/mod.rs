//! Inference on the processor: kernels that read tensors in place.
//!
//! Burn's processor backend has no fused attention over a paged cache, widens half-precision weights as a whole, and
//! multiplies few rows slowly. These kernels do what the decoder needs there; they carry no gradient: where a graph is built,
//! Burn's operations stand in their place, which tests hold equal to them.

#![allow(
    clippy::inline_always,
    reason = "a kernel is compiled for an instruction set only where it is inlined"
)]
#![allow(
    clippy::needless_range_loop,
    clippy::manual_memcpy,
    reason = "sums stay in registers only where every index is a constant once loops are unrolled"
)]

mod attention;
mod elementwise;
mod gemm;
mod lanes;
mod matrix;
mod outer;
mod product;
mod softmax;
mod storage;

pub(super) use attention::{BLOCK, Layer, Run, attend};
pub(super) use elementwise::{
    rms_norm, rms_norm_backward, rotate, rotate_heads, swiglu, swiglu_backward,
};
pub(super) use gemm::matmul;
pub(crate) use lanes::{exp, largest};
pub(super) use matrix::{by_output, product, quantised_product, widened};
pub(super) use softmax::{causal_softmax, softmax_backward};
pub(crate) use softmax::{logit_grads, token_scores};
pub(crate) use storage::{change, read};
