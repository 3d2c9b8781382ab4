"""One vector index of another library, on one thread, driven as `vector_bench` is.

    peer.py KIND VECTORS QUERIES TRUTH DIMENSION K

KIND: faiss-flat, faiss-ivf-sq8, faiss-hnsw, hnswlib, usearch. The search breadth of a graph, and the number of lists read, is the smallest of a series that finds enough of TRUTH
(recall .95). Prints one JSON line when the index is built, then one for every line read: `single` or `batch`.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402

RECALL, M, BREADTH = 0.95, 16, 100
BREADTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)


class Faiss:
    def __init__(self, kind, vectors, k):
        import faiss

        faiss.omp_set_num_threads(1)
        dimension = vectors.shape[1]
        if kind == "faiss-flat":
            self.index = faiss.IndexFlatIP(dimension)
        elif kind == "faiss-ivf-sq8":
            lists = round(4 * len(vectors) ** 0.5)
            self.index = faiss.index_factory(dimension, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
            # As many rows of the sample for each centroid as ours.
            self.index.cp.max_points_per_centroid = 64
            self.index.train(vectors)
        else:
            self.index = faiss.IndexHNSWFlat(dimension, M, faiss.METRIC_INNER_PRODUCT)
            self.index.hnsw.efConstruction = BREADTH
        self.index.add(vectors)
        self.kind, self.k = kind, k

    def search(self, queries, breadth):
        if self.kind == "faiss-ivf-sq8":
            self.index.nprobe = breadth
        elif breadth:
            self.index.hnsw.efSearch = breadth
        return self.index.search(queries, self.k)[1]


class Hnswlib:
    def __init__(self, vectors, k):
        import hnswlib

        self.index, self.k = hnswlib.Index(space="ip", dim=vectors.shape[1]), k
        self.index.init_index(len(vectors), ef_construction=BREADTH, M=M)
        self.index.add_items(vectors, num_threads=1)

    def search(self, queries, breadth):
        self.index.set_ef(breadth)
        return self.index.knn_query(queries, k=self.k, num_threads=1)[0]


class Usearch:
    def __init__(self, vectors, k):
        from usearch.index import Index

        self.index, self.k = Index(ndim=vectors.shape[1], metric="ip", dtype="f32", connectivity=M, expansion_add=BREADTH), k
        self.index.add(np.arange(len(vectors)), vectors, threads=1)

    def search(self, queries, breadth):
        self.index.expansion_search = breadth
        return np.asarray(self.index.search(queries, self.k, threads=1).keys).reshape(len(queries), self.k)


def resident_kb():
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])


def recall(found, truth):
    return float(np.mean([len(set(row) & set(best)) / len(best) for row, best in zip(found.tolist(), truth.tolist(), strict=True)]))


def main():
    kind, vectors, queries, truth, dimension, k = sys.argv[1:]
    dimension, k = int(dimension), int(k)
    vectors = np.fromfile(vectors, dtype=np.float32).reshape(-1, dimension)
    queries = np.fromfile(queries, dtype=np.float32).reshape(-1, dimension)
    truth = np.fromfile(truth, dtype=np.uint32).reshape(-1, k)
    make = {"hnswlib": Hnswlib, "usearch": Usearch}.get(kind, lambda *rest: Faiss(kind, *rest))
    cpu, memory = time.process_time(), resident_kb()
    index = make(vectors, k)
    built = {"build_cpu_s": time.process_time() - cpu, "added_kb": resident_kb() - memory}
    for breadth in (0,) if kind == "faiss-flat" else BREADTHS:
        found = recall(index.search(queries, breadth), truth)
        if found >= RECALL:
            break
    print(json.dumps(built | {"recall": found, "breadth": breadth}), flush=True)
    for line in sys.stdin:
        cpu = time.process_time()
        if line.strip() == "batch":
            index.search(queries, breadth)
        else:
            for query in queries:
                index.search(query[None], breadth)
        print(json.dumps({"cpu_us": (time.process_time() - cpu) / len(queries) * 1e6}), flush=True)


if __name__ == "__main__":
    main()
