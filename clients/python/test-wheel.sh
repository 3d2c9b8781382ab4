#!/usr/bin/env bash
# Installs the wheel into an empty virtual environment and uses it there: types and style of the package's sources, the program with a
# scripted policy, and the package's tests, which run the cells of the notebooks too.
# test-wheel.sh [WHEEL], by default the one that wheel.sh made.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
wheel="$(realpath "${1:-"$(ls "$here"/dist/*.whl)"}")"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
PATH="$scratch/venv/bin:$PATH"
unset FORAGE_BIN PYTHONPATH
pip install --quiet --disable-pip-version-check "$wheel[gymnasium,pandas,plots,wandb,trackio,dev]"
(cd "$here" && ruff check --no-cache . && ruff format --no-cache --check . && mypy --cache-dir "$scratch/types")
cd "$scratch"
[ "$(command -v forage)" = "$scratch/venv/bin/forage" ]
forage quickstart --help > /dev/null
forage world --pages 200 --out world > /dev/null
forage eval --policy oracle --corpus world/beir --format beir --questions world/questions.jsonl --limit 20
# Not the sources beside the tests, but what was installed.
python -c 'import forage; assert "site-packages" in forage.__file__; assert str(forage.program()).startswith("'"$scratch"'")'
python -m pytest -rs -p no:cacheprovider -o pythonpath= "$here/tests"
