"""Makes vectors of 384 numbers from real passages, and query vectors: make.py WINDOWS MODEL OUT VECTORS QUERIES K.

A vector is the mean of MiniLM's input embeddings of a text's word pieces, each weighted by its inverse document frequency,
scaled to length 1: cheap to make, and distributed as sentence vectors of real text are, with clusters and neighbours.
Written are rows of little-endian f32: vectors.f32, queries.f32, and truth.u32, the K nearest of each query by an exact scan.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np


def embeddings(folder):
    """The word embedding table of a safetensors file."""
    raw = np.memmap(folder / "model.safetensors", dtype=np.uint8, mode="r")
    size = int(raw[:8].view(np.uint64)[0])
    entry = json.loads(bytes(raw[8 : 8 + size]))["embeddings.word_embeddings.weight"]
    begin, end = entry["data_offsets"]
    return np.array(raw[8 + size + begin : 8 + size + end].view(np.float32).reshape(entry["shape"]))


class WordPiece:
    def __init__(self, folder):
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        self.ids = {piece: number for number, piece in enumerate(lines)}
        self.words = {}

    def word(self, word):
        pieces, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                found = self.ids.get(("##" if start else "") + word[start:end])
                if found is not None:
                    break
            else:
                return []
            pieces.append(found)
            start = end
        return pieces

    def __call__(self, text):
        pieces = []
        for word in re.findall(r"\w+", text.lower()):
            if word not in self.words:
                self.words[word] = self.word(word)
            pieces += self.words[word]
        return pieces


def means(texts, table, weights):
    rows = np.zeros((len(texts), table.shape[1]), dtype=np.float32)
    for row, pieces in zip(rows, texts):
        if pieces:
            row += weights[pieces] @ table[pieces]
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def main():
    windows, folder, out = map(Path, sys.argv[1:4])
    passages, count, k = map(int, sys.argv[4:])
    table, pieces = embeddings(folder), WordPiece(folder)
    with open(windows / "corpus.jsonl", encoding="utf-8") as lines:
        texts = [pieces(json.loads(line)["contents"]) for number, line in enumerate(lines) if number % 2 == 0][:passages]
    with open(windows / "queries.jsonl", encoding="utf-8") as lines:
        queries = [found for found in (pieces(json.loads(line)["text"]) for line in lines) if len(found) > 3][:count]
    frequency = np.bincount(np.concatenate([np.unique(text) for text in texts]), minlength=len(table))
    weights = np.log((len(texts) + 1) / (frequency + 1)).astype(np.float32)
    vectors, asked = means(texts, table, weights), means(queries, table, weights)
    vectors.tofile(out / "vectors.f32")
    asked.tofile(out / "queries.f32")
    scores = asked @ vectors.T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best.astype(np.uint32).tofile(out / "truth.u32")
    if (len(vectors), len(asked)) != (passages, count):
        sys.exit(f"the windows give {len(vectors)} vectors and {len(asked)} queries")


if __name__ == "__main__":
    main()
