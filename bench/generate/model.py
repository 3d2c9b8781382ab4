"""Writes a Qwen2 checkpoint with random weights: model.py FOLDER f32|bf16 SHAPE_AS_JSON TOKENIZER_FOLDER."""

import json
import pathlib
import sys

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

folder, precision, shape, tokenizer = sys.argv[1:]
torch.manual_seed(0)
config = Qwen2Config(**json.loads(shape), max_position_embeddings=32768, rope_theta=1e6, rms_norm_eps=1e-6,
                     tie_word_embeddings=True, bos_token_id=None, eos_token_id=0)
model = Qwen2ForCausalLM(config)
if precision == "bf16":
    model = model.to(torch.bfloat16)
model.save_pretrained(folder)
for name in ("tokenizer.json", "tokenizer_config.json"):
    (pathlib.Path(folder) / name).write_bytes((pathlib.Path(tokenizer) / name).read_bytes())
