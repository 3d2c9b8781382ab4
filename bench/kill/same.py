"""Whether two runs left the same: same.py FOLDER FILE..., the runs `whole` and `broken` in FOLDER, files to the byte, metrics but for the
clock's."""

import json
import sys
from pathlib import Path

folder, *files = sys.argv[1:]
runs = [Path(folder) / name for name in ("whole", "broken")]


def rows(run):
    with open(run / "metrics.jsonl") as lines:
        return [{name: value for name, value in json.loads(line).items() if not name.startswith("time/")} for line in lines]


def differs(read):
    try:
        whole, broken = map(read, runs)
    except OSError as error:
        print(error, file=sys.stderr)
        return True
    return whole != broken


differing = [file for file in files if differs(lambda run: (run / file).read_bytes())]
if differs(rows):
    differing.append("metrics.jsonl")
for file in differing:
    print(f"differs: {file}", file=sys.stderr)
sys.exit(bool(differing))
