"""One vector index of another library, on one thread.

    peer.py build KIND VECTORS DIMENSION OUT
    peer.py serve KIND INDEX VECTORS QUERIES TRUTH DIMENSION K RECALL...

KIND: faiss-ivf-pq, faiss-ivf-sq8, faiss-hnsw, hnswlib. `build` writes the index and prints what it took. `serve` looks for the smallest
breadth (lists read, or candidates of a graph) that finds each RECALL of TRUTH, the lowest first, prints one JSON line, then one for every
RECALL read: the time of its queries one by one, and the memory of the index. The full vectors that IVF-PQ scores again with are mapped, as
ours are.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402

M, BREADTH = 16, 128
BREADTHS = (4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
# Hits of IVF-PQ that are scored again, for each that is wanted.
RESCORED = 20
ROWS = 50_000


def chunks(vectors):
    for begin in range(0, len(vectors), ROWS):
        yield np.ascontiguousarray(vectors[begin : begin + ROWS])


def lists(count):
    return round(4 * count**0.5)


class Ivf:
    """Codes in lists; those of products are too coarse by themselves, and their best are scored again."""

    def __init__(self, kind):
        import faiss

        faiss.omp_set_num_threads(1)
        self.faiss, self.rescored = faiss, RESCORED if kind == "faiss-ivf-pq" else 0

    def build(self, vectors, out):
        count, dimension = vectors.shape
        # `np`: without the training for polysemous distances, a second or two for each code, which nothing here asks for.
        code = f"PQ{dimension // 4}np" if self.rescored else "SQ8"
        index = self.faiss.index_factory(dimension, f"IVF{lists(count)},{code}", self.faiss.METRIC_INNER_PRODUCT)
        # As many rows of the sample for each centroid as ours.
        index.cp.max_points_per_centroid = 64
        sample = np.random.default_rng(3).permutation(count)[: 64 * lists(count)]
        index.train(np.ascontiguousarray(vectors[np.sort(sample)]))
        for rows in chunks(vectors):
            index.add(rows)
        self.faiss.write_index(index, str(out))

    def open(self, path, vectors):
        self.index, self.vectors = self.faiss.read_index(str(path)), vectors

    def search(self, queries, k, breadth):
        self.index.nprobe = breadth
        if not self.rescored:
            return self.index.search(queries, k)[1]
        found = self.index.search(queries, k * self.rescored)[1]
        best = np.empty((len(queries), k), dtype=np.int64)
        for row, (query, numbers) in enumerate(zip(queries, found)):
            numbers = np.sort(numbers[numbers >= 0])
            scores = self.vectors[numbers] @ query
            best[row] = np.resize(numbers[np.argsort(-scores)[:k]], k)
        return best


class FaissGraph:
    def __init__(self, _):
        import faiss

        faiss.omp_set_num_threads(1)
        self.faiss = faiss

    def build(self, vectors, out):
        index = self.faiss.IndexHNSWFlat(vectors.shape[1], M, self.faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = BREADTH
        for rows in chunks(vectors):
            index.add(rows)
        self.faiss.write_index(index, str(out))

    def open(self, path, _):
        self.index = self.faiss.read_index(str(path))

    def search(self, queries, k, breadth):
        self.index.hnsw.efSearch = breadth
        return self.index.search(queries, k)[1]


class Hnswlib:
    def __init__(self, _):
        import hnswlib

        self.hnswlib = hnswlib

    def build(self, vectors, out):
        index = self.hnswlib.Index(space="ip", dim=vectors.shape[1])
        index.init_index(len(vectors), ef_construction=BREADTH, M=M)
        for rows in chunks(vectors):
            index.add_items(rows, num_threads=1)
        index.save_index(str(out))

    def open(self, path, vectors):
        self.index = self.hnswlib.Index(space="ip", dim=vectors.shape[1])
        self.index.load_index(str(path))

    def search(self, queries, k, breadth):
        self.index.set_ef(max(breadth, k))
        return self.index.knn_query(queries, k=k, num_threads=1)[0]


KINDS = {"faiss-ivf-pq": Ivf, "faiss-ivf-sq8": Ivf, "faiss-hnsw": FaissGraph, "hnswlib": Hnswlib}


def memory():
    """MiB that are this process's alone."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def recall(found, truth):
    return float(np.mean([len(set(row) & set(best)) / len(best) for row, best in zip(found.tolist(), truth.tolist(), strict=True)]))


def rows(path, dimension):
    return np.memmap(path, dtype=np.float32, mode="r").reshape(-1, dimension)


def build(kind, vectors, dimension, out):
    vectors, cpu = rows(vectors, int(dimension)), time.process_time()
    KINDS[kind](kind).build(vectors, out)
    print(json.dumps({"build_cpu_s": time.process_time() - cpu}))


def serve(kind, path, vectors, queries, truth, dimension, k, *wanted):
    dimension, k = int(dimension), int(k)
    queries = np.fromfile(queries, dtype=np.float32).reshape(-1, dimension)
    truth = np.fromfile(truth, dtype=np.uint32).reshape(-1, k)
    index = KINDS[kind](kind)
    # What Python and its packages take is not part of an index.
    before = memory()
    index.open(path, rows(vectors, dimension))
    reached, breadths, last = {}, iter(BREADTHS), {"recall": 0.0, "breadth": 0}
    for target in wanted:
        while last["recall"] < float(target) and (breadth := next(breadths, None)):
            last = {"recall": recall(index.search(queries, k, breadth), truth), "breadth": breadth}
        reached[target] = last
    print(json.dumps({f"{target}/{name}": value for target, found in reached.items() for name, value in found.items()}), flush=True)
    for line in sys.stdin:
        breadth, times, cpu = reached[line.strip()]["breadth"], [], time.process_time()
        for query in queries:
            begun = time.perf_counter()
            index.search(query[None], k, breadth)
            times.append(time.perf_counter() - begun)
        cpu = (time.process_time() - cpu) / len(queries) * 1e6
        times.sort()
        print(json.dumps({"cpu_us": cpu, "p99_us": times[int((len(times) - 1) * 0.99)] * 1e6, "private_mib": memory() - before}), flush=True)


if __name__ == "__main__":
    {"build": build, "serve": serve}[sys.argv[1]](*sys.argv[2:])
