//! Compute devices: their names, what is missing when one cannot be opened, and sizes that suit one. The only module that
//! knows which backends are compiled in.

#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(feature = "gpu")]
mod runtime;
#[cfg(feature = "wgpu")]
mod wgpu;

use std::fmt;
use std::mem::discriminant;
use std::str::FromStr;

use burn::tensor::Device;
#[cfg(feature = "gpu")]
pub(crate) use runtime::{KERNELS_FIX, kernels};
use serde::{Deserialize, Serialize};

/// A type of numbers to compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ComputeType {
    /// Four bytes.
    F32,
    /// Two bytes, with the range of the former.
    Bf16,
}

/// A compute device as a user writes it: `cpu`, `cuda:0`, `rocm:0`, `wgpu:0`, `vulkan:0`, `metal:0`, `wgpu:cpu`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceSpec {
    /// Burn's Flex backend on the processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by index.
    Cuda(usize),
    /// An AMD GPU, by index.
    Rocm(usize),
    /// A device of the system's graphics interface, through WGSL shaders.
    Wgpu(Adapter),
    /// A device of Vulkan, through SPIR-V shaders.
    Vulkan(Adapter),
    /// A device of Metal, through MSL shaders.
    Metal(Adapter),
}

/// A device of a graphics interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// A GPU by index: discrete ones first, then integrated ones, then virtual ones.
    Gpu(usize),
    /// A driver that computes on the processor, as `SwiftShader` does: slow.
    Software,
}

/// A device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The name is not a device.
    #[error(
        "`{0}` is not a device; write cpu, cuda:0, rocm:0, wgpu:0, vulkan:0, metal:0 or, for a software driver, wgpu:cpu"
    )]
    Unknown(String),
    /// The binary lacks the backend.
    #[error(
        "device `{spec}` is not compiled in; build with `--features {feature}` from the sources, which needs Rust (docs/gpu.md), or name \
         cpu: the program of a Python wheel has the devices that it was built with"
    )]
    NotCompiledIn {
        /// The device asked for.
        spec: DeviceSpec,
        /// Cargo feature that brings it.
        feature: &'static str,
    },
    /// The machine lacks the device or a part of its software.
    #[error("device `{spec}` cannot be opened: {missing}; {fix}")]
    Missing {
        /// The device asked for.
        spec: DeviceSpec,
        /// The missing part.
        missing: String,
        /// The way to get it.
        fix: String,
    },
    /// The device is there, but its first computation fails.
    #[error(
        "device `{spec}` is there, but does not compute: {fault}; `forage doctor --device {spec}` looks closer"
    )]
    Broken {
        /// The device asked for.
        spec: DeviceSpec,
        /// The words of the runtime.
        fault: String,
    },
    /// The devices cannot train one policy together.
    #[error("{names} cannot train together: {fault}; {fix}")]
    Together {
        /// The devices asked for.
        names: String,
        /// The fault.
        fault: String,
        /// The fix.
        fix: &'static str,
    },
    /// The device is lost.
    #[error("the device is lost: {0}")]
    Lost(String),
}

impl FromStr for DeviceSpec {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown(text.to_owned());
        let (name, place) = text.split_once(':').unwrap_or((text, "0"));
        let index = || place.parse::<usize>().map_err(|_| unknown());
        let adapter = || {
            if place == "cpu" {
                Ok(Adapter::Software)
            } else {
                index().map(Adapter::Gpu)
            }
        };
        match name {
            "cpu" if !text.contains(':') => Ok(Self::Cpu),
            "cuda" => index().map(Self::Cuda),
            "rocm" => index().map(Self::Rocm),
            "wgpu" => adapter().map(Self::Wgpu),
            "vulkan" => adapter().map(Self::Vulkan),
            "metal" => adapter().map(Self::Metal),
            _ => Err(unknown()),
        }
    }
}

impl TryFrom<String> for DeviceSpec {
    type Error = DeviceError;

    fn try_from(text: String) -> Result<Self, DeviceError> {
        text.parse()
    }
}

