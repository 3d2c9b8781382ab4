"""The program as the cells of the matrix run it: commands, servers, and what is read from `/proc` and from run folders."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORAGE = os.environ.get("FORAGE_BIN", "forage")
# Lines of the log begin with a time.
STAMP = re.compile(r"^(\x1b\[\d*m)*\d{4}-\d\d-\d\dT")


@dataclass
class Ended:
    """A command that ended."""

    rc: int
    seconds: float
    stdout: str
    stderr: str

    @property
    def error(self):
        """The error as a person sees it: what the program says after the last line of progress."""
        lines = [line for line in self.stderr.splitlines() if line.strip() and not STAMP.match(line)]
        starts = [number for number, line in enumerate(lines) if line.lower().startswith(("error", "forage:"))]
        told = lines[starts[-1] :] if starts else lines[-1:]
        return " ".join(line.strip() for line in told)

    @property
    def retries(self):
        return sum("retry" in line for line in self.stderr.splitlines() if STAMP.match(line))


class Command:
    """A command that runs; `wait` gives its end."""

    def __init__(self, *arguments, log=None, env=None, preexec=None, prefix=(), cwd=ROOT):
        command = [*map(str, prefix), FORAGE, *map(str, arguments)]
        whole = {**os.environ, "NO_COLOR": "1", **(env or {})}
        if log is not None:
            whole["FORAGE_LOG"] = log
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=whole,
            cwd=cwd,
            preexec_fn=preexec,
        )

    def wait(self, timeout=120):
        try:
            stdout, stderr = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            stdout, stderr = self.process.communicate()
            stderr += f"\nerror: still running after {timeout} s, killed by the bench"
        return Ended(self.process.returncode, time.monotonic() - self.begun, stdout, stderr)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)


def run(*arguments, timeout=120, **options):
    return Command(*arguments, **options).wait(timeout)


class Server:
    """`forage serve ...` on a free port, or on `port`."""

    def __init__(self, work, name, *arguments, port=0, env=None, preexec=None, prefix=()):
        self.log = Path(work) / f"{name}-{time.monotonic_ns()}.log"
        begun = time.monotonic()
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [*map(str, prefix), FORAGE, "serve", *map(str, arguments), "--addr", f"127.0.0.1:{port}"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "NO_COLOR": "1", **(env or {})},
                cwd=ROOT,
                preexec_fn=preexec,
            )
        self.port = None
        while self.port is None:
            if time.monotonic() - begun > 180:
                self.process.kill()
                raise RuntimeError(f"{name} is not ready after three minutes: {self.log.read_text()}")
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", self.log.read_text())
            if found:
                self.port = int(found[1])
            elif self.process.poll() is not None:
                raise RuntimeError(f"{name} ended with {self.process.returncode}: {self.log.read_text()}")
            else:
                time.sleep(0.02)
        self.ready_s = time.monotonic() - begun

    @property
    def pid(self):
        return self.process.pid

    def connect(self, timeout=10.0):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """The bytes of a request on a connection of its own."""
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = {"host": f"127.0.0.1:{self.port}", "connection": "close", "content-length": len(raw)}
        if body is not None:
            lines["content-type"] = "application/json"
        lines.update(headers or {})
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
        return head.encode() + raw

    def ask(self, method, path, body=None, headers=None, timeout=30.0):
        """One request on a connection of its own; its status and body, or `None` and the reason."""
        status, _, answer = self.exchange(method, path, body, headers, timeout)
        return status, answer

    def exchange(self, method, path, body=None, headers=None, timeout=30.0):
        """As `ask`, with the head of the answer in the middle."""
        request = self.request(method, path, body, headers)
        try:
            with self.connect(timeout) as stream:
                try:
                    stream.sendall(request)
                except (BrokenPipeError, ConnectionResetError):
                    # A server may answer and close before it has read everything.
                    pass
                return answered(stream, timeout)
        except OSError as error:
            return None, b"", str(error).encode()

    def healthy(self, timeout=5.0):
        """Seconds until `/healthz` answers; `None` when it does not in time."""
        begun = time.monotonic()
        status, _ = self.ask("GET", "/healthz", timeout=timeout)
        return time.monotonic() - begun if status == 200 else None

    def recovers(self, within):
        """Seconds until `/healthz` answers again, asking twice a second; `None` when it does not."""
        begun = time.monotonic()
        while time.monotonic() - begun < within:
            if self.healthy(timeout=2.0) is not None:
                return time.monotonic() - begun
            time.sleep(0.5)
        return None

    def metric(self, name):
        """The sum of a metric over its labels."""
        _, text = self.ask("GET", "/metrics")
        lines = [line for line in text.decode(errors="replace").splitlines() if not line.startswith("#")]
        values = [float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"\w*{name}(\{{|\s)", line)]
        return sum(values)

    def resident_mib(self, kind="VmRSS"):
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split(f"{kind}:")[1].split()[0]) / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_s(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def stop(self, number=signal.SIGTERM, timeout=40):
        """Ends the server and gives its exit code and the seconds that took."""
        begun = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return self.process.returncode, time.monotonic() - begun

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def received(stream, timeout=30.0):
    """An answer that ends with the connection or with its length: status and body."""
    status, _, body = answered(stream, timeout)
    return status, body


def answered(stream, timeout=30.0):
    """As `received`, with the head in the middle."""
    stream.settimeout(timeout)
    data = bytearray()
    # Where the body begins, and where it ends if the head says so.
    start = end = None
    while end is None or len(data) < end:
        try:
            piece = stream.recv(1 << 16)
        except (ConnectionResetError, BrokenPipeError):
            break
        except TimeoutError:
            return None, b"", b"no answer in time"
        if not piece:
            break
        data += piece
        if start is None and (place := data.find(b"\r\n\r\n")) >= 0:
            start = place + 4
            length = re.search(rb"content-length: *(\d+)", data[:start], re.IGNORECASE)
            # An upgraded connection goes on in another protocol.
            end = start if data.startswith(b"HTTP/1.1 101") else start + int(length[1]) if length else None
    parts = bytes(data[: start or 0]).split(b" ", 2)
    if len(parts) < 2 or not parts[1].isdigit():
        return None, b"", bytes(data) or b"closed without an answer"
    return int(parts[1]), bytes(data[:start]), bytes(data[start:])


# --- run folders


def rows(folder):
    """The metrics of a run but for the clock's."""
    path = Path(folder) / "metrics.jsonl"
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found.append({name: value for name, value in row.items() if not name.startswith("time/")})
    return found


