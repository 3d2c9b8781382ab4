"""Both retrieval servers under the same load, in turns: run.py WORK SECONDS. Called by run.sh."""

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

RELEASE = f"{os.environ.get('CARGO_TARGET_DIR', 'target')}/release"

CONNECTIONS = (1, 32, 256)
ROUNDS = 2
QUEUE = 64
OVERLOAD = 4 * QUEUE


class Server:
    """A server process, timed from its start to its first answer, its memory sampled until it is closed."""

    def __init__(self, name, command, port):
        self.name, self.address, self.samples, self.private = name, f"127.0.0.1:{port}", [], []
        begun = time.perf_counter()
        self.log = open(f"/tmp/forage-bench-{name}-{port}.log", "w")
        self.process = subprocess.Popen([str(part) for part in command], stdout=self.log, stderr=self.log)
        self.ready_s = self.wait(begun)
        self.open = True
        self.sampler = threading.Thread(target=self.sample, daemon=True)
        self.sampler.start()

    def wait(self, begun):
        body = json.dumps({"queries": ["first question"], "topk": 1, "return_scores": True}).encode()
        headers = {"Content-Type": "application/json"}
        while time.perf_counter() - begun < 120:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended with {self.process.returncode}, see {self.log.name}")
            try:
                request = urllib.request.Request(f"http://{self.address}/retrieve", body, headers)
                with urllib.request.urlopen(request, timeout=30) as answer:
                    assert answer.status == 200
                return time.perf_counter() - begun
            except OSError:
                time.sleep(0.002)
        raise SystemExit(f"{self.name} is not ready after two minutes")

    def resident_mb(self, kind="VmRSS"):
        """VmRSS counts the pages of mapped index files, which the kernel takes back when it needs them; RssAnon does not."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split(f"{kind}:")[1].split()[0]) / 1024

    def cpu_s(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sample(self):
        while self.open:
            self.samples.append(self.resident_mb())
            self.private.append(self.resident_mb("RssAnon"))
            time.sleep(0.1)

    def close(self):
        self.open = False
        self.sampler.join()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def load(server, queries, connections, seconds):
    program = f"{RELEASE}/examples/load"
    cpu, first = server.cpu_s(), len(server.samples)
    output = subprocess.run(
        [program, server.address, queries, str(connections), str(seconds), "3"], stdout=subprocess.PIPE, check=True
    ).stdout
    found = json.loads(output)
    found["server_cpu_us"] = (server.cpu_s() - cpu) / max(sum(found["statuses"].values()), 1) * 1e6
    memory = server.samples[first:]
    found["rss_mb"] = {"first": memory[0], "last": memory[-1], "max": max(memory)}
    return found


def row(name, label, found):
    answer = found.get("answer_ms", {"p50": float("nan"), "p99": float("nan")})
    statuses = ", ".join(f"{count} x {status}" for status, count in found["statuses"].items())
    print(
        f"{name:8} {label:>9} {found['per_second']:9.0f} {answer['p50']:9.2f} {answer['p99']:9.2f}"
        f" {found['server_cpu_us']:8.0f} {found['rss_mb']['max']:7.0f}  {statuses}",
        flush=True,
    )


def same_answers(servers, queries):
    """Both servers name the same passages, over the first 200 queries."""
    equal = 0
    texts = [json.loads(line)["text"] for line in open(queries, encoding="utf-8")][:200]
    body = json.dumps({"queries": texts, "topk": 3, "return_scores": True}).encode()
    lists = []
    for server in servers:
        request = urllib.request.Request(
            f"http://{server.address}/retrieve", body, {"Content-Type": "application/json"}
        )
        result = json.load(urllib.request.urlopen(request, timeout=120))["result"]
        lists.append([[hit["document"]["contents"] for hit in hits] for hits in result])
    equal = sum(one == other for one, other in zip(*lists))
    return equal / len(texts)


def compare(forage, python, queries, seconds):
    """Each number of connections ROUNDS times in turns; the better round of each counts."""
    found = {}
    for connections in CONNECTIONS:
        for _ in range(ROUNDS):
            for server in (forage, python):
                figures = load(server, queries, connections, seconds)
                row(server.name, str(connections), figures)
                key = f"{server.name}-{connections}"
                if key not in found or figures["per_second"] > found[key]["per_second"]:
                    found[key] = figures
    return found


def large(index):
    """Opening a large index: the command that describes it, and a server's first answer."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        subprocess.run([f"{RELEASE}/forage", "index", "info", index], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - begun)
    port = free_port()
    server = Server("large", [f"{RELEASE}/forage", "serve", "retriever", index, "--addr", f"127.0.0.1:{port}"], port)
    manifest = json.loads((index / "manifest.json").read_text())
    found = {
        "passages": manifest["counts"]["passages"],
        "info_s": min(times),
        "server_first_answer_s": server.ready_s,
        "server_rss_mb": server.resident_mb(),
        "index_mb": sum(file.stat().st_size for file in index.rglob("*") if file.is_file()) / 1e6,
    }
    server.close()
    print(
        f"\n{found['passages']} passages, {found['index_mb']:.0f} MB: described in {found['info_s'] * 1e3:.0f} ms, first answer"
        f" of a server after {server.ready_s * 1e3:.0f} ms, with {found['server_rss_mb']:.0f} MB resident"
    )
    return found


