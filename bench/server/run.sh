#!/usr/bin/env bash
# The retrieval server against one with the behaviour of Search-R1's (FastAPI over Lucene), on the same 229,262 passages:
# answers per second, latency and memory at 1, 32 and 256 connections, overload, and opening an index of a million passages.
# About six minutes.
#
# Needs the data folder (../shared/data from the tree, or FORAGE_BENCH_DATA). DURATION (8) seconds per measurement.
set -euo pipefail
cd "$(dirname "$0")/../.."
source bench/peers.sh
WORK="$BENCH_HOME/server"
mkdir -p "$WORK"
export PYTHONPATH=bench/lucene
cargo build --release --locked --quiet --bin forage
cargo build --release --locked --quiet -p forage-retriever --example load
FORAGE="${CARGO_TARGET_DIR:-target}/release/forage"
[ -f "$BENCH_HOME/windows/queries.jsonl" ] \
    || "$PYTHON" bench/retrieval/corpus.py "${FORAGE_BENCH_DATA:-../shared/data}" "$BENCH_HOME/windows"
mkdir -p "$WORK/json"
ln -f "$BENCH_HOME/windows/corpus.jsonl" "$WORK/json/corpus.jsonl"
if [ ! -d "$WORK/lucene" ]; then
    "$JAVA" -cp "$JAR" io.anserini.index.IndexCollection -collection JsonCollection -input "$WORK/json" \
        -generator DefaultLuceneDocumentGenerator -index "$WORK/lucene" -threads 1 -storeRaw -optimize \
        > "$WORK/lucene.log" 2>&1
fi
"$FORAGE" index build --corpus "$WORK/json/corpus.jsonl" --format search-r1 --out "$WORK/forage" --replace > /dev/null 2>&1
# PAGES=0 leaves the large index out.
PAGES="${PAGES:-400000}"
if [ "$PAGES" != 0 ]; then
    [ -d "$WORK/world" ] || "$FORAGE" world --pages "$PAGES" --questions 10 --out "$WORK/world" > /dev/null 2>&1
    # The index of another format version is built anew.
    "$FORAGE" index info "$WORK/large" > /dev/null 2>&1 \
        || "$FORAGE" index build --corpus "$WORK/world/beir" --format beir --out "$WORK/large" --replace > /dev/null 2>&1
fi
"$PYTHON" bench/server/run.py "$WORK" "${DURATION:-8}"
