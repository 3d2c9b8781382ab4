"""Runs every job in forage and in transformers by turns, and prints tokens per second, ratios and memory."""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
from importlib.metadata import version

HERE = pathlib.Path(__file__).parent
SMALL = dict(hidden_size=192, intermediate_size=512, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=2,
             vocab_size=2048)
HALF_BILLION = dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                    num_key_value_heads=2, vocab_size=151936)
SHAPES = {"small": SMALL, "0.5b": HALF_BILLION}
# (shape, precision, job): single:BATCH:PROMPT:NEW, groups:PROMPTS:MEMBERS:PROMPT:NEW:OBSERVATION:TURNS
JOBS = [
    ("small", "full", "single:1:128:64"),
    ("small", "full", "single:8:128:64"),
    ("small", "full", "single:32:128:64"),
    ("small", "full", "single:64:128:64"),
    ("small", "full", "groups:8:8:100:40:150:3"),
    ("0.5b", "full", "single:1:128:32"),
    ("0.5b", "full", "single:8:128:32"),
    ("0.5b", "full", "single:32:128:32"),
    ("0.5b", "full", "groups:1:8:100:20:150:3"),
    ("0.5b", "half", "single:1:128:32"),
    ("0.5b", "half", "single:8:128:32"),
]
# The figure to hold: groups of eight over several turns, small model, against the peer that keeps its cache.
WEIGHTS = {"full": "f32", "half": "bf16"}
HELD_JOB, HELD_RATIO = ("small", "full", "groups:8:8:100:40:150:3"), 2.0


def make_model(folder, precision, shape):
    """In another process: this one stays small, for a child's peak memory counts its parent's before it starts."""
    if not (folder / "done").exists():
        built_in = HERE.parent.parent / "configs/quickstart"
        command = [sys.executable, HERE / "model.py", folder, precision, json.dumps(SHAPES[shape]), built_in]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def run(command):
    """The lines of JSON a program prints, and its peak memory in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"error: {' '.join(map(str, command))} failed")
    return [json.loads(line) for line in out.splitlines()], usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=pathlib.Path, required=True)
    parser.add_argument("--forage", required=True)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES))
    arguments = parser.parse_args()
    shapes = " ".join(arguments.shapes).split()
    rows = []
    print(f"{'model':5} {'weights':7} {'job':26} {'forage':>9} {'again':>9} {'kept':>9} {'ratio':>6} {'ratio':>6}"
          f" {'MiB':>6} {'MiB':>6} {'shared':>6}")
    print(f"{'':40} {'tok/s':>9} {'tok/s':>9} {'tok/s':>9} {'again':>6} {'kept':>6} {'forage':>6} {'torch':>6}")
    for shape, precision, job in JOBS:
        if shape not in shapes:
            continue
        folder = arguments.home / f"{shape}-{precision}"
        make_model(folder, precision, shape)
        (ours,), our_memory = run([arguments.forage, "bench", "generate", folder, "--weights", WEIGHTS[precision], job])
        (theirs,), their_memory = run([sys.executable, HERE / "peer.py", folder, precision, "cpu", job])
        row = dict(model=shape, weights=precision, job=job, forage=ours["tokens_per_second"], **theirs,
                   ratio_again=ours["tokens_per_second"] / theirs["again"],
                   ratio_kept=ours["tokens_per_second"] / theirs["kept"],
                   forage_mib=our_memory, torch_mib=their_memory, shared=ours["cached_prompt"])
        rows.append(row)
        print(f"{shape:5} {precision:7} {job:26} {row['forage']:9.1f} {row['again']:9.1f} {row['kept']:9.1f}"
              f" {row['ratio_again']:6.2f} {row['ratio_kept']:6.2f} {our_memory:6.0f} {their_memory:6.0f}"
              f" {row['shared']:6.2f}", flush=True)
    print(f"torch {version('torch')}, transformers {version('transformers')}, Python {platform.python_version()},"
          f" {os.cpu_count()} threads each, {platform.machine()}")
    print("again: each turn runs the whole history; kept: transformers keeps its cache between turns")
    held = [row["ratio_kept"] >= HELD_RATIO for row in rows if (row["model"], row["weights"], row["job"]) == HELD_JOB]
    print(json.dumps({"bench": "generate", "held": all(held), "figures": rows}))


if __name__ == "__main__":
    main()
