"""Cells of the files: the run folder, its checkpoints, an index. Disks that are full or read-only, signals, two processes,
damaged bytes, a clock that jumps. Each ends with a resumed run whose rows and weights are those of an undisturbed one."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from program import ROOT, Cell, Command, checkpoints, rows, run, shown, trained

STEPS = 10
SETTINGS = [f"grpo.steps={STEPS}", "grpo.checkpoint_every=2", "grpo.keep_checkpoints=2"]
FAKETIME = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
]
# A cell tells within this many seconds after the fault; a step of this run takes well under one.
PROMPT_S = 15


def train(folder, *more, start=run, **options):
    overrides = [part for setting in SETTINGS for part in ("--set", setting)]
    return start("train", ROOT / "configs" / "smoke.toml", *overrides, "--out", folder, *more, **options)


class Runs:
    """Runs of the matrix, and the undisturbed one that they are compared with."""

    def __init__(self, work):
        self.work = work
        folder = work / "undisturbed"
        ended = train(folder)
        if ended.rc != 0:
            raise SystemExit(f"the undisturbed run failed: {ended.stderr[-2000:]}")
        self.clean = (rows(folder), trained(folder))

    def same(self, folder):
        return (rows(folder), trained(folder)) == self.clean

    def begun(self, folder, rows_wanted=4, **options):
        """A run that has written some rows and a checkpoint."""
        command = train(folder, start=Command, **options)
        until(lambda: (len(rows(folder)) >= rows_wanted and checkpoints(folder)) or command.process.poll() is not None)
        return command

    def resumed(self, cell, folder):
        """Resumes a run and checks that nothing was lost."""
        again = train(folder, "--resume")
        whole = again.rc == 0 and self.same(folder)
        cell.lost = "nothing" if whole else f"resume: rc {again.rc} {shown(again.error, 80)}"
        cell.check(whole, "the resumed run ends otherwise than an undisturbed one")

    def stopped(self, component, fault, number):
        """A signal that asks a run to end."""
        cell = Cell(
            component, fault, f"writes a checkpoint, says how to go on, ends within {PROMPT_S} s; resumes to the same weights"
        )
        folder = self.work / f"signal-{number}"
        command = self.begun(folder)
        known = len(rows(folder))
        command.kill(number)
        begun = time.monotonic()
        ended = command.wait()
        cell.told_s = round(time.monotonic() - begun, 1)
        newest = int(checkpoints(folder)[-1].name.removeprefix("step-"))
        cell.seen = f"rc {ended.rc}; {shown(ended.error)}"
        cell.typed = "stopped" if "--resume" in ended.stderr else "killed"
        cell.counted = f"checkpoint of step {newest}, {len(rows(folder))} rows"
        cell.check("--resume" in ended.stderr, "nothing says how to go on")
        cell.check(
            newest >= known and newest == len(rows(folder)), f"no checkpoint of the last step: {newest} of {len(rows(folder))}"
        )
        cell.check(cell.told_s <= PROMPT_S, "it took too long")
        self.resumed(cell, folder)
        return cell.done()

    def killed(self):
        cell = Cell("run folder", "kill -9", "the last checkpoint stays whole; resumes to the same weights")
        folder = self.work / "killed"
        command = self.begun(folder)
        command.kill()
        ended = command.wait()
        cell.seen, cell.typed, cell.counted = f"rc {ended.rc}", "killed", f"{len(rows(folder))} rows"
        self.resumed(cell, folder)
        return cell.done()

    def two(self, resume):
        """A second process on the folder of one that runs, as a scheduler's requeue starts it."""
        fault = "two processes on one run" + (", the second with --resume" if resume else "")
        cell = Cell(
            "run folder", fault, "the second ends within 5 s with one error that names the folder; the first loses no row"
        )
        folder = self.work / f"two-{resume}"
        first = self.begun(folder)
        second = train(folder, *(["--resume"] if resume else []), timeout=30)
        ended = first.wait()
        cell.told_s = round(second.seconds, 1)
        cell.seen = f"second: rc {second.rc}; {shown(second.error)}; first: rc {ended.rc}, {len(rows(folder))} rows"
        cell.typed = next(
            (word for word in ("in use", "another process", "holds a run", "holds it") if word in second.error), "other"
        )
        cell.lost = "nothing" if self.same(folder) else f"{STEPS - len(rows(folder))} rows"
        cell.check(second.rc not in (0, None) and second.rc > 0, "the second did not end with an error")
        cell.check(second.seconds <= 5, "the second took too long")
        cell.check(folder.name in second.error, "the error does not name the folder")
        cell.check(cell.typed != "other", "the error does not say that the folder is in use")
        cell.check(ended.rc == 0 and self.same(folder), "the first run lost something")
        return cell.done()

    def full(self):
        """A disk without room, from the middle of the run on."""
        cell = Cell(
            "run folder",
            "disk full",
            f"stops within {PROMPT_S} s and names the file; the last checkpoint stays; resumes to the same weights",
        )
        with small_disk(self.work / "small", 256) as disk:
            if disk is None:
                return self.limited(cell)
            folder = disk / "run"
            command = self.begun(folder)
            ballast = disk / "ballast"
            # Standing still, so that it does not end while the disk fills.
            command.kill(signal.SIGSTOP)
            fill(ballast)
            command.kill(signal.SIGCONT)
            begun = time.monotonic()
            ended = command.wait()
            cell.told_s = round(time.monotonic() - begun, 1)
            cell.seen = f"rc {ended.rc}; {shown(ended.error)}"
            self.out_of_space(cell, ended, folder)
            ballast.unlink()
            self.resumed(cell, folder)
        return cell.done()

    def limited(self, cell):
        """Without a disk of our own: no file may grow beyond 1 MiB, which no checkpoint fits."""
        cell.fault += " (as a limit on file sizes)"
        folder = self.work / "limited"

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        begun = self.begun(folder)
        begun.kill()
        begun.wait()
        ended = train(folder, "--resume", preexec=limit)
        cell.told_s = round(ended.seconds, 1)
        cell.seen = f"rc {ended.rc}; {shown(ended.error)}"
        self.out_of_space(cell, ended, folder)
        self.resumed(cell, folder)
        return cell.done()

    def out_of_space(self, cell, ended, folder):
        cell.typed = "disk" if "space" in ended.error or "too large" in ended.error else "other"
        left = [path.name for path in (folder / "checkpoints").iterdir() if path.name.startswith(".partial")]
        cell.counted = f"{len(checkpoints(folder))} checkpoints, {len(left)} partial"
        cell.check(ended.rc > 0, "the run did not stop with an error")
        cell.check(str(folder) in ended.error, "the error names no file")
        cell.check(cell.typed == "disk", "the error does not name the disk")
        cell.check(not left, "a partial checkpoint stays")
        cell.check(cell.told_s <= PROMPT_S, "it took too long to tell")

    def read_only(self):
        """A disk that takes no writes."""
        cell = Cell("run folder", "read-only disk", "ends within 5 s and names the file; what is there stays")
        with small_disk(self.work / "fixed", 256) as disk:
            if disk is None:
                return cell.leave_out("root")
            folder = disk / "run"
            command = self.begun(folder)
            command.kill()
            command.wait()
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            ended = train(folder, "--resume", timeout=30)
            fresh = train(disk / "new", timeout=30)
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            cell.told_s = round(max(ended.seconds, fresh.seconds), 1)
            cell.seen = f"resumed: rc {ended.rc}; {shown(ended.error, 110)}; new: rc {fresh.rc}; {shown(fresh.error, 110)}"
            cell.typed = "disk" if all("ead-only" in one.error for one in (ended, fresh)) else "other"
            cell.check(ended.rc > 0 and fresh.rc > 0, "a run on a read-only disk did not end with an error")
            cell.check(str(disk) in ended.error and str(disk) in fresh.error, "an error names no file")
            cell.check(cell.typed == "disk", "the error does not say that the disk is read-only")
            cell.check(cell.told_s <= 5, "it took too long to tell")
            self.resumed(cell, folder)
        return cell.done()

    def damaged(self, file, damage, how):
        """A checkpoint that is not what was written."""
        cell = Cell("checkpoint", f"{how} in {file}", "refused within 10 s; the error names the file and the damage")
        folder = self.work / f"copy-{Path(file).name}-{how.replace(' ', '-')}"
        shutil.copytree(self.half(), folder)
        place = checkpoints(folder)[-1] / file
        damage(place)
        ended = train(folder, "--resume", timeout=60)
        cell.told_s = round(ended.seconds, 1)
        cell.seen = f"rc {ended.rc}; {shown(ended.error)}"
        says = any(word in ended.error for word in ("damaged", "digest", "corrupt", "changed"))
        cell.typed = "damaged" if says else "none" if ended.rc == 0 else "other"
        cell.check(ended.rc > 0, "the damage was not noticed")
        cell.check(Path(file).name in ended.error, "the error does not name the file")
        cell.check(says, "the error does not say that the file is damaged")
        cell.check(ended.seconds <= 10, "it took too long to tell")
        # The one before is whole: a person may go on from there.
        shutil.rmtree(checkpoints(folder)[-1])
        self.resumed(cell, folder)
        return cell.done()

    def half(self):
        """A run that was killed with two checkpoints."""
        folder = self.work / "half"
        if not folder.exists():
            command = train(folder, start=Command)
            until(lambda: len(checkpoints(folder)) >= 2 and len(rows(folder)) >= 5)
            command.kill()
            command.wait()
        return folder

    def clock(self, name, seconds):
        """The wall clock jumps while a run goes on; the monotonic clock does not, as with NTP or an operator."""
        cell = Cell("run folder", f"clock jumps {name}", "rows and weights as without it; no time is negative or absurd")
        library = next((path for path in FAKETIME if os.path.exists(path)), None)
        if library is None:
            return cell.leave_out("libfaketime")
        folder = self.work / f"clock-{seconds}"
        file = self.work / f"clock-{seconds}.rc"
        file.write_text("+0")
        command = self.begun(folder, env=faked(library, file))
        file.write_text(f"{seconds:+d}")
        ended = command.wait()
        times = clock_values(folder)
        cell.seen = f"rc {ended.rc}, times from {min(times, default=0):.3f} to {max(times, default=0):.1f} s"
        cell.typed, cell.counted = "no fault", f"{len(rows(folder))} rows"
        cell.lost = "nothing" if self.same(folder) else "rows differ"
        cell.check(ended.rc == 0 and self.same(folder), "the run went otherwise")
        cell.check(times and 0 <= min(times) and max(times) < 600, "a time in the metrics is impossible")
        return cell.done()


