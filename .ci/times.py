"""Gives the files of a fresh clone the times that they had when the last run of CI compiled them, where nothing of them has changed.

cargo takes a source for changed that is newer than what was made of it, so a fresh clone would compile the whole workspace anew. A list of
digests and times lies in the target folder. It counts only for a checkout in the same place, since tests have that place compiled in, while no
other build of the workspace has used the folder after the run that wrote it, and if no file was changed during that run: what was compiled
may be of other contents otherwise. Files that the list says nothing of are new, but for those of `vendor`, which have the time of their commit.
While a run lasts, the folder is its own.

Usage: .ci/times.py begin|end TARGET_FOLDER
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

LIST = "sources.json"


def known(target: Path, place: str) -> dict[str, list]:
    """What the last run saw: digest and time in nanoseconds by path, or nothing if it does not count here."""
    try:
        last = json.loads((target / LIST).read_text())
        ended = (target / LIST).stat().st_mtime
    except (OSError, ValueError):
        return {}
    if last.get("place") != place or not last.get("ended"):
        return {}
    for made in [*target.glob("*/.fingerprint/forage*/*"), *target.glob("*/*/.fingerprint/forage*/*")]:
        if made.stat().st_mtime > ended:
            return {}
    return last["files"]


def write(target: Path, found: dict) -> None:
    partial = target / f"{LIST}.partial"
    partial.write_text(json.dumps(found))
    partial.replace(target / LIST)


def begin(target: Path, place: str) -> None:
    before, now = known(target, place), {}
    names = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout.split("\0")
    kept = 0
    for name in filter(None, names):
        path = Path(name)
        if not path.is_file() or path.is_symlink():
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if before.get(name, [None])[0] == digest:
            os.utime(path, ns=(before[name][1],) * 2)
            kept += 1
        elif before or not name.startswith("vendor/"):
            os.utime(path)
        now[name] = [digest, path.stat().st_mtime_ns]
    write(target, {"place": place, "files": now, "ended": False, "run": os.getppid()})
    print(f"{kept} of {len(now)} files are as the last run here compiled them")


def end(target: Path, place: str) -> None:
    """Lets the list count, if it is this run's and every file still has the time it began with."""
    try:
        own = json.loads((target / LIST).read_text())
    except (OSError, ValueError):
        return
    if (own["place"], own["run"]) != (place, os.getppid()):
        return
    times = {name: time for name, (_, time) in own["files"].items()}
    if all(Path(name).is_file() and Path(name).stat().st_mtime_ns == time for name, time in times.items()):
        write(target, own | {"ended": True})


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in ("begin", "end"):
        sys.exit("usage: .ci/times.py begin|end TARGET_FOLDER")
    {"begin": begin, "end": end}[sys.argv[1]](Path(sys.argv[2]), os.getcwd())


main()
