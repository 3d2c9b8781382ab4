"""How far two sets of weights are apart: gap.py OURS THEIRS, two folders of safetensors files; one line of JSON.

The largest distance of a tensor, relative to the norm of theirs. Biases of a random model start at 0, so after one step of Adam they
are signs of gradients, some of which are rounding: they are left out.
"""

import json
import pathlib
import sys

from safetensors.torch import load_file


def read(folder):
    tensors = {}
    for file in pathlib.Path(folder).glob("*.safetensors"):
        tensors |= {name.replace("base_model.model.", ""): tensor.float() for name, tensor in load_file(file).items()}
    return tensors


ours, theirs = map(read, sys.argv[1:])
if set(ours) != set(theirs):
    sys.exit(f"other tensors: {sorted(set(ours) ^ set(theirs))[:5]}")
compared = [name for name in theirs if not name.endswith("bias")]
print(json.dumps({"tensors": len(compared), "gap": max(((ours[name] - theirs[name]).norm() / theirs[name].norm()).item() for name in compared)}))
