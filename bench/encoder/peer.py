"""all-MiniLM-L6-v2 in transformers on the processor: peer.py MODEL TEXTS VECTORS THREADS, driven line by line.

TEXTS is what the `encode` example reads. The vectors of all texts, one text per call, are written to VECTORS as JSON lines. For each
line read, `KIND single` or `KIND batched` (KIND: query, passage), the milliseconds per text: one text per call, or all sorted by length
in padded batches of 32, as sentence-transformers does.
"""

import json
import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModel

MAX_TOKENS, BATCH = 256, 32


class Encoder:
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
            places = order[start : start + batch]
            encoded = self.tokenizer.encode_batch([texts[place] for place in places])
            mask = torch.tensor([row.attention_mask for row in encoded])
            hidden = self.model(input_ids=torch.tensor([row.ids for row in encoded]), attention_mask=mask).last_hidden_state
            weights = mask.unsqueeze(-1).float()
            pooled = torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)
            for place, vector in zip(places, pooled):
                vectors[place] = vector
        return torch.stack(vectors)


def main():
    folder, texts, vectors, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    encoder = Encoder(Path(folder))
    texts = [json.loads(line) for line in open(texts, encoding="utf-8")]
    with open(vectors, "w") as out:
        for vector in encoder.encode([row["text"] for row in texts], 1).tolist():
            out.write(json.dumps(vector) + "\n")
    print(json.dumps({"texts": len(texts)}), flush=True)
    for line in sys.stdin:
        kind, way = line.split()
        chosen = [row["text"] for row in texts if row["kind"] == kind]
        begun = time.perf_counter()
        encoder.encode(chosen, 1 if way == "single" else BATCH)
        print(json.dumps({"ms": (time.perf_counter() - begun) * 1e3 / len(chosen)}), flush=True)


main()
