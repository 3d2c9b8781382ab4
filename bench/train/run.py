"""Runs every job in forage and in PyTorch by turns, and prints seconds, ratios, memory and how far the weights are apart."""

import argparse
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from statistics import median

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "generate"))
from run import HALF_BILLION, SMALL  # noqa: E402

SHAPES = {"small": SMALL, "0.5b": HALF_BILLION}
# What the program does beside PyTorch with and without gradient checkpointing, and one graph through the whole decoder.
LAYERS, FASTEST, GRAPH = ("layers", "checkpoint"), ("layers", "plain"), ("graph", "plain")
# (shape, LoRA rank or 0, rollouts: groups, members, length, share of policy tokens; micro-batch, steps, ways). Where members share
# nothing, no token is computed once for several of them.
JOBS = [
    ("small", 0, (8, 8, "240~", 0.4), 1024, 4, (LAYERS, GRAPH)),
    ("small", 8, (8, 8, "240~", 0.4), 1024, 4, (LAYERS, GRAPH)),
    ("small", 0, (8, 8, "240~", 0.4, "apart"), 1024, 4, (LAYERS, FASTEST)),
    ("small", 8, (8, 8, "240~", 0.4, "apart"), 1024, 4, (LAYERS, FASTEST)),
    ("0.5b", 16, (1, 2, "1024", 0.4), 1024, 1, (LAYERS, GRAPH)),
]


def make_model(folder, shape):
    if not (folder / "done").exists():
        command = [sys.executable, HERE.parent / "generate/model.py", folder, "full", json.dumps(SHAPES[shape]), ROOT / "configs/quickstart"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def run(command):
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, error = process.communicate()
    if process.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))} failed\n{error[-2000:]}")
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"')]


def gap(ours, theirs):
    """Largest relative distance of a tensor from PyTorch's, in the Euclidean norm. Biases of a random model start at 0, so after
    one step of Adam they are signs of gradients, some of which are rounding: they are left out."""
    from safetensors.torch import load_file

    def read(folder):
        tensors = {}
        for file in folder.glob("*.safetensors"):
            tensors |= {name.replace("base_model.model.", ""): tensor.float() for name, tensor in load_file(file).items()}
        return tensors

    ours, theirs = read(ours), read(theirs)
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    return max(((ours[name] - theirs[name]).norm() / theirs[name].norm()).item() for name in theirs if not name.endswith("bias"))


def step_job(home, forage, shape, rank, rollouts, micro_batch, steps, ways):
    model = home / shape
    make_model(model, shape)
    file = home / f"{shape}-{'-'.join(map(str, rollouts))}.jsonl"
    if not file.exists():
        subprocess.run([sys.executable, HERE / "rollouts.py", model, file, *map(str, rollouts)], check=True, stderr=subprocess.DEVNULL)
    def bench(start):
        return [forage, "bench", "train", start, file, "--rank", rank, "--threads", 2, "--micro-batch-tokens", micro_batch]

    start = model
    if rank:
        start = home / f"{shape}-adapter"
        run([*bench(model), "--steps", 0, "--save", start])
        # An adapter whose second matrix is 0 has a first step of signs alone; a trained one is compared.
        run([*bench(start), "--steps", 3, "--save", start])
    for ours_way, theirs_way in ways:
        graph = ["--graph"] if ours_way == "graph" else []
        ours = run([*bench(start), *graph, "--steps", steps])
        theirs = run([sys.executable, HERE / "step.py", start, file, rank, theirs_way, 2, micro_batch, steps])
        one = [home / "one-ours", home / "one-theirs"]
        for folder in one:
            shutil.rmtree(folder, ignore_errors=True)
        run([*bench(start), *graph, "--steps", 1, "--save", one[0]])
        run([sys.executable, HERE / "step.py", start, file, rank, theirs_way, 2, micro_batch, 1, one[1]])
        best = lambda lines: min(line["seconds"] for line in lines)
        row = {
            "shape": shape,
            "lora": rank,
            "ours": ours_way,
            "theirs": theirs_way,
            "shared_prompts": rollouts[-1] != "apart",
            "tokens": ours[0]["tokens"],
            "s_per_step": round(best(ours), 3),
            "torch_s_per_step": round(best(theirs), 3),
            "ratio": round(best(theirs) / best(ours), 2),
            "peak_mib": ours[-1]["peak_mib"],
            "torch_peak_mib": theirs[-1]["peak_mib"],
            "loss_gap": abs(ours[0]["loss"] - theirs[0]["loss"]),
            "weights_gap_after_one_step": gap(*one),
        }
        print(json.dumps(row), flush=True)


def grpo_step(home, forage, prompt):
    """Seconds of whole GRPO steps, mean tokens of a completion, and the prompt of the first episode."""
    folder = home / "grpo"
    subprocess.run(["rm", "-rf", folder], check=True)
    settings = {
        "policy.checkpoint": f'"{home / "small"}"',
        "environment.settings.max_generations": 1,
        "environment.settings.max_turn_tokens": 64,
        "environment.settings.max_episode_tokens": 640,
        "environment.settings.prompt": f'"{prompt}"',
        "engine.context_tokens": 640,
        "reward": "{random = 1.0}",
        "grpo.steps": 6,
        "grpo.prompts_per_step": 16,
        "grpo.group_size": 8,
        "grpo.evaluate_every": 0,
        "grpo.checkpoint_every": 0,
    }
    command = [forage, "train", ROOT / "configs/smoke.toml", "--out", folder]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").open()][1:]
    tokens = sum(row["response/tokens_mean"] for row in rows) / len(rows)
    episode = json.loads((folder / "rollouts/step-000000.jsonl").open().readline())["episode"]
    length = next(span["end"] for span in episode["tokens"]["spans"] if span["provenance"] == "prompt")
    return [row["time/rollout_s"] + row["time/update_s"] for row in rows], tokens, episode["prompt"], length


def trl_job(home, forage, prompt):
    """Whole GRPO steps, ours and TRL's by turns: 16 prompts x 8 completions of 64 tokens, one optimizer step."""
    model = home / "small"
    make_model(model, "small")
    ours, theirs = [], []
    for _ in range(3):
        seconds, tokens, text, length = grpo_step(home, forage, prompt)
        ours += seconds
        lines = run([sys.executable, HERE / "trl_step.py", model, json.dumps(text)])
        theirs += [line["seconds"] for line in lines]
    row = {
        "job": f"grpo step, 16 x 8 x 64 tokens after prompts of {length}",
        "s_per_step": round(min(ours), 3),
        "trl_s_per_step": round(min(theirs), 3),
        "ratio": round(min(theirs) / min(ours), 2),
        "ratio_of_medians": round(median(theirs) / median(ours), 2),
        "completion_tokens_mean": round(tokens, 1),
        "trl_completion_tokens_mean": lines[-1]["completion_tokens_mean"],
    }
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=pathlib.Path, required=True)
    parser.add_argument("--forage", required=True)
    parser.add_argument("--parts", nargs="+", required=True)
    arguments = parser.parse_args()
    parts = " ".join(arguments.parts).split()
    arguments.home.mkdir(parents=True, exist_ok=True)
    packages = {name: version(name) for name in ("torch", "transformers", "peft", "trl")}
    print(json.dumps({"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), **packages}), flush=True)
    for shape, *rest in JOBS:
        if shape in parts:
            step_job(arguments.home, arguments.forage, shape, *rest)
    if "trl" in parts:
        for prompt in ("short", "search_r1"):
            trl_job(arguments.home, arguments.forage, prompt)


main()
