"""The matrix of components and faults: `run.py WORK [PART...]`, parts being clients, servers, folders. Called by run.sh."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import clients
import folders
import servers
from program import Cell, run

WORKERS = 3
PARTS = ["folders", "clients", "servers"]


def prepared(work):
    """A world with questions, its corpus and its index."""
    world, index = work / "world", work / "index"
    for ended in (
        run("world", "--pages", 300, "--seed", 1, "--out", world),
        run("index", "build", "--corpus", world / "search-r1" / "wiki.jsonl", "--format", "search-r1", "--out", index),
    ):
        if ended.rc != 0:
            raise SystemExit(ended.stderr)
    return world, index


def guarded(cell):
    """A cell's rows; what breaks in the bench itself is a row that does not hold."""
    try:
        found = cell()
    except Exception as error:  # noqa: BLE001
        found = Cell("bench", f"{type(error).__name__}: {error}", "the cell runs", misses=["the cell broke"])
    rows = found if isinstance(found, list) else [found]
    for row in rows:
        mark = "out " if row.left_out else "ok  " if row.held else "FAIL"
        why = "; ".join(row.misses) or (row.left_out and f"needs {row.left_out}")
        print(
            f"{mark} {row.component}: {row.fault}" + (f" ({why})" if why else ""),
            file=sys.stderr,
            flush=True,
        )
    return rows


def main():
    work, wanted = Path(sys.argv[1]), sys.argv[2:] or PARTS
    if unknown := sorted(set(wanted) - set(PARTS)):
        raise SystemExit(f"no part is called {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    begun = time.monotonic()
    world, index = prepared(work)
    corpus = world / "search-r1" / "wiki.jsonl"
    made = {
        "folders": lambda: folders.cells(work, corpus),
        "clients": lambda: clients.cells(work, world),
        "servers": lambda: servers.cells(work, index, world),
    }
    cells = [cell for part in PARTS if part in wanted for cell in made[part]()]
    with ThreadPoolExecutor(WORKERS) as pool:
        rows = [row for found in pool.map(guarded, cells) for row in found]
    print("| component | fault | expected | seen | typed | counted | lost | told after | held |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        told = "" if row.told_s is None else f"{row.told_s} s"
        held = f"left out: needs {row.left_out}" if row.left_out else "yes" if row.held else "**no**: " + "; ".join(row.misses)
        print(
            f"| {row.component} | {row.fault} | {row.expected} | {row.seen} | {row.typed} | {row.counted} | {row.lost} | {told} | {held} |"
        )
    tried = [row for row in rows if not row.left_out]
    missed = [f"{row.component}: {row.fault}" for row in tried if not row.held]
    figures = {
        "cells": len(tried),
        "held": len(tried) - len(missed),
        "not_held": missed,
        "left_out": len(rows) - len(tried),
        "slowest_told_s": max((row.told_s for row in rows if row.told_s is not None), default=None),
        "seconds": round(time.monotonic() - begun),
    }
    # Cells that were all left out show nothing.
    held = bool(tried) and not missed
    print(json.dumps({"bench": "faults", "held": held, "figures": figures}))
    sys.exit(0 if held else 1)


main()
