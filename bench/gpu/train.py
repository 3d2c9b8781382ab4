"""Optimizer steps on a GPU, random weights: train.py TRAIN_BENCH SCRATCH [PYTHON].

Eight episodes of 1,024 tokens, 40 % of them the policy's, one at a time through the model: a LoRA adapter of rank 16 beside a bf16
base, and all weights in f32 (0.5B only). Beside them PyTorch with PEFT and gradient checkpointing in f32, as bench/train/step.py does it.
"""

import json
import os
import pathlib
import random
import subprocess
import sys

from common import SHAPES, run

HERE = pathlib.Path(__file__).parent
bench, scratch, *python = sys.argv[1:]
scratch = pathlib.Path(scratch)
JOBS = [("Qwen2.5-0.5B", 16, "half"), ("Qwen2.5-0.5B", 0, "full"), ("Qwen2.5-3B", 16, "half")]


def rollouts(vocabulary):
    """Tokens at random; their log-probabilities are those of a uniform choice."""
    random.seed(5)
    path = scratch / "rollouts.jsonl"
    with path.open("w") as out:
        for member in range(8):
            ids = [random.randrange(vocabulary) for _ in range(1024)]
            mask = [int(place % 5 in (2, 3)) for place in range(1024)]
            row = {"group": 0, "ids": ids, "mask": mask, "logprobs": [-11.9] * 1024, "reward": float(member % 3 == 0)}
            out.write(json.dumps(row) + "\n")
    return path


rows = []
print(f"{'model':14} {'LoRA':>5} {'forage s':>9} {'torch s':>9} {'ratio':>6} {'MiB':>7} {'MiB':>7}")
for shape, rank, precision in JOBS:
    file = rollouts(SHAPES[shape]["vocab_size"])
    ours, ours_mib = run([bench, f"random:{shape}", file, str(rank), precision, "layers", "cuda:0", "4", "1024", "4"])
    peer, their_mib = None, 0
    if python:
        folder = scratch / f"{shape}-full"
        subprocess.run([python[0], HERE.parent / "generate/model.py", folder, "full", json.dumps(SHAPES[shape]),
                        HERE.parent.parent / "configs/quickstart"], check=True)
        os.environ["STEP_DEVICE"] = "cuda"
        peer, their_mib = run([python[0], HERE.parent / "train/step.py", folder, file, str(rank), "checkpoint", "4", "1024", "4"])
    seconds, theirs = (line["seconds"] if line else float("nan") for line in (ours, peer))
    rows.append(dict(model=shape, lora=rank, s=seconds, torch_s=theirs, mib=ours_mib, torch_mib=their_mib))
    print(f"{shape:14} {rank:5} {seconds:9.2f} {theirs:9.2f} {theirs / seconds:6.2f} {ours_mib:7} {their_mib:7}", flush=True)
(scratch / "train.json").write_text(json.dumps(rows))
