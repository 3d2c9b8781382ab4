//! Moments in a file and back.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData};
use safetensors::tensor::{Dtype, SafeTensors, View};

use super::eight_bit::{BLOCK, EightBit, Quantised};
#[cfg(feature = "gpu")]
use super::packed::Packed;
use super::{AdamW, AdamWConfig, Entry, Kept, Moments};
use crate::file_error::FileError;
use crate::model::{Decoder, Kernels};
use crate::ranks::{Questions, RankError, Ranks, Shard, floats};
use crate::weights::{FileType, Written, map};

impl AdamW {
    /// Writes the moments as safetensors: `first.NAME`, `second.NAME`, and of those of 8 bits `first_codes.NAME`, `first_scales.NAME`,
    /// `root_codes.NAME` and `root_scales.NAME`. Rank 0 writes those of a sharded optimizer, while the others [`Self::send`] it
    /// theirs: the file is the same.
    ///
    /// # Errors
    /// [`FileError`] that names the file, or the rank that was lost before all was written.
    pub(crate) fn save(&self, path: &Path, ranks: &Ranks) -> Result<(), FileError> {
        let others = self.is_sharded().then(|| Others {
            shard: self.shard,
            questions: ranks.ask(),
            lost: OnceCell::new(),
        });
        let mut tensors = Vec::new();
        for (name, entry) in &self.moments {
            for kind in entry.kinds() {
                let name = format!("{}.{name}", kind.name);
                let tensor = Saved {
                    name: name.clone(),
                    kind,
                    entry,
                    shape: [kind.numbers(entry.count)],
                    others: others.as_ref(),
                };
                tensors.push((name, tensor));
            }
        }
        // One tensor at a time is copied.
        safetensors::serialize_to_file(tensors, None, path)
            .map_err(|error| fault(path, format!("cannot be written: {error}")))?;
        let ended = others.map_or(Ok(()), Others::end);
        ended.map_err(|error| fault(path, error.to_string()))
    }

    /// Sends rank 0 the moments that are kept here, while it saves them. Does nothing where each rank keeps all.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost.
    pub(crate) fn send(&self, ranks: &Ranks) -> Result<(), RankError> {
        if !self.is_sharded() {
            return Ok(());
        }
        ranks.answer(|question| {
            let (kind, name) = question.split_once('.')?;
            let entry = self.moments.get(name)?;
            let kind = entry.kinds().iter().find(|own| own.name == kind)?;
            Some(entry.bytes(kind))
        })
    }

    /// Reads what [`Self::save`] wrote, and keeps the moments of `shard` alone where `config` says so; `step` is the number of
    /// updates done. Moments of another kind than `config` wants are made into those.
    ///
    /// # Errors
    /// [`FileError`] when the file is missing or damaged.
    pub(crate) fn load(
        config: AdamWConfig,
        shard: Shard,
        step: u64,
        path: &Path,
        device: &Device,
    ) -> Result<Self, FileError> {
        let shard = if config.sharded { shard } else { Shard::WHOLE };
        let fail = |message: String| fault(path, message);
        // Of a mapped file only what is read takes memory: the share of a rank.
        let bytes = map(path).map_err(|error| fail(error.to_string()))?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|error| fail(format!("is damaged ({error}); {FIX}")))?;
        if step > 0 && file.is_empty() {
            let message = format!("holds no moments after {step} updates; {FIX}");
            return Err(fail(message));
        }
        let reader = Reader { path, file: &file };
        let mut moments = BTreeMap::new();
        for name in file.names() {
            let (parameter, found) = if let Some(parameter) = name.strip_prefix("first.") {
                let both = reader.full(parameter)?;
                let count = both[0].len() / size_of::<f32>();
                let part = |own: Range<usize>| {
                    let own = own.start * size_of::<f32>()..own.end * size_of::<f32>();
                    both.map(|bytes| floats(&bytes[own.clone()]).collect::<Vec<f32>>())
                };
                (parameter, Entry::of(&config, shard, count, device, part))
            } else if let Some(parameter) = name.strip_prefix("first_codes.") {
                let found = reader.eight_bit(parameter)?;
                let count = found.first.codes.len();
                let entry = if config.quantises(count, Kernels::of(device)) {
                    Entry::of_8_bits(shard, &found, device)
                } else {
                    let all = found.widened();
                    let part = |own: Range<usize>| all.map(|numbers| numbers[own.clone()].to_vec());
                    Entry::of(&config, shard, count, device, part)
                };
                (parameter, entry)
            } else {
                continue;
            };
            moments.insert(parameter.to_owned(), found);
        }
        Ok(Self {
            config,
            step,
            shard,
            moments,
        })
    }

    /// Checks that the moments, which were read from `path`, are of as many numbers as the parameters of `decoder`.
    ///
    /// # Errors
    /// [`FileError`] that names the parameter.
    pub(crate) fn check_fit(&self, decoder: &Decoder, path: &Path) -> Result<(), FileError> {
        let mut sizes = Sizes::default();
        decoder.visit(&mut sizes);
        for (name, entry) in &self.moments {
            let (found, count) = (entry.count, sizes.found.get(name));
            if let Some(count) = count.filter(|&&count| count != found) {
                let message = format!(
                    "the moments of `{name}` are of {found} numbers, and it has {count}; {FIX}"
                );
                return Err(fault(path, message));
            }
        }
        Ok(())
    }
}

