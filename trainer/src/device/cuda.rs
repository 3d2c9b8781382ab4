//! The parts that CUDA needs at run time: the driver, NVRTC and the toolkit's headers, and NCCL between several GPUs.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use burn::tensor::Device;
use cudarc::driver::result as driver;
use cudarc::nccl;
use cudarc::{driver::sys as driver_sys, nvrtc::sys as nvrtc_sys};

use super::{DeviceError, DeviceSpec};

/// A version as NVIDIA counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    /// 13 of 13.0.
    pub(crate) major: i32,
    /// 0 of 13.0.
    pub(crate) minor: i32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    /// As the driver calls it.
    pub(crate) name: String,
    /// Compute capability.
    pub(crate) capability: Version,
    /// Bytes.
    pub(crate) memory: u64,
}

/// A part of CUDA that is missing or does not work.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CudaFault(String);

/// The parts of CUDA that are installed.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    /// Newest CUDA that the driver serves; a fault where there is no driver or it does not start.
    pub(crate) driver: Result<Version, CudaFault>,
    /// The cards the driver shows.
    pub(crate) cards: Vec<Card>,
    /// Version of the runtime compiler; a fault where it is missing.
    pub(crate) nvrtc: Result<Version, CudaFault>,
    /// Folder of the headers.
    pub(crate) headers: Option<PathBuf>,
    /// Headers that kernels include and that are not there.
    pub(crate) missing_headers: Vec<&'static str>,
}

/// Headers that generated kernels include, and `nv/target`, which those include.
const HEADERS: [&str; 5] = [
    "mma.h",
    "crt/mma.h",
    "cuda_bf16.h",
    "cuda_fp16.h",
    "nv/target",
];

/// The fix where the driver is missing.
const DRIVER_FIX: &str = "install the NVIDIA driver (nvidia-smi must list the card), and in a container pass the GPU through";

/// The fix where driver and compiler do not fit each other.
pub(crate) const VERSIONS_FIX: &str = "install a newer driver, or an NVRTC of the driver's version (from PyPI: nvidia-cuda-nvrtc-cu12 for CUDA 12)";

/// Tells whether the driver is too old to read what NVRTC writes. Programs of a newer minor version run on an older driver, but PTX does not: its
/// version rises with the minor one too.
pub(crate) fn too_new(nvrtc: Version, driver: Version) -> bool {
    driver < nvrtc
}

impl Installation {
    /// Looks for it.
    #[expect(
        unsafe_code,
        reason = "loading a library runs its initialisation; these are NVIDIA's own"
    )]
    pub(crate) fn find() -> Self {
        // SAFETY: both only try to load a library by its name.
        let (has_driver, has_nvrtc) = unsafe {
            (
                driver_sys::is_culib_present(),
                nvrtc_sys::is_culib_present(),
            )
        };
        let driver = if has_driver {
            start_driver()
        } else {
            Err(CudaFault("libcuda is not found".to_owned()))
        };
        let cards = if driver.is_ok() { cards() } else { Vec::new() };
        let nvrtc = if has_nvrtc {
            nvrtc_version()
        } else {
            Err(CudaFault("libnvrtc is not found".to_owned()))
        };
        let headers = cubecl::cuda::install::cuda_path().map(|path| path.join("include"));
        let there = |name: &str| {
            // What CCCL ships has a folder of its own since CUDA 13; the compiler searches both.
            let exists = |folder: &Path| {
                folder.join(name).exists() || folder.join("cccl").join(name).exists()
            };
            headers.as_deref().is_some_and(exists)
        };
        let missing_headers = HEADERS.into_iter().filter(|name| !there(name)).collect();
        Self {
            driver,
            cards,
            nvrtc,
            headers,
            missing_headers,
        }
    }

    /// A card of this installation, when everything it needs is there.
    ///
    /// # Errors
    /// [`DeviceError::Missing`] with the first thing that is not.
    pub(super) fn device(&self, index: usize) -> Result<Device, DeviceError> {
        let missing = |missing: String, fix: &str| {
            Err(DeviceError::Missing {
                spec: DeviceSpec::Cuda(index),
                missing,
                fix: fix.to_owned(),
            })
        };
        match (&self.driver, &self.nvrtc) {
            (Err(fault), _) => return missing(fault.to_string(), DRIVER_FIX),
            _ if self.cards.is_empty() => {
                return missing(
                    "the driver shows no card".to_owned(),
                    "check nvidia-smi and CUDA_VISIBLE_DEVICES",
                );
            }
            _ if index >= self.cards.len() => {
                let last = self.cards.len() - 1;
                return missing(
                    format!("there are {} cards", last + 1),
                    &format!("name cuda:0 to cuda:{last}"),
                );
            }
            (_, Err(fault)) => {
                return missing(
                    fault.to_string(),
                    "install CUDA's runtime compiler (of the toolkit, or nvidia-cuda-nvrtc from PyPI) and put its folder on \
                     LD_LIBRARY_PATH",
                );
            }
            (Ok(driver), Ok(nvrtc)) if too_new(*nvrtc, *driver) => {
                return missing(
                    format!("the driver serves CUDA {driver} at most, and NVRTC is of {nvrtc}"),
                    VERSIONS_FIX,
                );
            }
            _ => {}
        }
        if self.headers.is_none() {
            return missing(
                "the CUDA headers are not found".to_owned(),
                "install the toolkit (or the wheels nvidia-cuda-runtime, -crt and -cccl) and name its folder in CUDA_PATH",
            );
        }
        if !self.missing_headers.is_empty() {
            let folder = self.headers.clone().unwrap_or_default();
            return missing(
                format!(
                    "{} lacks {}",
                    folder.display(),
                    self.missing_headers.join(", ")
                ),
                "install the missing parts of the toolkit (from PyPI: nvidia-cuda-runtime, -crt, -cccl), or name another \
                 folder in CUDA_PATH",
            );
        }
        Ok(Device::cuda(index))
    }
}

