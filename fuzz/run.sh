#!/usr/bin/env bash
# Runs every fuzz target for a number of seconds each (default 600): fuzz/run.sh [--jobs N] [SECONDS] [TARGET...]
#
# N targets (default 1) run at a time. Prints a table and, last, one line of JSON. `held` is false when a target ended with a crash, a
# timeout or too much memory; the input that did it is then under fuzz/artifacts/TARGET.
set -euo pipefail
cd "$(dirname "$0")"
at_once=1
if [[ ${1:-} == --jobs ]]; then
  at_once=${2:-}
  if [[ ! $at_once =~ ^[1-9][0-9]*$ ]]; then
    echo "--jobs: write a number of targets, 1 or more" >&2
    exit 2
  fi
  shift 2
fi
seconds=${1:-600}
shift || true

command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz --version 0.13.2
if (($#)); then targets=("$@"); else mapfile -t targets < <(cargo fuzz list); fi

# Logs, and what targets write: nothing of it outlives the run.
work=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$work"' EXIT

# Seeds: the fixtures of the tests and what stands in seeds/TARGET. The first lines of a target say what its first bytes mean.
seed() {
  local target=$1 to=corpus/$1 fixtures=../retriever/tests/fixtures file
  mkdir -p "$to"
  if [[ -d seeds/$target ]]; then cp seeds/"$target"/* "$to"/; fi
  case $target in
    corpus) for file in "$fixtures"/corpora/*.parquet "$fixtures"/corpora/shards/*.parquet; do
        { printf '2'; cat "$file"; } >"$to/$(basename "$file")"
      done ;;
    qrels)
      cp ../env/tests/fixtures/datasets/beir/*/*.parquet "$fixtures"/corpora/beir-none.parquet "$to"/
      gzip -nc seeds/qrels/trec >"$to/trec.gz" ;;
    episodes) cp ../trainer/tests/fixtures/step/full.jsonl "$to"/ ;;
    # Every file as it is, with a manifest or digests that are signed anew; of a checkpoint, of whole weights and of an adapter.
    index) for ((file = 0; file < 32; file++)); do printf "\\x$(printf %02x "$file")\\x01\\0\\0" >"$to/file-$file"; done ;;
    checkpoint) for ((file = 0; file < 20; file++)); do
        printf "\\x$(printf %02x "$file")\\x12\\0\\0" >"$to/file-$file"
        printf "\\x$(printf %02x "$file")\\x32\\0\\0" >"$to/adapter-$file"
      done ;;
    vectors) cp "$fixtures"/vectors/*.npy "$fixtures"/vectors/*.faiss "$to"/ ;;
    chat_template) python3 - "$to" <<'END'
import json, pathlib, sys
cases = json.load(open("../env/tests/fixtures/chat_templates.json"))
for kind in ("families", "features"):
    for number, case in enumerate(cases[kind]):
        (pathlib.Path(sys.argv[1]) / f"{kind}-{number}").write_text(case["template"])
END
    ;;
    model_folder)
      { printf '\0'; cat ../trainer/tests/fixtures/tiny_qwen3/config.json; } >"$to/tiny-qwen3-config"
      { printf '\4'; cat ../trainer/tests/fixtures/tiny_bert/config.json; } >"$to/tiny-bert-config"
      { printf '\3'; cat ../trainer/tests/fixtures/tiny_bert/tokenizer.json; } >"$to/tiny-bert-tokenizer" ;;
  esac
}

# One target: its log and how it ended.
run() {
  local target=$1 result=held
  : >"$work/$target.log"
  seed "$target"
  mkdir "$work/$target"
  TMPDIR=$work/$target cargo fuzz run --sanitizer none "$target" -- -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 >"$work/$target.log" 2>&1 || result=FAILED
  echo "$result" >"$work/$target.result"
  echo "$target: $result" >&2
}

# Built before any of them runs, so that none waits for another's compiler.
for target in "${targets[@]}"; do cargo fuzz build --sanitizer none "$target"; done
for target in "${targets[@]}"; do
  while (($(jobs -rp | wc -l) >= at_once)); do wait -n || true; done
  run "$target" &
done
wait

held=true
figures=
printf '%-14s %-7s %12s %10s %10s\n' target result runs coverage peak_mib
for target in "${targets[@]}"; do
  log=$work/$target.log result=$(cat "$work/$target.result" 2>/dev/null || echo FAILED)
  stat() { sed -n "s/^stat::$1: *//p" "$log" | tail -1; }
  runs=$(stat number_of_executed_units) peak=$(stat peak_rss_mb)
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
  printf '%-14s %-7s %12s %10s %10s\n' "$target" "$result" "${runs:-0}" "${coverage:-0}" "${peak:-0}"
  if [[ $result == FAILED ]]; then
    held=false
    tail -n 40 "$log" >&2
  fi
  figures+="${figures:+,}\"${target}_runs\":${runs:-0},\"${target}_coverage\":${coverage:-0}"
done
printf '{"bench":"fuzz","held":%s,"figures":{"seconds":%s,%s}}\n' "$held" "$seconds" "$figures"
[[ $held == true ]]
