"""Gradients summed between two GPUs of one process, under the stub driver: collectives.py FORAGE SCRATCH (see run.sh).

Short runs of `forage train --device cuda:0,cuda:1` learn from rollouts made here. What NCCL is asked for must be the same on both ranks,
call by call, and add up to the trained numbers of an optimizer step; and what the host reads and writes must be far less than a gradient.
Kernels are not executed, so nothing is said about numbers.
"""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent
CONFIG = ROOT / "configs/smoke.toml"
VOCABULARY = json.loads((ROOT / "configs/quickstart/config.json").read_text())["vocab_size"]
# Places of bytes to the device and to the host among the counters of the stub.
TO_DEVICE, TO_HOST = 8, 10
GROUPS, TOKENS = 4, 200
# Of a gradient's bytes: what a step may move between host and device, both ranks together.
SHARE = 0.1
EMPTY = 1.01  # times the trained numbers: most that is summed
LONGEST = 900  # seconds of a run


def write_rollouts(path):
    """Groups of two episodes, one of which is right."""
    draw = random.Random(5)
    with path.open("w") as out:
        for member in range(2 * GROUPS):
            ids = [draw.randrange(VOCABULARY) for _ in range(TOKENS)]
            mask = [int(place % 5 in (2, 3)) for place in range(TOKENS)]
            row = dict(group=member // 2, ids=ids, mask=mask, logprobs=[-6.9] * TOKENS, reward=float(member % 2))
            out.write(json.dumps(row) + "\n")


def trained(checkpoint):
    """Numbers that learn: those that have a first moment, in f32 or in 8 bits."""
    data = (checkpoint / "optimizer.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    count = 0
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name.startswith(("first.", "first_codes.")):
            size = 1
            for extent in entry["shape"]:
                size *= extent
            count += size
    return count


class Runs:
    def __init__(self, forage, scratch):
        self.forage, self.scratch = forage, scratch
        self.rollouts = scratch / "rollouts.jsonl"
        write_rollouts(self.rollouts)

    def call(self, name, steps, micro_batch_tokens, keys=(), **environment):
        """A run of so many optimizer steps, with these keys of the optimizer set; its process."""
        settings = {f"grpo.update.optimizer.{key}": "true" for key in keys} | {
            "grpo.steps": steps, "grpo.prompts_per_step": GROUPS, "grpo.checkpoint_every": 0, "grpo.sentinel.stop": "false",
            "grpo.update.micro_batch_tokens": micro_batch_tokens, "grpo.update.objective.loss": '"reinforce"',
        }
        command = [self.forage, "train", CONFIG, "--rollouts", self.rollouts, "--device", "cuda:0,cuda:1", "--out", self.scratch / name]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        own = {
            "CUDA_STUB_DEVICES": "2", "CUDA_STUB_BLANK": "1", "CUDA_STUB_COUNTERS": str(self.scratch / f"{name}.counters"),
            "CUDA_STUB_COLLECTIVES": str(self.scratch / f"{name}.jsonl"), "XDG_CACHE_HOME": str(self.scratch / "cache"),
        }
        try:
            return subprocess.run([str(word) for word in command], env=os.environ | own | environment, capture_output=True, text=True,
                                  timeout=LONGEST)
        except subprocess.TimeoutExpired:
            sys.exit(f"error: {name} did not end in {LONGEST} s: ranks wait for each other, or a kernel fails")

    def run(self, name, steps, micro_batch_tokens, keys=()):
        """As `call`, of a run that must succeed: what each rank asked of NCCL in each step, the trained numbers, and the counters."""
        done = self.call(name, steps, micro_batch_tokens, keys)
        if done.returncode != 0 or "refused" in done.stderr or "panicked" in done.stderr:
            sys.exit(f"error: {name} ended with {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-4000:]}")
        asked = {0: [], 1: []}
        for line in (self.scratch / f"{name}.jsonl").read_text().splitlines():
            call = json.loads(line)
            asked[call["rank"]].append((call["type"], call["count"], call["in_place"]))
        data = (self.scratch / f"{name}.counters").read_bytes()
        counters = struct.unpack(f"<{len(data) // 8}Q", data)
        return asked, trained(self.scratch / name / "checkpoints" / f"step-{steps:06}"), counters


def main():
    forage, scratch = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    runs, results = Runs(forage, scratch), []

    def check(what, holds, found):
        results.append(holds)
        print(f"{'ok    ' if holds else 'FAILED'} {what}: {found}", flush=True)

    # Tuning moves bytes of its own, once.
    runs.run("tuning", 1, 500)
    moved = {}
    for name, steps, budget, keys, meaning in [
        ("one", 1, 500, [], "several micro-batches"), ("three", 3, 500, [], "three steps"),
        ("idle", 1, 10_000, [], "one rank without a micro-batch"),
        ("bits", 1, 500, ["moments_in_8_bits", "sharded"], "moments of 8 bits, sharded"),
    ]:
        asked, numbers, counters = runs.run(name, steps, budget, keys)
        moved[name] = counters
        first, second = asked[0], asked[1]
        check(f"{meaning}, calls of both ranks", first == second and len(first) > 0, f"{len(first)} and {len(second)}, in one order")
        size = len(first) // steps
        equal = all(first[step * size : (step + 1) * size] == first[:size] for step in range(steps)) and len(first) == size * steps
        check(f"{meaning}, calls of each step", equal, f"{size} tensors")
        # The small gradients of a layer stand in one tensor, with places for biases that the model may not have.
        summed = sum(count for _, count, _ in first)
        whole = steps * numbers <= summed <= EMPTY * steps * numbers
        check(f"{meaning}, numbers summed", whole, f"{summed} in {steps} steps of {numbers} trained numbers")
        kinds = {kind for kind, _, _ in first}
        check(f"{meaning}, types", kinds == {"f32"}, ", ".join(kinds))
        # Else memory is taken and a kernel runs between the barrier and the sum.
        inside = sum(in_place for _, _, in_place in first)
        check(f"{meaning}, in place", inside == len(first), f"{inside} of {len(first)}")
    limit = int(SHARE * 4 * numbers)
    for what, place in ("to the host", TO_HOST), ("to the device", TO_DEVICE):
        step = (moved["three"][place] - moved["one"][place]) // 2
        check(f"bytes of a step {what}", 0 < step <= limit, f"{step}, at most {limit} of a gradient of {4 * numbers} allowed")

    # The driver and the compiler without NCCL beside them.
    without = scratch / "without"
    without.mkdir(exist_ok=True)
    stub, rest = os.environ["LD_LIBRARY_PATH"].split(":", 1)
    for library in ("libcuda.so", "libcuda.so.1", "libnvrtc.so"):
        link = without / library
        link.unlink(missing_ok=True)
        link.symlink_to(pathlib.Path(stub) / library)
    refused = runs.call("refused", 1, 500, LD_LIBRARY_PATH=f"{without}:{rest}")
    right = refused.returncode == 2 and "libnccl.so is not found" in refused.stderr and not (scratch / "refused").exists()
    check("without NCCL", right, f"exit code {refused.returncode}, {refused.stderr.strip().splitlines()[-1:]}")
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
