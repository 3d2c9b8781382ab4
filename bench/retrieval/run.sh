#!/usr/bin/env bash
# BM25 against Lucene, bm25s and rank_bm25, and dense search against faiss, hnswlib and usearch: build time, disk, memory,
# CPU time and latency per query, all in one run and in turns. About ten minutes on two idle cores.
#
# Needs the data folder (../shared/data from the tree, or FORAGE_BENCH_DATA). ROUNDS (5) timed rounds per engine.
set -euo pipefail
cd "$(dirname "$0")/../.."
source bench/peers.sh
WORK="$BENCH_HOME/retrieval"
mkdir -p "$WORK"
export PYTHONPATH=bench/lucene
cargo build --release --locked --quiet --bin forage
cargo build --release --locked --quiet -p forage-retriever --example bm25_bench --example vector_bench
[ -f "$BENCH_HOME/windows/queries.jsonl" ] \
    || "$PYTHON" bench/retrieval/corpus.py "${FORAGE_BENCH_DATA:-../shared/data}" "$BENCH_HOME/windows"
"$PYTHON" bench/retrieval/run.py "$WORK" "${ROUNDS:-5}"
[ -f "$WORK/truth.u32" ] || "$PYTHON" bench/retrieval/vectors.py "$BENCH_HOME/windows" "$WORK"
"$PYTHON" bench/retrieval/dense.py "$WORK" "${ROUNDS:-5}"
"$PYTHON" bench/retrieval/report.py "$WORK"