def faked(library, file):
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def clock_values(folder):
    lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [value for line in lines for name, value in json.loads(line).items() if name.startswith("time/") and value is not None]


def flip(path):
    """Turns one bit in the middle of a file; in JSON, one that leaves it JSON."""
    data = bytearray(path.read_bytes())
    place = len(data) // 2
    if path.suffix == ".json":
        place = next(i for i in range(place, len(data)) if chr(data[i]).isdigit())
        data[place] ^= 1
    else:
        # In the high byte of a number: an exponent.
        place |= 3
        data[place] ^= 0x08
    path.write_bytes(data)


def halve(path):
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)


@contextmanager
def small_disk(place, mebibytes):
    """A disk of its own, or `None` where that takes rights that are not there."""
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", place], capture_output=True)
    try:
        yield place if made.returncode == 0 else None
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", "-l", place])


def fill(path):
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * (1 << 16))
        except OSError:
            pass
        try:
            while True:
                file.write(b"\0")
        except OSError:
            pass


def until(fact, within=60.0):
    begun = time.monotonic()
    while not fact():
        if time.monotonic() - begun > within:
            return False
        time.sleep(0.01)
    return True


# --- indexes


def build(corpus, folder, *more, start=run, **options):
    return start("index", "build", "--corpus", corpus, "--format", "search-r1", "--out", folder, *more, **options)


