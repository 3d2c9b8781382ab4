"""What the CUDA path asks of a device, counted under the stub driver: account.py FORAGE SCRATCH [--all].

Every kernel is generated, compiled by the real NVRTC for the architecture and its launch checked; what the driver counts is
read before and after each round. Shapes run with two and with four layers, so a layer's part is half of the difference and
the figures of the whole model follow: a 7B needs no memory for the layers that are alike. The environment names the stub
and NVRTC (see run.sh). Without --all only what a change is most likely to break is counted.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
LAYERS = {"Qwen2.5-0.5B": 24, "Qwen2.5-3B": 36, "Qwen2.5-7B": 28, "Qwen3-0.6B": 28, "Qwen3-4B": 36}
VOCABULARY = 151_936
# Kind, shape, architecture, type of the weights, and the number that the kind takes.
FEW = [
    ("decode", "Qwen2.5-0.5B", 90, "bf16", 64), ("decode", "Qwen2.5-3B", 90, "bf16", 64),
    ("decode", "Qwen3-0.6B", 90, "f32", 64), ("prefill", "Qwen2.5-0.5B", 90, "bf16", 512),
    ("lora", "Qwen2.5-0.5B", 90, "bf16", 1024), ("full", "Qwen2.5-0.5B", 90, "f32", 1024),
    ("full", "Qwen2.5-0.5B", 90, "f32", 4096), ("packed", "Qwen2.5-3B", 90, "f32", 1024),
    ("packed", "Qwen3-0.6B", 90, "f32", 1024), ("packed_lora", "Qwen2.5-0.5B", 90, "bf16", 1024),
    ("decode", "Qwen2.5-0.5B", 80, "bf16", 64), ("prefill", "Qwen2.5-0.5B", 80, "bf16", 512),
    ("packed", "Qwen2.5-0.5B", 80, "f32", 1024),
]
ALL = [
    (kind, shape, arch, weights, number)
    for arch in (90, 80)
    for shape in LAYERS
    for kind, weights, number in [
        ("decode", "bf16", 64), ("decode", "bf16", 256), ("decode", "f32", 64), ("decode", "f32", 256), ("prefill", "bf16", 512),
        ("lora", "bf16", 1024), ("full", "f32", 1024), ("full", "f32", 4096), ("packed", "f32", 1024), ("packed_lora", "bf16", 1024),
    ]
]
# Tokens of a pass, and positions of a span of attention.
PASS = 8192
SPAN = 256
STEPS = 16
# Episodes of a packed micro-batch.
PACKED = 16
ROUNDS = 3
# Times that what is over its budget is counted.
TRIES = 4
# MiB of an estimate that are the driver's own: the stub holds what it is asked for and nothing else (trainer/src/memory/card.rs).
RUNTIME = 1024
LONGEST = 900  # seconds of a process


def rollouts(folder, tokens, episodes):
    """Episodes in groups of two; their log-probabilities are those of a uniform choice."""
    path = folder / f"rollouts-{tokens}-{episodes}.jsonl"
    if not path.exists():
        random.seed(5)
        with path.open("w") as out:
            for member in range(episodes):
                ids = [random.randrange(VOCABULARY) for _ in range(tokens)]
                mask = [int(place % 5 in (2, 3)) for place in range(tokens)]
                row = dict(group=member // 2, ids=ids, mask=mask, logprobs=[-11.9] * tokens, reward=float(member % 2))
                out.write(json.dumps(row) + "\n")
    return path


class Account:
    def __init__(self, forage, scratch):
        self.forage, self.scratch = forage, scratch
        self.counters = scratch / "counters"
        self.compiled = scratch / "compiled"
        self.compiled.write_bytes(b"")

    def run(self, arch, *arguments):
        """Lines of JSON that a bench prints. Compiled kernels are kept for the next process, by architecture."""
        cache = self.scratch / f"sm_{arch}"
        cache.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"CUDA_STUB_ARCH": str(arch), "CUDA_STUB_COUNTERS": str(self.counters),
                                    "CUDA_STUB_COMPILED": str(self.compiled), "XDG_CACHE_HOME": str(cache)}
        command = [self.forage, "bench", *map(str, arguments), "--device", "cuda:0", "--counters", self.counters]
        try:
            done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            sys.exit(f"error: {' '.join(map(str, command))} did not end in {LONGEST} s")
        refused = [line for line in done.stderr.splitlines() if "refused" in line or "panicked" in line]
        if done.returncode != 0 or refused:
            sys.exit(f"error: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stderr[-4000:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def decode(self, shape, layers, arch, weights, rows):
        """One decode step when attention has two spans to merge: what more steps cost. Prompts share one pass."""
        prompt = PASS // rows - 8
        new = SPAN + 8 - prompt
        jobs = [f"single:{rows}:{prompt}:{tokens}" for tokens in (new, new + STEPS)]
        first, last = self.run(arch, "generate", f"random:{shape}:{layers}", "--weights", weights, "--rounds", 2, *jobs)
        total = last["counters"][-1]
        step = {key: (total[key] - first["counters"][-1][key]) / STEPS for key in total}
        # The difference of two times is mostly noise.
        step["seconds"] = last["round_seconds"][-1] * step["launches"] / total["launches"]
        step["peak_bytes"] = total["peak_bytes"]
        moved, live = (last[key] - first[key] for key in ("attention_bytes", "live_cache_bytes"))
        step["attention_per_live_byte"] = moved / live
        return step

    def prefill(self, shape, layers, arch, weights, tokens):
        """Three prompts in one pass."""
        job = f"single:3:{tokens}:1"
        (row,) = self.run(arch, "generate", f"random:{shape}:{layers}", "--weights", weights, "--rounds", ROUNDS, job)
        return row["counters"][-1] | {"seconds": row["round_seconds"][-1]}

    def step(self, shape, layers, arch, weights, tokens, kind):
        """One optimizer step, the second, when moments are there: on two episodes, each a micro-batch, with products in f32, or on a
        packed micro-batch with products in bf16, as runs on GPUs have it."""
        packed = kind.startswith("packed")
        model, file = f"random:{shape}:{layers}", rollouts(self.scratch, tokens, PACKED if packed else 2)
        rows = self.run(arch, "train", model, file, "--rank", 16 if kind.endswith("lora") else 0, "--base", weights, "--steps", 2,
                        "--micro-batch-tokens", tokens * (PACKED if packed else 1), *["--bf16"] * packed)
        row = rows[-1]
        parts = [row["gradients"], row["update"]]
        counted = {key: sum(part[key] for part in parts) for key in parts[0]}
        return counted | {"peak_bytes": parts[1]["peak_bytes"], "gradient_launches": parts[0]["launches"], "seconds": row["seconds"],
                          "micro_batches": row["micro_batches"], "estimate_mib": row["estimate_mib"]}

    def measure(self, kind, shape, layers, arch, weights, number):
        if kind == "decode":
            return self.decode(shape, layers, arch, weights, number)
        if kind == "prefill":
            return self.prefill(shape, layers, arch, weights, number)
        return self.step(shape, layers, arch, weights, number, kind)


def figures(kind, shape, small, large, number):
    """A layer's part and the whole model's, of runs with two and four layers."""
    def whole(key):
        layer = (large[key] - small[key]) / 2
        return layer, small[key] + (LAYERS[shape] - 2) * layer
    by_layer, launches = whole("launches")
    found = {
        "launches_per_layer": by_layer,
        "launches": launches,
        "streams_created": large["streams_created"],
        "stream_waits": large["stream_waits"],
        "readbacks": large["device_to_host"],
        "readback_bytes": large["device_to_host_bytes"],
        "uploads": large["host_to_device"],
        "allocations": large["allocations"],
        "peak_mib": whole("peak_bytes")[1] / 2**20,
        "host_ms": whole("seconds")[1] * 1e3,
        "host_us_per_launch": large["seconds"] / large["launches"] * 1e6,
    }
    if kind == "decode":
        found["readback_bytes_per_row"] = large["device_to_host_bytes"] / number
        found["attention_per_live_byte"] = large["attention_per_live_byte"]
    if kind not in ("decode", "prefill"):
        found["readbacks_per_micro_batch"] = large["device_to_host"] / large["micro_batches"]
        found["launches_per_layer"] = by_layer / large["micro_batches"]
        # Forwards and back, without the optimizer's.
        found["gradient_launches_per_layer"] = whole("gradient_launches")[0] / large["micro_batches"]
        found["peak_of_estimate"] = large["peak_bytes"] / 2**20 / (large["estimate_mib"] - RUNTIME)
    return {key: round(value, 2) for key, value in found.items()}


def main():
    arguments = sys.argv[1:]
    everything = "--all" in arguments
    unknown = [word for word in arguments[2:] if word != "--all"]
    if len(arguments) < 2 or unknown:
        sys.exit(f"usage: account.py FORAGE SCRATCH [--all]{'; unknown: ' + ' '.join(unknown) if unknown else ''}")
    forage, scratch = pathlib.Path(arguments[0]).resolve(), pathlib.Path(arguments[1])
    scratch.mkdir(parents=True, exist_ok=True)
    budgets = json.loads((HERE / "budgets.json").read_text())
    account, rows, over = Account(forage, scratch), [], []
    print(f"{'':42}{'launches':>9}{'a layer':>9}{'waits':>7}{'read':>6}{'read MB':>9}{'alloc':>7}{'MiB':>8}{'us each':>9}")
    cold = None
    for kind, shape, arch, weights, number in ALL if everything else FEW:
        start = time.time()
        # Compiling takes memory and time of its own, once.
        for layers in (2, 4):
            account.measure(kind, shape, layers, arch, weights, number)
            # A user waits for all of these: seconds for each kernel that multiplies on tensor cores.
            cold = cold or account.compiled.stat().st_size
        limits = budgets[kind] | budgets.get(f"{kind} {number}", {})
        # Now and then a buffer that queued launches still hold is copied before it is written: what is over a limit is counted again.
        for _ in range(TRIES):
            small, large = (account.measure(kind, shape, layers, arch, weights, number) for layers in (2, 4))
            row = figures(kind, shape, small, large, number)
            exceeded = [f"{key} is {row[key]}, at most {most} allowed" for key, most in limits.items() if row[key] > most]
            if not exceeded:
                break
        name = f"{kind} {shape} {weights} {number} sm_{arch}"
        print(f"{name:42}{row['launches']:9.0f}{row['launches_per_layer']:9.1f}{row['stream_waits']:7.1f}{row['readbacks']:6.1f}"
              f"{row['readback_bytes'] / 1e6:9.2f}{row['allocations']:7.1f}{row['peak_mib']:8.0f}{row['host_us_per_launch']:9.1f}"
              f"   {time.time() - start:4.0f} s", flush=True)
        rows.append(dict(kind=kind, shape=shape, arch=arch, weights=weights, number=number, **row))
        over += [f"{name}: {what}" for what in exceeded]
    if cold > budgets["first process"]["kernels"]:
        over.append(f"the first process compiled {cold} kernels, at most {budgets['first process']['kernels']} allowed")
    # What every process so far has compiled, the next one loads.
    kind, shape, arch, weights, number = FEW[0]
    for _ in range(TRIES):
        before = account.compiled.stat().st_size
        account.measure(kind, shape, 2, arch, weights, number)
        again = account.compiled.stat().st_size - before
        if not again:
            break
    print(f"the first process compiled {cold} kernels, all together {before}; processes that need what those before them compiled made {again} more")
    if not before:
        over.append("no kernel was compiled, so nothing is known of another process")
    if again:
        over.append(f"processes with the kernels of those before them compiled {again}")
    print("\n".join(over) or f"{len(rows)} passed, 0 failed")
    print(json.dumps({"bench": "device", "held": not over, "figures": {"rows": rows, "compiled_again": again}}))
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
