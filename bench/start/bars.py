"""Prints what bench/start/run.sh made: a table of the starts, and a line of JSON with every bar and whether all are met.

Usage: python3 bench/start/bars.py SCRATCH_FOLDER SPLIT
"""

import json
import sys
from pathlib import Path

STARTS = ("search", "code", "query")
# Least shares of right answers to one-hop questions whose passage is there, and of right names in first queries.
READ, COPY = 0.93, 0.97
# Ends of the start's greedy exact match, or NDCG: a conduct that is mediocre and not absent.
GREEDY = {"answer": (0.15, 0.40), "ranking": (0.55, 0.75)}


def bars(verdict, reading):
    """Each bar with its figure and whether it is met; a missing figure meets none."""
    outcome = verdict.get("outcome", "answer")
    low, high = GREEDY[outcome]
    share = lambda kind: reading.get(kind, {}).get("share")
    found = {"copy": (share("copy"), lambda value: value >= COPY)}
    if outcome == "answer":
        found["read, one hop"] = (share("read"), lambda value: value >= READ)
    found["greedy"] = (verdict.get("start"), lambda value: low <= value <= high)
    return {name: {"value": value, "met": value is not None and met(value)} for name, (value, met) in found.items()}


def held(found):
    """Whether all starts are there and each meets its bars."""
    return all(name in found and all(bar["met"] for bar in found[name].values()) for name in STARTS)


def parts(verdict, kind):
    """P(search), P(found) and P(right, found) of the start, where episodes end in answers."""
    chances = ((verdict.get(kind) or {}).get("policies") or [{}])[0].get("parts", {})
    return [chances.get(part) for part in ("search", "found", "read")]


def sampled(verdict):
    metrics = ((verdict.get("sampled") or {}).get("gain") or {}).get("metrics", {})
    return next((metrics[measure]["a"] for measure in ("em", "ndcg") if measure in metrics), None)


def cell(value):
    if isinstance(value, dict):
        return f"{value['share']:.3f} [{value['low']:.3f}, {value['high']:.3f}] ({value['n']})"
    return "" if value is None else f"{value:.3f}"


def main():
    scratch, split = Path(sys.argv[1]), sys.argv[2]
    kinds = ("copy", "next", "read", "read, names", "read, numbers", "read, words", "read2")
    conduct = ("greedy", "P(search)", "P(found)", "P(right, found)", "sampled", "P(search)", "P(found)", "P(right, found)")
    print(f"| {split} | {' | '.join(kinds + conduct)} |")
    print("|" + "---|" * (1 + len(kinds) + len(conduct)))
    found, readings = {}, {}
    for name in STARTS:
        files = scratch / name / "verdict.json", scratch / f"{name}.{split}.json"
        if not all(file.exists() for file in files):
            continue
        verdict, reading = (json.loads(file.read_text()) for file in files)
        values = [reading.get(kind) for kind in kinds]
        values += [verdict.get("start"), *parts(verdict, "parts"), sampled(verdict), *parts(verdict, "sampled_parts")]
        print(f"| {name} | {' | '.join(map(cell, values))} |")
        readings[name] = reading
        found[name] = bars(verdict, reading)
    print()
    for name, shown in found.items():
        for bar, value in shown.items():
            print(f"{'met   ' if value['met'] else 'missed'} {name}, {bar}: {cell(value['value']) or 'not there'}")
    line = {"bench": "start", "held": held(found), "split": split, "figures": {"bars": found, "reading": readings}}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
