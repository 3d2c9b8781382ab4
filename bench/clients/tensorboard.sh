#!/usr/bin/env bash
# Reads forage's event files with TensorBoard: through its Python reader and through its server, with and without its own
# data server. Under a minute once forage is built.
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
venv tensorboard-venv tensorboard tensorboard==2.21.0
cargo build --release --locked --quiet -p forage -p forage-trainer --example tensorboard_events
"${CARGO_TARGET_DIR:-target}/release/examples/tensorboard_events" "$WORK/runs"
"$VENV/bin/python" bench/clients/test_tensorboard.py "$WORK/runs"
