#!/usr/bin/env bash
# Turns per second of a trivial environment in Python, played by a scripted policy with `forage eval`, the start of the program
# included: rollout driver, HTTP and the Python processes share the machine.
# Usage: bench/environment/external.sh [QUESTIONS]   (8 turns each; 2000 by default)
set -euo pipefail
cd "$(dirname "$0")/../.."
source bench/clients/common.sh
questions=${1:-2000}
build
export PYTHONPATH="$PWD/clients/python/src"
cat > "$WORK/trivial.py" <<'PY'
import forage


class Trivial(forage.Environment):
    max_turns = 8

    @classmethod
    def questions(cls, split, count, seed):
        return (forage.Question(f"{split}-{place}", f"What is {place} of {split}?", "x") for place in range(count))

    def reset(self, question, seed):
        return question.text

    def step(self, turn):
        return forage.Reply.call("say", "\nMore.\n")


forage.serve(Trivial)
PY
cat > "$WORK/trivial.toml" <<EOT
[policy]
checkpoint = "builtin:quickstart"
[data]
train_questions = 1
dev_questions = 0
test_questions = $questions
[data.own]
seed = 1
[environment]
id = "external"
EOT
rows=()
for workers in 1 2; do
    begin=$(date +%s.%N)
    "$(realpath "$FORAGE")" eval "$WORK/trivial.toml" --env-command "python3 $WORK/trivial.py" --env-workers "$workers" \
        --policy constant:50 --samples 0 --set evaluation.resamples=1 > "$WORK/log" 2>&1 || { cat "$WORK/log" >&2; exit 1; }
    end=$(date +%s.%N)
    rows+=("$(python3 -c "print('{\"workers\": %d, \"turns_per_s\": %d}' % ($workers, 8 * $questions / ($end - $begin)))")")
    echo "${rows[-1]}"
done
held=$(python3 -c "import json, sys; print(json.dumps(all(json.loads(row)['turns_per_s'] >= 1000 for row in sys.argv[1:])))" "${rows[@]}")
echo "{\"bench\": \"environment-external\", \"held\": $held, \"figures\": [$(IFS=,; echo "${rows[*]}")]}"
