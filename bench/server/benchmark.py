"""The retrieval server beside one with the behaviour of Search-R1's, on the same passages: answers per second, latency and memory at 1,
32 and 256 connections; ours alone under overload and with a large index. One query per request, top 3; the client is on the same cores.

The other side is FastAPI and uvicorn over Lucene, which is what Search-R1 publishes, set up for speed: httptools, uvloop and a worker for
every core, each with a Java machine of its own. Its memory is that of all its processes. Our cache of answers is off, as it is by default.
"""

import hashlib
import json
import os
import time

from harness.corpora import lucene_index, windows
from harness.declare import ROOT, Aim, Benchmark, Cell, Equality, Figure, Table
from harness.peers import Anserini
from harness.servers import Load, Server, free_port
from harness.sides import Function
from harness.workspace import digest

ANSERINI = Anserini("fastapi==0.165.0", "uvicorn==0.54.0", "httptools==0.9.0", "uvloop==0.23.0")
CONNECTIONS = (1, 32, 256)
QUEUE = 64
OVERLOAD = 4 * QUEUE


def warm(server, load, parameters):
    """Asks until caches and compilers have settled, by new connections again and again, so that every worker gets some.

    A worker has a Java machine of its own, whose times settle within 12,000 queries (bench/retrieval)."""
    left = parameters["warm"] * len(os.sched_getaffinity(0))
    while left > 0:
        left -= sum(load(server, 8, min(3, parameters["seconds"]))["statuses"].values())


def compared(work, name, command, port, load, texts, env=None):
    """A side: a server from its start to its end."""
    seconds = work.parameters["seconds"]

    def measure():
        with Server(command, port, work.scratch / f"{name}.log", env) as server:
            answers = [[hit["document"]["contents"] for hit in hits] for hits in server.ask(texts)]
            warm(server, load, work.parameters)
            seen = {"ready_s": server.ready_s, "answers": hashlib.sha256(json.dumps(answers).encode()).hexdigest()}
            for connections in CONNECTIONS:
                found = load(server, connections, seconds)
                seen |= {f"{connections}/{figure}": value for figure, value in found.items()}
        return seen | {"resident_mib": max(server.resident), "private_mib": max(server.private)}

    return Function(name, measure)


def overload(work, command, port, load):
    """Four times as many connections as the queue is deep."""

    def measure():
        with Server([*command, "--queue", QUEUE], port, work.scratch / "overload.log") as server:
            load(server, 8, min(3, work.parameters["seconds"]))  # ours, which compiles nothing
            found = load(server, OVERLOAD, 2 * work.parameters["seconds"])
        statuses = found.pop("statuses")
        # Little's law: what is admitted waits about as long as the queue takes to be served.
        waiting_ms = QUEUE / found["per_second"] * 1e3
        refused = statuses.pop("503", 0)
        return found | {"refused": refused, "wait_over_queue": found["p99_ms"] / waiting_ms, "strange": len(statuses.keys() - {"200"})}

    return Function("overload", measure)


def large(work, index, port):
    """Opening a large index: the command that describes it, and a server's first answer."""

    def measure():
        begun = time.perf_counter()
        work.run(work.forage, "index", "info", index)
        described = time.perf_counter() - begun
        with Server([work.forage, "serve", "retriever", index, "--addr", f"127.0.0.1:{port}"], port, work.scratch / "large.log") as server:
            resident = server.memory_mib("VmRSS")
        passages = json.loads((index / "manifest.json").read_text())["counts"]["passages"]
        return {"described_ms": described * 1e3, "first_answer_ms": server.ready_s * 1e3, "resident_mib": resident, "passages": passages}

    return Function("large", measure)


def sides(work):
    folder = windows(work, work.parameters["passages"])
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    python, env = ANSERINI.venv.python(work.home), ANSERINI.environment(work.home)
    lucene = lucene_index(work, ANSERINI, [corpus])
    index = work.scratch / "forage"
    work.run(work.forage, "index", "build", "--corpus", corpus, "--format", "search-r1", "--out", index)

    def generate(out):
        work.run(work.forage, "world", "--pages", work.parameters["pages"], "--questions", 10, "--out", out / "world")
        work.run(work.forage, "index", "build", "--corpus", out / "world/beir", "--format", "beir", "--out", out / "index")

    key = {"pages": work.parameters["pages"], "program": digest(work.forage)}
    many = work.input("large-index", key, generate) / "index"
    load = Load(work, queries)
    texts = [json.loads(line)["text"] for line in open(queries, encoding="utf-8")][:200]
    ports = [free_port() for _ in range(4)]
    serve = lambda port: [work.forage, "serve", "retriever", index, "--addr", f"127.0.0.1:{port}"]
    theirs = [python, ROOT / "bench/server/python_server.py", lucene, ports[1]]
    return [
        [
            compared(work, "forage", serve(ports[0]), ports[0], load, texts),
            compared(work, "python", theirs, ports[1], load, texts, env),
        ],
        [overload(work, serve(ports[2]), ports[2], load)],
        [large(work, many, ports[3])],
    ]


