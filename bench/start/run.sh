#!/usr/bin/env bash
# Makes the starts of the quickstarts and says how well they read: policies that copy names into queries and read passages, whose conduct
# is mediocre. Prints a table of them and a line of JSON with the bars of bench/start/bars.py, `held` where every start meets its own.
# Usage: bench/start/run.sh SCRATCH_FOLDER [START...]
# `search`, `code` and `query` are the starts of search-r1, code-search and query-writer: the policies `builtin:quickstart`,
# `builtin:quickstart-code` and `builtin:query-writer`, made by the configs of these names. All are made unless some are named, side by
# side, one a core: some 40 minutes on two. A start that is done is not made again; one that was cut off in its warm start begins anew, and
# goes on where it was after that.
# SCRATCH_FOLDER/starts/START is the policy in bf16, whose reading is measured.
# Everything is measured on development worlds, by which choices are made. SPLIT=test measures reading on names and a world that served for
# none; do that once, at the end. The haste of demonstrators was not chosen on development worlds alone: "What was tried for the warm start"
# and "Boolean queries" in docs/results.md say by which others.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/start/run.sh SCRATCH_FOLDER [START...]}
shift
wanted=${*:-search code query}
split=${SPLIT:-dev}
case $split in dev) world_seed=3000001 ;; test) world_seed=4000001 ;; *) echo "error: SPLIT is dev or test" >&2; exit 1 ;; esac
for name in $wanted; do
  case $name in search | code | query) ;; *) echo "error: there is no start $name" >&2; exit 1 ;; esac
done
mkdir -p "$scratch"
scratch=$(cd "$scratch" && pwd)
. bench/program.sh
. bench/side_by_side.sh

# A step of GRPO, because the verdict has the conduct of the start; on a world that no result is taken from.
measured=(--set data.world.seed=2000001 --set data.test_questions=300 --set grpo.steps=1)
declare -A environments=([search]=search-r1 [code]=code-search [query]=query-writer)
measure() { # NAME
  local name=$1 environment=${environments[$1]} start=$scratch/starts/$1 world=$scratch/world-$split found=$scratch/$1.$split.json
  if [ ! -e "$start" ]; then
    rm -rf "$start.partial"
    "$forage" export "$scratch/$name/start" --merged "$start.partial" --type bf16
    mv "$start.partial" "$start"
  fi
  [ -e "$found" ] && return 0
  [ -e "$world" ] || "$forage" world --pages 20000 --seed "$world_seed" --questions 1500 --hops 0.6,0.4,0,0 --paraphrase 0.5 \
    --near-names 0.3 --out "$world"
  python3 bench/start/reading.py prompts "$world" "$split" "$environment" spaced >"$scratch/$name.prompts.jsonl"
  "$forage" policy generate --model "$start" --input "$scratch/$name.prompts.jsonl" --output "$scratch/$name.completions.jsonl" \
    --max-tokens 24 --temperature 0 --stop '</search>' --stop '</answer>' --stop '</query>' --stop '")'
  python3 bench/start/reading.py score "$world" "$scratch/$name.completions.jsonl" >"$found.partial"
  mv "$found.partial" "$found"
}

make() { # NAME CONFIG ARGUMENTS
  local name=$1 config=$2 run=$scratch/$1 what again=()
  shift 2
  [[ " $wanted " == *" $name "* ]] || return 0
  # The program is left out: hours of work outlive a build.
  what=$(printf '%s\n' "$@" | cat "$config" - | sha256sum)
  if [ -e "$run/start/model.safetensors" ] && [ "$(cat "$run.made" 2>/dev/null)" != "$what" ]; then
    echo "error: $run is of another config or other arguments; delete it, or name another folder" >&2
    exit 1
  fi
  echo "$what" >"$run.made"
  if [ ! -e "$run/verdict.json" ]; then
    if [ -e "$run/start/model.safetensors" ]; then
      again=(--resume)
    else
      rm -rf "$run" "$scratch/starts/$name" "$run".{dev,test}.json
    fi
    logged "$run.log" "$forage" quickstart --config "$config" --from-scratch --set threads=1 --out "$run" "${again[@]}" "$@"
  fi
}

# The one that takes longest first.
beside make code configs/quickstart-code.toml "${measured[@]}"
beside make search configs/quickstart.toml "${measured[@]}"
beside make query configs/query-writer.toml "${measured[@]}"
together
for name in $wanted; do measure "$name"; done
python3 bench/start/bars.py "$scratch" "$split"
