#!/usr/bin/env bash
# Scripted episodes per second, BM25 included, on two threads.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo run --release --locked -p forage-env --example scripted_rollouts -- 2000 40000 2
