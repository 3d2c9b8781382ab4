"""Figures of forage on a GPU, and of transformers and PEFT beside it, a row at a time: see run.sh.

A row is one job of one program, and its result is a line of RESULTS/rows.jsonl as soon as it is known. Good
rows are not run again, failed ones are. A row is not started when it would not be done within the call's
minutes.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import table
from jobs import LONGEST, Failed, Plan, kernel_cache
from machine import CardMemory, commit, cuda_environment, describe, doctor, peers_of


class Left(Exception):
    """The call's minutes ended within a row, which says nothing about the row."""


class Rows:
    """RESULTS/rows.jsonl; of several lines of an id the last one counts."""

    def __init__(self, path, rehearse):
        # Seconds of all rows so far, also of those that ran again.
        self.rehearse, self.known, self.seconds = rehearse, {}, 0
        text = path.read_text() if path.exists() else ""
        for place, line in enumerate(text.splitlines(), 1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                # The machine went away while it was written. The row runs again.
                print(f"warning: line {place} of {path} is not whole, it is passed over", file=sys.stderr)
                continue
            if row.get("rehearsal", False) == rehearse:
                self.known[row["id"]] = row
                self.seconds += row["seconds"]
        self.file = path.open("a")
        if text and not text.endswith("\n"):
            self.file.write("\n")

    def add(self, row):
        if self.rehearse:
            row["rehearsal"] = True
        self.seconds += row["seconds"]
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        self.known[row["id"]] = row

    def good(self, id):
        return id in self.known and self.known[id]["status"] == "ok"

    def failed(self, id):
        return id in self.known and not self.good(id)

    def figures(self, id):
        return self.known[id]["figures"] if self.good(id) else {}


def execute(command, out, error, environment, folder, limit):
    """The exit status, or `TimeoutExpired`. However it ends, the process has ended as well."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=error, cwd=folder, env=os.environ | environment
    )
    try:
        return process.wait(timeout=limit)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def json_lines(text):
    try:
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    except json.JSONDecodeError as error:
        raise Failed(f"a line of its output is not JSON: {error}") from error


def with_tail(message, path):
    return "\n".join([message, *path.read_text(errors="replace").splitlines()[-15:]])


def run(job, results, deadline, limit, cuda):
    """The figures of a row. Raises `Failed`, or `Left` when it is the call's end that stops it."""
    out_path, error_path = results / f"logs/{job.id}.out", results / f"logs/{job.id}.err"
    # torch brings CUDA libraries of its own, and another toolkit's would be taken before them.
    environment = job.environment if job.of_peer else cuda | job.environment
    begin = time.monotonic()
    end = min(begin + limit, deadline)
    printed, seconds = [], []
    job.before()
    with out_path.open("wb") as out, error_path.open("wb") as error, CardMemory() as memory:
        for command in job.commands:
            start, place = time.monotonic(), out.seek(0, os.SEEK_END)
            try:
                status = execute(command, out, error, environment, results / "scratch", max(0, end - start))
            except OSError as fault:
                raise Failed(f"cannot be started: {fault}") from fault
            except subprocess.TimeoutExpired as fault:
                if end == deadline:
                    raise Left from fault
                raise Failed(with_tail(f"takes longer than its limit of {limit} s", error_path)) from fault
            if status != 0:
                how = signal.Signals(-status).name if status < 0 else f"status {status}"
                raise Failed(with_tail(f"ended with {how}", error_path))
            printed.append(json_lines(out_path.read_bytes()[place:].decode(errors="replace")))
            seconds.append(round(time.monotonic() - start, 2))
    try:
        figures = job.figures(printed)
    except (KeyError, TypeError, json.JSONDecodeError) as fault:
        raise Failed(f"what it wrote cannot be read: {fault!r}") from fault
    return figures | {"card_mib": memory.most, "process_seconds": seconds}


def summary(row):
    figures = row["figures"]
    if row["status"] != "ok":
        return f"FAILED: {row['error']}"
    if "tokens_per_second" in figures:
        return f"{figures['tokens_per_second']:,.1f} generated tokens/s"
    if "steps" in figures:
        return f"{len(figures['steps'])} steps"
    return "does not fit" if figures.get("out_of_memory") else f"{figures['seconds']:.3f} s a step"


def run_rows(jobs, rows, results, deadline, cuda, common):
    """Runs what fits before the deadline."""
    for job in jobs:
        if time.monotonic() + job.expected > deadline:
            continue
        # Room for a slow machine; but a row that hangs must not take all of the machine's minutes. A
        # rehearsal may run on two slow cores.
        limit = 600 if rows.rehearse else 2 * job.expected + 60
        row, begin = {"id": job.id, "status": "ok"}, time.monotonic()
        try:
            row["figures"] = run(job, results, deadline, limit, cuda)
        except Failed as fault:
            row |= {"status": "failed", "figures": {}, "error": str(fault)}
        except Left:
            print(f"{job.id:36} stopped by the end of this call's minutes", flush=True)
            continue
        row["seconds"] = round(time.monotonic() - begin, 2)
        row["at"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        rows.add(row | common)
        print(f"{job.id:36} {row['seconds']:7.1f} s  {summary(row)}", flush=True)


def measure(forage, python, rows, results, deadline):
    """Looks at the machine and runs what is not there yet. Returns the jobs of the bench on this machine."""
    scratch, rehearse = results / "scratch", rows.rehearse
    peers = peers_of(python, rehearse) if python else None
    cuda, told = cuda_environment(python)
    machine = describe(told, peers, rehearse)
    (results / "machine.json").write_text(json.dumps(machine, indent=2) + "\n")
    card = f"{machine['gpu']}, driver {machine['driver']}"
    print(f"{card}, CUDA_PATH={told['cuda_path']}, {told['nvrtc']}", flush=True)
    limit = min(240, max(10, deadline - time.monotonic()))
    doctor(forage, results, cuda | kernel_cache(scratch, "doctor"), limit, rehearse)
    common = {"program": hashlib.sha256(pathlib.Path(forage).read_bytes()).hexdigest()[:12]}
    if told_commit := commit():
        common["forage_commit"] = told_commit
    jobs = Plan(forage, python if peers else None, scratch, rehearse).jobs()
    # Rows that failed before come last: one that always fails must not keep the others from the machine.
    pending = sorted((job for job in jobs if not rows.good(job.id)), key=lambda job: job.id in rows.known)
    run_rows(pending, rows, results, deadline, cuda, common)
    return jobs


def finish(rows, jobs, results):
    saved = results / "machine.json"
    machine = json.loads(saved.read_text()) if saved.exists() else {}
    markdown = "\n".join(table.lines(rows, machine)) + "\n"
    (results / "table.md").write_text(markdown)
    held, gap = table.verdict(rows, jobs)
    figures = {"machine": machine, "smoke_loss_gap": gap}
    figures["rows"] = {id: row["figures"] for id, row in rows.known.items()}
    line = {"bench": "gpu", "held": held, "figures": figures} | ({"rehearsal": True} if rows.rehearse else {})
    print(f"\n{markdown}\n{json.dumps(line)}")
    return held


def program(parser, name):
    found = shutil.which(name)
    if found is None:
        parser.error(f"there is no program {name}")
    # Links stay: the python of a virtual environment is one.
    return str(pathlib.Path(found).absolute())


def main():
    begin = time.monotonic()
    parser = argparse.ArgumentParser(prog="bench/gpu/run.sh", allow_abbrev=False)
    parser.add_argument("forage", metavar="FORAGE", help="the program, built with --features cuda")
    parser.add_argument("results", metavar="RESULTS", type=pathlib.Path, help="for rows, logs and scratch")
    parser.add_argument("python", metavar="PYTHON", nargs="?", help="has torch, transformers and PEFT")
    parser.add_argument("--minutes", type=float, default=10, help="how long this call may take (default 10)")
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="small sizes, also where no GPU computes; peers run a tiny shape on the processor",
    )
    arguments = parser.parse_args()
    forage = program(parser, arguments.forage)
    python = program(parser, arguments.python) if arguments.python else None
    results = arguments.results.absolute()
    for folder in (results / "scratch", results / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    # Whoever ends the call must not leave its job behind on the card.
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    rows = Rows(results / "rows.jsonl", arguments.rehearse)
    jobs = Plan(forage, python, results / "scratch", arguments.rehearse).jobs()
    # With every row there, nothing is started: the table can be made where there is no GPU.
    if not all(rows.good(job.id) for job in jobs):
        seconds = arguments.minutes * 60
        if not arguments.rehearse:
            seconds = min(seconds, LONGEST - rows.seconds)
        jobs = measure(forage, python, rows, results, begin + seconds)
    left = [job for job in jobs if job.id not in rows.known]
    failed = [job for job in jobs if rows.failed(job.id)]
    if failed:
        print(f"failed, see {results / 'logs'}: {', '.join(job.id for job in failed)}")
    if left and not arguments.rehearse and min(job.expected for job in left) > LONGEST - rows.seconds:
        print(f"the rows have taken {rows.seconds / 60:.0f} minutes of {LONGEST // 60} in all, and these have no time left:")
        print(", ".join(job.id for job in left))
        finish(rows, jobs, results)
        return 1
    if left:
        minutes = sum(job.expected for job in left) / 60
        print(f"left for another call, about {minutes:.0f} minutes: {', '.join(job.id for job in left)}")
        return 3
    return 0 if finish(rows, jobs, results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted: the row that was running will run again", file=sys.stderr)
        sys.exit(130)
