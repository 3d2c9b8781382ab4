//! Opens a compute device: the only file that knows which backends are compiled in.

use std::fmt;
use std::str::FromStr;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};

/// A compute device as a user writes it: `cpu`, `cuda:0`, `vulkan:0`, `metal:0`, `rocm:0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceSpec {
    /// Burn's Flex backend on the processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by index.
    Cuda(usize),
    /// A GPU through Vulkan, by index.
    Vulkan(usize),
    /// An Apple GPU, by index.
    Metal(usize),
    /// An AMD GPU, by index.
    Rocm(usize),
}

/// A device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The name is not a device.
    #[error("`{0}` is no device; write cpu, cuda:0, vulkan:0, metal:0 or rocm:0")]
    Unknown(String),
    /// The binary lacks the backend.
    #[error("device `{spec}` is not compiled in; build with `--features {feature}`")]
    NotCompiledIn {
        /// The device asked for.
        spec: DeviceSpec,
        /// Cargo feature that brings it.
        feature: &'static str,
    },
}

impl FromStr for DeviceSpec {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown(text.to_owned());
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, index.parse().map_err(|_| unknown())?),
            None => (text, 0),
        };
        match name {
            "cpu" if !text.contains(':') => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(index)),
            "vulkan" => Ok(Self::Vulkan(index)),
            "metal" => Ok(Self::Metal(index)),
            "rocm" => Ok(Self::Rocm(index)),
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
            Self::Vulkan(index) => write!(f, "vulkan:{index}"),
            Self::Metal(index) => write!(f, "metal:{index}"),
            Self::Rocm(index) => write!(f, "rocm:{index}"),
        }
    }
}

impl DeviceSpec {
    fn feature(self) -> &'static str {
        match self {
            Self::Cpu => "flex",
            Self::Cuda(_) => "cuda",
            Self::Vulkan(_) => "vulkan",
            Self::Metal(_) => "metal",
            Self::Rocm(_) => "rocm",
        }
    }

    /// Whether tensors live in the memory of this program.
    pub fn is_cpu(self) -> bool {
        self == Self::Cpu
    }

    /// Opens the device, without autodiff.
    ///
    /// # Errors
    /// [`DeviceError::NotCompiledIn`] when the binary lacks the backend.
    pub fn open(self) -> Result<Device, DeviceError> {
        match self {
            #[cfg(feature = "flex")]
            Self::Cpu => Ok(Device::flex()),
            #[cfg(feature = "cuda")]
            Self::Cuda(index) => Ok(Device::cuda(index)),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(index) => Ok(Device::vulkan(burn::tensor::DeviceKind::DiscreteGpu(index))),
            #[cfg(feature = "metal")]
            Self::Metal(index) => Ok(Device::metal(burn::tensor::DeviceKind::DiscreteGpu(index))),
            #[cfg(feature = "rocm")]
            Self::Rocm(index) => Ok(Device::rocm(index)),
            #[allow(unreachable_patterns, reason = "unreachable when every backend is compiled in")]
            spec => Err(DeviceError::NotCompiledIn { spec, feature: spec.feature() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_bad_ones_are_refused() {
        for name in ["cpu", "cuda:0", "cuda:3", "vulkan:1", "metal:0", "rocm:2"] {
            assert_eq!(name.parse::<DeviceSpec>().unwrap().to_string(), name);
        }
        for name in ["gpu", "cuda:x", "cpu:0", ""] {
            assert!(name.parse::<DeviceSpec>().is_err(), "{name}");
        }
    }
}
