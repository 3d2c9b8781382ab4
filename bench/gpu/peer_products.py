"""Products of matrices in torch on CUDA: peer_products.py PRODUCT..., a line of JSON each, as `forage bench products` takes and prints them."""

import json
import sys

import torch

BYTES, ROUNDS, LAUNCHES = 400 << 20, 4, 20


def measured(text):
    rows, columns, inner, layouts, types = text.split(":")
    rows, columns, inner = int(rows), int(columns), int(inner)
    dtype = torch.float32 if types == "f32" else torch.bfloat16

    def drawn(rows, columns, layout):
        shape = (columns, rows) if layout == "c" else (rows, columns)
        drawn = (torch.rand(shape, device="cuda") * 2 - 1).to(dtype)
        return drawn.t() if layout == "c" else drawn

    sets = max(1, min(8, BYTES // ((rows + columns) * inner * dtype.itemsize)))
    sets = [(drawn(rows, inner, layouts[0]), drawn(inner, columns, layouts[1])) for _ in range(sets)]
    more = {"out_dtype": torch.float32} if types == "bf16-f32" else {}
    best = float("inf")
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for launch in range(LAUNCHES):
            torch.mm(*sets[launch % len(sets)], **more)
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) / LAUNCHES)
    return {"kernel": "torch", "micros": best * 1e3}


for text in sys.argv[1:]:
    print(json.dumps({"product": text, "found": measured(text)}), flush=True)
