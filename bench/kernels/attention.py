"""Attention of training against PyTorch's in f64: attention.py FORAGE DEVICE [--quick].

Lengths from 1 to 4,096, one to eight sequences that share their beginning, heads of 64, 80, 96 and 128 numbers, one to eight
query heads per key head. The derivatives are PyTorch's autograd through every sequence alone, added up where rows are shared.
An error is relative to the largest number of its tensor. Prints a table and a line of JSON; `held` is true where forward
errors are at most 1e-5 and those of derivatives at most 1e-4.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

FORWARD, BACKWARD = 1e-5, 1e-4
# Heads, key heads, numbers of a head, tokens in common, tokens of each sequence after these.
QUICK = [
    (2, 2, 64, 0, [1]), (4, 2, 64, 0, [17, 5, 33]), (8, 1, 80, 20, [9, 1, 16, 17]), (7, 1, 64, 33, [40] * 8),
    (6, 2, 96, 1, [64, 0, 31]), (8, 1, 128, 100, [50, 60]),
]
ALL = QUICK + [
    (8, 2, 128, 300, [120, 200, 77, 1, 90, 130, 64, 10]), (4, 4, 80, 0, [513]), (4, 1, 96, 256, [256] * 4),
    (2, 1, 64, 1024, [1024, 512]), (2, 1, 128, 0, [4096]), (1, 1, 64, 4095, [1]),
]


def expected(found, sequences):
    """Mixed values and the derivatives of `sum(mixed * grad)`."""
    heads, kv_heads = found["queries"].shape[1], found["keys"].shape[1]
    leaves = {name: found[name].double().requires_grad_() for name in ("queries", "keys", "values")}
    mixed = torch.zeros_like(leaves["queries"])
    written = torch.zeros(len(mixed), dtype=torch.bool)
    for rows in sequences:
        rows = torch.tensor(rows)
        queries, keys, values = (leaves[name][rows].transpose(0, 1) for name in ("queries", "keys", "values"))
        keys, values = (x.repeat_interleave(heads // kv_heads, 0) for x in (keys, values))
        scores = queries @ keys.transpose(1, 2) / queries.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(len(rows), len(rows)).triu(1).bool(), float("-inf"))
        # A shared row is one row: its queries count once.
        own = ~written[rows]
        mixed = mixed.index_put((rows[own],), (scores.softmax(-1) @ values).transpose(0, 1)[own])
        written[rows] = True
    (mixed * found["grad"].double()).sum().backward()
    return {"mixed": mixed.detach()} | {f"by_{name}": leaf.grad for name, leaf in leaves.items()}


def main():
    forage, device = sys.argv[1:3]
    cases = QUICK if "--quick" in sys.argv[3:] else ALL
    figures, held = [], True
    print(f"{'heads':>6}{'keys':>5}{'dim':>5}{'shared':>8}  {'own':32}{'mixed':>9}{'queries':>9}{'keys':>9}{'values':>9}{'seconds':>9}")
    for heads, kv_heads, dim, shared, own in cases:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "case.safetensors"
            words = ["--heads", heads, "--kv-heads", kv_heads, "--head-dim", dim, "--shared", shared,
                     "--own", ",".join(map(str, own)), "--device", device]
            done = subprocess.run([forage, "bench", "attention", str(file), *map(str, words)], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"error: heads {heads}, {kv_heads} of {dim}, {shared} shared, {own}: {done.stderr[-2000:]}")
            row, found = json.loads(done.stdout), load_file(file)
        errors = {}
        for name, exact in expected(found, row["rows"]).items():
            error = ((found[name].double() - exact).abs().max() / exact.abs().max().clamp_min(1e-30)).item()
            errors[name] = error
            held &= error <= (FORWARD if name == "mixed" else BACKWARD)
        text = ",".join(map(str, own))
        print(f"{heads:6}{kv_heads:5}{dim:5}{shared:8}  {text:32}" + "".join(f"{errors[name]:9.1e}" for name in errors)
              + f"{row['seconds']:9.1f}", flush=True)
        figures.append(dict(heads=heads, kv_heads=kv_heads, head_dim=dim, shared=shared, own=own, seconds=row["seconds"], **errors))
    print(json.dumps({"bench": "kernels", "held": held, "figures": {"device": device, "cases": figures}}))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
