"""A run folder with many trajectories from a small real one: multiply.py SMALL LARGE COUNT.

Takes the smoke quickstart's folder: its training groups are repeated over further steps with questions, members and rewards
changed, and its metrics continued, until COUNT trajectories are there in all. Evaluations are graded anew by chance: four steps
need not tell two policies apart. The last step's file ends in half a line and an alarm is raised, as in a run that is being written.
"""

import json
import random
import shutil
import sys
from pathlib import Path

GROUP = 16

small, large, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
draw = random.Random(1)
shutil.copytree(small, large, ignore=shutil.ignore_patterns("world", "index", "checkpoints", "report.html"))
config = (large / "config.toml").read_text()


def grade(record, chance):
    """Makes a record right with this chance, wrong otherwise."""
    score = record["episode"]["score"]
    if score:
        score["parts"]["em"] = score["total"] = record["reward"] = float(draw.random() < chance)


records = []
for path in sorted((large / "evaluation").glob("*.jsonl")):
    episodes = [json.loads(line) for line in path.open()]
    for episode in episodes:
        grade(episode, 0.5)
    path.write_text("".join(json.dumps(episode, separators=(",", ":")) + "\n" for episode in episodes))
    records += episodes
steps = -(-(count - len(records)) // GROUP)
(large / "config.toml").write_text(config.replace("steps = 4\n", f"steps = {10 * steps}\n", 1))


def sample(step, member):
    """A record of a step: one of the evaluations' as a training episode."""
    record = json.loads(json.dumps(records[(step + member // 8) % len(records)]))
    episode = record["episode"]
    episode["task"]["question"] = f"Question {step % 150}: {episode['task']['question']}"
    episode["task"]["id"] = f"train-{step % 150}"
    episode["group"], episode["member"] = 0, member
    grade(record, 0.2 + 0.5 * step / steps)
    if draw.random() < 0.1:
        episode["ending"] = {"how": "truncated", "limit": "turns"}
    for turn in episode["turns"]:
        turn["policy"] += f" try {draw.randrange(1000)}"
        # As long as what a search shows a policy of ordinary size.
        turn["observation"] += "".join(f"\nPassage {draw.randrange(9999)} tells of matters near by." for _ in range(24))
    return record


folder = large / "trained" / "rollouts"
for step in range(steps):
    path = folder / f"step-{10 * step:06}.jsonl"
    lines = [json.dumps(sample(step, member), separators=(",", ":")) + "\n" for member in range(GROUP)]
    if step == steps - 1:
        lines.append(lines[0][: len(lines[0]) // 2])
        path = path.with_name(path.name + ".partial")
    path.write_text("".join(lines))
rows = [json.loads(line) for line in (large / "trained" / "metrics.jsonl").open()]
with (large / "trained" / "metrics.jsonl").open("w") as file:
    for step in range(10 * (steps - 1)):
        row = dict(rows[step % len(rows)], step=step)
        row["reward/mean"] = 0.2 + 0.5 * step / (10 * steps) + draw.gauss(0, 0.05)
        file.write(json.dumps(row, separators=(",", ":")) + "\n")
alarm = {"kind": "entropy_collapse", "severity": "warn", "step": 10 * (steps // 2), "message": "Entropy fell </script> & so on."}
(large / "trained" / "alarms.jsonl").write_text(json.dumps(alarm) + "\n")
print(f"{len(records) + GROUP * steps} trajectories in {large}")
