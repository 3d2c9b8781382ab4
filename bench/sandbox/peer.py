"""Other ways to run a turn of model-written Python: peer.py fresh|exec|monty PAGES.

Answers each line it reads with one of JSON, as `sandbox/examples/sandbox_bench.rs` does: `session N`, `first N`, `later N`,
`live N`, `throughput SECONDS`.
"""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

# The whole peer: `exec` in one namespace, its tools over the pipe. It isolates nothing and limits nothing.
SERVER = r"""
import contextlib, io, json, sys
def search_pages(query, n=10):
    print(json.dumps({"call": [query, n]}), file=pipe, flush=True)
    return json.loads(sys.stdin.readline())
pipe, space = sys.stdout, {"search_pages": search_pages}
for line in sys.stdin:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(json.loads(line), space)
            error = None
        except Exception as raised:
            error = repr(raised)
    print(json.dumps({"stdout": out.getvalue(), "error": error}), file=pipe, flush=True)
"""


class Pages:
    """The pages by the words of their titles and texts."""

    def __init__(self, path):
        with open(path) as file:
            document = json.load(file)
        self.pages, self.setup, self.turn = document["pages"], document["setup"], document["turn"]
        self.postings = {}
        for at, page in enumerate(self.pages):
            for word in sorted(set(f"{page['title']} {page['text']}".lower().split())):
                self.postings.setdefault(word, []).append(at)

    def search(self, query, n=10):
        counts = Counter(at for word in query.lower().split() for at in self.postings.get(word, ()))
        best = sorted(counts, key=lambda at: (-counts[at], at))[:n]
        return [{"id": page["id"], "title": page["title"], "snippet": page["text"][:120]}
                for page in (self.pages[at] for at in best)]


class Exec:
    """A CPython of its own, alive as long as the session."""

    def __init__(self, pages):
        self.pages = pages
        self.process = subprocess.Popen([sys.executable, "-I", "-c", SERVER], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def run(self, code):
        asked = code
        while True:
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
            if "call" not in answer:
                break
            asked = self.pages.search(*answer["call"])
        assert answer["error"] is None, answer["error"]
        return answer["stdout"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def pids(self):
        return [self.process.pid]


class Fresh:
    """A CPython started anew for every turn, which it ends with."""

    def __init__(self, pages):
        self.pages = pages

    def run(self, code):
        one = Exec(self.pages)
        printed = one.run(code)
        one.close()
        return printed

    def close(self):
        pass

    def pids(self):
        return []


class MontySession:
    """A worker process of the pool."""

    pool = None

    def __init__(self, pages):
        self.lookup = {"search_pages": pages.search}
        # By default a session ends after 1,000 calls of tools.
        self.session = MontySession.pool.checkout(limits={"max_suspensions": 1 << 40})
        self.entered = self.session.__enter__()

    def run(self, code):
        printed = []
        self.entered.feed_run(code, external_lookup=self.lookup, print_callback=lambda _, text: printed.append(text))
        return "".join(printed)

    def close(self):
        self.session.__exit__(None, None, None)

    def pids(self):
        # Whichever thread started them.
        return [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]


def timed(act):
    begun = time.perf_counter()
    result = act()
    return (time.perf_counter() - begun) * 1e6, result


def pss_kb(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def session(make, pages, count):
    times = []
    for _ in range(count):
        spent, one = timed(lambda: make(pages))
        times.append(spent)
        one.close()
    return {"us": times}


def first(make, pages, count):
    times = []
    for _ in range(count):
        one = make(pages)
        spent, printed = timed(lambda: one.run(pages.turn))
        times.append(spent)
        one.close()
    return {"us": times, "stdout": printed}


def later(make, pages, count):
    one = make(pages)
    one.run(pages.setup)
    one.run(pages.turn)
    times, printed = zip(*(timed(lambda: one.run(pages.turn)) for _ in range(count)))
    one.close()
    return {"us": times, "stdout": printed[-1]}


def live(make, pages, count):
    alive = [make(pages) for _ in range(count)]
    for one in alive:
        one.run(pages.turn)
    pids = {pid for one in alive for pid in one.pids()}
    report = {"sessions": count, "kib_each": sum(map(pss_kb, pids)) / count}
    for one in alive:
        one.close()
    return report


def throughput(make, pages, seconds):
    counts = [0, 0]

    def work(at):
        one = make(pages)
        one.run(pages.setup)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            one.run(pages.turn)
            counts[at] += 1
        one.close()

    threads = [threading.Thread(target=work, args=[at]) for at in range(2)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"turns_per_s": sum(counts) / (time.monotonic() - begun)}


def main():
    kind, path = sys.argv[1:]
    make, pages = {"fresh": Fresh, "exec": Exec, "monty": MontySession}[kind], Pages(path)
    if kind == "monty":
        import pydantic_monty

        MontySession.pool = pydantic_monty.Monty(max_processes=64).__enter__()
    commands = {act.__name__: act for act in (session, first, later, live, throughput)}
    print(json.dumps({"engine": kind}), flush=True)
    for line in sys.stdin:
        name, amount = line.split()
        print(json.dumps(commands[name](make, pages, int(amount))), flush=True)
    if MontySession.pool:
        MontySession.pool.__exit__(None, None, None)


if __name__ == "__main__":
    main()
