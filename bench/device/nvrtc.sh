#!/usr/bin/env bash
# CUDA's runtime compiler and its headers from PyPI, for a machine without the toolkit; prints the two variables a CUDA build needs
# to find them. Usage: bench/device/nvrtc.sh DIR   (makes DIR/nvidia/cu13/{include,lib}; env $(bench/device/nvrtc.sh DIR) forage ...)
set -euo pipefail
dir=${1:?usage: bench/device/nvrtc.sh DIR}
packages=(nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
root=$dir/nvidia/cu13
marker=$dir/nvidia/complete
if [ "$(cat "$marker" 2>/dev/null)" != "${packages[*]}" ]; then
  wheels=$(mktemp -d)
  trap 'rm -rf "$wheels"' EXIT
  python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$wheels" "${packages[@]}" >&2
  for wheel in "$wheels"/*.whl; do
    python3 -m zipfile -e "$wheel" "$dir"
  done
  for file in lib/libnvrtc.so.13 include/mma.h include/crt/mma.h include/cuda_bf16.h; do
    if [ ! -f "$root/$file" ]; then
      echo "bench/device/nvrtc.sh: the packages have no $file" >&2
      exit 1
    fi
  done
  echo "${packages[*]}" > "$marker"
fi
echo "CUDA_PATH=$root"
echo "LD_LIBRARY_PATH=$root/lib"
