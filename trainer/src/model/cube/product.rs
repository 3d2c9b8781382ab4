//! Products of matrices: kernels of `CubeK`, chosen by shape and type.

use burn::tensor::{DType, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulSetupError};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::matmul::multi_level::components::tile::TileMatmulKind;
use cubek::matmul::multi_level::routines::TileSizeSelection;
use cubek::matmul::multi_level::routines::batch::double_buffering::DoubleBufferingArgs;
use cubek::matmul::multi_level::routines::batch::double_unit::DoubleUnitSelectionArgs;
use cubek::matmul::multi_level::routines::batch::ordered_double_buffering::OrderedSelectionArgs;
use cubek::matmul::multi_level::routines::batch::simple::SimpleArgs;
use cubek::matmul::multi_level::routines::batch::simple_unit::SimpleUnitSelectionArgs;
use cubek::matmul::multi_level::routines::batch::specialized::SpecializedStrategy;
use cubek::matmul::multi_level::routines::gemm::GemmStrategy;
use cubek::matmul::multi_level::routines::gemv_unit_perpendicular::GemvUnitPerpendicularStrategy;
use cubek::matmul::routine::BlueprintStrategy::Inferred;
use cubek::std::InputBinding;

use super::launch::{ON_A_DEVICE, element, empty, tensor};

/// Settings with one row of fragments per plane, or several.
const fn rows(multi_rows: bool) -> SimpleArgs {
    SimpleArgs {
        multi_rows,
        tile_matmul: TileMatmulKind::Mma,
    }
}

/// Settings of double buffering; with `specialized`, some planes load tiles and the others multiply.
const fn double(specialized: bool) -> DoubleBufferingArgs {
    DoubleBufferingArgs {
        specialized,
        tile_matmul: TileMatmulKind::Mma,
    }
}

const fn ordered(row_count: u32) -> OrderedSelectionArgs {
    OrderedSelectionArgs {
        partition_k: Some(2),
        row_count: Some(row_count),
        rows_per_plane: Some(2),
        tile_matmul: TileMatmulKind::Mma,
    }
}

const fn unit(tile_size: TileSizeSelection) -> SimpleUnitSelectionArgs {
    SimpleUnitSelectionArgs { tile_size }
}

const fn double_unit(tile_size: TileSizeSelection) -> DoubleUnitSelectionArgs {
    DoubleUnitSelectionArgs { tile_size }
}

/// Kernels that `forage bench products` compares.
pub(crate) fn all_product_kernels() -> Vec<Strategy> {
    use TileSizeSelection::{MaxTileSize, MinTileSize};
    vec![
        Strategy::SimpleCyclicCmma(Inferred(rows(false))),
        Strategy::SimpleCyclicCmma(Inferred(rows(true))),
        Strategy::SimpleCyclicMma(Inferred(rows(false))),
        Strategy::SimpleCyclicMma(Inferred(rows(true))),
        Strategy::SimpleTmaCmma(Inferred(rows(false))),
        Strategy::SimpleTmaCmma(Inferred(rows(true))),
        Strategy::SimpleTmaMma(Inferred(rows(false))),
        Strategy::SimpleTmaMma(Inferred(rows(true))),
        Strategy::OrderedDoubleCmma(Inferred(ordered(4))),
        Strategy::OrderedDoubleMma(Inferred(ordered(4))),
        Strategy::OrderedDoubleCmma(Inferred(ordered(8))),
        Strategy::OrderedDoubleMma(Inferred(ordered(8))),
        Strategy::DoubleCyclicCmma(Inferred(double(false))),
        Strategy::DoubleCyclicMma(Inferred(double(false))),
        Strategy::DoubleCyclicCmma(Inferred(double(true))),
        Strategy::DoubleCyclicMma(Inferred(double(true))),
        Strategy::DoubleTmaCmma(Inferred(double(false))),
        Strategy::DoubleTmaMma(Inferred(double(false))),
        Strategy::SpecializedCyclicCmma(Inferred(SpecializedStrategy::default())),
        Strategy::SpecializedCyclicMma(Inferred(SpecializedStrategy::default())),
        Strategy::SpecializedTmaCmma(Inferred(SpecializedStrategy::default())),
        Strategy::SpecializedTmaMma(Inferred(SpecializedStrategy::default())),
        Strategy::Gemm(Inferred(GemmStrategy::default())),
        Strategy::SimpleVecMat(Inferred(().into())),
        Strategy::DoubleVecMat(Inferred(().into())),
        Strategy::GemvUnitPerpendicular(Inferred(GemvUnitPerpendicularStrategy::default())),
        Strategy::SimpleUnit(Inferred(unit(MaxTileSize))),
        Strategy::SimpleUnit(Inferred(unit(MinTileSize))),
        Strategy::DoubleUnit(Inferred(double_unit(MaxTileSize))),
        Strategy::DoubleUnit(Inferred(double_unit(MinTileSize))),
    ]
}