def index_full(work, corpus):
    cell = Cell(
        "index", "disk full while it is built", "ends with an error that names the disk; the index of before answers as before"
    )
    with small_disk(work / "small-index", 64) as disk:
        if disk is None:
            return cell.leave_out("root")
        folder = disk / "index"
        build(corpus, folder)
        before = run("search", folder, "river", "-k", "3").stdout
        fill(disk / "ballast")
        ended = build(corpus, folder, "--replace")
        after = run("search", folder, "river", "-k", "3").stdout
        cell.told_s = round(ended.seconds, 1)
        cell.seen = f"rc {ended.rc}; {shown(ended.error)}"
        cell.typed = "disk" if "space" in ended.error else "other"
        cell.lost = "nothing" if before and before == after else "the index of before"
        cell.check(ended.rc > 0 and cell.typed == "disk", "the error does not name the disk")
        cell.check(before and before == after, "the index of before is gone")
    return cell.done()


def index_damaged(work, corpus):
    cell = Cell("index", "one bit in the largest file", "`forage index verify` refuses it and names the file")
    folder = work / "index-copy"
    build(corpus, folder)
    largest = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    flip(largest)
    ended = run("index", "verify", folder)
    cell.told_s = round(ended.seconds, 1)
    cell.seen = f"rc {ended.rc}; {shown(ended.error)}"
    cell.typed = "damaged" if any(word in ended.error for word in ("damaged", "digest", "corrupt")) else "other"
    cell.lost = "the index: build it anew"
    cell.check(ended.rc > 0, "the damage was not noticed")
    cell.check(largest.name in ended.error, "the error does not name the file")
    return cell.done()


