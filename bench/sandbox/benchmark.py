"""Turns of model-written Python in the sandbox beside a fresh CPython process per turn, a CPython `exec` server and Monty: latency,
turns per second, memory of live sessions, checkpoints, forks, opening. Neither of the CPythons isolates or limits anything.
"""

import json
import random
import shutil
import statistics
import subprocess
import time

from harness.declare import ROOT, Aim, Benchmark, Cell, Equality, Figure, Table
from harness.peers import Venv
from harness.sides import Driven, Function

MONTY = Venv("pydantic-monty==1.4.0")
# What the first turn of an episode leaves behind, and a later one: two searches, some picking, a short report.
SETUP = "seen = {}\n"
TURN = """\
hits = search_pages("bridge over the river talo")
best = [hit for hit in hits if "bridge" in hit["title"]] or hits
details = search_pages(f"{best[0]['title']} architect", 5)
seen = {hit["id"]: hit["title"] for hit in hits + details}
for number, (page, title) in enumerate(sorted(seen.items())[:5], 1):
    print(f"{number}. {title} ({page})")
"""
WORDS = "bridge river talo architect opera mayor station museum over the of was built in born wrote stands near".split()
NAMES = {"forage": "forage", "exec": "CPython `exec` server", "monty": "Monty", "fresh": "CPython process per turn"}
# Samples of a round: a fresh CPython takes milliseconds where the others take microseconds.
SAMPLES = {
    "forage": {"session": 500, "first": 200, "later": 2000, "checkpoint": 200, "restore": 200, "fork": 200},
    "exec": {"session": 20, "first": 20, "later": 2000},
    "monty": {"session": 100, "first": 100, "later": 1000},
    "fresh": {"later": 100},
}
LIVE = {"forage": 500, "exec": 20, "monty": 20}


def write_pages(path):
    draw = random.Random(0)
    pages = [
        {"id": f"page-{at}", "title": " ".join(draw.sample(WORDS, 3)), "text": " ".join(draw.choices(WORDS, k=60))} for at in range(100)
    ]
    path.write_text(json.dumps({"pages": pages, "setup": SETUP, "turn": TURN}))


def spread(name, answer):
    """An answer's times as median and 99th percentile."""
    if "us" not in answer:
        return answer
    ranked = sorted(answer["us"])
    tail = ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))]
    return {"median_us": statistics.median(ranked), "p99_us": tail} | {key: answer[key] for key in ("stdout",) if key in answer}


def opening(work, program, pages, python):
    """Until a process has an engine and a session that has run a line: the first time on a machine, and with a warm cache."""

    def opened(cache):
        done = subprocess.run([program, pages, cache], input="", capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["ready_us"]

    def bare():
        begun = time.perf_counter()
        subprocess.run([python, "-I", "-c", "pass"], check=True)
        return (time.perf_counter() - begun) * 1e6

    def measure():
        shutil.rmtree(work.scratch / "empty", ignore_errors=True)
        first = opened(work.scratch / "empty")
        warm = statistics.median(opened(work.scratch / "empty") for _ in range(10))
        return {"first_use_us": first, "warm_us": warm, "bare_process_us": statistics.median(bare() for _ in range(20))}

    return Function("opening", measure)


def sides(work):
    program, python = work.example("forage-sandbox", "sandbox_bench"), MONTY.python(work.home)
    pages = work.scratch / "pages.json"
    write_pages(pages)
    cache = work.scratch / "cache"
    # Compiles the interpreter, which is not part of the turns.
    subprocess.run([program, pages, cache], input="", capture_output=True, text=True, check=True)
    share = work.parameters["samples"]
    engines = []
    for kind, samples in SAMPLES.items():
        ask = {name: f"{name} {max(1, int(amount * share))}" for name, amount in samples.items()}
        ask["throughput"] = f"throughput {work.parameters['seconds']}"
        if kind in LIVE:
            ask["live"] = f"live {max(1, int(LIVE[kind] * share))}"
        command = [program, pages, cache] if kind == "forage" else [python, ROOT / "bench/sandbox/peer.py", kind, pages]
        engines.append(Driven(kind, command, ask, read=spread))
    return [engines, [opening(work, program, pages, python)]]


def figures():
    for kind, samples in SAMPLES.items():
        for name in samples:
            yield Figure(f"{kind}/{name}/median_us", "µs", "lower")
            yield Figure(f"{kind}/{name}/p99_us", "µs", "lower")
        yield Figure(f"{kind}/throughput/turns_per_s", "turns/s", "higher")
        if kind in LIVE:
            yield Figure(f"{kind}/live/sessions", "sessions")
            yield Figure(f"{kind}/live/kib_each", "KiB", "lower")
    for name in ("first_use_us", "warm_us", "bare_process_us"):
        yield Figure(f"opening/{name}", "µs", "lower")
    turn = "forage/later/median_us"
    yield Figure("fresh_over_turn", "ratio", "higher", lambda found: found["fresh/later/median_us"] / found[turn])
    yield Figure("turn_over_monty", "ratio", "lower", lambda found: found[turn] / found["monty/later/median_us"])


def row(kind):
    cell = lambda name, figure: Cell(f"{kind}/{name}/{figure}") if name in SAMPLES[kind] else ""
    times = [cell(name, figure) for name in ("session", "first", "later") for figure in ("median_us", "p99_us")]
    memory = [Cell(f"{kind}/live/kib_each"), Cell(f"{kind}/live/sessions")] if kind in LIVE else ["", ""]
    return [NAMES[kind], *times, Cell(f"{kind}/throughput/turns_per_s"), *memory]


BENCHMARK = Benchmark(
    title="Turns of Python in the sandbox, beside CPython and Monty",
    sides=sides,
    parameters={"samples": 1.0, "seconds": 3, "setup": SETUP, "turn": TURN},
    rehearsal={"samples": 0.05, "seconds": 1},
    peers=(MONTY,),
    figures=list(figures()),
    aims=[
        Aim("forage/later/median_us", "<=", 500, "µs of a turn with two searches"),
        Aim("fresh_over_turn", ">=", 50, "a fresh CPython process over a turn"),
        Aim("turn_over_monty", "<=", 1, "a turn over Monty's"),
        Aim("opening/warm_us", "<=", 50_000, "µs until ready, with a warm cache"),
        Aim("opening/first_use_us", "<=", 60_000_000, "µs until ready, the first time on a machine"),
        Aim("forage/fork/median_us", "<=", 2000, "µs of a fork"),
    ],
    equalities=[Equality("all print the same", [f"{kind}/later/stdout" for kind in SAMPLES])],
    tables=[
        Table(
            ("µs", "fresh session", "p99", "first turn", "p99", "later turn, two searches", "p99", "turns/s", "KiB per session", "live"),
            [row(kind) for kind in SAMPLES],
        ),
        Table(
            ("forage, ms", "median", "p99"),
            [
                [name, *(Cell(f"forage/{name}/{figure}", 2, 1e-3) for figure in ("median_us", "p99_us"))]
                for name in ("checkpoint", "restore", "fork")
            ]
            + [
                ["ready with a warm cache", Cell("opening/warm_us", 1, 1e-3), ""],
                ["ready the first time on a machine", Cell("opening/first_use_us", 0, 1e-3), ""],
                ["`python3 -I -c pass`", Cell("opening/bare_process_us", 1, 1e-3), ""],
            ],
        ),
    ],
)
