"""Runs programs under this CPython, each in a process of its own, and keeps what they did by digest of their code."""

import hashlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SECONDS = 10
# Raise it when RUNNER changes: results kept by another version are not used.
VERSION = 1

# Runs a file as `__main__` and writes how it ended to another, so that nothing has to be read out of a traceback.
RUNNER = r"""
import json, sys, traceback, types
def run(path, report):
    with open(path, encoding="utf-8", errors="surrogatepass", newline="") as file:
        code = file.read()
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    error = None
    try:
        exec(compile(code, "<program>", "exec"), main.__dict__)
    except BaseException as raised:
        kind = type(raised)
        module = kind.__module__
        name = kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
        error = {"kind": name, "message": str(raised), "lines": []}
        if isinstance(raised, SyntaxError) and raised.filename == "<program>":
            error["message"], error["line"] = raised.msg, raised.lineno
            error["text"] = "".join(traceback.format_exception_only(kind, raised)[1:])
        frames = traceback.extract_tb(raised.__traceback__)
        error["lines"] = [frame.lineno for frame in frames if frame.filename == "<program>"]
    sys.stdout.flush()
    with open(report, "w") as file:
        json.dump(error, file)
run(*sys.argv[1:])
"""


def run(code, hash_seed=0):
    """How one program ends: its output and its error, or a time-out."""
    with tempfile.TemporaryDirectory() as folder:
        program, report = Path(folder) / "program", Path(folder) / "report"
        program.write_bytes(code.encode("utf-8", "surrogatepass"))
        # `-I` without its `-E`, which would ignore the hash seed; the environment holds nothing else.
        command = [sys.executable, "-s", "-P", "-X", "utf8", "-c", RUNNER, program, report]
        try:
            done = subprocess.run(command, env={"PYTHONHASHSEED": str(hash_seed)}, cwd=folder, timeout=SECONDS,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return {"status": "timeout", "stdout": "", "error": None}
        stdout = done.stdout.decode("utf-8", "replace")
        if not report.exists():
            return {"status": f"exit {done.returncode}", "stdout": stdout, "error": None}
        error = json.loads(report.read_text())
        return {"status": "exception" if error else "ok", "stdout": stdout, "error": error}


def digest(code):
    key = f"{VERSION}\0{sys.version}\0{RUNNER}\0{SECONDS}\0{code}"
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def run_all(programs, kept, jobs=2):
    """What every program does, from the file `kept` where it is there already."""
    known = {}
    if kept.exists():
        known = {row["digest"]: row["result"] for row in map(json.loads, kept.read_text().splitlines())}
    missing = {digest(p["code"]): p["code"] for p in programs if digest(p["code"]) not in known}
    if missing:
        print(f"running {len(missing)} programs under CPython", file=sys.stderr)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with open(kept, "a") as out, ThreadPoolExecutor(jobs) as pool:
        for key, result in zip(missing, pool.map(run, missing.values())):
            known[key] = result
            out.write(json.dumps({"digest": key, "result": result}) + "\n")
    return [known[digest(program["code"])] for program in programs]