def main():
    work, seconds = Path(sys.argv[1]), float(sys.argv[2])
    queries = work.parent / "windows/queries.jsonl"
    model = next(line for line in open("/proc/cpuinfo") if line.startswith("model name")).split(":")[1].strip()
    print(f"{os.cpu_count()} cores, {model}, load at the start {os.getloadavg()[0]:.1f}; client on the same cores")
    print(f"Python {platform.python_version()}, Anserini 1.7.1\n")
    ports = [free_port(), free_port(), free_port()]
    serve = [f"{RELEASE}/forage", "serve", "retriever", work / "forage", "--addr"]
    python = Server("python", [os.environ["PYTHON"], "bench/server/python_server.py", work / "lucene", ports[0]], ports[0])
    forage = Server("forage", [*serve, f"127.0.0.1:{ports[1]}"], ports[1])
    agreement = same_answers([forage, python], queries)
    for server in (forage, python):
        load(server, queries, 8, 3)  # warms caches and compilers
    print(f"{'server':8} {'clients':>9} {'answers/s':>9} {'p50 ms':>9} {'p99 ms':>9} {'CPU us':>8} {'RSS MB':>7}  statuses")
    found = compare(forage, python, queries, seconds)
    resident = {server.name: max(server.samples) for server in (forage, python)}
    memory = {server.name: max(server.private) for server in (forage, python)}
    ready = {server.name: server.ready_s for server in (forage, python)}
    python.close()
    forage.close()
    tight = Server("overload", [*serve, f"127.0.0.1:{ports[2]}", "--queue", QUEUE], ports[2])
    load(tight, queries, 8, 3)
    found["overload"] = load(tight, queries, OVERLOAD, 2 * seconds)
    row("forage", f"{OVERLOAD}/{QUEUE}", found["overload"])
    tight.close()
    print("\nmemory, MB, without mapped files (with them): ", end="")
    print(", ".join(f"{name} {memory[name]:.0f} ({resident[name]:.0f})" for name in memory))
    print(f"ready after: forage {ready['forage']:.2f} s, python {ready['python']:.2f} s; same three passages for {agreement:.1%}")
    figures = {"load": found, "private_mb": memory, "resident_mb": resident, "ready_s": ready, "agreement": agreement}
    index = work / "large"
    if (index / "manifest.json").exists():
        figures["large"] = large(index)
    held = judge(found, memory, ready, figures)
    print(json.dumps({"bench": "server", "held": all(held.values()), "design": held, "figures": figures}))


def judge(found, memory, ready, figures):
    rates, tails = {}, {}
    for connections in CONNECTIONS:
        one, other = found[f"forage-{connections}"], found[f"python-{connections}"]
        rates[connections] = one["per_second"] / other["per_second"]
        tails[connections] = other["answer_ms"]["p99"] / one["answer_ms"]["p99"]
    figures["rate_ratio"], figures["p99_ratio"] = rates, tails
    figures["memory_ratio"] = memory["python"] / memory["forage"]
    overload = found["overload"]
    growth = overload["rss_mb"]["max"] / overload["rss_mb"]["first"]
    # Little's law: what is admitted waits about as long as the queue takes to be served.
    waiting_ms = QUEUE / overload["per_second"] * 1e3
    return {
        "rate": min(rates.values()) >= 10,
        "p99": min(tails.values()) >= 10,
        "start": ready["forage"] < 1 and figures.get("large", {}).get("server_first_answer_s", 0) < 1,
        "memory": figures["memory_ratio"] >= 10,
        # Refusals are 503 only, answers wait no longer than the queue is deep, memory does not grow.
        "overload": set(overload["statuses"]) <= {"200", "503"} and "503" in overload["statuses"] and growth < 1.25
        and overload["answer_ms"]["p99"] < 4 * waiting_ms,
        "same_answers": figures["agreement"] == 1.0,
    }


if __name__ == "__main__":
    main()
