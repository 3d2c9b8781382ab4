"""Attacks on the program: `attacks.py WORK [NAME...]`, names as the functions have them. Called by attacks.sh.

Each prints what an attacker gets today, beside what the same attack got before the limits of docs/security.md were there, on the
same kind of machine (two cores, 23 GiB).
"""

import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import folders
import servers
from peers import Hub, Passages, Peer
from program import ROOT, Command, Server, checkpoints, rows, run, shown

SMOKE = ROOT / "configs" / "smoke.toml"


class Grounds:
    """What the attacks share: a world, indexes of ordinary and of long passages."""

    def __init__(self, work):
        self.work = work
        self.world, self.index = work / "world", work / "index"
        run("world", "--pages", 300, "--seed", 1, "--out", self.world)
        self.corpus = self.world / "search-r1" / "wiki.jsonl"
        run("index", "build", "--corpus", self.corpus, "--format", "search-r1", "--out", self.index)
        self.questions = self.world / "search-r1" / "train.jsonl"

    def long(self):
        """An index of 1000 documents of 54 KB, and its first words."""
        index = self.work / "long-index"
        if not index.exists():
            draw = random.Random(1)
            words = [
                "".join(draw.choices("bcdfglmnprstv", k=1) + draw.choices("aeiou", k=1) * 2 + draw.choices("lmnrst", k=1))
                for _ in range(400)
            ]
            corpus = self.work / "long.jsonl"
            with open(corpus, "w") as file:
                for number in range(1000):
                    text = "river " + " ".join(draw.choices(words, k=10_800))
                    file.write(json.dumps({"id": str(number), "contents": f'"Page {number}"\n{text}'}) + "\n")
            ended = run("index", "build", "--corpus", corpus, "--format", "search-r1", "--out", index, timeout=300)
            if ended.rc != 0:
                raise SystemExit(ended.stderr)
            self.words = words
        return index

    def code_search(self, *more, name="code-search", **options):
        return Server(self.work, name, "env", "code-search", "--pages", "200", *more, **options)


class Peak:
    """The largest resident memory while something happens, and the slowest `/healthz`."""

    def __init__(self, server, pulse=False, kind="VmRSS"):
        self.server, self.pulse, self.kind = server, pulse, kind
        self.worst_mib, self.worst_s, self.missed = 0.0, 0.0, 0
        self.going = True
        self.threads = [threading.Thread(target=self.watch, daemon=True)]
        if pulse:
            self.threads.append(threading.Thread(target=self.beat, daemon=True))

    def watch(self):
        while self.going:
            try:
                self.worst_mib = max(self.worst_mib, self.server.resident_mib(self.kind))
            except (OSError, IndexError):
                return
            time.sleep(0.02)

    def beat(self):
        while self.going:
            took = self.server.healthy(timeout=30)
            self.missed += took is None
            self.worst_s = max(self.worst_s, took or 30.0)
            time.sleep(0.05)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        for thread in self.threads:
            thread.join()


