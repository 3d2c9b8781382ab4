"""Makes vectors from real passages, and query vectors: make.py WINDOWS MODEL OUT VECTORS QUERIES K DIMENSION.

A vector is the mean of MiniLM's input embeddings of a text's word pieces, 384 numbers, each weighted by its inverse document frequency,
scaled to length 1: cheap to make, and distributed as sentence vectors of real text are, with clusters and neighbours. A dimension of n times
384 has the means of n parts of the text, one behind the other. Vectors are made and compared in blocks, so memory holds the word pieces
of the texts and one block.
Written are rows of little-endian f32: vectors.f32, queries.f32, and truth.u32, the K nearest of each query by an exact scan.
"""

import itertools
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


# Vectors of a block.
ROWS = 50_000


def means(texts, table, weights, dimension):
    parts, width = dimension // table.shape[1], table.shape[1]
    rows = np.zeros((len(texts), dimension), dtype=np.float32)
    for row, text in zip(rows, texts):
        for part, pieces in enumerate(np.array_split(text, parts)):
            if len(pieces):
                row[part * width : (part + 1) * width] = weights[pieces] @ table[pieces]
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def main():
    windows, folder, out = map(Path, sys.argv[1:4])
    passages, count, k, dimension = map(int, sys.argv[4:])
    table, pieces = embeddings(folder), WordPiece(folder)
    # Numbers of word pieces are below 2^16.
    found = lambda text: np.array(pieces(text), dtype=np.uint16)
    with open(windows / "corpus.jsonl", encoding="utf-8") as lines:
        every_second = itertools.islice(lines, 0, 2 * passages, 2)
        texts = [found(json.loads(line)["contents"]) for line in every_second]
    with open(windows / "queries.jsonl", encoding="utf-8") as lines:
        queries = [text for text in (found(json.loads(line)["text"]) for line in lines) if len(text) > 3][:count]
    if (len(texts), len(queries)) != (passages, count):
        sys.exit(f"the windows give {len(texts)} vectors and {len(queries)} queries")
    frequency = np.zeros(len(table), dtype=np.int64)
    for text in texts:
        frequency[np.unique(text)] += 1
    weights = np.log((len(texts) + 1) / (frequency + 1)).astype(np.float32)
    asked = means(queries, table, weights, dimension)
    asked.tofile(out / "queries.f32")
    scores, best = np.empty((count, 0), dtype=np.float32), np.empty((count, 0), dtype=np.uint32)
    with open(out / "vectors.f32", "wb") as file:
        for begin in range(0, passages, ROWS):
            rows = means(texts[begin : begin + ROWS], table, weights, dimension)
            rows.tofile(file)
            numbers = np.broadcast_to(np.arange(begin, begin + len(rows), dtype=np.uint32), (count, len(rows)))
            scores, numbers = np.concatenate([scores, asked @ rows.T], axis=1), np.concatenate([best, numbers], axis=1)
            # Stable: of equal scores the first vector is the nearer one.
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            scores, best = np.take_along_axis(scores, order, 1), np.take_along_axis(numbers, order, 1)
    best.tofile(out / "truth.u32")


if __name__ == "__main__":
    main()
