"""Compares a sandboxed Python with CPython 3.11, program by program.

compare.py --command "forage python" --data ../shared/data --home FOLDER [--differences FILE.md] [--jobs N]
"""

import argparse
import json
import platform
import sys
from pathlib import Path

import broken
import cpython
import programs
import sandboxed
from reasons import ABSENT, absent, outcome, reason, same_error, same_stdout
from report import differences_table, print_table, sides, syntax_patterns

AIMS = {"humaneval": 0.99, "mbpp": 0.99, "cruxeval": 0.995, "stdout": 0.98, "errors": 0.95}


def share(part, whole):
    return part / whole if whole else 0.0


def solved(suite, rows):
    """Problems whose own tests pass."""
    missed = [(p, live, got) for p, live, got in rows if got["status"] != "ok"]
    known = sum(live["status"] == "ok" for _, live, _ in rows)
    listed = [{"id": p["id"], "expected": "passes" if live["status"] == "ok" else f"{outcome(live)} (CPython too)",
               "got": outcome(got), "reason": reason(p, live, got)} for p, live, got in missed]
    return {"suite": suite, "programs": len(rows), "passed": len(rows) - len(missed), "cpython": known,
            "share": share(len(rows) - len(missed), len(rows))}, listed


def recorded(program):
    """The recorded run in the shape of a live one."""
    exc = program["recorded"]["exc"]
    kind, _, message = (exc or "").partition(": ")
    error = {"kind": kind, "message": message} if exc else None
    return {"status": "exception" if exc else "ok", "stdout": program["recorded"]["stdout"], "error": error}


def written(rows):
    """Programs that models wrote: the output and the error, against the recorded run and against the live one."""
    left_out = [row for row in rows if absent(row[0]["code"])]
    rows = [row for row in rows if not absent(row[0]["code"])]
    figures = {"programs": len(rows), "left_out": len(left_out)}
    listed = []
    for against in ("recorded", "live"):
        stdout, raising, errors, kinds = 0, 0, 0, 0
        for program, live, got in rows:
            expected = recorded(program) if against == "recorded" else live
            printed, raised = same_stdout(expected, got), same_error(expected, got)
            stdout += printed
            if expected["error"]:
                raising += 1
                errors += raised
                kinds += same_error(expected, got, message=False)
            if against == "recorded" and not (printed and raised):
                listed.append({"id": program["id"], "expected": outcome(expected), "got": outcome(got),
                               "reason": reason(program, live, got, expected)})
        figures[against] = {"stdout": share(stdout, len(rows)), "raising": raising, "errors": share(errors, raising),
                            "kinds": share(kinds, raising)}
    placed = [(live, got) for _, live, got in rows
              if live["error"] and got["error"] and live["error"]["lines"] and live["error"]["kind"] != "RecursionError"]
    lines = sum(live["error"]["lines"] == sandboxed.frame_lines(got) for live, got in placed)
    figures["traceback_lines"] = share(lines, len(placed))
    return figures, listed


def syntax(rows):
    """Programs that are not valid Python: type, message and line, and all of the text."""
    parts = ("kind", "message", "line", "text")
    same, whole, listed = dict.fromkeys(parts, 0), 0, []
    for program, live, got in rows:
        # CPython 3.11 raises a ValueError for a NUL, which has neither line nor text.
        expected, found = live["error"], sandboxed.syntax_error(got)
        equal = {part: found[part] == expected.get(part, found[part]) for part in parts}
        for part in parts:
            same[part] += equal[part]
        if equal["kind"] and equal["message"] and equal["line"]:
            whole += 1
        else:
            listed.append({"id": program["id"], "damage": program["damage"], "expected": expected, "got": found})
    figures = {"programs": len(rows), "type_message_line": share(whole, len(rows))}
    return figures | {part: share(same[part], len(rows)) for part in parts}, listed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--home", type=Path, required=True, help="where CPython's results are kept between runs")
    parser.add_argument("--differences", type=Path, help="write every difference to this file, as Markdown")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if sys.version_info[:2] != (3, 11):
        sys.exit(f"error: the reference is CPython 3.11, this is {platform.python_version()}; set PYTHON to a python3.11")

    loaded = programs.load(options.data)
    damaged = broken.broken([p for p in loaded if p["suite"] in ("programs", "HumanEval")])
    everything = loaded + damaged
    live = cpython.run_all(everything, options.home / "cpython.jsonl", options.jobs)
    got, seconds = sandboxed.run_all(everything, options.command, options.home / "run", options.jobs)
    rows = {}
    for program, reference, result in zip(everything, live, got):
        rows.setdefault(program["suite"], []).append((program, reference, result))

    tests, listed = {}, {}
    for suite in ("HumanEval", "MBPP", "CRUXEval"):
        tests[suite.lower()], listed[suite] = solved(suite, rows[suite])
    models, listed["programs"] = written(rows["programs"])
    errors, invalid = syntax(rows["broken"])
    reached = {name: row["share"] for name, row in tests.items()}
    reached |= {"stdout": models["recorded"]["stdout"], "errors": models["recorded"]["errors"]}
    held = {name: reached[name] >= aim for name, aim in AIMS.items()}

    print(f"{options.command} against CPython {platform.python_version()}, {platform.machine()}, "
          f"{len(everything)} programs in {seconds:.0f} s with {options.jobs} jobs")
    print_table(tests, models, errors, AIMS, ABSENT)
    for name, differing in listed.items():
        for row in differing:
            wanted, found = sides(row["expected"], row["got"])
            print(f"differs: {name} {row['id']}: expected {wanted}; got {found} [{row['reason']}]")
    patterns = syntax_patterns(invalid)
    for pattern in patterns:
        print(f"syntax: {pattern['count']}x {pattern['expected']} -> {pattern['got']} (as {pattern['example']})")
    if options.differences:
        options.differences.write_text(differences_table(listed, invalid, patterns))
    figures = {"tests": tests, "programs": models, "broken": errors, "seconds": seconds}
    print(json.dumps({"bench": "fidelity", "held": all(held.values()), "design": held, "figures": figures}))


if __name__ == "__main__":
    main()