def alarms(folder):
    path = Path(folder) / "alarms.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def checkpoints(folder):
    """Complete checkpoints, oldest first."""
    return sorted((Path(folder) / "checkpoints").glob("step-*"))


def trained(folder):
    """The digest of the trained policy's weights; `None` where there is none."""
    path = Path(folder) / "policy" / "model.safetensors"
    return hashlib.blake2b(path.read_bytes()).hexdigest() if path.exists() else None


# --- cells


@dataclass
class Cell:
    """One fault in one component: what was expected, and what was seen."""

    component: str
    fault: str
    expected: str
    held: bool = False
    seen: str = ""
    typed: str = ""
    counted: str = ""
    lost: str = ""
    told_s: float | None = None
    # Reasons for `held` being false.
    misses: list = field(default_factory=list)
    # What the machine lacks for it; it is then neither held nor missed.
    left_out: str = ""

    def check(self, fact, otherwise):
        if not fact:
            self.misses.append(otherwise)
        return self

    def done(self):
        self.held = not self.misses
        return self

    def leave_out(self, lacking):
        self.left_out, self.seen = lacking, "not run"
        return self


def shown(text, most=160):
    text = re.sub(r"\s+", " ", text).replace("|", "/").replace("`", "'").replace("<", "&lt;").strip()
    text = re.sub(r"/tmp/\S*?/(?=[\w.-]+(/|\b))", "", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    return text if len(text) <= most else text[: most - 1] + "…"
