#!/usr/bin/env bash
# Checkpoints made by transformers, written again by `forage export`: equal logits, chats, token ids, ends and config keys.
# Tiny models of every family written by forage: logits of transformers on them. Adapters against PEFT: adapted logits, and merged
# weights against merge_and_unload. And random shapes of every family: log-probabilities and greedy continuations, with padding on
# either side, in f32 and bf16.
#
# Usage: bench/parity/run.sh
# Needs the data folder (../shared/data from the tree, or FORAGE_BENCH_DATA) and a Python with torch, transformers and PEFT
# (PEER_PYTHON; by default a new one is made under FORAGE_BENCH_HOME).
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
TARGET="${CARGO_TARGET_DIR:-target}"
if [[ -z "${PEER_PYTHON:-}" ]]; then
    venv parity/venv 'torch, transformers, peft, jinja2' torch==2.15.0 transformers==5.23.0 peft==0.21.2 jinja2==3.1.6
    PEER_PYTHON="$VENV/bin/python"
fi
cargo build --release --locked --quiet --bin forage
cargo test --release --locked --quiet -p forage-trainer --lib folders_for_
for name in qwen2 qwen3 llama olmo2; do
    "$PEER_PYTHON" trainer/tests/fixtures/make_fixtures.py --check "$TARGET/tmp/families/tiny_$name" "tiny_$name"
done
for name in names pattern all_linear llama olmo2; do
    "$PEER_PYTHON" trainer/tests/fixtures/make_lora_fixtures.py --check "$TARGET/tmp/lora/$name" "$TARGET/tmp/lora/$name-merged"
done
HF_HUB_OFFLINE=1 "$PEER_PYTHON" bench/parity/checkpoints.py "$TARGET/release/forage" \
    "${FORAGE_BENCH_DATA:-../shared/data}/qwen" "$WORK"
"$PEER_PYTHON" bench/parity/shapes.py "$TARGET/release/forage" "$WORK"