impl From<DeviceSpec> for String {
    fn from(spec: DeviceSpec) -> Self {
        spec.to_string()
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Rocm(index) => write!(f, "rocm:{index}"),
            Self::Wgpu(adapter) => write!(f, "wgpu:{adapter}"),
            Self::Vulkan(adapter) => write!(f, "vulkan:{adapter}"),
            Self::Metal(adapter) => write!(f, "metal:{adapter}"),
        }
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(index) => write!(f, "{index}"),
            Self::Software => f.write_str("cpu"),
        }
    }
}

impl DeviceSpec {
    fn feature(self) -> &'static str {
        match self {
            Self::Cpu => "flex",
            Self::Cuda(_) => "cuda",
            Self::Rocm(_) => "rocm",
            Self::Wgpu(_) => "wgpu",
            Self::Vulkan(_) => "vulkan",
            Self::Metal(_) => "metal",
        }
    }

    /// Returns whether this build has the backend of the device.
    pub fn is_compiled_in(self) -> bool {
        match self {
            Self::Cpu => true,
            Self::Cuda(_) => cfg!(feature = "cuda"),
            Self::Rocm(_) => cfg!(feature = "rocm"),
            Self::Wgpu(_) => cfg!(feature = "wgpu"),
            Self::Vulkan(_) => cfg!(feature = "vulkan"),
            Self::Metal(_) => cfg!(feature = "metal"),
        }
    }

    /// Returns whether tensors live in the memory of this program and its own kernels compute.
    pub fn is_cpu(self) -> bool {
        self == Self::Cpu
    }

    /// Returns whether the device is an NVIDIA or AMD GPU behind its maker's driver, which tells how much memory there is.
    pub fn is_cuda_or_rocm(self) -> bool {
        matches!(self, Self::Cuda(_) | Self::Rocm(_))
    }

    /// Returns whether the device multiplies bf16 matrices faster than f32 ones: an AMD GPU as a rule, an NVIDIA one by its compute
    /// capability. One that is not in this machine is taken to do so.
    pub fn prefers_bf16(self) -> bool {
        #[cfg(feature = "cuda")]
        if let Self::Cuda(index) = self {
            return multiplies_bf16(cuda::capability(index));
        }
        self.is_cuda_or_rocm()
    }

    /// Opens the device, without autodiff. The first time it also runs a kernel there, so that what is missing shows here and
    /// not in the middle of a run.
    ///
    /// # Errors
    /// [`DeviceError`] that says what is missing and how to get it.
    pub fn open(self) -> Result<Device, DeviceError> {
        let device = self.open_quietly()?;
        tracing::info!(device = %self, kind = Self::describe(&device), "device opened");
        Ok(device)
    }

    /// Checks that devices of one machine can train one policy together, a rank on each, as far as their names tell.
    ///
    /// # Errors
    /// [`DeviceError::Together`] where they are of several kinds, or a GPU is named twice.
    pub fn check_together(devices: &[Self]) -> Result<(), DeviceError> {
        let fault = |fault: String, fix| Self::apart(devices, fault, fix);
        for (place, &device) in devices.iter().enumerate() {
            if discriminant(&device) != discriminant(&devices[0]) {
                let fix = "name GPUs of one kind, as in cuda:0,cuda:1";
                return Err(fault("they compute different numbers".to_owned(), fix));
            }
            if !device.is_cpu() && devices[..place].contains(&device) {
                let fix = "give each rank a device of its own";
                return Err(fault(format!("{device} is named twice"), fix));
            }
        }
        Ok(())
    }

    /// Opens devices of this machine that are to train one policy together, a rank on each.
    ///
    /// # Errors
    /// [`DeviceError::Together`] as [`DeviceSpec::check_together`], and where NCCL is missing; else as [`DeviceSpec::open`].
    pub fn open_together(devices: &[Self]) -> Result<(), DeviceError> {
        Self::check_together(devices)?;
        for device in devices {
            device.open()?;
        }
        #[cfg(feature = "cuda")]
        if let [Self::Cuda(_), _, ..] = devices
            && let Err(missing) = cuda::nccl_version()
        {
            return Err(Self::apart(devices, missing.to_string(), cuda::NCCL_FIX));
        }
        Ok(())
    }

    /// The error of devices that cannot train together.
    fn apart(devices: &[Self], fault: String, fix: &'static str) -> DeviceError {
        let names: Vec<String> = devices.iter().map(Self::to_string).collect();
        DeviceError::Together {
            names: names.join(","),
            fault,
            fix,
        }
    }

    fn open_quietly(self) -> Result<Device, DeviceError> {
        if self.is_cpu() {
            return Ok(Device::flex());
        }
        #[cfg(feature = "gpu")]
        {
            runtime::configure();
            let device = self.named()?;
            runtime::start(self, &device)?;
            Ok(device)
        }
        #[cfg(not(feature = "gpu"))]
        Err(DeviceError::NotCompiledIn {
            spec: self,
            feature: self.feature(),
        })
    }

    /// The device of this name, of which nothing was asked yet.
    #[cfg(feature = "gpu")]
    fn named(self) -> Result<Device, DeviceError> {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(index) => cuda::Installation::find().device(index),
            #[cfg(feature = "rocm")]
            Self::Rocm(index) => Ok(Device::rocm(index)),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(adapter) => Ok(Device::wgpu(wgpu::kind(self, adapter)?)),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(adapter) => Ok(Device::vulkan(wgpu::kind(self, adapter)?)),
            #[cfg(feature = "metal")]
            Self::Metal(adapter) => Ok(Device::metal(wgpu::kind(self, adapter)?)),
            _ => Err(DeviceError::NotCompiledIn {
                spec: self,
                feature: self.feature(),
            }),
        }
    }
}

