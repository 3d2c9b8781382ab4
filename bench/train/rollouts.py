"""Writes recorded rollouts of random tokens: rollouts.py MODEL FILE GROUPS MEMBERS LENGTH SHARE [apart]

LENGTH tokens each (three lengths around it when it ends in `~`), SHARE of them the policy's, in three turns after a prompt of
two sevenths of LENGTH, which is the same for all members of a group, or with `apart` each one's own; log-probabilities are
those of MODEL (a checkpoint folder) under transformers, moved a little so that ratios differ from 1 and some are clipped.
"""

import json
import random
import sys

import torch
from transformers import AutoModelForCausalLM

MODEL, FILE, GROUPS, MEMBERS, LENGTH, SHARE = sys.argv[1:7]
APART = sys.argv[7:] == ["apart"]
random.seed(5)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
vocabulary = model.config.vocab_size
with open(FILE, "w") as out, torch.no_grad():
    for group in range(int(GROUPS)):
        def draw():
            return [random.randrange(vocabulary) for _ in range(int(LENGTH.rstrip("~")) * 2 // 7)]

        prompt = draw()
        for member in range(int(MEMBERS)):
            if APART and member > 0:
                prompt = draw()
            length = int(LENGTH.rstrip("~"))
            if LENGTH.endswith("~"):
                length = max(24, length * (2 + member % 3) // 3)
            ids = prompt + [random.randrange(vocabulary) for _ in range(length - len(prompt))]
            mask = [0] * length
            turn = max(1, int(length * float(SHARE) / 3))
            for number in range(3):
                first = len(prompt) + (length - len(prompt)) * number // 3
                for place in range(first, min(length, first + turn)):
                    mask[place] = 1
            logits = model(torch.tensor([ids])).logits[0, :-1]
            found = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
            logprobs = [0.0] + [value + random.uniform(-0.3, 0.3) for value in found]
            row = {"group": group, "ids": ids, "mask": mask, "logprobs": [min(0.0, value) for value in logprobs]}
            out.write(json.dumps({**row, "reward": float((member + group) % 3 == 0)}) + "\n")
