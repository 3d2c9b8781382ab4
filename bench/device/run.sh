#!/usr/bin/env bash
# The CUDA path without a GPU: stubs of the driver and of NCCL, the real NVRTC, and what is asked of them counted against budgets.json.
# Usage: bench/device/run.sh FORAGE [--all]
# FORAGE is built with `cargo build --release --locked -p forage --features cuda`. NVRTC comes from PyPI once (96 MB) and stays in $FORAGE_BENCH_HOME (default ~/.cache/forage-bench)/device.
set -euo pipefail
cd "$(dirname "$0")/../.."
usage="usage: bench/device/run.sh FORAGE [--all]"
forage=$(realpath "${1:?$usage}")
shift
[ $# = 0 ] || [ "$*" = --all ] || { echo "$usage" >&2; exit 2; }
home="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}/device"
mkdir -p "$home/stub"
# Kernels of another build are of no use.
rm -rf "$home/account" "$home/collectives" "$home/doctor"
bash bench/device/nvrtc.sh "$home" >/dev/null
cc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$home/stub/libcuda.so" bench/device/stub/libcuda.c -lpthread
ln -sf libcuda.so "$home/stub/libcuda.so.1"
cc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$home/stub/libnvrtc.so" bench/device/stub/libnvrtc.c -Wl,--no-as-needed "$home/nvidia/cu13/lib/libnvrtc.so.13" -ldl
cc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$home/stub/libnccl.so" bench/device/stub/libnccl.c -lpthread
LD_LIBRARY_PATH="$home/nvidia/cu13/lib" python3 bench/device/stub/check.py "$home/stub/libcuda.so"
export CUDA_PATH="$home/nvidia/cu13" LD_LIBRARY_PATH="$home/stub:$home/nvidia/cu13/lib"
python3 bench/device/doctor.py "$forage" "$home/doctor"
python3 bench/device/collectives.py "$forage" "$home/collectives"
python3 bench/device/account.py "$forage" "$home/account" "$@"
