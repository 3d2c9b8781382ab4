#!/usr/bin/env bash
# Generation and training on a GPU beside transformers and PEFT (random weights), and a small GRPO run on the
# GPU beside the processor's. For a machine that is there for minutes only: every result is on disk at once,
# and another call goes on where this one stopped.
#
#   cargo build --release --locked -p forage --features cuda && strip target/release/forage
#   bench/gpu/run.sh FORAGE RESULTS [PYTHON] [--minutes N] [--rehearse]
#
# FORAGE is the program. RESULTS is a folder: rows.jsonl (a line for each result), doctor.json, machine.json,
# logs/ and at the end table.md, which goes into docs/gpu.md; scratch/ may be deleted (rollouts, compiled
# kernels, runs: a few hundred MiB). To go on on another machine, take rows.jsonl along. PYTHON has torch with
# CUDA, transformers and PEFT; without it the peers' columns stay empty. The machine needs the NVIDIA driver,
# NVRTC and the CUDA headers, which are found by CUDA_PATH, by nvcc, in /usr/local/cuda or among PYTHON's
# nvidia-cuda-* wheels. FORAGE_COMMIT tells the commit where git does not.
#
# A call takes ten minutes by default, all calls together 40 at most.
#
# Status: 0 every row is there and good and the GPU learns as the processor does, 1 something of that does not
# hold or could not be tried, 2 wrong arguments, 3 rows are left for another call.
set -euo pipefail
exec python3 "$(dirname "$0")/bench.py" "$@"
