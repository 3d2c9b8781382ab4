"""Sides that are programs: one that runs to its end, and one that is talked to line by line."""

import contextlib
import json
import os
import shlex
import subprocess
import tempfile
import time

from harness.declare import ROOT, BenchError


def rows(text):
    """The JSON objects among the lines a program printed."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def run(*command, env=None):
    """What a program prints that prepares something."""
    command = [str(part) for part in command]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        raise failed(command, done.returncode, done.stderr)
    return done.stdout


def timed(command, log):
    """Runs a program that makes something; its time, the processor's, and the peak of its memory. `log` is a file for what it says."""
    command, begun = [str(part) for part in command], time.perf_counter()
    with open(log, "w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
    wall, process.returncode = time.perf_counter() - begun, os.waitstatus_to_exitcode(status)
    if process.returncode:
        with open(log) as said:
            raise failed(command, process.returncode, said.read())
    return {"wall_s": wall, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024}


class Command:
    """A program that prints lines of JSON and ends. Observed are the last line's fields, or what `read` makes of all lines; and
    `peak_mib`, the peak of its resident memory, mapped files included. The peak starts at that of this process, some 20 MiB."""

    def __init__(self, name, command, read=lambda lines: lines[-1], env=None):
        self.name, self.command, self.read, self.env = name, [str(part) for part in command], read, env

    def measure(self):
        with tempfile.TemporaryFile() as errors:
            pipe = subprocess.PIPE
            process = subprocess.Popen(self.command, stdout=pipe, stderr=errors, env=self.env, cwd=ROOT, text=True)
            with process.stdout:
                out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                errors.seek(0)
                raise failed(self.command, process.returncode, errors.read().decode(errors="replace"))
        lines = rows(out)
        if not lines:
            raise BenchError(f"`{shlex.join(self.command)}` printed no JSON")
        return {"peak_mib": usage.ru_maxrss / 1024, **self.read(lines)}


class Talk:
    """A program that runs, prints a line of JSON when it is ready and one for every line it reads, until it is closed."""

    def __init__(self, command, env=None):
        self.command, self.errors, pipe = [str(part) for part in command], tempfile.TemporaryFile(), subprocess.PIPE
        self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=self.errors, env=env, cwd=ROOT, text=True)

    def answer(self, line=None):
        """Its next line of JSON, to a line or to none."""
        with contextlib.suppress(BrokenPipeError):
            if line is not None:
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
            while out := self.process.stdout.readline():
                if out.startswith("{"):
                    return json.loads(out)
        self.process.wait()
        self.errors.seek(0)
        raise failed(self.command, self.process.returncode, self.errors.read().decode(errors="replace"))

    def close(self):
        """Closed pipes end it; one that does not end is nothing to wait for. A line that it did not take is still to be written."""
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


class Driven:
    """A program that is talked to. It is started anew for each round.

    `warm` are lines asked first, whose answers count for nothing; `ask` maps a name to a line, whose answer's fields are observed as
    `NAME/FIELD`. Fields of the first line are observed as `ready/FIELD`."""

    def __init__(self, name, command, ask, warm=(), env=None, read=None):
        self.name, self.command, self.env = name, command, env
        self.ask, self.warm, self.read = dict(ask), list(warm), read or (lambda name, answer: answer)

    def measure(self):
        with contextlib.closing(Talk(self.command, self.env)) as talk:
            seen = self._flat("ready", talk.answer())
            for line in self.warm:
                talk.answer(line)
            for name, line in self.ask.items():
                seen |= self._flat(name, talk.answer(line))
        return seen

    def _flat(self, name, answer):
        return {f"{name}/{field}": value for field, value in self.read(name, answer).items()}


class Function:
    """A side in Python."""

    def __init__(self, name, function):
        self.name, self.measure = name, function


def failed(command, code, errors):
    return BenchError(f"`{shlex.join(command)}` ended with {code}:\n{errors[-2000:]}".rstrip())
