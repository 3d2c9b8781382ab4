"""A generation job in transformers with random weights: peer_generate.py SHAPE JOB, one line of JSON.

JOB is what `forage bench generate` takes: `single:BATCH:PROMPT:NEW` (greedy) or
`groups:PROMPTS:MEMBERS:PROMPT:NEW:OBSERVATION:TURNS` (sampled). Weights are bf16, products of f32 may use
TF32, and the cache is the default one, which grows. A turn of groups is one call of `generate` on all rows,
padded on the left, and only tokens live from turn to turn: that is how multi-turn rollouts are written on top
of `generate`.
"""

import argparse
import json
import sys
import time

import torch
from peer import SHAPES, random_model
from transformers import GenerationConfig
from transformers.utils import logging


def tokens(row, number, start, end):
    """The tokens of `forage bench generate` at these places: row `row` of round `number`."""
    return [((7919 + 2 * number) * place + 31 * row + 7 * number) % 1000 for place in range(start, end)]


def padded(rows, device):
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids.to(device), seen.to(device)


class Job:
    def __init__(self, text):
        kind, *numbers = text.split(":")
        numbers = [int(number) for number in numbers]
        if kind == "single" and len(numbers) == 3:
            self.prompts, self.prompt, self.new = numbers
            self.members, self.observation, self.turns, self.sampled = 1, 0, 1, False
        elif kind == "groups" and len(numbers) == 6:
            self.prompts, self.members, self.prompt, self.new, self.observation, self.turns = numbers
            self.sampled = True
        else:
            sys.exit(f"error: `{text}` is not a job")

    def play(self, model, device, number):
        """All turns of one round; returns the number of tokens it wrote."""
        sampling = (
            dict(do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
            if self.sampled
            else dict(do_sample=False)
        )
        # Without an end token a row always writes all of its tokens.
        settings = GenerationConfig(max_new_tokens=self.new, eos_token_id=None, pad_token_id=0, **sampling)
        episodes = range(self.prompts * self.members)
        logs = [tokens(episode // self.members, number, 0, self.prompt) for episode in episodes]
        written = 0
        for turn in range(self.turns):
            if turn > 0:
                for episode, log in enumerate(logs):
                    log += tokens(episode, number, len(log), len(log) + self.observation)
            ids, seen = padded(logs, device)
            found = model.generate(ids, attention_mask=seen, generation_config=settings)[
                :, ids.shape[1] :
            ].tolist()
            for log, new in zip(logs, found):
                log += new
                written += len(new)
        assert written == len(logs) * self.turns * self.new, "rows ended early"
        return written


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("job", type=Job)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--rounds", type=int, default=4, help="at least 2: the first one warms up")
    arguments = parser.parse_args()
    job, device = arguments.job, arguments.device
    logging.set_verbosity_error()
    torch.set_float32_matmul_precision("high")
    model, kernel = random_model(arguments.shape, device, torch.bfloat16)
    model.eval()
    seconds = []
    with torch.inference_mode():
        for number in range(arguments.rounds):
            begin = time.perf_counter()
            # The tokens are read back, so the device is done when this returns.
            written = job.play(model, device, number)
            seconds.append(time.perf_counter() - begin)
    best = min(seconds[1:])
    peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None
    print(
        json.dumps(
            {
                "tokens_per_second": written / best,
                "first_round_extra_s": seconds[0] - best,
                "round_seconds": seconds,
                "torch_peak_mib": peak,
                "attention": kernel,
            }
        )
    )


if __name__ == "__main__":
    main()
