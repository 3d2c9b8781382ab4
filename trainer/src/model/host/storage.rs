//! The numbers of a tensor on the processor, read and changed in place.

use burn::backend::Flex;
use burn::tensor::{Tensor, TensorData};

/// Hands a tensor's numbers, row-major, to `use_them`; copied only when they are stored otherwise.
pub(crate) fn read<const D: usize, T>(x: Tensor<D>, use_them: impl FnOnce(&[f32]) -> T) -> T {
    let count = x.shape().num_elements();
    let x = x
        .try_into_primitive::<Flex>()
        .expect("the caller checked that the tensor is on the processor");
    let x = if x.is_contiguous() {
        x
    } else {
        x.to_contiguous()
    };
    let first = x.layout().start_offset();
    use_them(&x.storage::<f32>()[first..first + count])
}

/// Changes a tensor's numbers, row-major, in place; those that another tensor shares are copied first.
pub(crate) fn change<const D: usize>(
    x: Tensor<D>,
    change_them: impl FnOnce(&mut [f32]),
) -> Tensor<D> {
    let (shape, device) = (x.shape(), x.device());
    let primitive = |x: Tensor<D>| {
        x.try_into_primitive::<Flex>()
            .expect("the caller checked that the tensor is on the processor")
    };
    let mut stored = primitive(x);
    let whole = stored.is_contiguous() && stored.storage::<f32>().len() == shape.num_elements();
    if !whole {
        let numbers = read(Tensor::<D>::from_primitive::<Flex>(stored), <[f32]>::to_vec);
        stored = primitive(Tensor::from_data(TensorData::new(numbers, shape), &device));
    }
    change_them(stored.storage_mut::<f32>());
    Tensor::from_primitive::<Flex>(stored)
}