/// Returns whether the tensor cores of a card of this compute capability multiply bf16.
#[cfg(any(feature = "cuda", test))]
fn multiplies_bf16(capability: Option<(i32, i32)>) -> bool {
    capability.is_none_or(|found| found >= (8, 0))
}

/// Sizes of what is held between operations, as suits a device: on a processor so much that caches keep it, on a GPU so much
/// that every kernel has work for the whole card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workspace {
    /// Most attention scores at once, over all heads of a block of queries.
    pub(crate) attention_scores: usize,
    /// Most logits at once.
    pub(crate) logits: usize,
}

impl Workspace {
    /// The processor's.
    pub(crate) const PROCESSOR: Self = Self {
        attention_scores: 1 << 22,
        logits: 1 << 24,
    };

    /// The memory of an open device.
    pub(crate) fn of(device: &Device) -> Self {
        #[cfg(feature = "gpu")]
        if let Some(memory) = runtime::memory(device) {
            return Self::with_memory(memory);
        }
        let _ = device;
        Self::PROCESSOR
    }

    /// The memory of a card with `bytes` bytes.
    pub(crate) fn of_card(bytes: u64) -> Self {
        Self::with_memory(Memory {
            bytes,
            largest_buffer: bytes / 4,
        })
    }

    /// A GPU's. A block of scores has some eight tensors of its size beside it, a chunk of logits four: together a tenth of the
    /// memory at most.
    fn with_memory(
        Memory {
            bytes,
            largest_buffer,
        }: Memory,
    ) -> Self {
        let numbers = (bytes / 512)
            .min(largest_buffer / 8)
            .clamp(1 << 22, 1 << 28) as usize;
        Self {
            attention_scores: numbers,
            logits: numbers,
        }
    }
}

/// The memory of a device.
#[derive(Clone, Copy, Debug)]
struct Memory {
    bytes: u64,
    largest_buffer: u64,
}

/// Bytes of an open device's memory; `None` for the processor.
pub(crate) fn memory_bytes(device: &Device) -> Option<u64> {
    #[cfg(feature = "gpu")]
    return runtime::memory(device).map(|memory| memory.bytes);
    #[cfg(not(feature = "gpu"))]
    {
        let _ = device;
        None
    }
}

/// Returns whether an open device adds up tensors with others of its kind in this process.
pub(crate) fn has_collectives(device: &Device) -> bool {
    #[cfg(feature = "gpu")]
    return runtime::has_collectives(device);
    #[cfg(not(feature = "gpu"))]
    {
        let _ = device;
        false
    }
}

/// Returns whether an open device is the processor, on which this program's own kernels compute.
pub(crate) fn is_processor(device: &Device) -> bool {
    matches!(device.as_dispatch(), burn::backend::DispatchDevice::Flex(_))
}

