"""The three servers under good, bad and abandoned requests for a while: `soak.py WORK MINUTES`. Called by soak.sh."""

import json
import random
import sys
import threading
import time
from pathlib import Path

import servers
from program import Server, run

CLIENTS = 6
# Between two requests of a client, so that two cores have room for three servers and their clients.
PAUSE_S = 0.02
SAMPLE_S = 0.5


class Client(threading.Thread):
    """One client of a server: good requests for the most part, bad ones, and some that it abandons."""

    def __init__(self, kind, server, number, until):
        super().__init__(daemon=True)
        self.kind, self.server, self.until = kind, server, until
        self.draw = random.Random(number)
        self.number = number
        self.counts = {"good": 0, "bad": 0, "abandoned": 0, "refused": 0}
        self.unanswered = []

    def run(self):
        while time.monotonic() < self.until:
            lot = self.draw.random()
            if lot < 0.7:
                self.good()
            elif lot < 0.85:
                self.bad()
            else:
                self.abandon()
            time.sleep(PAUSE_S)

    def expect(self, sort, status, wanted, what):
        self.counts[sort] += 1
        self.counts["refused"] += status in {429, 503}
        # 503 and 429 with a full queue are answers too.
        if status not in wanted | {429, 503}:
            self.unanswered.append(f"{what}: {status}")

    def good(self):
        if self.kind.name == "env":
            return self.episode()
        status, answer = self.server.ask("POST", self.kind.path, self.kind.body, timeout=60)
        self.expect("good", status, {200}, answer[:80].decode(errors="replace"))

    def episode(self):
        """A whole episode, so that no session stays."""
        name = f"{self.number}-{self.counts['good']}"
        status, answer = self.server.ask("POST", "/reset", {"seed": self.draw.randrange(1000), "episode_id": name}, timeout=60)
        self.expect("good", status, {200}, "reset " + answer[:80].decode(errors="replace"))
        for text in ("<search>river</search>", "<answer>Velm</answer>"):
            body = {"episode_id": name, "action": {"text": text}}
            status, answer = self.server.ask("POST", "/step", body, timeout=60)
            self.expect("good", status, {200, 404, 409, 410}, "step " + answer[:80].decode(errors="replace"))

    def bad(self):
        body = self.draw.choice([b"", b"{{{", b"[[[1]]]", b'{"queries": 1}', b" " * (9 << 20), b"[" * 10_000])
        status, answer = self.server.ask("POST", self.kind.path, body, timeout=60)
        # The environment takes an empty body as a reset without choices.
        self.expect("bad", status, {200, 400, 413, 422}, f"bad {body[:12]!r} {answer[:60].decode(errors='replace')}")

    def abandon(self):
        self.counts["abandoned"] += 1
        head, body = self.kind.request(self.server)
        cut = self.draw.randrange(len(head) + len(body))
        try:
            with self.server.connect(10) as stream:
                stream.sendall((head + body)[:cut])
                time.sleep(self.draw.random() * 0.05)
        except OSError as error:
            self.unanswered.append(f"connect: {error}")


class Samples(threading.Thread):
    """Memory of a server, all along."""

    def __init__(self, server, until):
        super().__init__(daemon=True)
        self.server, self.until = server, until
        self.mib = []

    def run(self):
        while time.monotonic() < self.until:
            # Pages of mapped index files are the kernel's to take back.
            self.mib.append(self.server.resident_mib("RssAnon"))
            time.sleep(SAMPLE_S)

    def quarter(self, number):
        size = max(1, len(self.mib) // 4)
        part = self.mib[number * size : (number + 1) * size]
        return sum(part) / len(part)


def judged(kind, server, clients, samples, descriptors):
    """The figures of one server, and whether they hold."""
    begun = time.monotonic()
    while time.monotonic() - begun < 60 and (server.descriptors() > descriptors + 2 or server.metric("in_flight") > 1):
        time.sleep(0.5)
    counts = {sort: sum(client.counts[sort] for client in clients) for sort in clients[0].counts}
    unanswered = [what for client in clients for what in client.unanswered]
    second, last = samples.quarter(1), samples.quarter(3)
    figures = {
        **counts,
        "unanswered": len(unanswered),
        "first_unanswered": unanswered[:3],
        "second_quarter_mib": round(second, 1),
        "last_quarter_mib": round(last, 1),
        "peak_mib": round(max(samples.mib), 1),
        "descriptors": [descriptors, server.descriptors()],
        "in_flight": server.metric("in_flight"),
    }
    # Ten per cent, and the noise of an allocator where a server is small.
    steady = last <= second * 1.10 + 4
    # A server that refuses is not under load.
    busy = counts["refused"] < counts["good"] / 10
    figures["held"] = steady and busy and not unanswered and server.descriptors() <= descriptors + 2 and kind.good(server)
    return figures


def main():
    work, minutes = Path(sys.argv[1]), float(sys.argv[2])
    world, index = work / "world", work / "index"
    run("world", "--pages", 300, "--seed", 1, "--out", world)
    run("index", "build", "--corpus", world / "search-r1" / "wiki.jsonl", "--format", "search-r1", "--out", index)
    kinds = servers.kinds(index, world)
    # Sessions that bad requests begin and nobody ends take places until they expire.
    more = {"env": ["--session-ttl-seconds", "10"]}
    begun: dict[str, Server] = {kind.name: kind.start(work, *more.get(kind.name, [])) for kind in kinds}
    for kind in kinds:
        kind.good(begun[kind.name])
    descriptors = {name: server.descriptors() for name, server in begun.items()}
    until = time.monotonic() + minutes * 60
    samples = {name: Samples(server, until) for name, server in begun.items()}
    clients = {kind.name: [Client(kind, begun[kind.name], number, until) for number in range(CLIENTS)] for kind in kinds}
    for thread in [*samples.values(), *(client for group in clients.values() for client in group)]:
        thread.start()
    for group in clients.values():
        for client in group:
            client.join()
    figures = {"minutes": minutes}
    for kind in kinds:
        name = kind.name
        samples[name].join()
        figures[name] = judged(kind, begun[name], clients[name], samples[name], descriptors[name])
        figures[name]["ended_rc"] = begun[name].stop()[0]
    held = all(figures[kind.name]["held"] and figures[kind.name]["ended_rc"] == 0 for kind in kinds)
    print(json.dumps({"bench": "soak", "held": held, "figures": figures}))
    sys.exit(0 if held else 1)


main()