def small():
    """Limits a process to 8 GiB, so that an attack that gets through ends it and not the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def at_once(count, work):
    """Does `work(number)` in threads and gives the results in order."""
    results = [None] * count

    def one(number):
        results[number] = work(number)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    return results


# --- the attacks: each gives what was seen, and whether it fails


def ignored_remote(g):
    dead = ["--set", "retriever.remote.kind=search-r1", "--set", "retriever.remote.url=http://127.0.0.1:9"]
    folder = g.work / "dead"
    ended = run("train", SMOKE, *dead, "--out", folder)
    return f"rc {ended.rc}, {len(rows(folder))} steps; {shown(ended.error, 120)}", ended.rc != 0 and not rows(folder)


def planted_code(g):
    """The compiled interpreter in a folder of somebody else."""
    own, planted = g.work / "cache", g.work / "planted"
    script = g.work / "one.py"
    script.write_text("print(1)\n")
    run("python", script, env={"XDG_CACHE_HOME": str(own)}, timeout=180)
    subprocess.run(["cp", "-r", own, planted], check=True)
    subprocess.run(["chown", "-R", "nobody", planted], check=True)
    # What the program reads of it is what it would run.
    files = aged(planted)
    ended = run("python", script, env={"XDG_CACHE_HOME": str(planted)}, timeout=180)
    loaded = not files or any(file.exists() and file.stat().st_atime > 1 for file in files)
    warned = "another user" in ended.stderr
    return (
        f"rc {ended.rc}; machine code of another user {'loaded' if loaded else 'not read'}, {'a warning' if warned else 'no word'}",
        not loaded and warned,
    )


def aged(folder):
    """The machine code in a folder, as if it had last been read long ago, so that the next time shows."""
    files = sorted(Path(folder).rglob("*.cwasm"))
    for file in files:
        os.utime(file, (1, file.stat().st_mtime))
    return files


def session(server, number):
    status, body = server.ask("POST", "/reset", {"seed": number, "episode_id": f"s{number}"})
    return status


def turn(server, number, code, timeout=60.0, **more):
    text = f"<python>\n{code}\n</python>"
    return server.ask("POST", "/step", {"episode_id": f"s{number}", "action": {"text": text}, **more}, timeout=timeout)


# Pages that are neither zeros nor alike, so that nothing but their own room holds them.
FILL = "import os\nx = []\ntry:\n    while len(x) < {mib}: x.append(os.urandom(2**20))\nexcept MemoryError:\n    pass\nprint(len(x))"


def printed(answer):
    """What a turn printed; with `!` and the status in front where that is not 200."""
    status, body = answer
    if status != 200:
        return f"!{status}: {shown(body.decode(errors='replace'), 80)}"
    text = json.loads(body)["observation"]["text"]
    return text.replace("<python_output>", "").replace("</python_output>", "").strip()


def session_memory(g):
    with g.code_search() as server:
        session(server, 99)
        turn(server, 99, "print(1)")
        before = server.resident_mib()
        with Peak(server) as peak:
            for number in range(10):
                session(server, number)
                turn(server, number, "import os\nx = [os.urandom(2**20) for _ in range(200)]")
            outcomes = [turn(server, number, "print(len(x))")[0] for number in range(10)]
            # As much as a session may have.
            for number in range(30):
                session(server, number)
                turn(server, number, FILL.format(mib=80))
            more = [printed(turn(server, number, "print(len(x))")) for number in range(30)]
        return (
            f"{before:.0f} -> {peak.worst_mib:.0f} MiB, 30 sessions of 80 MiB included; answers {set(outcomes)}, 80 kept {more.count('80')} times",
            peak.worst_mib - before < 4096 and set(outcomes) == {200} and more.count("80") == 30,
        )


# What all programs of the server may take.
TOTAL_MIB = 512
CODE_WORLD = """seed = 1
[policy]
checkpoint = "builtin:quickstart"
[data]
train_questions = 40
dev_questions = 0
test_questions = 0
[data.world]
pages = 200
seed = 1
[environment]
id = "code-search"
LIMITS
[reward]
em = 1.0
"""


def code_world(g, name, limits=""):
    """The code-search environment with limits of its own."""
    config = g.work / f"{name}.toml"
    config.write_text(CODE_WORLD.replace("LIMITS", limits))
    return Server(g.work, name, "env", "--config", config, "--session-ttl-seconds", "3600")


def live_episodes(g):
    """Five hundred episodes between their turns, each with modules and variables of its own."""
    count, program = 500, "import collections, json, re\nseen = {n: f'page {n}' for n in range(4000)}\nprint(len(seen))"
    with code_world(g, "live-episodes") as server:

        def play(number):
            session(server, number)
            return printed(turn(server, number, program))

        begun = [found for first in range(0, count, 4) for found in at_once(4, lambda place, first=first: play(first + place))]
        time.sleep(3)
        parked = server.resident_mib()
        again = [printed(turn(server, number, "print(len(seen), seen[7])")) for number in range(count)]
        fine = sum(one == "4000" and other == "4000 page 7" for one, other in zip(begun, again, strict=True))
        return f"{fine} of {count} as they were left, {parked:.0f} MiB between their turns", fine == count and parked < 1536


def greedy_sessions(g):
    """A thousand sessions that each ask for 200 MiB and keep what they get, over a budget of half a gigabyte.

    Held by the budget itself. Counted is the anonymous memory of the whole server at its peak, answers and threads included, less what it
    had after one small turn; what idle sessions have in their file is on disk and not counted.
    """
    count = 1000
    with code_world(g, "greedy", f"[environment.settings.limits]\ntotal_mib = {TOTAL_MIB}") as server:
        session(server, 0)
        turn(server, 0, "print(1)")
        before = server.resident_mib("RssAnon")

        def greedy(number):
            session(server, number)
            return printed(turn(server, number, FILL.format(mib=200), timeout=120))

        with Peak(server, kind="RssAnon") as peak:
            asked = [found for first in range(0, count, 4) for found in at_once(4, lambda place, first=first: greedy(first + place))]
            # One whose thread failed or did not end was not answered.
            asked = [text or "!late" for text in asked]
            later = [printed(turn(server, number, "print(len(x))", timeout=120)) for number in range(count)]
        answered = sum(not text.startswith("!") for text in asked + later)
        got = [int(text) for text in asked if text.isdigit()]
        pairs = list(zip(asked, later, strict=True))
        kept = sum(first.isdigit() and first == second for first, second in pairs)
        mixed = sum(second.isdigit() and first != second for first, second in pairs)
        lost = sum("no room" in text for text in later)
        return (
            f"{before:.0f} -> {peak.worst_mib:.0f} MiB with a budget of {TOTAL_MIB}; {answered} of {2 * count} answered; {len(got)} got memory, at "
            f"most {max(got, default=0)} MiB; later {kept} had it, {lost} were told that it had found no room",
            peak.worst_mib - before < TOTAL_MIB and answered == 2 * count and kept > 0 and mixed == 0,
        )


def large_answer(g):
    """Held by what the server promises of an answer; the index is not counted.

    Beside the answer, as it grows, there are the passages of one search for each core, as JSON too, and what was freed in the last second.
    """
    index, most, passages = g.long(), 128, 54
    allowed = 2 * most + 3 * passages * os.cpu_count()
    with Server(g.work, "large", "retriever", index, "--max-answer-mib", most) as server:
        server.ask("POST", "/retrieve", {"queries": ["river"], "topk": 10})
        before = server.resident_mib("RssAnon")
        begun = time.monotonic()
        with Peak(server, kind="RssAnon") as peak:
            status, body = server.ask("POST", "/retrieve", {"queries": ["river"] * 20, "topk": 1000}, timeout=60)
        return (
            f"{status}, {len(body) >> 20} MiB answered, {before:.0f} -> {peak.worst_mib:.0f} MiB, {time.monotonic() - begun:.1f} s",
            status == 413 and peak.worst_mib - before < allowed,
        )


def phrases(g):
    index = g.long()
    draw = random.Random(2)
    query = " OR ".join('"' + " ".join(draw.choices(g.words, k=6)) + '"' for _ in range(42))
    body = {"queries": [query], "topk": 3, "mode": "boolean"}
    with Server(g.work, "phrases", "retriever", index) as server:
        one = server.ask("POST", "/retrieve", {"queries": ['"' + " ".join(g.words[:6]) + '"'], "topk": 3, "mode": "boolean"})[0]
        begun = time.monotonic()
        attack = threading.Thread(
            target=lambda: at_once(2, lambda _: server.ask("POST", "/retrieve", body, timeout=60)), daemon=True
        )
        attack.start()
        time.sleep(0.3)
        begun_word = time.monotonic()
        word = server.ask("POST", "/retrieve", {"queries": ["river"], "topk": 3}, timeout=60)[0]
        word_s = time.monotonic() - begun_word
        attack.join(120)
        whole = time.monotonic() - begun
        cpu = server.cpu_s()
        time.sleep(2)
        still = server.cpu_s() - cpu
        return (
            f"one phrase {one}; two requests of {len(json.dumps(body))} bytes done in {whole:.1f} s; an ordinary word meanwhile {word} after "
            f"{word_s:.2f} s; {still:.1f} s of work goes on after them"
        ), word == 200 and word_s < 5 and still < 0.5


def two_processes(g):
    runs = ["--set", "grpo.steps=30", "--set", "grpo.checkpoint_every=5"]
    folder = g.work / "two"
    first = Command("train", SMOKE, *runs, "--out", folder)
    folders.until(lambda: len(rows(folder)) >= 3 or first.process.poll() is not None)
    second = run("train", SMOKE, *runs, "--resume", "--out", folder, timeout=60)
    ended = first.wait()
    return (
        f"second rc {second.rc}: {shown(second.error, 100)}; first rc {ended.rc}, {len(rows(folder))} of 30 rows",
        second.rc > 0 and ended.rc == 0 and len(rows(folder)) == 30,
    )


def large_prompt(g):
    with Server(g.work, "prompt", "policy", "builtin:quickstart") as server:
        body = {"model": "quickstart", "prompt": "river " * ((8 << 20) // 6 - 40), "max_tokens": 1}
        with Peak(server, pulse=True) as peak:
            cpu, begun = server.cpu_s(), time.monotonic()
            outcomes = at_once(4, lambda _: server.ask("POST", "/v1/completions", body, timeout=120)[0])
            took, cpu = time.monotonic() - begun, server.cpu_s() - cpu
        return (
            f"four of 8 MiB: {set(outcomes)} after {took:.1f} s, {cpu:.1f} s of CPU, peak {peak.worst_mib:.0f} MiB",
            took < 5 and peak.worst_mib < 600,
        )


CODE_REMOTE = """seed = 1
[policy]
checkpoint = "builtin:quickstart"
[data]
train_questions = 40
dev_questions = 0
test_questions = 0
[data.files]
train = "{questions}"
pages = "{pages}"
[retriever.remote]
kind = "search-r1"
url = "{url}"
[environment]
id = "code-search"
[environment.settings.functions]
search = "passages"
LIMITS
[reward]
em = 1.0
"""


def long_query(g):
    with Server(g.work, "passages", "retriever", g.index) as retriever:
        config = g.work / "code-remote.toml"
        config.write_text(
            CODE_REMOTE.replace("LIMITS", "").format(
                questions=g.questions, pages=g.world / "pages" / "pages.jsonl", url=f"http://127.0.0.1:{retriever.port}"
            )
        )
        with Server(g.work, "long-query", "env", "--config", config) as server:
            session(server, 1)
            status, body = turn(server, 1, 'print(search_pages("x" * 70000))')
            return f"{status}: {shown(body.decode(errors='replace'), 140)}", status == 200


def loris(g):
    kind = servers.Kind("retriever", ["retriever", g.index], "/retrieve", {"queries": ["river"], "topk": 3})
    cell = servers.exhausted(kind, g.work)
    return cell.seen, cell.held


def held_bodies(g):
    with Server(g.work, "bodies", "retriever", g.index, "--queue", "8") as server:
        before = server.resident_mib()
        size = 8 << 20
        request = f"POST /retrieve HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n".encode()
        streams = []
        with Peak(server, pulse=True) as peak:

            def one(_):
                stream = server.connect(10)
                streams.append(stream)
                try:
                    stream.sendall(request + b" " * (size - 100))
                except OSError:
                    pass

            at_once(100, one)
            time.sleep(1)
        for stream in streams:
            stream.close()
        return f"{before:.0f} -> {peak.worst_mib:.0f} MiB, /healthz at worst {peak.worst_s:.2f} s", peak.worst_mib - before < 300


def amplified(g):
    """The largest body that each server reads, of empty lists: a limit on its bytes is not what refuses it."""
    found, held = [], True

    def lists(mib):
        return b"[]," * ((mib << 20) // 3 - 80) + b"[]"

    cases = {
        "/verify": (
            ["env", "search-r1", "--pages", "200"],
            b'{"responses_create_params":{"input":"x"},"response":[' + lists(1) + b"]}",
        ),
        "/retrieve": (["retriever", g.index], b'{"queries":[' + lists(8) + b"]}"),
    }
    for route, (arguments, body) in cases.items():
        with Server(g.work, "amplified", *arguments) as server:
            before = server.resident_mib()
            with Peak(server, pulse=True) as peak:
                status = server.ask("POST", route, body, timeout=60)[0]
            found.append(f"{route} {status}, {before:.0f} -> {peak.worst_mib:.0f} MiB, /healthz at worst {peak.worst_s:.2f} s")
            held &= status in (400, 422) and peak.worst_mib - before < 100 and peak.worst_s < 0.5
    return "; ".join(found), held


def large_arguments(g):
    with g.code_search() as server:
        session(server, 1)
        status, body = turn(server, 1, 'q = "x" * 1000000\nfor _ in range(64):\n    search_pages(q)')
        return f"{status}, an answer of {len(body) / 2**20:.2f} MiB", len(body) < 1 << 20


def interpreters(g):
    with g.code_search("--max-sessions", "4") as server:
        session(server, 1)
        session(server, 2)
        turn(server, 2, "print(1)")
        alone = time.monotonic()
        session(server, 2)
        turn(server, 2, "print(1)")
        alone = time.monotonic() - alone
        before = server.threads()
        with Peak(server) as peak:
            for _ in range(60):
                session(server, 1)
                turn(server, 1, "while True: pass", timeout_s=0.05)
            threads = server.threads()
            session(server, 2)
            begun = time.monotonic()
            turn(server, 2, "print(1)")
            beside = time.monotonic() - begun
        return (
            f"{threads} threads ({before} before), {peak.worst_mib:.0f} MiB, another's turn {alone * 1e3:.0f} -> {beside * 1e3:.0f} ms",
            threads < before + 16 and beside < 1,
        )


def browsers(g):
    seen = {}
    evil = {"origin": "https://evil.example"}
    with Server(g.work, "browsers", "env", "search-r1", "--pages", "200") as server:
        key = {
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-version": "13",
            "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        seen["/ws of a foreign origin"] = server.ask("GET", "/ws", headers={**evil, **key, "host": "evil.example"}, timeout=5)[0]
        seen["/reset as text/plain"] = server.ask("POST", "/reset", {"seed": 1}, headers={**evil, "content-type": "text/plain"})[
            0
        ]
        seen["/tasks of a foreign host"] = server.ask("GET", "/tasks", headers={"host": "evil.example"})[0]
        seen["/mcp of a foreign origin"] = server.ask("POST", "/mcp", {}, headers=evil)[0]
    with Server(g.work, "browsers-retriever", "retriever", g.index) as server:
        body = {"queries": ["river"], "topk": 1}
        seen["/retrieve of a foreign host"] = server.ask("POST", "/retrieve", body, headers={"host": "evil.example"})[0]
    with Server(g.work, "browsers-policy", "policy", "builtin:quickstart") as server:
        seen["/v1/models of a foreign host"] = server.ask("GET", "/v1/models", headers={"host": "evil.example"})[0]
    refused = all(status in (403, 415, 421) for status in seen.values())
    return ", ".join(f"{name} {status}" for name, status in seen.items()), refused


def terminated(g):
    found = []
    held = True
    for number in (signal.SIGTERM, signal.SIGHUP):
        folder = g.work / f"terminated-{number}"
        command = Command("train", SMOKE, "--set", "grpo.steps=60", "--set", "grpo.checkpoint_every=50", "--out", folder)
        folders.until(lambda: len(rows(folder)) >= 3 or command.process.poll() is not None)
        command.kill(number)
        ended = command.wait()
        kept = [path.name for path in checkpoints(folder)]
        found.append(f"{signal.Signals(number).name} rc {ended.rc}, {'checkpoint ' + kept[-1] if kept else 'nothing saved'}")
        held &= bool(kept) and "--resume" in ended.stderr
    return "; ".join(found), held


def flipped(g):
    found, held = [], True
    for file in ("model/model.safetensors", "optimizer.safetensors"):
        folder = g.work / f"flipped-{Path(file).name}"
        command = Command("train", SMOKE, "--set", "grpo.steps=8", "--set", "grpo.checkpoint_every=2", "--out", folder)
        folders.until(lambda: (checkpoints(folder) and len(rows(folder)) >= 4) or command.process.poll() is not None)
        command.kill()
        command.wait()
        folders.flip(checkpoints(folder)[-1] / file)
        ended = run("train", SMOKE, "--set", "grpo.steps=8", "--set", "grpo.checkpoint_every=2", "--resume", "--out", folder)
        found.append(f"{Path(file).name}: rc {ended.rc} {shown(ended.error, 90)}")
        held &= ended.rc > 0 and Path(file).name in ended.error
    return "; ".join(found), held


def address():
    """The name of this machine where that means a loopback address: by its name it could be any machine."""
    try:
        name = socket.gethostname()
        return name if socket.gethostbyname(name).startswith("127.") else "127.0.0.1"
    except OSError:
        return "127.0.0.1"


def hostile_hub(g):
    target = g.work / "ESCAPED.txt"
    hub = Hub(str(target))
    env = {"HF_ENDPOINT": f"http://{address()}:{hub.port}", "HF_HOME": str(g.work / "hf"), "HF_TOKEN": "secret"}
    ended = run("serve", "policy", "evil/model", "--addr", "127.0.0.1:0", env=env, timeout=60)
    hub.listener.close()
    sent = any(hub.tokens)
    return (
        f"file {'written' if target.exists() else 'not written'} outside of the cache, token over http {'sent' if sent else 'not sent'}; "
        f"{shown(ended.error, 110)}"
    ), not target.exists() and not sent


class Slow(Passages):
    """A retriever that takes its time."""

    def answer(self, path, body):
        if path == "/retrieve":
            time.sleep(1.5)
        return super().answer(path, body)


def slow_tools(g):
    """A program that calls a slow tool as often as it may."""
    peer = Peer(Slow([json.loads(line) for line in open(g.corpus)][:20]))
    config = g.work / "code-slow.toml"
    limits = "[environment.settings.limits]\ntool_time_ms = 20000\n"
    pages = g.world / "pages" / "pages.jsonl"
    config.write_text(CODE_REMOTE.replace("LIMITS", limits).format(questions=g.questions, pages=pages, url=peer.url))
    with Server(g.work, "slow-tools", "env", "--config", config, "--step-timeout-seconds", "300") as server:
        session(server, 1)
        begun = time.monotonic()
        status, body = turn(server, 1, "for i in range(64):\n    search_pages(str(i))", timeout=280)
        took = time.monotonic() - begun
    peer.close()
    text = printed((status, body))
    return f"{status} after {took:.0f} s; {shown(text, 100)}", took < 40 and status == 200 and "TimeoutError" in text


def hostile_config(g):
    """Checkpoints whose config.json asks for the impossible."""
    found, held = [], True

    for key, value in (("num_hidden_layers", 4_000_000_000), ("rms_norm_eps", -1.0), ("rope_theta", 0.0)):
        folder = g.work / f"model-{key}"
        subprocess.run(["cp", "-r", ROOT / "configs" / "quickstart", folder], check=True)
        config = json.loads((folder / "config.json").read_text())
        config[key] = value
        (folder / "config.json").write_text(json.dumps(config))
        prompts = g.work / "prompts.jsonl"
        prompts.write_text('{"id": "a", "text": "Question: Who?\\n"}\n')
        files = ["--input", prompts, "--output", g.work / "out.jsonl"]
        ended = run("policy", "generate", "--model", folder, *files, "--max-tokens", 2, timeout=60, preexec=small)
        calm = ended.rc in (1, 2) and key in ended.error and "panicked" not in ended.stderr
        found.append(f"{key}: rc {ended.rc}" + ("" if calm else f" {shown(ended.error, 60)}"))
        held &= calm
    return "; ".join(found), held


def endless_template(g):
    """A chat template that never ends."""
    folder = g.work / "template"
    subprocess.run(["cp", "-r", ROOT / "configs" / "quickstart", folder], check=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    loop = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}"
    settings["chat_template"] = loop
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    body = {"model": "template", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    try:
        with Server(g.work, "template", "policy", folder) as server:
            begun = time.monotonic()
            status, answer = server.ask("POST", "/v1/chat/completions", body, timeout=15)
            took = time.monotonic() - begun
            cpu = server.cpu_s()
            time.sleep(1)
            still = server.cpu_s() - cpu
            return (
                f"{status} after {took:.1f} s, {still:.1f} s of work in the second after; {shown(answer.decode(errors='replace'), 80)}",
                status in (400, 422, 500) and still < 0.2,
            )
    except RuntimeError as refused:
        return f"refused at start: {shown(str(refused), 100)}", True


class Costs:
    """What one request takes of a server: status, bytes of the answer, seconds, memory, the slowest `/healthz` beside it."""

    def __init__(self, server, route, body, timeout=60):
        before, begun = server.resident_mib(), time.monotonic()
        with Peak(server, pulse=True) as peak:
            self.status, answer = server.ask("POST", route, body, timeout=timeout)
            self.took_s = time.monotonic() - begun
        self.answer_kib, self.grown_mib, self.worst_s = len(answer) / 1024, peak.worst_mib - before, peak.worst_s
        self.words = (
            f"{route} {self.status} of {self.answer_kib:.0f} KiB after {self.took_s:.1f} s, {self.grown_mib:.0f} MiB more, "
            f"/healthz at worst {peak.worst_s:.2f} s"
        )

    def within(self, took_s, grown_mib):
        return self.status is not None and self.took_s < took_s and self.grown_mib < grown_mib and self.worst_s < 2


def shared_filter(g):
    """One filter of 4 MiB beside as many queries as a request may have."""
    body = {"queries": ["river"] * 16_384, "topk": 1, "filter": {"id": ["x" * (4 << 20)]}}
    with Server(g.work, "filter", "retriever", g.index, preexec=small) as server:
        costs = Costs(server, "/retrieve", body)
        return costs.words, costs.within(30, 512)


def long_field(g):
    """One field of a filter with a name of 4 MiB and 400,000 values."""
    body = {"queries": ["river"], "topk": 1, "filter": {"n" * (4 << 20): ["a"] * 400_000}}
    with Server(g.work, "field", "retriever", g.index, preexec=small) as server:
        costs = Costs(server, "/retrieve", body)
        return costs.words, costs.within(10, 512)


def repairs(g):
    """Boolean queries that are nothing but repairs, as many as a request may have."""
    body = {"queries": [")" * 64] * 16_384, "topk": 1, "mode": "boolean"}
    with Server(g.work, "repairs", "retriever", g.index, "--max-answer-mib", "16") as server:
        costs = Costs(server, "/retrieve", body)
        return costs.words, costs.status == 413 and costs.within(30, 128)


def signs(g):
    """A hundred boolean queries that are rows of dashes before a word."""
    body = {"queries": ["-" * 65_530 + "river"] * 100, "topk": 1, "mode": "boolean"}
    with Server(g.work, "signs", "retriever", g.index) as server:
        costs = Costs(server, "/retrieve", body)
        return costs.words, costs.status == 200 and costs.within(20, 512)


def unknown_task(g):
    with Server(g.work, "task", "env", "search-r1", "--pages", "200") as server:
        costs = Costs(server, "/reset", {"task_id": "x" * 1_000_000})
        return costs.words, costs.status == 422 and costs.within(5, 100)


def many_members(g):
    """As many environments as the names in a body may be."""
    with Server(g.work, "members", "env", "search-r1", "--pages", "200") as server:
        costs = Costs(server, "/gym/reset", {"env_ids": [""] * 250_000})
        return costs.words, costs.status == 422 and costs.within(5, 100)


def repeated(g):
    """What a refusal repeats of the largest body that each server reads."""
    cases = {
        "/v1/completions": (["policy", "builtin:quickstart"], {"x" * ((8 << 20) - 100): 1}),
        "/retrieve": (["retriever", g.index], {"queries": [], "statistics": "x" * ((8 << 20) - 100)}),
        "/reset": (["env", "search-r1", "--pages", "200"], {"x" * 1_000_000: 1}),
    }
    found, held = [], True
    for route, (arguments, body) in cases.items():
        with Server(g.work, "repeated", *arguments) as server:
            costs = Costs(server, route, body)
            found.append(costs.words)
            held &= costs.status in (400, 422) and costs.answer_kib < 64 and costs.within(10, 200)
    return "; ".join(found), held


# The attack in words, what it got before, the attack.
ATTACKS = [
    ("`[retriever.remote]` beside `[data.world]`, nobody listening", "rc 0, 4 steps trained without it", ignored_remote),
    ("compiled interpreter planted in a folder of another user", "its machine code ran as root", planted_code),
    ("10 sessions that keep 200 MiB each", "59 -> 6272 MiB", session_memory),
    ("500 live episodes of programs", "825 KiB each", live_episodes),
    ("1000 sessions that ask for 200 MiB of random bytes each", "not tried", greedy_sessions),
    ("a request of 207 bytes for 20 x 1000 passages of 54 KB", "2061 MiB answered, peak 4355 MiB, 17.6 s", large_answer),
    (
        "two boolean queries of 42 phrases each",
        "an ordinary word got 503 after 25 s, twice; work went on after the answers",
        phrases,
    ),
    ("two processes on one run folder", "first rc 0 with 20 of 60 rows", two_processes),
    ("four prompts of 8 MiB for a context of 512 tokens", "27.5 s of CPU, 4.7 GB", large_prompt),
    ('`search_pages("x" * 70000)` over a remote server', "episode lost without a reward (422 of the retriever)", long_query),
    ("300 half headers, 256 descriptors", "0 of 300 closed after 45 s, /healthz never answers", loris),
    ("100 unfinished bodies of 8 MiB, `--queue 8`", "21 -> 1022 MiB", held_bodies),
    ("as many `[],` as a body may have", "420-660 MB, /healthz at worst 1.3-1.5 s", amplified),
    ("64 searches for 1 MB of text in a program of 90 bytes", "an answer of 61 MiB", large_arguments),
    ("60 x `while True: pass` with `timeout_s` 0.05", "67 threads, 2.6 GB, another's turn 11 ms -> 2.05 s", interpreters),
    ("a page in a browser asks servers on loopback", "101, 200, 200: all answered", browsers),
    ("SIGTERM and SIGHUP to a training run", "rc 143 and 129, nothing saved", terminated),
    ("one bit of a checkpoint", "resumed without a word", flipped),
    ("a hub whose ETag is a path", "the file was written there; the token went over http", hostile_hub),
    ("64 calls of 1.5 s in one turn, `limits.tool_time_ms` 20000", "96 s: no limit on the clock", slow_tools),
    ("config.json that asks for the impossible", "abort, panic, taken", hostile_config),
    ("a chat template without an end", "a thread is busy for ever", endless_template),
    ("a filter of 4 MiB beside 16,384 queries", "not tried", shared_filter),
    ("a field of a filter with a name of 4 MiB and 400,000 values", "not tried", long_field),
    ("16,384 boolean queries of 64 `)`, `--max-answer-mib 16`", "not tried", repairs),
    ("100 boolean queries of 65,530 dashes and a word", "not tried", signs),
    ("a `task_id` of 1 MB", "not tried", unknown_task),
    ("a batch of 250,000 environments", "not tried", many_members),
    ("a body that is one unknown key or value", "not tried", repeated),
]


def main():
    work, wanted = Path(sys.argv[1]), sys.argv[2:]
    names = [act.__name__ for *_, act in ATTACKS]
    if unknown := sorted(set(wanted) - set(names)):
        raise SystemExit(f"no attack is called {', '.join(unknown)}; there are: {', '.join(names)}")
    grounds = Grounds(work)
    print("| attack | before | after | fails |")
    print("|---|---|---|---|")
    standing = []
    for attack, before, act in ATTACKS:
        if wanted and act.__name__ not in wanted:
            continue
        try:
            after, fails = act(grounds)
        except Exception as error:  # noqa: BLE001
            after, fails = f"the bench broke: {type(error).__name__}: {error}", False
        if not fails:
            standing.append(act.__name__)
        print(f"| {attack} | {before} | {after} | {'yes' if fails else '**no**'} |", flush=True)
    print(json.dumps({"bench": "attacks", "held": not standing, "figures": {"standing": standing}}))
    sys.exit(1 if standing else 0)


main()
