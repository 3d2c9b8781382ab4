"""Tokens per second on a GPU, random weights in bf16: generate.py GENERATE_BENCH SCRATCH [PYTHON].

Decode: prompts of 16 tokens, 128 new ones. Prefill: prompts of 2,048 tokens, one new one, counted in prompt tokens. Each job runs
twice in a process of its own: the second finds the kernels compiled and tuned. Memory is what nvidia-smi shows at its most.
"""

import json
import pathlib
import subprocess
import sys

from common import SHAPES, run

HERE = pathlib.Path(__file__).parent
bench, scratch, *python = sys.argv[1:]
JOBS = {"decode 1": "single:1:16:128", "decode 32": "single:32:16:128", "decode 256": "single:256:16:128",
        "prefill": "single:8:2048:1"}


rows = []
print(f"{'model':14} {'job':12} {'forage':>10} {'torch':>10} {'ratio':>6} {'cold s':>7} {'warm s':>7} {'MiB':>7} {'MiB':>7}")
for shape, sizes in SHAPES.items():
    folder = pathlib.Path(scratch) / shape
    if python:
        built_in = HERE.parent.parent / "configs/quickstart"
        subprocess.run([python[0], HERE.parent / "generate/model.py", folder, "half", json.dumps(sizes), built_in], check=True)
    for name, job in JOBS.items():
        command = [bench, f"random:{shape}", "half", "cuda:0", job]
        (cold, _), (warm, ours_mib) = run(command), run(command)
        peer, their_mib = (None, 0)
        if python:
            peer, their_mib = run([python[0], HERE.parent / "generate/peer.py", folder, "half", "cuda", job])
        scale = 2048 if name == "prefill" else 1
        ours = warm["tokens_per_second"] * scale if warm else float("nan")
        theirs = peer["kept"] * scale if peer else float("nan")
        rows.append(dict(model=shape, job=name, forage=ours, torch=theirs, forage_mib=ours_mib, torch_mib=their_mib,
                         cold_s=cold and cold["first_round_extra_s"], warm_s=warm and warm["first_round_extra_s"]))
        print(f"{shape:14} {name:12} {ours:10.0f} {theirs:10.0f} {ours / theirs:6.2f} {rows[-1]['cold_s'] or 0:7.1f}"
              f" {rows[-1]['warm_s'] or 0:7.1f} {ours_mib:7} {their_mib:7}", flush=True)
(pathlib.Path(scratch) / "generate.json").write_text(json.dumps(rows))
