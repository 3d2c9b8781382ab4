"""GRPO runs on a device beside the same on the processor, resumed and exported: compare.py FOLDER (see vulkan.sh)."""

import json
import pathlib
import struct
import sys

folder = pathlib.Path(sys.argv[1])
KEYS = ["reward/mean", "policy/loss", "optim/grad_norm", "policy/entropy"]


def rows(name):
    return [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]


def tensors(path):
    """Types and bytes of all tensors of a file, by name."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for key, entry in header.items():
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        found[key] = entry["dtype"], data[start:end]
    return found


def weights(name):
    """Numbers of all tensors of an exported folder, in f32."""
    found = {}
    for key, (dtype, data) in tensors(folder / name / "model.safetensors").items():
        assert dtype == "F32", (key, dtype)
        found[key] = struct.unpack(f"<{len(data) // 4}f", data)
    return found


def codes(name):
    """Codes of all moments of 8 bits after two steps of a run."""
    found = tensors(folder / name / "checkpoints/step-000002/optimizer.safetensors")
    return {key: data for key, (dtype, data) in found.items() if dtype == "U8"}


def same(what, found, expected, tolerance):
    off = abs(found - expected) / max(1.0, abs(expected))
    print(f"{'ok    ' if off <= tolerance else 'FAILED'} {what}: {found:.7g}, {expected:.7g} on the processor, at most {tolerance} off")
    return off <= tolerance


there, cpu, cut = rows("there"), rows("cpu"), rows("cut")
results = []
for step, (device, processor) in enumerate(zip(there, cpu, strict=True)):
    # A step without a group that teaches has no loss.
    for key in [key for key in KEYS if key in processor]:
        results.append(same(f"step {step}, {key}", device[key], processor[key], 2e-4))
resumed = [row for row in cut if row["step"] == there[-1]["step"]][-1]
for key in [key for key in KEYS if key in there[-1]]:
    results.append(same(f"after a resume, {key}", resumed[key], cpu[-1][key], 2e-4))
for kind, what in [("", ""), ("-bits", " with moments of 8 bits, after a resume")]:
    exported, expected = weights(f"exported{kind}"), weights(f"expected{kind}")
    assert exported.keys() == expected.keys()
    worst = max(abs(a - b) for key in expected for a, b in zip(exported[key], expected[key], strict=True))
    results.append(same(f"exported weights{what}, largest difference", worst, 0.0, 2e-4))
# So few steps of a small rate move weights by less than is allowed; moments that were lost, or stand elsewhere, are others altogether.
found, expected = codes("cut-bits"), codes("cpu-bits")
assert found.keys() == expected.keys() and expected
pairs = [pair for key in expected for pair in zip(found[key], expected[key], strict=True)]
apart = sum(abs(a - b) > 2 for a, b in pairs) / len(pairs)
results.append(same("share of moments of 8 bits that are more than two codes off", apart, 0.0, 0.05))
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
held = all(results)
print(json.dumps({"bench": "device-vulkan", "held": held, "figures": {"checks": len(results), "passed": sum(results)}}))
sys.exit(0 if held else 1)
