"""Encodes texts with the `encode` example and with transformers, in turns; prints differences and times.

Both sides tokenize, run and pool on the same number of threads in f32. Batches: the example cuts them itself; transformers
gets the texts sorted by length in padded batches of 32, as sentence-transformers does. Single: one text per call.
"""

import argparse
import json
import random
import statistics
import subprocess
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModel

ROUNDS = 5
MAX_TOKENS = 256
BATCH = 32


def make_texts(model):
    """Queries of 3 to 12 words, passages of 20 to 180, and awkward ones."""
    words = [word for word in (model / "vocab.txt").read_text().split("\n")[2000:12000] if word.isalpha()]
    rng = random.Random(7)
    sentence = lambda low, high: " ".join(rng.choices(words, k=rng.randint(low, high)))
    queries = [sentence(3, 12) for _ in range(100)]
    passages = [sentence(20, 180) for _ in range(90)]
    odd = ["", " ", "hello world", "PÀRÍS naïve façade 東京 🌊", "x" * 5000, "wind " * 2000, "\u0000\ufffd", "a\tb\nc", "!?", "é" * 90]
    return queries, passages, odd


class Torch:
    def __init__(self, folder):
        self.model = AutoModel.from_pretrained(folder).eval()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.enable_padding()

    @torch.inference_mode()
    def encode(self, texts, batch):
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
        vectors = [None] * len(texts)
        for start in range(0, len(order), batch):
            places = order[start:start + batch]
            encoded = self.tokenizer.encode_batch([texts[place] for place in places])
            mask = torch.tensor([row.attention_mask for row in encoded])
            hidden = self.model(input_ids=torch.tensor([row.ids for row in encoded]), attention_mask=mask).last_hidden_state
            weights = mask.unsqueeze(-1).float()
            pooled = torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)
            for place, vector in zip(places, pooled):
                vectors[place] = vector
        return torch.stack(vectors)


class Forage:
    def __init__(self, binary, folder, threads):
        self.command = [binary, folder, "--threads", str(threads)]

    def encode(self, texts, single):
        """Vectors, and milliseconds per text of a second pass."""
        lines = "".join(json.dumps({"kind": "passage", "text": text}) + "\n" for text in texts)
        command = self.command + ["--repeat", "2"] + (["--single"] if single else [])
        done = subprocess.run([str(part) for part in command], input=lines, capture_output=True, text=True, check=True)
        times = [float(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("ms_per_text")]
        return torch.tensor([json.loads(line) for line in done.stdout.splitlines()]), times[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--encode", required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    peer, ours = Torch(given.model), Forage(given.encode, given.model, given.threads)
    queries, passages, odd = make_texts(given.model)
    figures = {}

    everything = queries + passages + odd
    expected = peer.encode(everything, 1)
    for name, single in [("batched", False), ("single", True)]:
        difference = (ours.encode(everything, single)[0] - expected).abs().max().item()
        print(f"{len(everything)} texts, {name:8} largest difference {difference:.2e}")
        figures[f"difference_{name}"] = difference

    print(f"{'':28} {'forage ms':>10} {'torch ms':>10} {'torch / forage':>15}   (per text, median of {ROUNDS} rounds in turns)")
    for name, texts, single in [("queries, one per call", queries, True), ("queries, one call", queries, False),
                                ("passages, one per call", passages, True), ("passages, one call", passages, False)]:
        rounds = []
        for _ in range(ROUNDS + 1):
            mine = ours.encode(texts, single)[1]
            started = time.perf_counter()
            peer.encode(texts, 1 if single else BATCH)
            rounds.append((mine, (time.perf_counter() - started) * 1e3 / len(texts)))
        mine, theirs = (statistics.median(side) for side in zip(*rounds[1:]))
        print(f"{name:28} {mine:>10.2f} {theirs:>10.2f} {theirs / mine:>15.2f}")
        figures[name] = {"forage_ms": mine, "torch_ms": theirs}
    held = max(figures["difference_batched"], figures["difference_single"]) <= 1e-5
    print(json.dumps({"bench": "encoder", "held": held, "threads": given.threads, "figures": figures}))


if __name__ == "__main__":
    main()
