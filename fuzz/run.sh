#!/usr/bin/env bash
# Runs every fuzz target for a number of seconds each (default 600): fuzz/run.sh [SECONDS] [TARGET...]
#
# Prints a table and, last, one line of JSON. `held` is false when a target ended with a crash, a timeout or too much
# memory; the input that did it is then under fuzz/artifacts/TARGET.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-600}
shift || true

command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz --version 0.13.2
if (($#)); then targets=("$@"); else mapfile -t targets < <(cargo fuzz list); fi

# Seeds: the fixtures of the tests and what stands in seeds/TARGET. The corpus target's first byte says what follows it:
# 0 markdown, 1 lines to be packed with gzip, anything else the file as it is.
seed() {
  local target=$1 to=corpus/$1 fixtures=../retriever/tests/fixtures file
  mkdir -p "$to"
  if [[ -d seeds/$target ]]; then cp seeds/"$target"/* "$to"/; fi
  case $target in
    corpus) for file in "$fixtures"/corpora/*.parquet "$fixtures"/corpora/shards/*.parquet; do
        { printf '2'; cat "$file"; } >"$to/$(basename "$file")"
      done ;;
    vectors) cp "$fixtures"/vectors/*.npy "$fixtures"/vectors/*.faiss "$to"/ ;;
    chat_template) python3 - "$to" <<'END'
import json, pathlib, sys
cases = json.load(open("../env/tests/fixtures/chat_templates.json"))["families"]
for number, family in enumerate(cases):
    (pathlib.Path(sys.argv[1]) / f"family-{number}").write_text(family["template"])
END
    ;;
    model_folder)
      { printf '\0'; cat ../trainer/tests/fixtures/tiny_qwen3/config.json; } >"$to/config"
      { printf '\1'; head -c 60000 ../trainer/tests/fixtures/tiny_qwen3/model.safetensors; } >"$to/safetensors"
      { printf '\4'; cat ../trainer/tests/fixtures/tiny_bert/config.json; } >"$to/bert-config"
      { printf '\7'; cat ../trainer/tests/fixtures/tiny_bert/tokenizer.json; } >"$to/bert-tokenizer" ;;
  esac
}

held=true
figures=
printf '%-14s %-7s %12s %10s %10s\n' target result runs coverage peak_mib
for target in "${targets[@]}"; do
  seed "$target"
  log=$(mktemp)
  if cargo fuzz run --sanitizer none "$target" -- -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 >"$log" 2>&1; then result=held; else result=FAILED held=false; fi
  stat() { sed -n "s/^stat::$1: *//p" "$log" | tail -1; }
  runs=$(stat number_of_executed_units) peak=$(stat peak_rss_mb)
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
  printf '%-14s %-7s %12s %10s %10s\n' "$target" "$result" "${runs:-0}" "${coverage:-0}" "${peak:-0}"
  if [[ $result == FAILED ]]; then tail -n 40 "$log" >&2; fi
  rm -f "$log"
  figures+="${figures:+,}\"${target}_runs\":${runs:-0},\"${target}_coverage\":${coverage:-0}"
done
printf '{"bench":"fuzz","held":%s,"figures":{"seconds":%s,%s}}\n' "$held" "$seconds" "$figures"
[[ $held == true ]]
