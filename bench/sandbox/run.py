"""Turns of model-written Python, sandboxed and otherwise, in rounds: run.py BENCH_EXAMPLE WORK ROUNDS."""

import importlib.metadata
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

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

# Samples per round: a fresh CPython takes milliseconds where the others take microseconds.
PLAN = {"forage": {"session": 100, "first": 50, "later": 400, "checkpoint": 50, "restore": 50, "fork": 50},
        "exec": {"session": 5, "first": 5, "later": 400},
        "monty": {"session": 20, "first": 20, "later": 200},
        "fresh": {"later": 20}}
LIVE = {"forage": 500, "exec": 20, "monty": 20}
NAMES = {"forage": "forage", "exec": "CPython exec server", "monty": "Monty", "fresh": "CPython process per turn"}
AIMS = {"turn_ms": 1.0, "fresh_ratio": 50.0, "ready_ms": 50.0, "first_use_s": 60.0, "fork_ms": 2.0}
PROGRAM, WORK = sys.argv[1], Path(sys.argv[2])


class Engine:
    """A process that answers commands with times."""

    def __init__(self, name, command):
        self.name, self.samples, self.stdout, self.rates = name, {}, None, []
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([str(part) for part in command], stdin=pipe, stdout=pipe, text=True)
        self.ready = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: {self.name} ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, command, amount):
        self.process.stdin.write(f"{command} {amount}\n")
        self.process.stdin.flush()
        return self.read()

    def sample(self, command, amount):
        answer = self.ask(command, amount)
        self.samples.setdefault(command, []).extend(answer["us"])
        self.stdout = answer.get("stdout", self.stdout)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def write_pages(path):
    draw = random.Random(0)
    pages = [{"id": f"page-{at}", "title": " ".join(draw.sample(WORDS, 3)), "text": " ".join(draw.choices(WORDS, k=60))}
             for at in range(100)]
    path.write_text(json.dumps({"pages": pages, "setup": SETUP, "turn": TURN}))


def opened(cache):
    """Milliseconds until a process of its own has an engine and a session that has run a line, and those of its life."""
    begun = time.perf_counter()
    done = subprocess.run([PROGRAM, WORK / "pages.json", cache], input="", stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["ready_us"] / 1e3, (time.perf_counter() - begun) * 1e3


def bare():
    begun = time.perf_counter()
    subprocess.run([os.environ["PYTHON"], "-I", "-c", "pass"], check=True)
    return (time.perf_counter() - begun) * 1e6


def spread(samples):
    ranked = sorted(samples)
    return {"median_us": statistics.median(ranked), "p99_us": ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))],
            "samples": len(ranked)}


def main():
    rounds = int(sys.argv[3])
    write_pages(WORK / "pages.json")
    shutil.rmtree(WORK / "empty", ignore_errors=True)
    first_use_s = opened(WORK / "empty")[0] / 1e3
    opened(WORK / "cache")
    peers = {kind: [os.environ["PYTHON"], "bench/sandbox/peer.py", kind, WORK / "pages.json"] for kind in ("exec", "monty", "fresh")}
    engines = [Engine("forage", [PROGRAM, WORK / "pages.json", WORK / "cache"])]
    engines += [Engine(kind, command) for kind, command in peers.items()]
    ready, processes = [], []
    for turn in range(rounds):
        # Each engine goes first in some round.
        for engine in engines[turn % len(engines) :] + engines[: turn % len(engines)]:
            for command, amount in PLAN[engine.name].items():
                engine.sample(command, amount)
            engine.rates.append(engine.ask("throughput", 1)["turns_per_s"])
        ready += [opened(WORK / "cache") for _ in range(4)]
        processes += [bare() for _ in range(10)]
    alive = {engine.name: engine.ask("live", LIVE[engine.name]) for engine in engines if engine.name in LIVE}
    for engine in engines:
        engine.close()
    if len({engine.stdout for engine in engines}) != 1:
        raise SystemExit(f"error: the engines printed different things: { {e.name: e.stdout for e in engines} }")
    report(engines, alive, first_use_s, ready, processes)


def report(engines, alive, first_use_s, ready, processes):
    figures = {engine.name: {command: spread(samples) for command, samples in engine.samples.items()} for engine in engines}
    for engine in engines:
        figures[engine.name]["turns_per_s"] = statistics.median(engine.rates)
    for name, found in alive.items():
        figures[name]["live"] = found
    print(f"Python {platform.python_version()}, Monty {importlib.metadata.version('pydantic-monty')}, {os.cpu_count()} cores "
          f"of {platform.machine()}, load {os.getloadavg()[0]:.1f}; microseconds, median (p99)")
    columns = ("session", "first", "later")
    print(f"{'':<26}{'fresh session':>22}{'first turn':>22}{'turn, two searches':>22}{'turns/s':>9}{'live':>6}{'KiB each':>10}")
    for engine in engines:
        found = figures[engine.name]
        cells = [f"{found[c]['median_us']:.0f} ({found[c]['p99_us']:.0f})" if c in found else "" for c in columns]
        memory = found.get("live", {"sessions": "", "kib_each": None})
        kib = "" if memory["kib_each"] is None else f"{memory['kib_each']:.0f}"
        print(f"{NAMES[engine.name]:<26}{cells[0]:>22}{cells[1]:>22}{cells[2]:>22}{found['turns_per_s']:>9.0f}"
              f"{memory['sessions']:>6}{kib:>10}")
    ours = figures["forage"]
    for act in ("checkpoint", "restore", "fork"):
        print(f"{act:<26}{ours[act]['median_us']:>15.0f} ({ours[act]['p99_us']:.0f})")
    turn = ours["later"]["median_us"]
    reached = {"turn_ms": turn / 1e3, "fresh_ratio": figures["fresh"]["later"]["median_us"] / turn,
               "ready_ms": statistics.median(inside for inside, _ in ready), "first_use_s": first_use_s,
               "fork_ms": ours["fork"]["median_us"] / 1e3}
    held = {name: reached[name] >= aim if name == "fresh_ratio" else reached[name] <= aim for name, aim in AIMS.items()}
    figures |= {"reached": reached, "bare_process_us": spread(processes), "process_ms": statistics.median(life for _, life in ready)}
    print(f"ready with a warm cache    {reached['ready_ms']:>15.1f} ms; first use {first_use_s:.1f} s")
    print(f"a turn takes 1/{reached['fresh_ratio']:.0f} of a fresh CPython with tools, "
          f"1/{statistics.median(processes) / turn:.0f} of `python3 -I -c pass`, "
          f"{turn / figures['monty']['later']['median_us']:.2f} of Monty, "
          f"{turn / figures['exec']['later']['median_us']:.2f} of the exec server")
    print(json.dumps({"bench": "sandbox", "held": all(held.values()), "design": held, "figures": figures}))


if __name__ == "__main__":
    main()
