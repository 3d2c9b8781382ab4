#!/usr/bin/env bash
# Reads forage's event files with TensorBoard: through its Python reader and through its server, with and without its own
# data server. Under a minute once forage is built.
#
# FORAGE_BENCH_HOME (default ~/.cache/forage-bench) holds the virtual environment; deleting it is always safe.
set -euo pipefail
cd "$(dirname "$0")/../.."
HOME_DIR="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
VENV="$HOME_DIR/tensorboard-venv"
if ! "$VENV/bin/python" -c 'import tensorboard' 2>/dev/null; then
    python3 -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet tensorboard==2.21.0
fi
cargo build --release --locked --quiet -p forage -p forage-trainer --example tensorboard_events
WORK="$(mktemp -d)"
trap 'rm -rf "$WORK"' EXIT
"${CARGO_TARGET_DIR:-target}/release/examples/tensorboard_events" "$WORK/runs"
"$VENV/bin/python" bench/clients/test_tensorboard.py "$WORK/runs"
