#!/usr/bin/env bash
# Rankings against Lucene, 1,000 deep: the same JSON lines indexed by Anserini and by forage, every query of five corpora.
#
# Needs the data folder (../shared/data from the tree, or FORAGE_BENCH_DATA). About three minutes once the peers are in.
set -euo pipefail
cd "$(dirname "$0")/../.."
source bench/peers.sh
DATA="${FORAGE_BENCH_DATA:-../shared/data}"
WORK="$BENCH_HOME/lucene"
export PYTHONPATH=bench/lucene
cargo build --release --locked --quiet --bin forage
FORAGE="${CARGO_TARGET_DIR:-target}/release/forage"
K=1000

# NAME CORPUS QUERIES QRELS, as BEIR writes them.
beir() {
    local name=$1
    mkdir -p "$WORK/$name/json"
    "$PYTHON" bench/lucene/convert.py "$2" "$3" "$WORK/$name"
    cp "$4" "$WORK/$name/qrels"
    compare "$name"
}

compare() {
    local at="$WORK/$1"
    if [ ! -d "$at/lucene" ]; then
        "$JAVA" -cp "$JAR" io.anserini.index.IndexCollection -collection JsonCollection \
            -generator DefaultLuceneDocumentGenerator -input "$at/json" -index "$at/lucene" -threads 1 -storeRaw -optimize \
            > "$at/lucene.log" 2>&1
    fi
    "$JAVA" -cp "$JAR" io.anserini.search.SearchCollection -index "$at/lucene" -topics "$at/topics.tsv" \
        -topicReader TsvString -output "$at/lucene.run" -bm25 -bm25.k1 0.9 -bm25.b 0.4 -hits $K -threads 1 \
        > "$at/search.log" 2>&1
    "$FORAGE" index build --corpus "$at/json/corpus.jsonl" --format search-r1 --out "$at/forage" --replace \
        > "$at/forage.log" 2>&1
    "$FORAGE" eval retrieval --index "$at/forage" --queries "$at/queries.jsonl" --qrels "$at/qrels" -k $K \
        --run "$at/forage.run" --json > "$at/metrics.json"
    "$PYTHON" bench/lucene/compare.py "$at/lucene" "$at/topics.tsv" "$at/lucene.run" "$at/forage.run" $K \
        > "$at/compared.json" 2> "$at/compare.log" || { cat "$at/compare.log" >&2; exit 1; }
    grep '^differs:' "$at/compare.log" >&2 || true
}

beir scifact "$DATA/scifact/corpus.jsonl" "$DATA/scifact/queries.test.jsonl" "$DATA/scifact/qrels.test.trec"
for name in hotpotqa 2wikimultihopqa musique; do
    folder="$DATA/multihop/$name"
    beir $name "$folder/corpus.jsonl" "$folder/questions.jsonl" "$folder/qrels.trec"
done
mkdir -p "$WORK/windows/json"
"$PYTHON" bench/retrieval/corpus.py "$DATA" "$BENCH_HOME/windows" 2>/dev/null
ln -f "$BENCH_HOME/windows/corpus.jsonl" "$WORK/windows/json/corpus.jsonl"
cp "$BENCH_HOME/windows/queries.jsonl" "$WORK/windows/queries.jsonl"
cp "$BENCH_HOME/windows/qrels.tsv" "$WORK/windows/qrels"
"$PYTHON" bench/lucene/convert.py --topics "$WORK/windows"
compare windows
"$PYTHON" bench/lucene/report.py "$WORK" scifact hotpotqa 2wikimultihopqa musique windows
