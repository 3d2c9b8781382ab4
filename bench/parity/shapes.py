#!/usr/bin/env python3
"""Random decoders in transformers and in `forage policy`: log-probabilities and greedy continuations.

    shapes.py FORAGE WORK [COUNT]

Each case is a Qwen2 or Qwen3 model (the first forty), or one of Llama, with or without scaled rotary frequencies, or OLMo 2, of
random layers, heads, key-value heads, head width, tied or untied head and rotary base, and five sequences of different lengths, which transformers runs padded on the left and on the right. Compared are the
log-probabilities of every token, those of sixty other tokens at the end of a sequence (relative to the largest), and 64 greedy
tokens; then the same weights in bf16, mapped by forage and computed by transformers once in f32 and once in bf16. Prints one JSON line per case and a
last one with the verdict.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import torch
from transformers import (AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Olmo2Config, Olmo2ForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

FORAGE, WORK = sys.argv[1], Path(sys.argv[2])
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 80
TOKENIZER = Path(__file__).parent.parent.parent / "configs/quickstart"
NEW = 64
FAMILIES = dict(qwen2=(Qwen2Config, Qwen2ForCausalLM), qwen3=(Qwen3Config, Qwen3ForCausalLM),
                llama=(LlamaConfig, LlamaForCausalLM), olmo2=(Olmo2Config, Olmo2ForCausalLM))
# Cases from which on the families that came later are drawn.
LATER = 40


def shape(rng):
    kv_heads, group = rng.choice([1, 1, 2, 3, 4]), rng.choice([1, 2, 3, 4, 6, 7, 8])
    head_dim = rng.choice([8, 10, 16, 32, 64, 80, 128])
    return dict(
        vocab_size=2048 + 8 * rng.randrange(20), hidden_size=8 * rng.randrange(2, 110), intermediate_size=4 * rng.randrange(4, 300),
        num_hidden_layers=rng.randrange(1, 5), num_attention_heads=kv_heads * group, num_key_value_heads=kv_heads,
        head_dim=head_dim, tie_word_embeddings=rng.random() < 0.5, rms_norm_eps=rng.choice([1e-5, 1e-6]),
        rope_parameters=dict(rope_type="default", rope_theta=rng.choice([1e4, 1e6, 5e6])), max_position_embeddings=512,
        # Larger than in training: continuations of nearly flat distributions would say little.
        initializer_range=0.08, bos_token_id=None, eos_token_id=0)


def make(index):
    rng = random.Random(index)
    torch.manual_seed(index)
    settings = shape(rng)
    first = rng.random() < 0.5
    name = ("qwen2" if first else "qwen3") if index < LATER else ("llama" if first else "olmo2")
    if name in ("qwen2", "olmo2"):
        # Their head width follows from the others.
        settings["hidden_size"] = settings["num_attention_heads"] * settings["head_dim"]
        settings.pop("head_dim")
    if name == "llama":
        # Its class wants a multiple, whatever the head width.
        heads = settings["num_attention_heads"]
        settings["hidden_size"] = -(-settings["hidden_size"] // heads) * heads
    if name == "llama" and rng.random() < 0.7:
        settings["rope_parameters"].update(
            rope_type="llama3", factor=rng.choice([2.0, 8.0, 32.0]), low_freq_factor=1.0, high_freq_factor=rng.choice([2.0, 4.0]),
            original_max_position_embeddings=rng.choice([32, 64, 256]))
    config, model = FAMILIES[name]
    model = model(config(**settings)).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if key.endswith("bias") or "norm" in key:
                weight.add_(0.1 * torch.randn_like(weight))
    sequences = [[rng.randrange(1, settings["vocab_size"]) for _ in range(length)]
                 for length in (rng.randrange(2, 6), 17, rng.randrange(20, 60), 64, rng.randrange(70, 140))]
    return name, model, sequences


def save(model, folder):
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((TOKENIZER / name).read_bytes())


def forage(job, folder, rows, *options):
    source, target = WORK / "in.jsonl", WORK / "out.jsonl"
    source.write_text("".join(json.dumps({"id": index, "tokens": row}) + "\n" for index, row in enumerate(rows)))
    command = [FORAGE, "policy", job, "--model", folder, "--input", source, "--output", target, *options]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return [json.loads(line) for line in target.read_text().splitlines()]


def padded(sequences, left):
    width = max(map(len, sequences))
    ids, mask = [], []
    for sequence in sequences:
        gap = width - len(sequence)
        ids.append([0] * gap + sequence if left else sequence + [0] * gap)
        mask.append([0] * gap + [1] * len(sequence) if left else [1] * len(sequence) + [0] * gap)
    return torch.tensor(ids), torch.tensor(mask)


def distributions(model, sequences, left):
    """Log-softmax `[length, vocab]` of every sequence."""
    ids, mask = padded(sequences, left)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.inference_mode():
        logits = model(ids, attention_mask=mask, position_ids=positions).logits.float().log_softmax(-1)
    return [row[-len(sequence):] if left else row[:len(sequence)] for row, sequence in zip(logits, sequences)]


def worst(ours, theirs):
    return max(abs(a - b) for a, b in zip(ours, theirs))


def taken(distribution, sequence):
    """Log-probabilities of a sequence's own tokens but the first."""
    return distribution[:-1].gather(1, torch.tensor(sequence[1:])[:, None])[:, 0].tolist()


