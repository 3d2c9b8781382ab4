"""Optimizer steps of PyTorch on recorded rollouts: what `forage bench train` does, in the same form.

step.py MODEL ROLLOUTS RANK checkpoint|plain|compiled THREADS MICRO_BATCH_TOKENS STEPS [FOLDER]

GRPO (advantages of the groups, clip 0.2 and 0.28, token mean over the step), AdamW at 1e-3 without warm-up, clipped at norm 1,
weight decay 0.01 on matrices. RANK 0 trains all weights, else a LoRA adapter (PEFT) whose start is read from MODEL where it is a
PEFT folder. `checkpoint` switches gradient checkpointing on; `compiled` is `plain` with the decoder under torch.compile, for any lengths,
which needs g++: the first step compiles.
"""

import collections
import json
import os
import resource
import sys
import time

import torch
from transformers import AutoModelForCausalLM

MODEL, ROLLOUTS, RANK, WAY, THREADS, MICRO, STEPS = sys.argv[1:8]
torch.set_num_threads(int(THREADS))


def groups():
    found = collections.OrderedDict()
    for line in open(ROLLOUTS):
        row = json.loads(line)
        found.setdefault(row["group"], []).append(row)
    for members in found.values():
        rewards = torch.tensor([row["reward"] for row in members], dtype=torch.float64)
        std = rewards.std().item()
        if std <= 1e-6:
            continue
        for row, reward in zip(members, rewards):
            row["advantage"] = ((reward - rewards.mean()) / (std + 1e-6)).item()
            yield row


def cut(rows, budget):
    """Micro-batches of at most `budget` padded tokens, longest first."""
    rows = sorted(rows, key=lambda row: -len(row["ids"]))
    while rows:
        fit = max(1, budget // len(rows[0]["ids"]))
        yield rows[:fit]
        rows = rows[fit:]


def load():
    if int(RANK) == 0:
        return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa")
    import peft

    if os.path.exists(f"{MODEL}/adapter_config.json"):
        config = json.load(open(f"{MODEL}/adapter_config.json"))
        base = AutoModelForCausalLM.from_pretrained(config["base_model_name_or_path"], dtype=torch.float32)
        return peft.PeftModel.from_pretrained(base, MODEL, is_trainable=True)
    base = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa")
    return peft.get_peft_model(base, peft.LoraConfig(r=int(RANK), lora_alpha=2 * int(RANK), target_modules="all-linear"))


def decoder(model):
    """The layers, without the head."""
    return model.get_base_model().model if hasattr(model, "get_base_model") else model.model


def loss(model, rows, step_tokens):
    width = max(len(row["ids"]) for row in rows)
    pad = lambda values: torch.tensor([list(value) + [0] * (width - len(value)) for value in values])
    ids, mask = pad([row["ids"] for row in rows]), pad([row["mask"] for row in rows])[:, 1:].float()
    seen = pad([[1] * len(row["ids"]) for row in rows])
    # Only rows that predict a token of the policy reach the head, here as there.
    head = model.get_base_model().lm_head if hasattr(model, "get_base_model") else model.lm_head
    states = decoder(model)(input_ids=ids, attention_mask=seen, use_cache=False).last_hidden_state[:, :-1]
    picked = mask > 0
    logits = head(states[picked])
    logprobs = torch.log_softmax(logits, -1).gather(1, ids[:, 1:][picked][:, None])[:, 0]
    old = pad([row["logprobs"] for row in rows])[:, 1:][picked].float()
    advantages = torch.tensor([row["advantage"] for row in rows])[:, None].expand(-1, width - 1)[picked].float()
    ratio = torch.exp(logprobs - old)
    token = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.28))
    return token.sum() / step_tokens


def main():
    model = load()
    model.train()
    if WAY == "checkpoint":
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if WAY == "compiled":
        decoder(model).compile(dynamic=True)
    learned = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        [
            {"params": [weight for _, weight in learned if weight.dim() > 1], "weight_decay": 0.01},
            {"params": [weight for _, weight in learned if weight.dim() <= 1], "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
    )
    rows = list(groups())
    step_tokens = sum(sum(row["mask"]) for row in rows)
    for _ in range(int(STEPS)):
        start = time.perf_counter()
        total = 0.0
        for batch in cut(rows, int(MICRO)):
            part = loss(model, batch, step_tokens)
            part.backward()
            total += part.item()  # Waits for the device too.
        norm = torch.nn.utils.clip_grad_norm_([weight for _, weight in learned], 1.0).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        tokens = sum(len(row["ids"]) for row in rows)
        print(json.dumps({"seconds": seconds, "tokens": tokens, "loss": total, "grad_norm": norm, "peak_mib": peak}), flush=True)
    if len(sys.argv) > 8:
        model.save_pretrained(sys.argv[8])


main()
