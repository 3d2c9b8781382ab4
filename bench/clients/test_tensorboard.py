"""TensorBoard against the event files of a run that was killed after step 9 and resumed at step 6.

Usage: test_tensorboard.py RUNS. Prints a line per check; exit code 1 if any failed.
"""

import json
import math
import re
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from pathlib import Path

from checks import check, results
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

RUNS = Path(sys.argv[1])
# The first process wrote the step itself, the resumed one 100 more.
REWARDS = [(step, float(step)) for step in range(6)] + [(step, 100.0 + step) for step in range(6, 12)]


def read():
    reader = EventAccumulator(str(RUNS / "canonical"), size_guidance={"scalars": 0})
    reader.Reload()
    points = reader.Scalars("reward/mean")
    check("reader: tags are the canonical names", set(reader.Tags()["scalars"])
          == {"reward/mean", "policy/entropy", "policy/loss", "val/reward"})
    check("reader: resumed steps replace the killed run's", [(point.step, point.value) for point in points] == REWARDS)
    check("reader: wall times", [point.wall_time for point in points] == [1_700_000_000 + step for step in range(12)])
    losses = {point.step: point.value for point in reader.Scalars("policy/loss")}
    check("reader: a loss that is not finite is a gap", math.isnan(losses.pop(8)) and set(losses.values()) == {-0.25})
    check("reader: a tag of the killed run alone ends at the resumed step",
          [point.step for point in reader.Scalars("val/reward")] == list(range(6)))
    files = sorted((RUNS / "canonical").iterdir())
    counts = [sum(1 for _ in RawEventFileLoader(str(file)).Load()) for file in files]
    check("reader: no record is lost to a checksum", counts == [12, 8])
    reader = EventAccumulator(str(RUNS / "trl"))
    reader.Reload()
    check("reader: TRL's names, where it has one", set(reader.Tags()["scalars"])
          == {"reward", "entropy", "policy/loss", "eval_reward"})


def serve(fast):
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(RUNS), "--port", "0",
               f"--load_fast={str(fast).lower()}"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        url = None
        for line in server.stderr:
            if found := re.search(r"at (http:\S+?)/? ", line):
                url = found[1]
                break
        # What it says afterwards must not fill the pipe.
        threading.Thread(target=server.stderr.read, daemon=True).start()
        query = urllib.parse.urlencode({"run": "canonical", "tag": "reward/mean"})
        found = []
        for _ in range(60):
            try:
                with urllib.request.urlopen(f"{url}/data/plugin/scalars/scalars?{query}") as answer:
                    found = [(step, value) for _, step, value in json.load(answer)]
            except urllib.error.HTTPError:
                pass
            if len(found) >= len(REWARDS):
                break
            threading.Event().wait(0.5)
        check(f"server{' with the data server' if fast else ''}: resumed steps replace the killed run's", found == REWARDS)
    finally:
        server.terminate()
        server.wait()


read()
serve(fast=False)
serve(fast=True)
held = all(results.values())
print(json.dumps({"bench": "clients-tensorboard", "held": held, "figures": {"checks": len(results), "passed": sum(results.values())}}))
sys.exit(0 if held else 1)