def logprob_gap(rows, expected, sequences):
    """Largest difference, relative to the largest log-probability of its sequence where that is above 1."""
    gaps = []
    for row, distribution, sequence in zip(rows, expected, sequences):
        theirs = taken(distribution, sequence)
        gaps.append(worst(row["logprobs"], theirs) / max(1, *map(abs, theirs)))
    return max(gaps)


def case(index):
    name, model, sequences = make(index)
    folder = WORK / f"case-{index}"
    save(model, folder)
    scores = forage("logprobs", folder, sequences)
    result = dict(case=index, model=name, **{key: model.config.to_dict()[key] for key in (
        "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "tie_word_embeddings")})
    for side in ("left", "right"):
        expected = distributions(model, sequences, side == "left")
        result[f"logprob_gap_{side}"] = logprob_gap(scores, expected, sequences)
    others = random.Random(index).sample(range(model.config.vocab_size), 60)
    ends = forage("logprobs", folder, [sequences[2] + [token] for token in others])
    theirs = expected[2][-1][others].tolist()
    result["distribution_gap"] = worst([row["logprobs"][-1] for row in ends], theirs) / max(1, *map(abs, theirs))
    ids, mask = padded(sequences, True)
    model.generation_config.eos_token_id = None
    with torch.inference_mode():
        greedy = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False, pad_token_id=0)
    ours = forage("generate", folder, sequences, "--temperature", "0", "--ignore-eos", "--max-tokens", str(NEW))
    same = [row["tokens"] == line[-NEW:].tolist() for row, line in zip(ours, greedy)]
    result["greedy_equal"] = sum(same)
    # The same weights rounded to bf16. They are read again: rounding a model in place rounds its rotary frequencies too.
    model.generation_config.eos_token_id = 0
    save(model.to(torch.bfloat16), folder)
    scores = forage("logprobs", folder, sequences, "--half")
    wide, narrow = (distributions(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval(), sequences, False)
                    for dtype in (torch.float32, torch.bfloat16))
    result["half_gap_f32"] = logprob_gap(scores, wide, sequences)
    result["half_gap_bf16"] = logprob_gap(scores, narrow, sequences)
    # What rounding does to transformers itself.
    own = [{"logprobs": taken(distribution, sequence)} for distribution, sequence in zip(wide, sequences)]
    result["half_own_gap"] = logprob_gap(own, narrow, sequences)
    return result


def main():
    rows = []
    for index in range(COUNT):
        rows.append(case(index))
        print(json.dumps(rows[-1]), flush=True)
    largest = {key: max(row[key] for row in rows) for key in rows[0] if "gap" in key}
    greedy = sum(row["greedy_equal"] for row in rows)
    exact = ("logprob_gap_left", "logprob_gap_right", "distribution_gap", "half_gap_f32")
    held = all(largest[key] < 1e-4 for key in exact) and greedy == 5 * COUNT
    held = held and all(row["half_gap_bf16"] <= row["half_own_gap"] + 1e-4 for row in rows)
    figures = dict(cases=COUNT, greedy_equal=greedy, greedy_of=5 * COUNT, **largest)
    print(json.dumps({"bench": "parity-shapes", "held": held, "figures": figures}))
    sys.exit(0 if held else 1)


main()
