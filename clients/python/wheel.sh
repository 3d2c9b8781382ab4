#!/usr/bin/env bash
# Builds the wheel of `pip install forage` into clients/python/dist: the program with its Python package. wheel.sh [PROGRAM]
# packs a program that is there; without one cargo makes it.
set -euo pipefail
[ $# -eq 0 ] || export FORAGE_BIN="$(realpath "$1")"
cd "$(dirname "$0")"
rm -rf dist
python3 -m pip wheel --quiet --no-deps --wheel-dir dist .
ls dist/*.whl
