"""Checkpoints of random weights that several benchmarks run, made by transformers, and rollouts of random tokens."""

import json
import math
import random

from harness.declare import ROOT
from harness.peers import Venv
from harness.workspace import digest

TORCH = Venv("torch==2.15.0", "transformers==5.23.0")
SMALL = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 2048,
}
# The shape of Qwen2.5-0.5B.
HALF_BILLION = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
}
# For rehearsals.
TINY = SMALL | {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}

# Jobs of generation: model, weights, and what `forage bench generate` is told.
JOBS = [
    ("small", "f32", "single:1:128:64"),
    ("small", "f32", "single:8:128:64"),
    ("small", "f32", "single:32:128:64"),
    ("small", "f32", "single:64:128:64"),
    ("small", "f32", "groups:8:8:100:40:150:3"),
    ("0.5b", "f32", "single:1:128:32"),
    ("0.5b", "f32", "single:8:128:32"),
    ("0.5b", "f32", "single:32:128:32"),
    ("0.5b", "f32", "groups:1:8:100:20:150:3"),
    ("0.5b", "bf16", "single:1:128:32"),
    ("0.5b", "bf16", "single:8:128:32"),
]


def label(model, weights, job):
    return f"{model} {weights} {job}"


def model(work, shape, weights):
    """The folder of a Qwen2 checkpoint, `weights` f32 or bf16."""
    maker, tokenizer = ROOT / "bench/generate/model.py", ROOT / "configs/quickstart"
    names = ("tokenizer.json", "tokenizer_config.json")
    key = {"shape": shape, "weights": weights, "peers": TORCH.versions, "maker": digest(maker)}
    key |= {"tokenizer": digest(*(tokenizer / name for name in names))}
    make = lambda folder: work.run(TORCH.python(work.home), maker, folder, weights, json.dumps(shape), tokenizer)
    return work.input("model", key, make)


def write_rollouts(path, vocabulary, lengths):
    """A group of sequences of so many tokens, every fifth the policy's; the last has a reward."""
    draw = random.Random(5)
    with open(path, "w") as out:
        for member, length in enumerate(lengths, 1):
            mask = [int(place > 0 and place % 5 == 0) for place in range(length)]
            row = {"group": 0, "ids": [draw.randrange(vocabulary) for _ in range(length)], "mask": mask}
            row |= {"logprobs": [-math.log(vocabulary) * bit for bit in mask], "reward": float(member == len(lengths))}
            out.write(json.dumps(row) + "\n")
