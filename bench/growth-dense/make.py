"""Makes vectors with the structure of text's, and queries like them: make.py OUT VECTORS DIMENSION QUERIES K.

A vector is the sum of its topic's centre, of its subtopic's, and of its own part, whose numbers have the falling spectrum that encoders give
(the n-th coordinate by n to the power of -0.5), turned by a rotation so that no coordinate is special, and scaled to length 1. Topics are
of unequal sizes. A query is made as a vector is. A vector depends on its number alone: a smaller set is the beginning of a larger one.
Written are rows of little-endian f32: vectors.f32, queries.f32, and truth.u32, the K nearest of each query by an exact scan.
"""

import sys
from pathlib import Path

import numpy as np

ROWS = 50_000
TOPICS, SUBTOPICS = 1000, 20
# Shares of the topic, the subtopic and the vector itself in its length.
SHARES = (0.6, 0.5, 0.65)


class Vectors:
    def __init__(self, dimension):
        draw = np.random.default_rng(1)
        spectrum = (np.arange(1, dimension + 1) ** -0.5).astype(np.float32)
        self.spectrum = spectrum / np.linalg.norm(spectrum)
        self.rotation = np.linalg.qr(draw.standard_normal((dimension, dimension)))[0].astype(np.float32)
        self.topics = self.unit(draw, TOPICS)
        self.subtopics = self.unit(draw, TOPICS * SUBTOPICS)

    def unit(self, draw, count):
        rows = draw.standard_normal((count, len(self.spectrum)), dtype=np.float32) * self.spectrum
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def rows(self, seed, count):
        draw = np.random.default_rng(seed)
        # The square makes low numbers large topics.
        topic = (draw.random(count) ** 2 * TOPICS).astype(np.int64)
        subtopic = topic * SUBTOPICS + (draw.random(count) ** 2 * SUBTOPICS).astype(np.int64)
        rows = SHARES[0] * self.topics[topic] + SHARES[1] * self.subtopics[subtopic] + SHARES[2] * self.unit(draw, count)
        rows = rows @ self.rotation
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def main():
    out = Path(sys.argv[1])
    count, dimension, asked, k = map(int, sys.argv[2:])
    made = Vectors(dimension)
    queries = made.rows([2, 0], asked)
    queries.tofile(out / "queries.f32")
    best_scores, best = np.full((asked, k), -np.inf, dtype=np.float32), np.zeros((asked, k), dtype=np.uint32)
    with open(out / "vectors.f32", "wb") as file:
        for number, begin in enumerate(range(0, count, ROWS)):
            # Always a whole chunk, so that its beginning does not depend on how many rows are wanted.
            rows = made.rows([1, number], ROWS)[: count - begin]
            rows.tofile(file)
            scores = np.concatenate([best_scores, queries @ rows.T], axis=1)
            numbers = np.concatenate([best, np.broadcast_to(np.arange(begin, begin + len(rows), dtype=np.uint32), (asked, len(rows)))], axis=1)
            order = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            best_scores, best = np.take_along_axis(scores, order, 1), np.take_along_axis(numbers, order, 1)
    order = np.argsort(-best_scores, axis=1, kind="stable")
    np.take_along_axis(best, order, 1).tofile(out / "truth.u32")


if __name__ == "__main__":
    main()
