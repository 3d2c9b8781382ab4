#!/usr/bin/env bash
# The kernels of attention that train on a device, against PyTorch in f64 on the same numbers.
# Usage: bench/kernels/run.sh FORAGE DEVICE [--quick]
# FORAGE is built with the device's feature; for software Vulkan (wgpu:cpu) see bench/device/vulkan.sh. PyTorch, safetensors and NumPy are
# installed into $FORAGE_BENCH_HOME (default ~/.cache/forage-bench)/kernels-venv once.
set -euo pipefail
cd "$(dirname "$0")/../.."
forage=$(realpath "${1:?usage: bench/kernels/run.sh FORAGE DEVICE [--quick]}")
device=${2:?usage: bench/kernels/run.sh FORAGE DEVICE [--quick]}
. bench/clients/common.sh
venv kernels-venv 'torch, safetensors, numpy' torch==2.15.0 safetensors==0.8.0 numpy==2.4.6
"$VENV/bin/python" bench/kernels/attention.py "$forage" "$device" "${@:3}"
