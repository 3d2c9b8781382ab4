//! Generation on a device: a pass of about ten launches per layer, with our own kernels and products by `CubeK`.

mod eight_bit;
mod joined;
mod kernels;
mod launch;
mod layer;
mod maps;
mod packed;
mod pass;
mod product;
mod sampling;
mod training;

pub(super) use eight_bit::{product_of_8_bits, widened};
pub(super) use joined::{Base, Joined};
pub(crate) use launch::sums_of_squares;
pub(super) use launch::{by_output, rms_norm, swiglu};
pub(crate) use layer::KeptJoined;
pub(super) use layer::{JoinedLayer, separate};
pub(super) use packed::Packed;
pub(super) use pass::{CubeCache, hidden};
pub(crate) use product::{all_product_kernels, product_by, product_kernels};
pub(super) use product::{product, product_in_f32};
pub(crate) use sampling::{Choice, Cuts, Wanted, choose};
pub(crate) use training::{Codes, MOMENT_BLOCK, adamw, adamw_of_8_bits, logit_grads, token_scores};
pub(super) use training::{rms_norm_backward, rotate, swiglu_backward};
