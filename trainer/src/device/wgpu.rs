//! Devices of graphics interfaces.

use burn::tensor::DeviceKind;
use cubecl::device::{Device, WgpuBackend, WgpuDevice, WgpuDeviceKind};

use super::{Adapter, DeviceError, DeviceSpec};

/// The devices of a graphics interface.
struct Found {
    gpus: Vec<DeviceKind>,
    software: bool,
}

impl Found {
    fn on(interface: WgpuBackend) -> Self {
        let count = |kind| {
            let like = Device::Wgpu(WgpuDevice::new(kind).on(interface));
            Device::enumerate(like.to_id()).len()
        };
        let discrete = (0..count(WgpuDeviceKind::DiscreteGpu(0))).map(DeviceKind::DiscreteGpu);
        let integrated =
            (0..count(WgpuDeviceKind::IntegratedGpu(0))).map(DeviceKind::IntegratedGpu);
        let behind_a_hypervisor =
            (0..count(WgpuDeviceKind::VirtualGpu(0))).map(DeviceKind::VirtualGpu);
        let gpus = discrete
            .chain(integrated)
            .chain(behind_a_hypervisor)
            .collect();
        Self {
            gpus,
            software: count(WgpuDeviceKind::Cpu) > 0,
        }
    }
}

/// The devices that can be reached through WGSL.
pub(super) fn found() -> Vec<DeviceSpec> {
    let found = Found::on(WgpuBackend::Auto);
    let gpus = (0..found.gpus.len()).map(Adapter::Gpu);
    gpus.chain(found.software.then_some(Adapter::Software))
        .map(DeviceSpec::Wgpu)
        .collect()
}

/// The adapter in Burn's terms.
pub(super) fn kind(spec: DeviceSpec, adapter: Adapter) -> Result<DeviceKind, DeviceError> {
    let interface = match spec {
        DeviceSpec::Vulkan(_) => WgpuBackend::Vulkan,
        DeviceSpec::Metal(_) => WgpuBackend::Metal,
        _ => WgpuBackend::Auto,
    };
    let found = Found::on(interface);
    let missing = |missing: String, fix: &str| DeviceError::Missing {
        spec,
        missing,
        fix: fix.to_owned(),
    };
    match adapter {
        Adapter::Software if found.software => Ok(DeviceKind::Cpu),
        Adapter::Software => Err(missing(
            "there is no software driver".to_owned(),
            "install one (SwiftShader comes with Debian's chromium) and name its ICD file in VK_ICD_FILENAMES",
        )),
        Adapter::Gpu(index) => found.gpus.get(index).cloned().ok_or_else(|| {
            let beside = if found.software {
                " beside a software driver, which is wgpu:cpu"
            } else {
                ""
            };
            missing(
                format!("there are {} GPUs{beside}", found.gpus.len()),
                "check the GPU's driver (vulkaninfo --summary), or name another device",
            )
        }),
    }
}
