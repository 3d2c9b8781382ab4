#!/usr/bin/env bash
# The whole GPU benchmark with small sizes under the stub driver, so that it works the first time on a borrowed machine.
# Usage: bench/device/rehearse.sh FORAGE RESULTS, after bench/device/run.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
usage="usage: bench/device/rehearse.sh FORAGE RESULTS"
forage=$(realpath "${1:?$usage}")
results=${2:?$usage}
home="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}/device"
export CUDA_PATH="$home/nvidia/cu13" LD_LIBRARY_PATH="$home/stub:$home/nvidia/cu13/lib"
exec bash bench/gpu/run.sh "$forage" "$results" --rehearse --minutes 30
