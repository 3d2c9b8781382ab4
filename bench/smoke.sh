#!/usr/bin/env bash
# The whole job in small: world, index, search, evaluation, two GRPO runs, verdict, report, resume: smoke.sh SCRATCH_FOLDER [FORAGE]
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=${1:?usage: bench/smoke.sh SCRATCH_FOLDER [FORAGE]}
FORAGE_BIN="${2:-${FORAGE_BIN:-}}"
. bench/program.sh

"$forage" world --pages 200 --seed 5 --out "$scratch/world"
"$forage" index build --corpus "$scratch/world/beir" --format beir --out "$scratch/index"
"$forage" search "$scratch/index" "birthplace" -k 2
"$forage" search "$scratch/index" "birthplace AND NOT zebra" -k 2 --mode boolean --snippet 80
"$forage" world --pages 100 --seed 6 --out "$scratch/more"
"$forage" index build --corpus "$scratch/world/beir" --format beir --out "$scratch/grown"
sed 's/"_id":"/"_id":"more-/' "$scratch/more/beir/corpus.jsonl" > "$scratch/more.jsonl"
"$forage" index add "$scratch/grown" --corpus "$scratch/more.jsonl" --drop-duplicates
"$forage" index merge "$scratch/grown"
"$forage" index verify "$scratch/grown"
"$forage" eval retrieval --index "$scratch/index" --queries "$scratch/world/beir/queries.jsonl" \
  --qrels "$scratch/world/beir/qrels/test.tsv" --json
"$forage" eval --policy oracle --index "$scratch/index" --questions "$scratch/world/questions.jsonl" --limit 50 \
  --out "$scratch/oracle.jsonl"
"$forage" eval --policy search-title --index "$scratch/index" --questions "$scratch/world/questions.jsonl" --limit 50 \
  --out "$scratch/title.jsonl"
"$forage" compare "$scratch/title.jsonl" "$scratch/oracle.jsonl"
"$forage" train configs/smoke.toml --out "$scratch/train"
"$forage" train configs/smoke.toml --out "$scratch/train" --resume --set grpo.steps=5
"$forage" quickstart --config configs/smoke.toml --out "$scratch/quickstart"
"$forage" eval configs/quickstart-code.toml --policy oracle --limit 50
"$forage" quickstart --env code-search --out "$scratch/code" --set grpo.steps=2 --set data.world.pages=500 \
  --set data.train_questions=200 --set data.dev_questions=10 --set data.test_questions=30 --set evaluation.resamples=1000
"$forage" runs report "$scratch/quickstart" --out "$scratch/report.html"
grep -q '"gain_interval"' "$scratch/quickstart/verdict.json"
grep -q '"working_code_rate"' "$scratch/code/verdict.json"
grep -q '</html>' "$scratch/quickstart/report.html"
echo "smoke run passed"
