"""Prints the table of bench/quickstart/run.sh from its scratch folder, and a line of JSON that says whether its aims hold."""

import json
import sys
from pathlib import Path

SEEDS = (1, 2, 3)
# Least gain, and most minutes and GiB of a seed.
GAIN, MINUTES, GIB = 0.2, 15, 4


def figures(verdict, peak_kb):
    """What a seed is judged by. Episodes are measured by exact match, or by NDCG where they end in rankings."""
    row = {name: verdict[name] for name in ("seed", "start", "trained", "gain", "control_gain", "minutes")}
    row |= {"low": verdict["gain_interval"][0], "high": verdict["gain_interval"][1], "gib": peak_kb / 1024**2}
    row |= {"control_low": verdict["control_interval"][0], "control_high": verdict["control_interval"][1]}
    for kind in ("greedy", "sampled"):
        detail = verdict.get(kind)
        if detail is None:
            continue
        measure = "em" if "em" in detail["gain"]["metrics"] else "ndcg"
        for part in ("gain", "control_gain", "over_control"):
            row[f"{kind}/{part}"] = detail[part]["metrics"][measure]
        for arm in detail.get("baselines", []):
            row[f"{kind}/{arm['name']}"] = arm["seeds"][0]["score"]
    return row


def held(rows):
    """A gain of a size, and the trained policy ahead of the control, greedy and sampled: a control whose greedy answers are all wrong
    cannot do worse, and one that is paid for any search may gain."""
    ahead = lambda row, kind: row[f"{kind}/over_control"]["difference"]["low"] > 0
    return bool(rows) and all(
        row["gain"] >= GAIN
        and row["low"] > 0
        and all(ahead(row, kind) for kind in ("greedy", "sampled") if f"{kind}/over_control" in row)
        and row["minutes"] <= MINUTES
        and row["gib"] <= GIB
        for row in rows
    )


def cell(found):
    difference = found["difference"]
    return f"{difference['estimate']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]"


def main():
    scratch = Path(sys.argv[1])
    rows = []
    head = "{:>4} {:>6} {:>8} {:>7} {:>18} {:>8} {:>18} {:>6} {:>5}"
    print(head.format("seed", "start", "trained", "gain", "95 % interval", "control", "95 % interval", "min", "GiB"))
    for seed in SEEDS:
        verdict = json.loads((scratch / f"seed-{seed}" / "verdict.json").read_text())
        row = figures(verdict, int((scratch / f"seed-{seed}.peak_kb").read_text()))
        print(f"{seed:>4} {row['start']:>6.3f} {row['trained']:>8.3f} {row['gain']:>+7.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
              f" {row['control_gain']:>+8.3f} [{row['control_low']:+.3f}, {row['control_high']:+.3f}] {row['minutes']:>6.1f}"
              f" {row['gib']:>5.2f}")
        if "sampled/gain" in row:
            gain = row["sampled/gain"]
            print(f"     sampled {gain['a']:.3f} {gain['b']:.3f}  gain {cell(gain)}  control {cell(row['sampled/control_gain'])}"
                  f"  trained less control {cell(row['sampled/over_control'])}")
        rows.append(row)
    print(json.dumps({"bench": "quickstart", "held": held(rows), "figures": {str(row["seed"]): row for row in rows}}))


if __name__ == "__main__":
    main()
