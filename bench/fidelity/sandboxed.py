"""Runs programs through the command under test and reads its tracebacks."""

import json
import re
import shlex
import subprocess
import sys
import time

FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+)', re.M)


def run_all(programs, command, folder, jobs):
    """What every program does under `COMMAND --jsonl IN --out OUT --jobs N`, in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    asked, answered = folder / "programs.jsonl", folder / "results.jsonl"
    asked.write_text("".join(json.dumps({"id": p["id"], "code": p["code"]}) + "\n" for p in programs))
    answered.unlink(missing_ok=True)
    words = [*shlex.split(command), "--jsonl", str(asked), "--out", str(answered), "--jobs", str(jobs)]
    begun = time.monotonic()
    if (done := subprocess.run(words)).returncode:
        sys.exit(f"error: `{shlex.join(words)}` exited with {done.returncode}")
    seconds = time.monotonic() - begun
    rows = [json.loads(line) for line in answered.read_text().splitlines()]
    if [row["id"] for row in rows] != [program["id"] for program in programs]:
        sys.exit(f"error: `{answered}` does not answer the programs of `{asked}` in their order")
    return rows, seconds


def syntax_error(row):
    """A SyntaxError as type, message, line and the text below the file's name, all of which a model reads."""
    error = row["error"]
    if not error:
        return {"kind": row["status"], "message": "", "line": None, "text": ""}
    places = list(FRAME.finditer(error["traceback"]))
    message = re.sub(r" \([^()]*, line \d+\)$", "", error["message"])
    text = error["traceback"][places[-1].end() :].lstrip("\n") if places else ""
    return {"kind": error["kind"], "message": message, "line": int(places[-1]["line"]) if places else None, "text": text}


def frame_lines(row):
    """Lines of the program in a traceback, outermost first."""
    places = list(FRAME.finditer(row["error"]["traceback"]))
    return [int(place["line"]) for place in places if place["file"] == places[0]["file"]]
