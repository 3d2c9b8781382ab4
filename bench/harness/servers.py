"""Retrieval servers and the client that loads them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

from harness.declare import ROOT, BenchError


def tree(process):
    """A process and those that it started, and they, as far as they live."""
    found = [process]
    for at in found:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{at}/task"):
                found += map(int, Path(f"/proc/{at}/task/{thread}/children").read_text().split())
    return found


class Server:
    """A server with all of its processes, timed from its start to its first answer, its memory sampled until it is closed."""

    def __init__(self, command, port, log, env=None):
        self.address, self.resident, self.private = f"127.0.0.1:{port}", [], []
        self.log, self.open = log, True
        begun = time.perf_counter()
        with open(log, "w") as errors:
            self.process = subprocess.Popen([str(part) for part in command], stdout=errors, stderr=errors, env=env, cwd=ROOT)
        self.sampler = threading.Thread(target=self._sample, daemon=True)
        try:
            self.ready_s = self._wait(begun)
        except BaseException:
            self._kill()
            raise
        self.sampler.start()

    def ask(self, queries, timeout=120):
        body = json.dumps({"queries": queries, "topk": 3, "return_scores": True}).encode()
        request = urllib.request.Request(f"http://{self.address}/retrieve", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)["result"]

    def probe(self):
        """Raises `OSError` while the server does not answer."""
        self.ask(["first question"], 30)

    def _wait(self, begun):
        while time.perf_counter() - begun < 120:
            if self.process.poll() is not None:
                raise BenchError(f"a server ended with {self.process.returncode}:\n{Path(self.log).read_text()[-2000:]}")
            with contextlib.suppress(OSError):
                self.probe()
                return time.perf_counter() - begun
            time.sleep(0.002)
        raise BenchError(f"a server is not ready after two minutes:\n{Path(self.log).read_text()[-2000:]}")

    def _read(self, file):
        """A file of each process; a process that has ended has none."""
        for process in tree(self.process.pid):
            with contextlib.suppress(OSError):
                yield Path(f"/proc/{process}/{file}").read_text()

    def memory_mib(self, kind):
        """VmRSS counts the pages of mapped index files, which the kernel takes back when it needs them; RssAnon does not. Processes map
        the same files, so those of the one that has most count."""
        own, mapped = 0, 0
        for status in self._read("status"):
            # One that has ended, and whose end nobody has noticed, is without memory.
            if "RssAnon:" in status:
                kib = lambda name: int(status.split(f"{name}:")[1].split()[0])
                own, mapped = own + kib("RssAnon"), max(mapped, kib("RssFile") + kib("RssShmem"))
        if not own:
            raise ProcessLookupError(f"no process of the server {self.process.pid} lives")
        return {"RssAnon": own, "VmRSS": own + mapped}[kind] / 1024

    def cpu_s(self):
        fields = [stat.rsplit(")", 1)[1].split() for stat in self._read("stat")]
        return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")

    def _kill(self):
        for process in tree(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()

    def _sample(self):
        # A process that has ended has no memory.
        with contextlib.suppress(OSError):
            while self.open:
                self.resident.append(self.memory_mib("VmRSS"))
                self.private.append(self.memory_mib("RssAnon"))
                time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open = False
        self.sampler.join()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self._kill()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Load:
    """The client, `retriever/examples/load.rs`."""

    def __init__(self, work, queries):
        self.program, self.queries = work.example("forage-retriever", "load"), queries

    def __call__(self, server, connections, seconds):
        cpu, first = server.cpu_s(), len(server.resident)
        command = [self.program, server.address, self.queries, connections, seconds, 3]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"the client ended with {done.returncode}:\n{done.stderr[-2000:]}")
        found = json.loads(done.stdout)
        # What it was before, while the load began and at its height.
        memory = server.resident[max(0, first - 1) :]
        return {
            "per_second": found["per_second"],
            "other_statuses": sum(count for status, count in found["statuses"].items() if status != "200"),
            "cpu_us": (server.cpu_s() - cpu) / max(sum(found["statuses"].values()), 1) * 1e6,
            "growth": max(memory) / memory[0],
            "statuses": found["statuses"],
        } | {f"{name}_ms": found["answer_ms"][name] for name in ("p50", "p99") if "answer_ms" in found}