/// The newest CUDA that the driver serves.
#[expect(unsafe_code, reason = "the driver's interface is C")]
fn start_driver() -> Result<Version, CudaFault> {
    driver::init().map_err(|error| CudaFault(format!("the driver does not start ({error})")))?;
    let mut version = 0;
    // SAFETY: writes one integer.
    unsafe { driver_sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(|error| CudaFault(format!("the driver does not say its version ({error})")))?;
    Ok(Version {
        major: version / 1000,
        minor: version % 1000 / 10,
    })
}

#[expect(unsafe_code, reason = "the compiler's interface is C")]
fn nvrtc_version() -> Result<Version, CudaFault> {
    let mut version = Version { major: 0, minor: 0 };
    // SAFETY: writes two integers.
    unsafe { nvrtc_sys::nvrtcVersion(&raw mut version.major, &raw mut version.minor) }
        .result()
        .map_err(|error| CudaFault(format!("NVRTC does not say its version ({error:?})")))?;
    Ok(version)
}

/// The way to get NCCL where it is missing.
pub(crate) const NCCL_FIX: &str = "several GPUs of one process need it: install NCCL (libnccl-dev of NVIDIA's repository, or the wheel \
    nvidia-nccl-cu13 or -cu12 from PyPI with a link libnccl.so beside its libnccl.so.2) and put its folder on LD_LIBRARY_PATH; without \
    it, start a process for each GPU with --ranks, whose gradients go through the processor";

/// The version of NCCL, which sums gradients between the GPUs of a process; a fault where it is missing.
#[expect(
    unsafe_code,
    reason = "loading a library runs its initialisation; this one is NVIDIA's own"
)]
pub(crate) fn nccl_version() -> Result<Version, CudaFault> {
    // SAFETY: only tries to load a library by its names.
    if !unsafe { nccl::sys::is_culib_present() } {
        return Err(CudaFault("libnccl.so is not found".to_owned()));
    }
    let version = nccl::result::get_nccl_version()
        .map_err(|error| CudaFault(format!("NCCL does not say its version ({:?})", error.0)))?;
    Ok(Version {
        major: version / 10_000,
        minor: version / 100 % 100,
    })
}

/// Compute capability of a card, as the driver tells before the card is opened; `None` where the driver or the card is missing.
pub(super) fn capability(index: usize) -> Option<(i32, i32)> {
    static CARDS: OnceLock<Vec<Card>> = OnceLock::new();
    let card = CARDS
        .get_or_init(|| Installation::find().cards)
        .get(index)?;
    Some((card.capability.major, card.capability.minor))
}

/// The cards of a driver that was started.
fn cards() -> Vec<Card> {
    let count = driver::device::get_count().unwrap_or(0);
    (0..count).filter_map(card).collect()
}

#[expect(unsafe_code, reason = "the driver's interface is C")]
fn card(index: i32) -> Option<Card> {
    use driver_sys::CUdevice_attribute as Attribute;
    let device = driver::device::get(index).ok()?;
    let mut name = [0; 128];
    let mut memory = 0;
    // SAFETY: `device` was just given by the driver, and the buffer of the name is as long as stated.
    let capability = unsafe {
        driver_sys::cuDeviceGetName(name.as_mut_ptr(), 127, device)
            .result()
            .ok()?;
        driver_sys::cuDeviceTotalMem_v2(&raw mut memory, device)
            .result()
            .ok()?;
        let attribute = |attribute| driver::device::get_attribute(device, attribute).ok();
        Version {
            major: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        }
    };
    let bytes = name.map(|byte| byte as u8);
    let name = CStr::from_bytes_until_nul(&bytes)
        .ok()?
        .to_string_lossy()
        .into_owned();
    Some(Card {
        name,
        capability,
        memory: memory as u64,
    })
}
