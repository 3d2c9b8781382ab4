//! What stands between the matrices of a layer, with derivatives: kernels of [`host`] on the processor, Burn's operations on
//! other devices and where a graph is built.

use burn::nn::RmsNorm;
use burn::tensor::Tensor;
use burn::tensor::activation::{sigmoid, silu};

use super::host;

/// `silu(gate) * up` (`SwiGLU`, Shazeer 2020).
pub(crate) fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    if host::runs_on(&gate) { host::swiglu(gate, up) } else { silu(gate) * up }
}

/// Derivatives by `gate` and `up` of a loss whose derivative by [`swiglu`]'s result is `grad`, all `[n, intermediate]`.
pub(crate) fn swiglu_backward(gate: Tensor<2>, up: Tensor<2>, grad: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    if host::runs_on(&gate) {
        return host::swiglu_backward(gate, up, grad);
    }
    let weight = sigmoid(gate.clone());
    let rise = weight.clone() * ((weight.clone().neg() + 1.0) * gate.clone() + 1.0);
    (grad.clone() * up * rise, grad * gate * weight)
}

/// `x / sqrt(mean(x^2) + epsilon) * gamma` over the last dimension (Zhang and Sennrich 2019).
pub(crate) fn normalise<const D: usize>(norm: &RmsNorm, x: Tensor<D>) -> Tensor<D> {
    if host::runs_on(&x) { host::rms_norm(x, &norm.gamma.val(), norm.epsilon) } else { norm.forward(x) }
}

/// Derivatives by `x` and by gamma, `[width]`, of a loss whose derivative by [`normalise`]'s result is `grad`. With
/// r = 1 / sqrt(mean(x^2) + epsilon) and u = gamma grad: r u - x r^3 mean(u x), and the sum of grad x r over all rows.
pub(crate) fn normalise_backward<const D: usize>(
    norm: &RmsNorm,
    x: Tensor<D>,
    grad: Tensor<D>,
) -> (Tensor<D>, Tensor<1>) {
    let gamma = norm.gamma.val();
    if host::runs_on(&x) {
        return host::rms_norm_backward(x, &gamma, norm.epsilon, grad);
    }
    let [width] = gamma.dims();
    let inverse = (x.clone().square().mean_dim(D - 1) + norm.epsilon).sqrt().recip();
    let normed = x * inverse.clone();
    let by_gamma = (grad.clone() * normed.clone()).reshape([-1, width as i32]).sum_dim(0).reshape([width]);
    let weighed = grad * gamma.unsqueeze();
    let level = (weighed.clone() * normed.clone()).mean_dim(D - 1);
    ((weighed - normed * level) * inverse, by_gamma)
}
