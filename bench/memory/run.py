"""Runs every job in a process of its own and prints estimate, measured peak and their ratio, and what longer sequences add."""

import argparse
import json
import math
import pathlib
import random
import re
import subprocess

ROOT = pathlib.Path(__file__).parent.parent.parent
# A policy inside the binary, as a folder: 4 layers, hidden 128, vocabulary 1,024.
SMALL = ROOT / "configs/quickstart"
# shape, rank or 0, precision, sequence length, sequences of a group, micro-batch tokens, threads, steps
JOBS = {
    "small": [
        (SMALL, rank, "f32", length, 32, micro_batch, threads, 2)
        for rank in (0, 8)
        for threads in (1, 2)
        for length, micro_batch in ((256, 256), (256, 1024), (256, 4096), (512, 4096))
    ],
    "0.5b": [
        ("random:Qwen2.5-0.5B", 16, precision, length, 1, length, 2, 1)
        for precision in ("f32", "bf16", "int8")
        for length in (512, 1024, 2048, 4096)
    ],
    "full": [("random:Qwen2.5-0.5B", 0, "f32", 256, 1, 256, 2, 2)],
}


def rollouts(file, vocabulary, length, sequences):
    """One group of as many sequences, and one of 16 tokens: another reward, so that there is a direction."""
    random.seed(5)
    with file.open("w") as out:
        for member in range(sequences + 1):
            count = length if member < sequences else 16
            mask = [int(place > 0 and place % 5 == 0) for place in range(count)]
            row = {"group": 0, "ids": [random.randrange(vocabulary) for _ in range(count)], "mask": mask}
            out.write(json.dumps({**row, "logprobs": [-math.log(vocabulary) * bit for bit in mask], "reward": float(member == sequences)}) + "\n")


def update(arguments, job):
    model, rank, precision, length, sequences, micro_batch, threads, steps = job
    vocabulary = 1024 if model == SMALL else 151_936
    file = arguments.home / "rollouts.jsonl"
    rollouts(file, vocabulary, length, sequences)
    command = [arguments.forage, "bench", "train", model, file, "--rank", rank, "--base", precision, "--threads", threads,
               "--micro-batch-tokens", micro_batch, "--steps", steps]
    out = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout
    found = json.loads(out.splitlines()[-1])
    shape = "small" if model == SMALL else model.removeprefix("random:")
    row = {"shape": shape, "lora": rank, "base": precision, "length": length, "micro_batch": micro_batch, "threads": threads}
    return {**row, "estimate_mib": found["estimate_mib"], "peak_mib": found["peak_mib"]}


def whole(arguments, name, settings):
    folder = arguments.home / "run"
    subprocess.run(["rm", "-rf", folder], check=True)
    command = [arguments.forage, "train", ROOT / f"configs/{name}.toml", "--out", folder]
    for setting in settings:
        command += ["--set", setting]
    process = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    peak, told = map(int, re.search(r"peak memory (\d+) MiB; (\d+) MiB", process.stdout).groups())
    return {"run": name, "settings": settings, "estimate_mib": told, "peak_mib": peak}


def show(row):
    print(json.dumps({**row, "ratio": round(row["estimate_mib"] / row["peak_mib"], 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=pathlib.Path, required=True)
    parser.add_argument("--forage", required=True)
    parser.add_argument("--parts", nargs="+", required=True)
    arguments = parser.parse_args()
    arguments.home.mkdir(parents=True, exist_ok=True)
    for part in " ".join(arguments.parts).split():
        before = None
        for job in JOBS.get(part, []):
            row = update(arguments, job)
            if part == "0.5b" and before and before["base"] == row["base"]:
                row["kib_per_token"] = round((row["peak_mib"] - before["peak_mib"]) * 1024 / (row["length"] - before["length"]))
            show(row)
            before = row
        if part == "loop":
            show(whole(arguments, "smoke", []))
            show(whole(arguments, "smoke", ["policy.lora={rank=8, alpha=16}"]))
            show(whole(arguments, "quickstart", ["grpo.steps=12"]))


main()