def index_killed(work, corpus):
    cell = Cell("index", "kill -9 while it is built anew", "the index of before answers as before; the next build works")
    folder = work / "killed-index"
    build(corpus, folder)
    before = run("search", folder, "river", "-k", "3").stdout
    command = build(corpus, folder, "--replace", start=Command)
    time.sleep(0.1)
    command.kill()
    ended = command.wait()
    after = run("search", folder, "river", "-k", "3").stdout
    again = build(corpus, folder, "--replace")
    cell.seen = f"rc {ended.rc}; then rc {again.rc}"
    cell.typed, cell.lost = "killed", "nothing" if before == after else "the index of before"
    cell.check(before and before == after, "the index of before is gone")
    cell.check(again.rc == 0, f"the next build fails: {shown(again.error)}")
    return cell.done()


def cells(work, corpus):
    runs = Runs(work)
    runs.half()
    files = ["model/model.safetensors", "optimizer.safetensors", "state.json"]
    found = [
        lambda: runs.full(),
        lambda: runs.read_only(),
        lambda: runs.two(False),
        lambda: runs.two(True),
        lambda: runs.killed(),
        lambda: runs.stopped("run folder", "SIGTERM", signal.SIGTERM),
        lambda: runs.stopped("run folder", "SIGHUP", signal.SIGHUP),
        lambda: runs.stopped("run folder", "SIGINT", signal.SIGINT),
        lambda: runs.clock("a day forward", 86_400),
        lambda: runs.clock("a day back", -86_400),
    ]
    for file in files:
        found.append(lambda file=file: runs.damaged(file, flip, "one bit"))
    for file in files:
        found.append(lambda file=file: runs.damaged(file, halve, "second half missing"))
    found += [lambda: index_full(work, corpus), lambda: index_damaged(work, corpus), lambda: index_killed(work, corpus)]
    return found