/// The numbers of every parameter by its name.
#[derive(Default)]
struct Sizes {
    path: Vec<String>,
    found: BTreeMap<String, usize>,
}

impl ModuleVisitor for Sizes {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let count = param.lazy_shape().num_elements();
        self.found.insert(self.path.join("."), count);
    }
}

/// One of the tensors that the moments of a parameter are in a file.
struct Kind {
    name: &'static str,
    dtype: Dtype,
    /// Bytes of a number.
    width: usize,
    /// Numbers of the parameter for each number of it.
    per: usize,
}

impl Kind {
    const fn full(name: &'static str) -> Self {
        Self {
            name,
            dtype: Dtype::F32,
            width: size_of::<f32>(),
            per: 1,
        }
    }

    const fn codes(name: &'static str) -> Self {
        Self {
            name,
            dtype: Dtype::U8,
            width: 1,
            per: 1,
        }
    }

    const fn scales(name: &'static str) -> Self {
        Self {
            per: BLOCK,
            ..Self::full(name)
        }
    }

    /// Its numbers for so many of the parameter's.
    fn numbers(&self, count: usize) -> usize {
        count.div_ceil(self.per)
    }

    /// Its bytes for so many of the parameter's numbers.
    fn bytes(&self, count: usize) -> usize {
        self.numbers(count) * self.width
    }
}

static FULL: [Kind; 2] = [Kind::full("first"), Kind::full("second")];
static EIGHT_BIT: [Kind; 4] = [
    Kind::codes("first_codes"),
    Kind::scales("first_scales"),
    Kind::codes("root_codes"),
    Kind::scales("root_scales"),
];

impl Kept {
    /// Moments of 8 bits, on the device of the parameter.
    fn of_8_bits(moments: EightBit, device: &Device) -> Self {
        #[cfg(feature = "gpu")]
        if Kernels::of(device) == Kernels::Cube {
            return Self::Packed(Packed::of(&moments, device));
        }
        #[cfg(not(feature = "gpu"))]
        let _ = device;
        Self::EightBit(moments)
    }
}

impl Entry {
    /// The entry of a parameter of `count` numbers, of the kind that `config` wants; `moments` gives both moments of some of them.
    fn of(
        config: &AdamWConfig,
        shard: Shard,
        count: usize,
        device: &Device,
        moments: impl FnOnce(Range<usize>) -> [Vec<f32>; 2],
    ) -> Self {
        let mut entry = Self {
            count,
            in_8_bits: config.quantises(count, Kernels::of(device)),
            kept: None,
        };
        let own = shard.own(entry.cut());
        if own.is_empty() {
            return entry;
        }
        let [first, second] = moments(own);
        entry.kept = Some(if entry.in_8_bits {
            Kept::of_8_bits(EightBit::of(&first, &second), device)
        } else {
            let [first, second] = [first, second].map(|numbers| {
                let count = numbers.len();
                Tensor::from_data(TensorData::new(numbers, [count]), device)
            });
            Kept::Full(Moments { first, second })
        });
        entry
    }

    /// The entry of a parameter whose moments, whole, are of 8 bits.
    fn of_8_bits(shard: Shard, moments: &EightBit, device: &Device) -> Self {
        let mut entry = Self {
            count: moments.first.codes.len(),
            in_8_bits: true,
            kept: None,
        };
        let own = shard.own(entry.cut());
        if !own.is_empty() {
            entry.kept = Some(Kept::of_8_bits(moments.part(&own), device));
        }
        entry
    }

    /// The tensors that it is in a file.
    fn kinds(&self) -> &'static [Kind] {
        if self.in_8_bits { &EIGHT_BIT } else { &FULL }
    }

    /// The bytes of the share of one of them that is kept here.
    fn bytes(&self, kind: &Kind) -> Cow<'_, [u8]> {
        match (&self.kept, kind.name) {
            (Some(Kept::Full(moments)), "first") => Cow::Owned(numbers(&moments.first)),
            (Some(Kept::Full(moments)), _) => Cow::Owned(numbers(&moments.second)),
            (Some(Kept::EightBit(moments)), "first_codes") => {
                Cow::Borrowed(moments.first.codes.as_slice())
            }
            (Some(Kept::EightBit(moments)), "first_scales") => {
                Cow::Owned(scales(&moments.first.scales))
            }
            (Some(Kept::EightBit(moments)), "root_codes") => {
                Cow::Borrowed(moments.root.codes.as_slice())
            }
            (Some(Kept::EightBit(moments)), _) => Cow::Owned(scales(&moments.root.scales)),
            #[cfg(feature = "gpu")]
            (Some(Kept::Packed(moments)), kind) => Cow::Owned(match kind {
                "first_codes" => moments.codes(&moments.first),
                "first_scales" => numbers(&moments.first.scales),
                "root_codes" => moments.codes(&moments.root),
                _ => numbers(&moments.root.scales),
            }),
            (None, _) => Cow::Owned(Vec::new()),
        }
    }
}

