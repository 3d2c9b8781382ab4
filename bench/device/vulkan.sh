#!/usr/bin/env bash
# The device path on a software driver of Vulkan: parity with the processor, and GRPO runs with resume and export beside the same
# runs on the processor.
# Usage: bench/device/vulkan.sh FORAGE
# FORAGE is built with `cargo build --release --locked -p forage --features wgpu` (beside cuda, if it is to do both). The driver is
# SwiftShader, which Debian's packages chromium and libvulkan1 bring; they are installed where apt-get and root are there.
# Exit code 75: there is no such driver and it cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -eq 1 ] || { echo "usage: bench/device/vulkan.sh FORAGE" >&2; exit 2; }
program=$(realpath "$1")
driver() {
  for file in /usr/lib/chromium/vk_swiftshader_icd.json /usr/lib/*/chromium/vk_swiftshader_icd.json; do
    if [ -f "$file" ]; then
      printf '%s' "$file"
      return
    fi
  done
}
if [ -z "$(driver)" ] || ! ldconfig -p | grep -q libvulkan.so.1; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no software driver of Vulkan, and no rights to install chromium and libvulkan1" >&2
    exit 75
  fi
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium libvulkan1; } >/dev/null ||
    { echo "chromium and libvulkan1 cannot be installed" >&2; exit 75; }
fi
export VK_ICD_FILENAMES XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/tmp}"
VK_ICD_FILENAMES=$(driver)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The longest command takes a quarter of an hour on two cores: what takes three times as long hangs, which is a fault; 124 is left to who
# gives the whole script less time. In the foreground, so that the script's end is that of the program.
forage() { timeout --foreground --kill-after=10 2700 "$program" "$@" || return 1; }

forage bench parity --device wgpu:cpu 2>"$scratch/parity.err" | tee "$scratch/parity.out" ||
  { tail -n 60 "$scratch/parity.err" >&2; exit 1; }
# A check that was not made is not a check.
grep -qx '108 passed, 0 failed' "$scratch/parity.out" || { echo "not all of 108 checks of parity were made" >&2; exit 1; }

run() { forage train configs/smoke.toml --out "$scratch/$1" --set grpo.steps="$2" "${@:3}" >"$scratch/$1.log" 2>&1 || { cat "$scratch/$1.log" >&2; exit 1; }; }
run cpu 3
run there 3 --device wgpu:cpu
run cut 2 --device wgpu:cpu --set grpo.checkpoint_every=1
run cut 3 --device wgpu:cpu --set grpo.checkpoint_every=1 --resume
bits=(--set grpo.update.optimizer.moments_in_8_bits=true)
run cpu-bits 2 "${bits[@]}"
run cut-bits 1 --device wgpu:cpu "${bits[@]}" --set grpo.checkpoint_every=1
run cut-bits 2 --device wgpu:cpu "${bits[@]}" --set grpo.checkpoint_every=1 --resume
export_to() { forage export "$scratch/$1" --merged "$scratch/$2" >/dev/null; }
export_to there exported
export_to cpu expected
export_to cut-bits exported-bits
export_to cpu-bits expected-bits
python3 bench/device/compare.py "$scratch"