impl DeviceSpec {
    /// An open device in words: the processor's or card's own name, and the target of its kernels.
    pub fn describe(device: &Device) -> String {
        #[cfg(feature = "gpu")]
        if let Some(identity) = device.identity() {
            return format!("{} ({})", identity.name, identity.fingerprint);
        }
        let _ = device;
        "this program's own kernels".to_owned()
    }

    /// The GPUs and software drivers that this build can reach, by name, in the order they are to be preferred.
    pub fn found() -> Vec<Self> {
        #[cfg(feature = "cuda")]
        let cards = (0..cuda::Installation::find().cards.len()).map(Self::Cuda);
        #[cfg(not(feature = "cuda"))]
        let cards = std::iter::empty();
        #[cfg(feature = "wgpu")]
        let adapters = wgpu::found();
        #[cfg(not(feature = "wgpu"))]
        let adapters = Vec::new();
        cards.chain(adapters).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_bad_ones_are_refused() {
        for name in [
            "cpu",
            "cuda:0",
            "cuda:3",
            "vulkan:1",
            "metal:0",
            "rocm:2",
            "wgpu:0",
            "wgpu:cpu",
            "vulkan:cpu",
        ] {
            assert_eq!(name.parse::<DeviceSpec>().unwrap().to_string(), name);
        }
        assert!(DeviceSpec::Cpu.is_compiled_in());
        assert_eq!(DeviceSpec::Cuda(0).is_compiled_in(), cfg!(feature = "cuda"));
        assert_eq!(
            "wgpu".parse::<DeviceSpec>().unwrap(),
            DeviceSpec::Wgpu(Adapter::Gpu(0))
        );
        for name in ["gpu", "cuda:x", "cuda:cpu", "cpu:0", "wgpu:gpu", ""] {
            assert!(name.parse::<DeviceSpec>().is_err(), "{name}");
        }
    }

    #[test]
    fn bf16_is_for_cards_whose_tensor_cores_have_it() {
        for (capability, expected) in [
            (Some((7, 0)), false),
            (Some((7, 5)), false),
            (Some((8, 0)), true),
            (Some((8, 9)), true),
            (Some((12, 0)), true),
            (None, true),
        ] {
            assert_eq!(multiplies_bf16(capability), expected, "{capability:?}");
        }
        // Neither of them is in any machine.
        for (name, expected) in [("cuda:4096", true), ("rocm:4096", true), ("wgpu:0", false)] {
            let device: DeviceSpec = name.parse().unwrap();
            assert_eq!(device.prefers_bf16(), expected, "{name}");
        }
    }

    #[test]
    fn devices_that_cannot_train_together_are_refused() {
        let devices = |names: &str| -> Vec<DeviceSpec> {
            names.split(',').map(|name| name.parse().unwrap()).collect()
        };
        for (names, expected) in [
            ("cpu,cuda:0", "cpu,cuda:0 cannot train together"),
            ("cuda:0,rocm:0", "different numbers"),
            ("cuda:1,cuda:0,cuda:1", "cuda:1 is named twice"),
            ("wgpu,wgpu:0", "wgpu:0 is named twice"),
        ] {
            let error = DeviceSpec::open_together(&devices(names)).unwrap_err();
            assert!(error.to_string().contains(expected), "{names}: {error}");
        }
        DeviceSpec::open_together(&devices("cpu,cpu")).unwrap();
        #[cfg(not(feature = "cuda"))]
        assert!(matches!(
            DeviceSpec::open_together(&devices("cuda:0,cuda:1")),
            Err(DeviceError::NotCompiledIn { .. })
        ));
    }

    #[test]
    fn a_workspace_grows_with_the_card_and_fits_its_buffers() {
        let of = |gib: u64, largest_buffer| {
            Workspace::with_memory(Memory {
                bytes: gib << 30,
                largest_buffer,
            })
        };
        assert_eq!(of(141, 35 << 30).attention_scores, 1 << 28);
        assert_eq!(of(24, 6 << 30).attention_scores, 24 << 21);
        // A software driver binds 128 MiB at a time.
        assert_eq!(of(24, 128 << 20).attention_scores, 1 << 24);
    }
}
