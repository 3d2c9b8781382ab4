"""Optimizer steps of PyTorch on recorded rollouts, random weights made on the device: one line of JSON.

peer_train.py SHAPE ROLLOUTS --rank R [--checkpointing]

Rank 0 trains all weights: f32 masters under bf16 autocast. Another rank trains a LoRA adapter (PEFT, which
keeps it in f32) beside a bf16 base, under bf16 autocast too. GRPO as `forage bench train` has it: advantages
of the groups, clip 0.2 and 0.28, token mean over the step, fused AdamW at 1e-3, gradients clipped at norm 1.
Only places that predict a token of the policy reach the head. A model that does not fit without checkpointing
is told of as such, and is not a failure.
"""

import argparse
import json
import sys
import time

import torch
import torch.nn.functional as functional
from peer import SHAPES, random_model
from transformers.utils import logging


def student(shape, device, rank):
    """The model that learns, all of it or an adapter, and the name of its attention."""
    model, kernel = random_model(shape, device, torch.bfloat16 if rank else torch.float32)
    if rank:
        import peft

        model = peft.get_peft_model(
            model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
        )
    return model.train(), kernel


def read_groups(path):
    """Rollouts with the advantage of each; groups whose rewards are all the same teach nothing."""
    groups = {}
    with open(path) as lines:
        for line in lines:
            row = json.loads(line)
            groups.setdefault(row["group"], []).append(row)
    kept = []
    for members in groups.values():
        rewards = torch.tensor([row["reward"] for row in members], dtype=torch.float64)
        if rewards.std() > 1e-6:
            for row, reward in zip(members, rewards):
                row["advantage"] = ((reward - rewards.mean()) / (rewards.std() + 1e-6)).item()
            kept += members
    return kept


def cut(rows, budget):
    """Micro-batches of at most `budget` padded tokens, longest first."""
    rows = sorted(rows, key=lambda row: -len(row["ids"]))
    while rows:
        fit = max(1, budget // len(rows[0]["ids"]))
        yield rows[:fit]
        rows = rows[fit:]


def loss(model, rows, step_tokens, device):
    width = max(len(row["ids"]) for row in rows)

    def pad(values, dtype=torch.long):
        return torch.tensor(
            [list(value) + [0] * (width - len(value)) for value in values], dtype=dtype, device=device
        )

    ids = pad([row["ids"] for row in rows])
    picked = pad([row["mask"] for row in rows])[:, 1:] > 0
    # Without padding no mask is needed, and attention takes its fast path.
    seen = None
    if any(len(row["ids"]) < width for row in rows):
        seen = pad([[1] * len(row["ids"]) for row in rows])
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    states = base.model(input_ids=ids, attention_mask=seen, use_cache=False).last_hidden_state[:, :-1]
    logits = base.lm_head(states[picked])
    logprobs = -functional.cross_entropy(logits.float(), ids[:, 1:][picked], reduction="none")
    old = pad([row["logprobs"] for row in rows], torch.float32)[:, 1:][picked]
    advantages = torch.tensor([[row["advantage"]] for row in rows], device=device).expand(-1, width - 1)[
        picked
    ]
    ratio = torch.exp(logprobs - old)
    token = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.28))
    return token.sum() / step_tokens


def train(arguments):
    device = arguments.device
    model, kernel = student(arguments.shape, device, arguments.rank)
    if arguments.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    decay = [
        {"params": [weight for weight in learned if weight.dim() > 1], "weight_decay": 0.01},
        {"params": [weight for weight in learned if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(decay, lr=1e-3, fused=True)
    rows = read_groups(arguments.rollouts)
    step_tokens = sum(sum(row["mask"][1:]) for row in rows)
    seconds, losses, norms = [], [], []
    for _ in range(arguments.steps):
        begin = time.perf_counter()
        total = torch.zeros((), device=device)
        for batch in cut(rows, arguments.micro_batch_tokens):
            with torch.autocast(device, dtype=torch.bfloat16):
                part = loss(model, batch, step_tokens, device)
            part.backward()
            total += part.detach()
        norm = torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        losses.append(total.item())
        norms.append(norm.item())
    peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None
    return {
        "seconds": min(seconds),
        "step_seconds": seconds,
        "tokens": sum(len(row["ids"]) for row in rows),
        "loss": losses,
        "grad_norm": norms,
        "torch_peak_mib": peak,
        "attention": kernel,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("rollouts")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--micro-batch-tokens", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_float32_matmul_precision("high")
    try:
        line = train(arguments)
    except torch.OutOfMemoryError as error:
        if arguments.checkpointing:
            raise
        print(error, file=sys.stderr)
        line = {"out_of_memory": True}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