/// Writes the product of `lhs` and `rhs` into `out` by one kernel.
fn launch(
    strategy: &Strategy,
    lhs: CubeTensor,
    rhs: CubeTensor,
    out: CubeTensor,
) -> Result<(), MatmulSetupError> {
    let mut elements = MatmulElems::from_globals(&MatmulGlobalElems {
        lhs: element(&lhs),
        rhs: element(&rhs),
        out: element(&out),
    });
    let client = out.client.clone();
    let (of_lhs, of_rhs) = (element(&lhs), element(&rhs));
    launch_ref(
        &strategy.clone().into(),
        &client,
        InputBinding::new(lhs.binding(), of_lhs),
        InputBinding::new(rhs.binding(), of_rhs),
        out.binding(),
        &mut elements,
    )
}

/// Largest number of rows for which products use small tiles or none: those of a decode step.
const FEW: usize = 64;

/// Kernels for a product of matrices of type `dtype` whose left one has `rows_of_a` rows, best first. A kernel that the device cannot run
/// is skipped; the last one runs everywhere.
///
/// f32 is multiplied in f32, not in TF32. There is no tuning at run time: comparing kernels means compiling them, NVRTC takes one to
/// seven seconds for a tensor-core kernel, and a model has some twenty sizes of products. `bench/gpu/products.py` compares them.
pub(crate) fn product_kernels(rows_of_a: usize, dtype: DType) -> Vec<Strategy> {
    let few = rows_of_a <= FEW;
    let plain = Strategy::Gemm(Inferred(GemmStrategy::default()));
    let tiled = Strategy::SimpleUnit(Inferred(unit(TileSizeSelection::MaxTileSize)));
    let mut kernels = match (dtype, rows_of_a) {
        (DType::F32, _) => Vec::new(),
        (_, 1) => vec![Strategy::SimpleVecMat(Inferred(().into()))],
        (_, 2..=FEW) => vec![Strategy::SimpleCyclicMma(Inferred(rows(false)))],
        _ => vec![Strategy::DoubleCyclicMma(Inferred(double(false)))],
    };
    if dtype != DType::F32 {
        kernels.push(Strategy::SimpleCyclicCmma(Inferred(rows(!few))));
    }
    kernels.extend(if few { [plain, tiled] } else { [tiled, plain] });
    kernels.push(Strategy::Naive);
    kernels
}

/// `a b`, of `[rows, inner]` and `[inner, columns]`, or of equally many of each in a batch, of one type. The rows of the result are
/// contiguous: Burn's own product pads them on CUDA, so that the next kernel would have to copy them.
pub(crate) fn product<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    let dtype = a.dtype();
    product_of_type(a, b, dtype)
}

/// As [`product`], with a result in f32 whatever the type of both.
pub(crate) fn product_in_f32(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    product_of_type(a, b, DType::F32)
}

fn product_of_type<const D: usize>(a: Tensor<D>, b: Tensor<D>, dtype: DType) -> Tensor<D> {
    let (of_a, of_b) = (a.dims(), b.dims());
    let (rows, inner, columns) = (of_a[D - 2], of_a[D - 1], of_b[D - 1]);
    let mut shape = of_a;
    shape[D - 1] = columns;
    if shape.contains(&0) || inner == 0 {
        return Tensor::zeros(shape, (&a.device(), dtype));
    }
    let given = a.dtype();
    let [a, b] = [a, b].map(|x| x.try_into_primitive::<CubeBackend>().expect(ON_A_DEVICE));
    let out = empty(&a, shape, dtype);
    let mut fault = None;
    for strategy in product_kernels(rows, given) {
        match launch(&strategy, a.clone(), b.clone(), out.clone()) {
            Ok(()) => return tensor(out),
            Err(why) => fault = Some(format!("{strategy}: {why:?}")),
        }
    }
    panic!("no kernel multiplies {of_a:?} by {of_b:?}: {fault:?}")
}

/// Computes `a b` by one of the [`all_product_kernels`], or returns why that kernel cannot.
pub(crate) fn product_by(
    strategy: &Strategy,
    a: Tensor<2>,
    b: Tensor<2>,
    dtype: DType,
) -> Result<Tensor<2>, MatmulSetupError> {
    let ([rows, _], [_, columns]) = (a.dims(), b.dims());
    let [a, b] = [a, b].map(|x| x.try_into_primitive::<CubeBackend>().expect(ON_A_DEVICE));
    let out = empty(&a, [rows, columns], dtype);
    launch(strategy, a, b, out.clone())?;
    Ok(tensor(out))
}
