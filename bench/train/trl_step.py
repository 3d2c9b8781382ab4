"""Whole GRPO steps of TRL on the processor: trl_step.py MODEL PROMPT STEPS MICRO_BATCHES, one line of JSON per step
after the first. PROMPT is a JSON string.

16 prompts x 8 completions of 64 tokens, one optimizer step, no reference model; rewards are coins.
"""

import json
import random
import sys
import tempfile
import time

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

torch.set_num_threads(2)
MODEL, PROMPT = sys.argv[1], json.loads(sys.argv[2])
STEPS, MICRO_BATCHES = map(int, sys.argv[3:])
tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
PROMPT_TOKENS = len(tokenizer(PROMPT)["input_ids"])
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
lengths, output = [], tempfile.TemporaryDirectory()


def coin(completions, completion_ids, **_):
    lengths.extend(len(ids) for ids in completion_ids)
    return [float(random.random() < 0.5) for _ in completions]


class Clock(TrainerCallback):
    def on_step_begin(self, *_, **__):
        self.start = time.perf_counter()

    def on_step_end(self, arguments, state, *_, **__):
        if state.global_step > 1:
            mean = round(sum(lengths) / max(1, len(lengths)), 1)
            seconds = time.perf_counter() - self.start
            print(json.dumps({"seconds": seconds, "completion_tokens_mean": mean, "prompt_tokens": PROMPT_TOKENS}), flush=True)


config = GRPOConfig(
    output_dir=output.name,
    use_cpu=True,
    per_device_train_batch_size=128 // MICRO_BATCHES,
    gradient_accumulation_steps=MICRO_BATCHES,
    num_generations=8,
    max_completion_length=64,
    max_steps=STEPS,
    learning_rate=3e-4,
    temperature=1.0,
    beta=0.0,
    loss_type="dapo",
    gradient_checkpointing=False,
    bf16=False,
    report_to=[],
    logging_steps=1000,
    save_strategy="no",
    disable_tqdm=True,
)
# One prompt for all, so that every one has as many tokens.
data = Dataset.from_list([{"prompt": PROMPT} for _ in range(512)])
trainer = GRPOTrainer(model=model, reward_funcs=coin, args=config, train_dataset=data, processing_class=tokenizer, callbacks=[Clock()])
# It prints dictionaries of Python between our lines.
trainer.remove_callback(PrinterCallback)
trainer.train()