fn numbers(tensor: &Tensor<1>) -> Vec<u8> {
    let tensor = Written::new(tensor, FileType::F32);
    tensor.data().into_owned()
}

fn scales(scales: &[f32]) -> Vec<u8> {
    let bytes = scales.iter().flat_map(|scale| scale.to_le_bytes());
    bytes.collect()
}

/// What to do about a damaged file.
const FIX: &str = "resume from an earlier checkpoint";

fn fault(path: &Path, message: String) -> FileError {
    FileError {
        path: path.to_owned(),
        message,
    }
}

/// A file that is read.
struct Reader<'a> {
    path: &'a Path,
    file: &'a SafeTensors<'a>,
}

impl<'a> Reader<'a> {
    /// The bytes of a tensor of this type.
    fn bytes(&self, name: &str, dtype: Dtype, kind: &str) -> Result<&'a [u8], FileError> {
        let view = self
            .file
            .tensor(name)
            .map_err(|error| fault(self.path, error.to_string()))?;
        if view.dtype() != dtype {
            let message = format!("`{name}` is not {kind}; {FIX}");
            return Err(fault(self.path, message));
        }
        Ok(view.data())
    }

    fn numbers(&self, name: &str) -> Result<&'a [u8], FileError> {
        self.bytes(name, Dtype::F32, "f32")
    }

    /// The bytes of the moments of a parameter in f32.
    fn full(&self, parameter: &str) -> Result<[&'a [u8]; 2], FileError> {
        let first = self.numbers(&format!("first.{parameter}"))?;
        let second = self.numbers(&format!("second.{parameter}"))?;
        if first.len() != second.len() {
            return Err(self.apart(parameter));
        }
        Ok([first, second])
    }

    fn quantised(&self, kind: &str, parameter: &str) -> Result<Quantised, FileError> {
        let codes = self.bytes(&format!("{kind}_codes.{parameter}"), Dtype::U8, "u8")?;
        let scales = self.numbers(&format!("{kind}_scales.{parameter}"))?;
        Ok(Quantised {
            codes: codes.to_vec(),
            scales: floats(scales).collect(),
        })
    }

    fn eight_bit(&self, parameter: &str) -> Result<EightBit, FileError> {
        let first = self.quantised("first", parameter)?;
        let root = self.quantised("root", parameter)?;
        EightBit::from_parts(first, root).ok_or_else(|| self.apart(parameter))
    }

    /// The error of moments that are not of as many numbers.
    fn apart(&self, parameter: &str) -> FileError {
        let message = format!("the moments of `{parameter}` do not fit each other; {FIX}");
        fault(self.path, message)
    }
}

/// A moment, or a part of one, on its way into a file.
struct Saved<'a> {
    name: String,
    kind: &'static Kind,
    entry: &'a Entry,
    shape: [usize; 1],
    /// The other ranks, where they keep the rest of the tensor.
    others: Option<&'a Others<'a>>,
}

impl View for Saved<'_> {
    fn dtype(&self) -> Dtype {
        self.kind.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let own = self.entry.bytes(self.kind);
        match self.others {
            Some(others) => Cow::Owned(others.complete(self, own.into_owned())),
            None => own,
        }
    }

    fn data_len(&self) -> usize {
        self.kind.bytes(self.entry.count)
    }
}

/// The ranks that keep the rest of the moments, as rank 0 asks them.
struct Others<'a> {
    shard: Shard,
    questions: Questions<'a>,
    /// The first loss: zeros stand for what comes after it, in a file that nobody is to read.
    lost: OnceCell<RankError>,
}

impl Others<'_> {
    /// All of a tensor of which rank 0 has the first bytes.
    fn complete(&self, tensor: &Saved<'_>, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.reserve_exact(tensor.data_len().saturating_sub(bytes.len()));
        for rank in 1..self.shard.size() {
            let share = self.shard.of(rank, tensor.entry.cut());
            let count = tensor.kind.bytes(share.len());
            let answer = match self.lost.get() {
                None => self.questions.ask(rank, &tensor.name, count),
                Some(error) => Err(error.clone()),
            };
            bytes.extend(answer.unwrap_or_else(|error| {
                let _ = self.lost.set(error);
                vec![0; count]
            }));
        }
        bytes
    }

    fn end(self) -> Result<(), RankError> {
        match self.lost.into_inner() {
            Some(error) => Err(error),
            None => self.questions.end(),
        }
    }
}