def figures():
    for side in ("forage", "python"):
        yield Figure(f"{side}/ready_s", "s", "lower")
        yield Figure(f"{side}/resident_mib", "MiB", "lower")
        yield Figure(f"{side}/private_mib", "MiB", "lower")
        for connections in CONNECTIONS:
            yield from load_figures(f"{side}/{connections}")
    yield from load_figures("overload")
    yield Figure("overload/refused", "requests", "higher")
    yield Figure("overload/wait_over_queue", "ratio", "lower")
    yield Figure("overload/growth", "ratio", "lower")
    yield Figure("large/described_ms", "ms", "lower")
    yield Figure("large/first_answer_ms", "ms", "lower")
    yield Figure("large/resident_mib", "MiB", "lower")
    yield Figure("large/passages", "passages")
    for connections in CONNECTIONS:
        over = lambda one, other, connections=connections: lambda found: found[one.format(connections)] / found[other.format(connections)]
        yield Figure(f"rate_ratio/{connections}", "ratio", "higher", over("forage/{}/per_second", "python/{}/per_second"))
        yield Figure(f"p99_ratio/{connections}", "ratio", "higher", over("python/{}/p99_ms", "forage/{}/p99_ms"))
    for kind in ("private", "resident"):
        ratio = lambda found, kind=kind: found[f"python/{kind}_mib"] / found[f"forage/{kind}_mib"]
        yield Figure(f"{kind}_ratio", "ratio", "higher", ratio)


def load_figures(name):
    yield Figure(f"{name}/per_second", "answers/s", "higher")
    yield Figure(f"{name}/p50_ms", "ms", "lower")
    yield Figure(f"{name}/p99_ms", "ms", "lower")
    yield Figure(f"{name}/cpu_us", "µs per request", "lower")


def row(connections):
    cells = [
        Cell(f"{side}/{connections}/{figure}", decimals)
        for side in ("forage", "python")
        for figure, decimals in (("per_second", 0), ("p50_ms", 2), ("p99_ms", 2), ("cpu_us", 0))
    ]
    return [str(connections), *cells, Cell(f"rate_ratio/{connections}", 1), Cell(f"p99_ratio/{connections}", 1)]


BENCHMARK = Benchmark(
    title="The retrieval server beside the behaviour of Search-R1's",
    sides=sides,
    parameters={"passages": 220_000, "pages": 400_000, "seconds": 8, "warm": 12_000},
    rehearsal={"passages": 5_000, "pages": 500, "seconds": 1, "warm": 100},
    peers=(ANSERINI,),
    figures=list(figures()),
    aims=[
        *(Aim(f"rate_ratio/{n}", ">=", 10, f"{n} connections: answers per second over Python's") for n in CONNECTIONS),
        *(Aim(f"p99_ratio/{n}", ">=", 10, f"{n} connections: Python's 99th percentile over ours") for n in CONNECTIONS),
        Aim("private_ratio", ">=", 10, "Python's memory over ours, mapped files left out"),
        Aim("forage/ready_s", "<=", 1, "seconds from the start to the first answer"),
        Aim("large/first_answer_ms", "<=", 1000, "ms to the first answer over the large index"),
        Aim("overload/wait_over_queue", "<=", 4, "overload: 99th percentile over the time the queue takes"),
        Aim("overload/growth", "<=", 1.25, "overload: memory at the most over that at the start"),
        Aim("overload/refused", ">=", 1, "overload: refused requests"),
    ],
    equalities=[
        Equality("both name the same three passages for 200 queries", ["forage/answers", "python/answers"]),
        Equality(
            "every request is answered with 200",
            [f"{side}/{n}/other_statuses" for side in ("forage", "python") for n in CONNECTIONS],
            value=0,
        ),
        Equality("under overload every answer is 200 or 503", ["overload/strange"], value=0),
    ],
    tables=[
        Table(
            (
                "connections",
                *(f"{side}, {what}" for side in ("forage", "python") for what in ("answers/s", "p50 ms", "p99 ms", "CPU µs")),
                "rate",
                "p99",
            ),
            [row(connections) for connections in CONNECTIONS],
        ),
        Table(
            ("", "forage", "python"),
            [
                ["s from the start to the first answer", Cell("forage/ready_s", 2), Cell("python/ready_s", 2)],
                ["MiB, mapped files left out", Cell("forage/private_mib"), Cell("python/private_mib")],
                ["MiB, mapped files included", Cell("forage/resident_mib"), Cell("python/resident_mib")],
                [f"answers/s, {OVERLOAD} connections on a queue of {QUEUE}", Cell("overload/per_second"), ""],
                ["p99 ms of those", Cell("overload/p99_ms", 1), ""],
                ["passages of the large index", Cell("large/passages"), ""],
                ["ms until it is described", Cell("large/described_ms"), ""],
                ["ms until a server's first answer from it", Cell("large/first_answer_ms"), ""],
            ],
        ),
    ],
)
