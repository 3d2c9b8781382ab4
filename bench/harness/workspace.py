"""Where a benchmark works: the built programs, the data folder, inputs that are made once, a scratch folder, servers."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from harness.declare import ROOT, BenchError
from harness.sides import run


def digest(*paths):
    """SHA-256 of the contents of files, in this order."""
    found = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


class Workspace:
    """`home` (FORAGE_BENCH_HOME, ~/.cache/forage-bench) holds peers and inputs and can be deleted at any time; `scratch` is this call's.
    `built` is a folder of programs that are built already."""

    def __init__(self, parameters, scratch, home=None, built=None):
        self.parameters, self.scratch = dict(parameters), Path(scratch)
        self.home = Path(home or os.environ.get("FORAGE_BENCH_HOME") or Path.home() / ".cache/forage-bench").resolve()
        self._release = Path(built).resolve() if built else None
        self._made = {}

    def clear(self):
        """Empties the scratch folder."""
        for path in self.scratch.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    @property
    def prebuilt(self):
        """Whether the programs were built before, from whatever sources."""
        return self._release is not None

    @property
    def data(self):
        """The data folder: FORAGE_BENCH_DATA, or shared/data beside the tree."""
        folder = Path(os.environ.get("FORAGE_BENCH_DATA") or ROOT.parent / "shared/data").resolve()
        if not folder.is_dir():
            raise BenchError(f"no data folder {folder}; name it with FORAGE_BENCH_DATA")
        return folder

    @property
    def forage(self):
        """The program."""
        return self._built("forage", "-p", "forage")

    def example(self, package, name):
        """A built example."""
        # With the program's package, so that dependencies have the features they have in it.
        return self._built(f"examples/{name}", "-p", "forage", "-p", package, "--example", name)

    def _built(self, file, *what):
        if self._release is None and file not in self._made:
            self._made[file] = True
            command = ["cargo", "build", "--release", "--locked", "--quiet", *what]
            if subprocess.run(command, cwd=ROOT).returncode:
                raise BenchError(f"`{' '.join(command)}` failed")
        release = self._release or ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release"
        if not (release / file).exists():
            raise BenchError(f"no program {release / file}")
        return release / file

    def input(self, name, key, make):
        """The folder of an input, made by `make(FOLDER)` unless the bench home has it. `key` is everything that decides its content,
        the digests of programs and files that it is made from among them; another key is another folder. One whose key has another
        `program` alone, an earlier build's, gives way to it."""
        key = json.loads(json.dumps(key))
        text = json.dumps(key, sort_keys=True)
        folder = self.home / "inputs" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        stamp = folder / "input.json"
        if stamp.exists():
            found = json.loads(stamp.read_text())
            if found["key"] != key:
                raise BenchError(f"{folder} belongs to another workload ({_difference(found['key'], key)}); delete it")
            if found["files"] != _sizes(folder):
                raise BenchError(f"{folder} was changed after it was made; delete it")
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        partial = stamp.with_suffix(".partial")
        partial.write_text(json.dumps({"key": key, "files": _sizes(folder)}))
        partial.rename(stamp)
        for other in folder.parent.glob(f"{name}-*/input.json"):
            found = json.loads(other.read_text())["key"]
            if "program" in found and found != key and found | {"program": key.get("program")} == key:
                shutil.rmtree(other.parent)
        return folder

    def run(self, *command, env=None):
        """Runs a program of a preparation."""
        return run(*command, env=env)

    @contextlib.contextmanager
    def serve(self, *arguments):
        """`forage serve` on a free port, as its address, until the block ends."""
        log = self.scratch / "serve.log"
        with open(log, "w") as errors:
            command = [str(part) for part in (self.forage, "serve", *arguments, "--addr", "127.0.0.1:0")]
            process = subprocess.Popen(command, cwd=ROOT, stdout=errors, stderr=errors)
        try:
            until = time.monotonic() + 60
            while not (found := re.search(r"^listening on (http:[^,\s]*)", log.read_text(), re.M)):
                if process.poll() is not None or time.monotonic() > until:
                    raise BenchError(f"`{' '.join(command)}` does not listen:\n{log.read_text()[-2000:]}")
                time.sleep(0.02)
            yield found[1]
        finally:
            process.kill()
            process.wait()


def _sizes(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "input.json")
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def _difference(one, other):
    if not isinstance(one, dict) or not isinstance(other, dict):
        return f"{one!r} instead of {other!r}"
    keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    return ", ".join(f"{key}: {one.get(key)!r} instead of {other.get(key)!r}" for key in keys)
