//! The operations of a decoder, each with its derivative: kernels of [`host`] on the processor, kernels of `cube` on other devices, and
//! Burn's operations where a graph is built or neither has a kernel.

use burn::nn::RmsNorm;
use burn::tensor::activation::{sigmoid, silu};
use burn::tensor::{DType, Device, Tensor};

#[cfg(feature = "gpu")]
use super::cube;
use super::host;
use crate::device::is_processor;

/// The kernels that a pass runs, chosen once by the device of its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernels {
    /// The kernels of [`host`], which carry no graph.
    Processor,
    /// Our own kernels for the devices of `CubeCL`, where they exist; Burn's operations elsewhere.
    #[cfg(feature = "gpu")]
    Cube,
    /// Burn's operations, which build graphs. Whatever the type of stored numbers, everything between products is computed in f32, as in
    /// the kernels of a device.
    Burn,
}

impl Kernels {
    /// Chooses the kernels of a device that computes in numbers of type `dtype`. The processor's autodiff device builds graphs, and the
    /// processor's own kernels compute in f32 only.
    pub(crate) fn of_type(device: &Device, dtype: DType) -> Self {
        match Self::of(device) {
            Self::Processor if dtype != DType::F32 => Self::Burn,
            kernels => kernels,
        }
    }

    /// Chooses the kernels of a device that computes in f32.
    pub(crate) fn of(device: &Device) -> Self {
        match (is_processor(device), device.is_autodiff()) {
            (true, false) => Self::Processor,
            #[cfg(feature = "gpu")]
            (false, false) => Self::Cube,
            _ => Self::Burn,
        }
    }

    /// `x W` for a weight of logical shape `[inputs, outputs]`. The processor's kernels read weights in either order, and a row
    /// of the result has the same bits whatever other rows there are.
    pub(crate) fn matmul(self, x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
        if self == Self::Processor {
            return host::product(x, &weight);
        }
        // A frozen base may be kept in half precision; Burn multiplies equal types only.
        let weight = if weight.dtype() == x.dtype() {
            weight
        } else {
            weight.cast(x.dtype())
        };
        match self {
            #[cfg(feature = "gpu")]
            Self::Cube => cube::product(x, weight),
            _ => x.matmul(weight),
        }
    }

