"""A job of `forage bench generate` in vLLM, on the processor: peer.py MODEL f32|bf16 JOB, one line of JSON.

The engine is in this process, with its cache of prefixes, and compiles what it computes. Every turn is asked for with the whole history.
"""

import json
import os
import sys
import time

os.environ |= {
    "OMP_NUM_THREADS": str(os.cpu_count()),
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
}

from vllm import LLM, SamplingParams  # noqa: E402


def tokens(row, number, start, end):
    """As in bench/generate/peer.py."""
    return [((7919 + 2 * number) * place + 31 * row + 7 * number) % 1000 for place in range(start, end)]


def main():
    folder, weights, job = sys.argv[1:]
    kind, *numbers = job.split(":")
    numbers = list(map(int, numbers))
    if kind == "single":
        prompts, prompt, new = numbers
        members, observation, turns, temperature = 1, 0, 1, 0.0
    else:
        prompts, members, prompt, new, observation, turns = numbers
        temperature = 1.0
    length = prompt + turns * new + (turns - 1) * observation
    episodes = prompts * members
    dtype = {"f32": "float32", "bf16": "bfloat16"}[weights]
    engine = LLM(model=folder, dtype=dtype, max_model_len=length + 1, max_num_seqs=episodes, enable_prefix_caching=True, seed=0)
    settings = SamplingParams(temperature=temperature, max_tokens=new, ignore_eos=True, detokenize=False)

    def play(number):
        logs = [tokens(episode // members, number, 0, prompt) for episode in range(episodes)]
        for turn in range(turns):
            if turn > 0:
                for episode, log in enumerate(logs):
                    log += tokens(episode, number, len(log), len(log) + observation)
            answers = engine.generate([{"prompt_token_ids": log} for log in logs], settings, use_tqdm=False)
            for log, answer in zip(logs, answers, strict=True):
                log += answer.outputs[0].token_ids
        assert all(len(log) == length for log in logs)

    seconds = []
    for number in range(4):
        begin = time.perf_counter()
        play(number)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"tokens_per_second": episodes * turns * new / min(seconds[1:])}))


# The engine may start processes that import this file.
if __name__ == "__main__":
    main()
