"""What bench/start asks of a policy, what it counts, and that each of its bars can be missed."""

import contextlib
import copy
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from harness.declare import ROOT
from start import bars, reading

FIRST, SECOND = "The mentor of Rizu Nafi is Zopa Salu. A filler.", "A filler. Zopa Salu has the birth year 1822."
PASSAGES = {
    "p#0": ("Rizu Nafi", FIRST, f"# Rizu Nafi\n\n## Training\n\n{FIRST}\n"),
    "q#0": ("Zopa Salu", SECOND, f"# Zopa Salu\n\n## Life\n\n{SECOND}\n"),
}
HOPS = [{"query": "Rizu Nafi mentor"}, {"query": "Zopa Salu birth year"}]
TASKS = [
    {"id": "a", "split": "dev", "hops": 1, "question": "Who?", "golds": ["Zopa Salu"], "evidence": ["p#0"], "oracle": HOPS[:1]},
    {"id": "b", "split": "dev", "hops": 2, "question": "When?", "golds": ["1822"], "evidence": ["p#0", "q#0"], "oracle": HOPS},
    {"id": "c", "split": "test", "hops": 1, "question": "Who?", "golds": ["Zopa Salu"], "evidence": ["p#0"], "oracle": HOPS[:1]},
]


def asked(environment, style="spaced"):
    return {row["id"]: row["text"] for row in reading.prompts(TASKS, PASSAGES, "dev", environment, style)}


class Reading(unittest.TestCase):
    def test_prompts_open_the_action_and_leave_the_space_to_the_policy(self):
        rows = asked("search-r1")
        self.assertEqual(list(rows), ["copy/a", "read/a", "copy/b", "next/b", "read2/b"])
        self.assertEqual(rows["copy/a"], "Question: Who?\n<search>")
        turn = "<search> Rizu Nafi mentor</search><information> Rizu Nafi: The mentor of Rizu Nafi is Zopa Salu. A filler.</information>"
        self.assertEqual(rows["read/a"], f"Question: Who?\n{turn}<answer>")
        self.assertEqual(rows["next/b"], f"Question: When?\n{turn}<search>")
        self.assertIn("<search>Rizu Nafi mentor</search><information>Rizu", asked("search-r1", "terse")["read/a"])

    def test_programs_print_the_sentence_and_queries_have_no_passages(self):
        rows = asked("code-search")
        self.assertTrue(rows["copy/a"].endswith('search_pages("'))
        first = "<python_output>\n# Rizu Nafi\n\n## Training\n\nThe mentor of Rizu Nafi is Zopa Salu\n</python_output>\n"
        self.assertTrue(rows["read/a"].endswith(first + "<answer>"), rows["read/a"])
        second = "<python_output>\n Zopa Salu has the birth year 1822\n</python_output>\n"
        self.assertTrue(rows["read2/b"].endswith(second + "<answer>"), rows["read2/b"])
        self.assertEqual(asked("query-writer"), {"copy/a": 'Question: Who?\n<query>"'})

    def test_a_world_is_read_with_the_pages_of_its_passages(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = {
                "questions.jsonl": TASKS,
                "beir/corpus.jsonl": [{"_id": name, "title": title, "text": text} for name, (title, text, _) in PASSAGES.items()],
                "pages/pages.jsonl": [{"id": name[:-2], "content": page} for name, (_, _, page) in PASSAGES.items()],
            }
            for name, lines in rows.items():
                path = Path(folder) / name
                path.parent.mkdir(exist_ok=True)
                path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            self.assertEqual(reading.load(folder), (TASKS, PASSAGES))

    def test_names_must_be_whole_and_answers_equal(self):
        written = [
            ("copy/a", " Rizu Nafi mentor</search>"),
            ("copy/b", "Rizu Nafiko mentor</search>"),
            ("next/b", 'Zopa Salu")'),
            ("read/a", " Zopa Salu</answer>"),
            ("read2/b", "1823</answer>"),
        ]
        found = reading.score(TASKS, PASSAGES, [{"id": identity, "text": text} for identity, text in written])
        shares = {group: row["share"] for group, row in found.items()}
        expected = {"copy": 0.5, "next": 1, "read": 1, "read, names": 1, "read2": 0, "read2, numbers": 0}
        self.assertEqual(shares, expected)
        self.assertTrue(0 < found["copy"]["low"] < 0.5 < found["copy"]["high"] < 1)
        self.assertTrue(found["read"]["low"] < 0.5 and abs(found["read"]["high"] - 1) < 1e-9)


def row(share):
    return {"share": share, "low": share, "high": share, "n": 900}


READ = {"copy": row(0.98), "read": row(0.95)}
ANSWERS, RANKINGS = {"outcome": "answer", "start": 0.3}, {"outcome": "ranking", "start": 0.6}


class Bars(unittest.TestCase):
    def missed(self, verdict=ANSWERS, **changes):
        return [name for name, bar in bars.bars(verdict, READ | changes).items() if not bar["met"]]

    def test_every_bar_can_be_missed(self):
        self.assertEqual(self.missed(), [])
        self.assertEqual(self.missed(RANKINGS), [])
        self.assertEqual(self.missed(copy=row(0.96)), ["copy"])
        self.assertEqual(self.missed(read=row(0.92)), ["read, one hop"])
        for start in (0.1, 0.5):
            self.assertEqual(self.missed(ANSWERS | {"start": start}), ["greedy"])
        self.assertEqual(self.missed(RANKINGS | {"start": 0.9}), ["greedy"])
        self.assertFalse(any(bar["met"] for bar in bars.bars({}, {}).values()))

    def test_it_holds_where_all_starts_are_there_and_meet_theirs(self):
        verdicts = {"search": ANSWERS, "code": ANSWERS, "query": RANKINGS}
        self.assertTrue(self.line(verdicts)["held"])
        self.assertFalse(self.line(verdicts | {"code": ANSWERS | {"start": 0.0}})["held"])
        del verdicts["query"]
        line = self.line(verdicts)
        self.assertFalse(line["held"])
        self.assertEqual(set(line["figures"]["bars"]), {"search", "code"})

    def line(self, verdicts):
        with tempfile.TemporaryDirectory() as scratch:
            for name, verdict in copy.deepcopy(verdicts).items():
                (Path(scratch) / name).mkdir()
                (Path(scratch) / name / "verdict.json").write_text(json.dumps(verdict))
                (Path(scratch) / f"{name}.dev.json").write_text(json.dumps(READ))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), mock.patch.object(sys, "argv", ["bars.py", scratch, "dev"]):
                bars.main()
        return json.loads(printed.getvalue().splitlines()[-1])


