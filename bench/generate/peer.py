"""A job of `forage bench generate` in transformers, on the processor: peer.py MODEL f32|bf16 JOB, one line of JSON."""

import json
import os
import sys
import time

import torch
from transformers import DynamicCache, Qwen2ForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()
torch.set_num_threads(os.cpu_count())


def tokens(rows, number, start, end):
    return torch.tensor([[((7919 + 2 * number) * place + 31 * row + 7 * number) % 1000 for place in range(start, end)] for row in rows])


def main():
    folder, precision, job = sys.argv[1:]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = Qwen2ForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    kind, *numbers = job.split(":")
    numbers = list(map(int, numbers))
    if kind == "single":
        prompts, prompt, new = numbers
        members, observation, turns, sample = 1, 0, 1, False
    else:
        prompts, members, prompt, new, observation, turns = numbers
        sample = True
    settings = dict(max_new_tokens=new, min_new_tokens=new, do_sample=sample, pad_token_id=0)
    if sample:
        settings |= dict(temperature=1.0, top_k=0, top_p=1.0)

    def play(number, keep):
        rows = [episode // members for episode in range(prompts * members)]
        log = tokens(rows, number, 0, prompt)
        cache = DynamicCache() if keep else None
        for turn in range(turns):
            if turn > 0:
                log = torch.cat([log, tokens(range(len(rows)), number, log.shape[1], log.shape[1] + observation)], 1)
            extra = dict(past_key_values=cache) if keep else {}
            log = model.generate(log, attention_mask=torch.ones_like(log), **settings, **extra)
        assert log.shape[1] == prompt + turns * new + (turns - 1) * observation

    def speed(keep):
        seconds = []
        with torch.inference_mode():
            for number in range(4):
                begin = time.perf_counter()
                play(number, keep)
                seconds.append(time.perf_counter() - begin)
        return prompts * members * turns * new / min(seconds[1:])

    again = speed(False)
    print(json.dumps({"again": again, "kept": speed(True) if turns > 1 else again}))


main()
