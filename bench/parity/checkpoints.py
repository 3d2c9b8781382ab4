#!/usr/bin/env python3
"""Checkpoints that transformers made, read and written again by `forage export`, and what transformers says of both.

    checkpoints.py FORAGE QWEN_FOLDER WORK

FORAGE is the binary, QWEN_FOLDER holds `tokenizer.qwen2.5.json`, `tokenizer.qwen3.json` and the two
`chat_template.*.jinja`, WORK is an empty folder. The models are random and small but for the real vocabulary; their files
have the keys that the published ones have. Prints one JSON line per case and a last one with the verdict.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

SHAPE = dict(vocab_size=151936, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=32768, rms_norm_eps=1e-6, tie_word_embeddings=True)
CHAT = [{"role": "user", "content": "Who was born first?"}, {"role": "assistant", "content": "Let me search."},
        {"role": "user", "content": "Go on."}]
TOOLS = [{"type": "function", "function": {"name": "search", "description": "d", "parameters": {
    "type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}]


def make(name, work, qwen):
    """A folder as the hub has it: old-style config keys, bf16, template in its own file or in tokenizer_config."""
    torch.manual_seed(len(name))
    old = name.startswith("qwen2")
    rope = {"rope_type": "default", "rope_theta": 1000000.0}
    config = (Qwen2Config if old else Qwen3Config)(rope_parameters=rope, bos_token_id=151643, eos_token_id=151645,
                                                   **SHAPE, **({} if old else {"head_dim": 16}))
    model = (Qwen2ForCausalLM if old else Qwen3ForCausalLM)(config)
    model = model.to(torch.bfloat16 if "bf16" in name else torch.float32)
    folder = work / name
    model.save_pretrained(folder, max_shard_size="3MB" if "sharded" in name else "5GB")
    text = json.loads((folder / "config.json").read_text())
    text["rope_theta"] = text.pop("rope_parameters")["rope_theta"]
    text["torch_dtype"] = text.pop("dtype")
    text.update({"max_window_layers": 21, "sliding_window": 32768 if old else None, "use_sliding_window": False})
    text.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(text, indent=2))
    generation = {"bos_token_id": 151643, "pad_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643],
                  "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2))
    kind = "qwen2.5" if old else "qwen3"
    shutil.copyfile(qwen / f"tokenizer.{kind}.json", folder / "tokenizer.json")
    tokenizer = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
                 "unk_token": None, "bos_token": None, "model_max_length": 131072, "add_prefix_space": False,
                 "clean_up_tokenization_spaces": False, "errors": "replace", "split_special_tokens": False,
                 "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}
    template = (qwen / f"chat_template.{kind}.jinja").read_text()
    if old:
        tokenizer["chat_template"] = template
    else:
        (folder / "chat_template.jinja").write_text(template)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2))
    return folder


def facts(folder):
    """What transformers makes of a folder: logits in f32, chats, token ids, end tokens."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("Who wrote <search>it</search>? naïve 12.5\n\n\tok<|im_end|>", return_tensors="pt").input_ids
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    return {
        "logits": logits,
        "ids": ids.tolist(),
        "chat": tokenizer.apply_chat_template(CHAT, tools=TOOLS, tokenize=False, add_generation_prompt=True),
        "eos": [tokenizer.eos_token, model.generation_config.eos_token_id, model.config.eos_token_id],
        "generation": model.generation_config.to_diff_dict(),
        "config": {k: v for k, v in model.config.to_dict().items() if k not in ("dtype", "_name_or_path")},
    }


def main():
    forage, qwen, work = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    held = True
    for name in ["qwen2-f32", "qwen2-bf16-sharded", "qwen3-f32", "qwen3-bf16"]:
        source = make(name, work, qwen)
        expected = facts(source)
        for kind in ["f32", "bf16"]:
            target = work / f"{name}-as-{kind}"
            subprocess.run([forage, "export", str(source), "--merged", str(target), "--type", kind], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            found = facts(target)
            same = {key: found[key] == expected[key] for key in expected if key != "logits"}
            diff = (found["logits"] - expected["logits"]).abs().max().item()
            lossless = kind == "f32" or "bf16" in name
            config = json.loads((target / "config.json").read_text())
            before = json.loads((source / "config.json").read_text())
            changed = sorted(key for key in {*config, *before} if config.get(key) != before.get(key))
            print(json.dumps({"source": name, "written": kind, "logits_max_diff": diff,
                              "logits_max": expected["logits"].abs().max().item(), **same, "config_keys_changed": changed}))
            held &= all(same.values()) and (diff == 0.0 if lossless else diff < 0.05)
            held &= set(changed) <= {"torch_dtype"}
    print(json.dumps({"bench": "parity-checkpoints", "held": held, "transformers": transformers.__version__,
                      "torch": torch.__version__}))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