class Starts(unittest.TestCase):
    def test_a_start_is_kept_from_other_arguments_and_what_made_none_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            scratch, forage = Path(folder, "scratch"), Path(folder, "forage")

            def make(program):
                forage.write_text(f"#!/bin/sh\n{program}\n")
                forage.chmod(0o755)
                command = [ROOT / "bench/start/run.sh", scratch, "search"]
                given = os.environ | {"FORAGE_BIN": str(forage)}
                return subprocess.run(command, env=given, capture_output=True, text=True)

            fails = f"mkdir -p {scratch}/search && echo no memory >&2 && exit 2"
            for _ in range(2):
                done = make(fails)
                self.assertEqual(done.returncode, 1)
                self.assertTrue(done.stderr.endswith("no memory\n"), done.stderr)
            start, made = scratch / "search/start", scratch / "search.made"
            make(f"mkdir -p {start} && touch {start}/model.safetensors && exit 2")
            self.assertIn("--resume", make("echo $* >&2; exit 2").stderr)
            made.write_text("of another config\n")
            self.assertIn("is of another config or other arguments", make(fails).stderr)

    def test_a_start_that_fails_does_not_keep_the_others_from_their_end(self):
        with tempfile.TemporaryDirectory() as folder:
            scratch, forage = Path(folder, "scratch"), Path(folder, "forage")
            # What the program leaves behind, but for one of the starts.
            forage.write_text("""#!/bin/sh
case "$*" in *quickstart-code.toml*) echo no memory >&2; exit 2 ;; esac
while [ "$1" != --out ]; do shift; done
mkdir -p "$2/start" && sleep 0.1 && touch "$2/start/model.safetensors" "$2/verdict.json"
""")
            forage.chmod(0o755)
            given = os.environ | {"FORAGE_BIN": str(forage)}
            done = subprocess.run([ROOT / "bench/start/run.sh", scratch], env=given, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (1, "no memory\n"))
            self.assertEqual(sorted(path.parent.name for path in scratch.glob("*/verdict.json")), ["query", "search"])


if __name__ == "__main__":
    unittest.main()
