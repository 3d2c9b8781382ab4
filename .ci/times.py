"""Gives the files of a fresh clone the times that they had when the last run of CI compiled them, where nothing of them has changed.

cargo takes a source for changed that is newer than what was made of it, so a fresh clone would compile the whole workspace anew. A list of
digests and times lies in the target folder. It counts only for a checkout in the same place, since tests have that place compiled in, and only
while no other build of the workspace has used the folder after the run that wrote it: that one may have compiled other contents meanwhile.

Usage: .ci/times.py TARGET_FOLDER
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
    if last.get("place") != place:
        return {}
    for made in [*target.glob("*/.fingerprint/forage*/*"), *target.glob("*/*/.fingerprint/forage*/*")]:
        if made.stat().st_mtime > ended:
            return {}
    return last["files"]


def main() -> None:
    target, place = Path(sys.argv[1]), os.getcwd()
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
        elif before:
            os.utime(path)
        now[name] = [digest, path.stat().st_mtime_ns]
    partial = target / f"{LIST}.partial"
    partial.write_text(json.dumps({"place": place, "files": now}))
    partial.replace(target / LIST)
    print(f"{kept} of {len(now)} files are as the last run here compiled them")


main()
