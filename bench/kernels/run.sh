#!/usr/bin/env bash
# The kernels of attention that train on a device, against PyTorch in f64 on the same numbers.
# Usage: bench/kernels/run.sh FORAGE DEVICE [--quick]
# FORAGE is built with the device's feature; for software Vulkan (wgpu:cpu) see bench/device/vulkan.sh. PyTorch and safetensors are
# installed into $FORAGE_BENCH_HOME (default ~/.cache/forage-bench)/torch once.
set -euo pipefail
cd "$(dirname "$0")/../.."
forage=$(realpath "${1:?usage: bench/kernels/run.sh FORAGE DEVICE [--quick]}")
device=${2:?usage: bench/kernels/run.sh FORAGE DEVICE [--quick]}
home="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
python=$home/torch/bin/python
mkdir -p "$home"
[ -x "$python" ] || python3 -m venv "$home/torch"
"$python" -c 'import torch, safetensors' 2>/dev/null || "$python" -m pip install -q torch safetensors numpy
"$python" bench/kernels/attention.py "$forage" "$device" "${@:3}"
