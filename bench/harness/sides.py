"""Sides that are programs: one that runs to its end, and one that is driven line by line."""

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


class Driven:
    """A program that prints a line of JSON when it is ready and one for every line it reads. It is started anew for each round.

    `warm` are lines asked first, whose answers count for nothing; `ask` maps a name to a line, whose answer's fields are observed as
    `NAME/FIELD`. Fields of the first line are observed as `ready/FIELD`."""

    def __init__(self, name, command, ask, warm=(), env=None, read=None):
        self.name, self.command, self.env = name, [str(part) for part in command], env
        self.ask, self.warm, self.read = dict(ask), list(warm), read or (lambda name, answer: answer)

    def measure(self):
        with tempfile.TemporaryFile() as errors:
            pipe = subprocess.PIPE
            process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=errors, env=self.env, cwd=ROOT, text=True)
            try:
                with process.stdout:
                    seen = self._flat("ready", self._answer(process, errors, None))
                    for line in self.warm:
                        self._answer(process, errors, line)
                    for name, line in self.ask.items():
                        seen |= self._flat(name, self._answer(process, errors, line))
            finally:
                # Closed pipes end it; one that does not end is no side to wait for. A line that it did not take is still to be written.
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        return seen

    def _flat(self, name, answer):
        return {f"{name}/{field}": value for field, value in self.read(name, answer).items()}

    def _answer(self, process, errors, line):
        try:
            if line is not None:
                process.stdin.write(line + "\n")
                process.stdin.flush()
            while out := process.stdout.readline():
                if out.startswith("{"):
                    return json.loads(out)
        except BrokenPipeError:
            pass
        process.wait()
        errors.seek(0)
        raise failed(self.command, process.returncode, errors.read().decode(errors="replace"))


class Function:
    """A side in Python."""

    def __init__(self, name, function):
        self.name, self.measure = name, function


def failed(command, code, errors):
    return BenchError(f"`{shlex.join(command)}` ended with {code}:\n{errors[-2000:]}".rstrip())