    /// `a b`, `[rows, inner]` and `[inner, columns]` or stacks of as many: attention and derivatives, in which a row's bits may
    /// depend on what other rows there are.
    pub(crate) fn product<const D: usize>(self, a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Processor => host::matmul(a, b),
            #[cfg(feature = "gpu")]
            Self::Cube => cube::product(a, b),
            Self::Burn => a.matmul(b),
        }
    }

    /// `silu(gate) * up` (`SwiGLU`, Shazeer 2020).
    pub(crate) fn swiglu(self, gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Processor => host::swiglu(gate, up),
            #[cfg(feature = "gpu")]
            Self::Cube => cube::swiglu(gate, up),
            Self::Burn => {
                let dtype = gate.dtype();
                (silu(gate.cast(DType::F32)) * up.cast(DType::F32)).cast(dtype)
            }
        }
    }

    /// Derivatives by `gate` and `up` of a loss whose derivative by [`Self::swiglu`]'s result is `grad`, all `[n, intermediate]`.
    pub(crate) fn swiglu_backward(
        self,
        gate: Tensor<2>,
        up: Tensor<2>,
        grad: Tensor<2>,
    ) -> (Tensor<2>, Tensor<2>) {
        match self {
            Self::Processor => host::swiglu_backward(gate, up, grad),
            #[cfg(feature = "gpu")]
            Self::Cube => cube::swiglu_backward(gate, up, grad),
            Self::Burn => {
                let dtype = gate.dtype();
                let [gate, up, grad] = [gate, up, grad].map(|x| x.cast(DType::F32));
                let weight = sigmoid(gate.clone());
                let rise = weight.clone() * ((weight.clone().neg() + 1.0) * gate.clone() + 1.0);
                let by_gate = grad.clone() * up * rise;
                (by_gate.cast(dtype), (grad * gate * weight).cast(dtype))
            }
        }
    }

    /// `x / sqrt(mean(x^2) + epsilon) * gamma` over the last dimension (Zhang and Sennrich 2019).
    pub(crate) fn normalise<const D: usize>(self, norm: &RmsNorm, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Processor => host::rms_norm(x, &norm.gamma.val(), norm.epsilon),
            #[cfg(feature = "gpu")]
            Self::Cube => {
                let shape = x.shape();
                let [width] = norm.gamma.val().dims();
                cube::rms_norm(
                    x.reshape([-1, width as i32]),
                    norm.gamma.val(),
                    norm.epsilon,
                )
                .reshape(shape)
            }
            Self::Burn if x.dtype() == DType::F32 => norm.forward(x),
            Self::Burn => {
                let (dtype, x) = (x.dtype(), x.cast(DType::F32));
                let inverse = inverse_root(x.clone(), norm.epsilon);
                let gamma = norm.gamma.val().cast(DType::F32);
                (x * inverse * gamma.unsqueeze()).cast(dtype)
            }
        }
    }

    /// Derivatives by `x` and, where it learns, by gamma, `[width]`, of a loss whose derivative by [`Self::normalise`]'s result is
    /// `grad`. With r = 1 / sqrt(mean(x^2) + epsilon) and u = gamma grad: r u - x r^3 mean(u x), and the sum of grad x r over all rows.
    pub(crate) fn normalise_backward<const D: usize>(
        self,
        norm: &RmsNorm,
        x: Tensor<D>,
        grad: Tensor<D>,
        learns: bool,
    ) -> (Tensor<D>, Option<Tensor<1>>) {
        let gamma = norm.gamma.val();
        let [width] = gamma.dims();
        match self {
            Self::Processor => {
                let (by_x, by_gamma) = host::rms_norm_backward(x, &gamma, norm.epsilon, grad);
                return (by_x, learns.then_some(by_gamma));
            }
            #[cfg(feature = "gpu")]
            Self::Cube => {
                let shape = x.shape();
                let [x, grad] = [x, grad].map(|x| x.reshape([-1, width as i32]));
                let (by_x, by_gamma) =
                    cube::rms_norm_backward(x, gamma, norm.epsilon, grad, learns);
                return (by_x.reshape(shape), by_gamma);
            }
            Self::Burn => {}
        }
        let (dtype, gamma) = (x.dtype(), gamma.cast(DType::F32));
        let [x, grad] = [x, grad].map(|x| x.cast(DType::F32));
        let inverse = inverse_root(x.clone(), norm.epsilon);
        let normed = x * inverse.clone();
        let by_gamma = learns.then(|| {
            (grad.clone() * normed.clone())
                .reshape([-1, width as i32])
                .sum_dim(0)
                .reshape([width])
        });
        let weighed = grad * gamma.unsqueeze();
        let level = (weighed.clone() * normed.clone()).mean_dim(D - 1);
        (((weighed - normed * level) * inverse).cast(dtype), by_gamma)
    }

    /// Rotates `x` of shape `[n, heads, head_dim]` by the angles of its positions. The derivative by `x` is that by the result,
    /// rotated by the negative angles.
    pub(super) fn rotate(self, x: Tensor<3>, cos: &Tensor<3>, sin: &Tensor<3>) -> Tensor<3> {
        match self {
            Self::Processor => return host::rotate(x, cos, sin),
            #[cfg(feature = "gpu")]
            Self::Cube => return cube::rotate(x, cos, sin),
            Self::Burn => {}
        }
        let [n, heads, dim] = x.dims();
        let half = dim / 2;
        let (dtype, x) = (x.dtype(), x.cast(DType::F32));
        let first = x.clone().slice([0..n, 0..heads, 0..half]);
        let second = x.slice([0..n, 0..heads, half..dim]);
        let rotated_first = first.clone() * cos.clone() - second.clone() * sin.clone();
        let rotated_second = second * cos.clone() + first * sin.clone();
        Tensor::cat(vec![rotated_first, rotated_second], 2).cast(dtype)
    }
}

/// 1 / sqrt(mean(x^2) + epsilon) over the last dimension.
fn inverse_root<const D: usize>(x: Tensor<D>, epsilon: f64) -> Tensor<D> {
    (x.square().mean_dim(D - 1) + epsilon).sqrt().recip()
}
