//! The choice of tokens from logits on the device: what may be asked of a row, and the launches that answer.

use burn::tensor::{DType, Tensor};

use super::kernels::sampling;
use super::launch::{UNITS, argument, cubes, element, empty, stored, tensor, units};
use crate::device::DeviceError;

/// Numbers of 4 bytes to which views of a part of a tensor are aligned on every device.
const ALIGNED: usize = 128;

/// How a row's token is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// The inverse of the temperature.
    pub(crate) sharpness: f32,
    pub(crate) token: Wanted,
}

/// Which token of a row is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// The first at which the cumulative probability exceeds this number from [0, 1).
    Drawn(f32, Cuts),
    /// The most likely one, the first of equals.
    Best,
    /// This one.
    Given(u32),
}

/// What is left of the vocabulary for a draw: the `top_k` most likely tokens (0 for all), of those the fewest with the share
/// `top_p` of their probability, and of those the ones at least `min_p` times as likely as the best.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts {
    pub(crate) top_k: usize,
    pub(crate) top_p: f32,
    pub(crate) min_p: f32,
}

impl Cuts {
    const NONE: Self = Self {
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
    };

    fn any(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }
}

/// A token and ln p(token) in nats for each row of logits, `[n, vocabulary]`; `None` where a logit is not finite. Two launches,
/// a third where a draw is cut, and 12 bytes per row are read back.
///
/// # Errors
/// [`DeviceError::Lost`] with the words of the runtime when the result cannot be read.
pub(crate) fn choose(
    logits: Tensor<2>,
    choices: &[Choice],
) -> Result<Vec<Option<(u32, f32)>>, DeviceError> {
    let [rows, vocabulary] = logits.dims();
    let device = logits.device();
    let setting = |choice: &Choice| {
        let (uniform, token, cuts) = match choice.token {
            Wanted::Drawn(uniform, cuts) => (uniform, sampling::DRAW, cuts),
            Wanted::Best => (0.0, sampling::BEST, Cuts::NONE),
            // Ids below 2^24 are exact in f32, and no vocabulary is larger.
            Wanted::Given(token) => (0.0, token as f32, Cuts::NONE),
        };
        let Cuts {
            top_k,
            top_p,
            min_p,
        } = cuts;
        [choice.sharpness, uniform, token, top_k as f32, top_p, min_p]
    };
    // Answers first, so that what is read back is the beginning; it is a view where the rest is a multiple of the alignment.
    let mut table = vec![0.0; rows * sampling::ANSWER];
    table.extend(choices.iter().flat_map(setting));
    let rest = (rows * sampling::SETTINGS).next_multiple_of(ALIGNED);
    table.resize(rows * sampling::ANSWER + rest, 0.0);
    let table = stored(Tensor::<1>::from_floats(table.as_slice(), &device));
    let logits = stored(logits);
    let stretches = vocabulary.div_ceil(sampling::STRETCH);
    let stats = empty(&logits, [rows, stretches, 3], DType::F32);
    sampling::softmax_stats::launch(
        &logits.client,
        cubes(rows, stretches, 1),
        units(UNITS),
        argument(&logits),
        argument(&table),
        argument(&stats),
        vocabulary as u32,
        UNITS,
        element(&logits),
    );
    sampling::draw::launch(
        &logits.client,
        cubes(rows, 1, 1),
        units(UNITS),
        argument(&logits),
        argument(&table),
        argument(&stats),
        vocabulary as u32,
        stretches as u32,
        UNITS,
        element(&logits),
    );
    let cut = |choice: &Choice| matches!(choice.token, Wanted::Drawn(_, cuts) if cuts.any());
    if choices.iter().any(cut) {
        let most = logits.client.properties().hardware.max_units_per_cube as usize;
        let wide = most.min(1024);
        sampling::draw_cut::launch(
            &logits.client,
            cubes(rows, 1, 1),
            units(wide),
            argument(&logits),
            argument(&table),
            argument(&stats),
            vocabulary as u32,
            stretches as u32,
            wide,
            element(&logits),
        );
    }
    let found: Vec<f32> = tensor::<1>(table)
        .narrow(0, 0, rows * sampling::ANSWER)
        .into_data()
        .try_into_vec()
        .map_err(|error| DeviceError::Lost(format!("{error:?}")))?;
    let row = |row: &[f32]| (row[2] == 0.0).then_some((row[0] as u32, row[1]));
    Ok(found.chunks_exact(sampling::ANSWER).map(row).collect())
}
